// Package local is the driver of computers that are this machine itself: a workspace's drive is made ready, and what is
// measured is the machine and the file system that the drive lies on. Nothing is run on it.
package local

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/procfs"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/computer"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

// ImageRef is what its computers are made from.
const ImageRef = "local"

// Drives are what the driver needs of them.
type Drives interface {
	// Provision makes a workspace's drive where it is missing.
	Provision(ctx context.Context, workspaceID string) error
	// Usage reads a workspace's drive a little, and tells the bytes in use and in all where it lies.
	Usage(workspaceID string) (used, total uint64, err error)
}

// Driver is a computer.Driver. Its zero value is of no use.
type Driver struct {
	drives Drives
	proc   procfs.FS

	mu sync.Mutex
	// measured is when the machine was last measured, with what came of it; busy and idle are the processors' seconds
	// since the start of the machine as of then.
	measured   time.Time
	busy, idle float64
	last       *computerv1.Sample
}

// New makes a driver that measures through a mount of /proc.
func New(drives Drives, proc string) (*Driver, error) {
	fs, err := procfs.NewFS(proc)
	if err != nil {
		return nil, fmt.Errorf("computer: %w", err)
	}
	return &Driver{drives: drives, proc: fs}, nil
}

// Provision is of computer.Driver.
func (d *Driver) Provision(ctx context.Context, workspaceID, vmName string) (computer.Machine, error) {
	if err := d.drives.Provision(ctx, workspaceID); err != nil {
		// Whatever is wrong with the disk may be put right: it is no refusal.
		return computer.Machine{}, fmt.Errorf("computer: the drive is not ready: %v", err)
	}
	return computer.Machine{VMName: vmName, ImageRef: ImageRef}, nil
}

// Release is of computer.Driver. There is nothing to give up.
func (d *Driver) Release(context.Context, string) error { return nil }

// Sample is of computer.Driver. It fails where the drive cannot be read.
func (d *Driver) Sample(_ context.Context, workspaceID string) (*computerv1.Sample, error) {
	used, total, err := d.drives.Usage(workspaceID)
	if err != nil {
		return nil, err
	}
	s := d.machine()
	s.DiskUsedMb, s.DiskTotalMb = megabytes(used), megabytes(total)
	return s, nil
}

// measureEvery keeps the samples of many workspaces at one moment from measuring the machine once for each.
const measureEvery = time.Second

// machine measures processors and memory. What cannot be read is left at 0, which stands for not known.
func (d *Driver) machine() *computerv1.Sample {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last == nil || time.Since(d.measured) >= measureEvery {
		d.last = &computerv1.Sample{}
		d.measureMemory()
		d.measureProcessors()
		d.measured = time.Now()
	}
	return proto.CloneOf(d.last)
}

func (d *Driver) measureMemory() {
	m, err := d.proc.Meminfo()
	if err != nil || m.MemTotal == nil || m.MemAvailable == nil {
		return
	}
	const kibibyte = 1 << 10
	d.last.MemTotalMb = megabytes(*m.MemTotal * kibibyte)
	d.last.MemUsedMb = megabytes((*m.MemTotal - min(*m.MemAvailable, *m.MemTotal)) * kibibyte)
}

// measureProcessors tells the share of time that was busy since the last measurement; at first, since the machine's start.
func (d *Driver) measureProcessors() {
	stat, err := d.proc.Stat()
	if err != nil {
		return
	}
	busy, idle := split(stat.CPUTotal)
	if now := busy - d.busy + idle - d.idle; now > 0 {
		d.last.CpuPct = min(max(100*(busy-d.busy)/now, 0), 100)
	}
	d.busy, d.idle = busy, idle
}

// split parts the processors' seconds. Guests' are inside User and Nice; stolen ones count as busy.
func split(s procfs.CPUStat) (busy, idle float64) {
	return s.User + s.Nice + s.System + s.IRQ + s.SoftIRQ + s.Steal, s.Idle + s.Iowait
}

func megabytes(bytes uint64) float64 { return float64(bytes) / (1 << 20) }
