package local

import (
	"errors"
	"maps"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/computer/local/sandbox"
)

// ErrCannotIsolate is the reason why a driver with the options of PretendNoIsolation does not isolate.
var ErrCannotIsolate = errors.New("the test pretends that the kernel cannot isolate")

// PretendNoIsolation makes New believe that the kernel cannot isolate processes.
func PretendNoIsolation(o *Options) {
	o.try = func(sandbox.Config) error { return ErrCannotIsolate }
}

// PretendNoSharedNamespace makes a driver believe that the machine can isolate processes only if their namespaces are nested.
func PretendNoSharedNamespace(o *Options) {
	o.try = func(c sandbox.Config) error {
		if !c.Nested {
			return ErrCannotIsolate
		}
		return nil
	}
}

// PretendNoControlGroups makes a new driver work without control groups.
func PretendNoControlGroups(d *Driver) {
	d.root, d.report.Limits = nil, "the test pretends that there are no control groups"
}

// PretendOwnNetworks makes the computer of a workspace believe that so many of its processes have networks of their own.
func PretendOwnNetworks(d *Driver, workspaceID string, processes int) error {
	g, err := d.guest(workspaceID)
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range processes {
		g.processes["pretended"+strconv.Itoa(i)] = &process{guest: g, spec: computer.Spec{OwnNetwork: true}}
	}
	return nil
}

// ForgetPretended takes back PretendOwnNetworks.
func ForgetPretended(d *Driver, workspaceID string) error {
	g, err := d.guest(workspaceID)
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	maps.DeleteFunc(g.processes, func(id string, _ *process) bool { return strings.HasPrefix(id, "pretended") })
	return nil
}

// NewListener returns the listener of a socket, which ends when a channel is closed.
func NewListener(socket *net.TCPListener, ended <-chan struct{}) net.Listener {
	return newListener(socket, ended)
}

// EndIdleTime ends the time after which the computer of a workspace stops without a process, and runs the timer of this time. It returns
// false, and does nothing, if the time has not begun, because the computer has a process.
func EndIdleTime(d *Driver, workspaceID string) (ended bool, err error) {
	return endIdleTime(d, workspaceID, func(g *guest) { g.idle.Reset(0) })
}

// HoldIdleTimer is EndIdleTime without the timer: runTimer does what the timer does, and returns when this is done.
func HoldIdleTimer(d *Driver, workspaceID string) (runTimer func(), err error) {
	ended, err := endIdleTime(d, workspaceID, func(g *guest) { runTimer = g.stopIdle })
	if err == nil && !ended {
		err = errors.New("the idle time has not begun")
	}
	return runTimer, err
}

func endIdleTime(d *Driver, workspaceID string, then func(*guest)) (ended bool, err error) {
	g, err := d.guest(workspaceID)
	if err != nil {
		return false, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.idle == nil || !g.idle.Stop() {
		return false, nil
	}
	g.idleAt = time.Now()
	then(g)
	return true, nil
}
