package local

import (
	"context"
	"errors"
	"maps"
	"net"
	"strconv"
	"strings"

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

// HoldTurn keeps the computer of a workspace from starting and stopping until give is called.
func HoldTurn(ctx context.Context, d *Driver, workspaceID string) (give func(), err error) {
	g, err := d.guest(workspaceID)
	if err != nil {
		return nil, err
	}
	return g.give, g.take(ctx)
}
