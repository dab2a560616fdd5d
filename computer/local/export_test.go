package local

import (
	"errors"
	"net"
)

// ErrCannotIsolate is the reason why a driver with the options of PretendNoIsolation does not isolate.
var ErrCannotIsolate = errors.New("the test pretends that the kernel cannot isolate")

// PretendNoIsolation makes New believe that the kernel cannot isolate processes.
func PretendNoIsolation(o *Options) { o.try = func() error { return ErrCannotIsolate } }

// PretendNoControlGroups makes a new driver work without control groups.
func PretendNoControlGroups(d *Driver) {
	d.root, d.report.Limits = nil, "the test pretends that there are no control groups"
}

// NewListener returns the listener of a socket, which ends when a channel is closed.
func NewListener(socket *net.TCPListener, ended <-chan struct{}) net.Listener {
	return newListener(socket, ended)
}
