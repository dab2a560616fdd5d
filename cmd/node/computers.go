package node

import (
	"net/netip"
	"time"
)

// ComputerOptions are the settings of the computers that run processes. The zero value is the local driver, isolation
// required, without limits and without a network.
type ComputerOptions struct {
	// Driver is "local" or "docker"; empty: local.
	Driver string
	// AllowUnisolated lets processes run without isolation if the machine cannot isolate them.
	AllowUnisolated bool
	// Image and Engine are the image and the address of the engine of the docker driver.
	Image, Engine string
	// MemoryBytes, Processors and Processes limit all processes of one computer; 0: no limit.
	MemoryBytes int64
	Processors  float64
	Processes   int
	// IdleAfter is the time after which a computer without a process stops; 0: the driver's default.
	IdleAfter time.Duration
	// Network is "off", "on" or the URL of a proxy; empty: off. NetworkAllow has the networks that computers may reach besides
	// public addresses.
	Network      string
	NetworkAllow []netip.Prefix
	// DetachedLimit is the time after which a terminal without clients ends; 0: computer.DefaultDetachedLimit.
	DetachedLimit time.Duration
	// DriveBytes and DriveFiles limit the content of each drive; 0: no limit.
	DriveBytes int64
	DriveFiles int
}
