package docker

import (
	"context"
	"net"
	"sync"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/entity"
)

// OwnNetworks implements computer.Host.
func (*Driver) OwnNetworks() bool { return false }

// A network is the network of a process: the network of its container until the process has ended.
type network struct {
	container *runningContainer
	processID string
	once      sync.Once
	// closed is closed when the process has ended, or has not been started.
	closed chan struct{}
}

var _ computer.Network = (*network)(nil)

func newNetwork(c *runningContainer, processID string) *network {
	return &network{container: c, processID: processID, closed: make(chan struct{})}
}

// close ends the listeners.
func (n *network) close() { n.once.Do(func() { close(n.closed) }) }

// check returns Unavailable if the process has ended.
func (n *network) check() error {
	if isClosed(n.closed) || isClosed(n.container.ended) {
		return entity.Errorf(entity.Unavailable, "the process %s has ended", n.processID)
	}
	return nil
}

// Dial implements computer.Network.
func (n *network) Dial(ctx context.Context, port int) (net.Conn, error) {
	if err := n.check(); err != nil {
		return nil, err
	}
	return n.container.driver.Dial(ctx, n.container.workspaceID, port)
}

// Listen implements computer.Network.
func (n *network) Listen(ctx context.Context, port int) (net.Listener, error) {
	if err := n.check(); err != nil {
		return nil, err
	}
	l, err := n.container.driver.Listen(ctx, n.container.workspaceID, port)
	if err != nil {
		return nil, err
	}
	of := &processListener{Listener: l, closed: make(chan struct{})}
	go func() {
		select {
		case <-n.closed:
			_ = of.Close()
		case <-of.closed:
		}
	}()
	return of, nil
}

// A processListener is a listener that ends with its process.
type processListener struct {
	net.Listener
	once   sync.Once
	closed chan struct{}
}

// Close implements net.Listener.
func (l *processListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// Dial implements computer.Process.
func (p *process) Dial(ctx context.Context, port int) (net.Conn, error) {
	return p.network.Dial(ctx, port)
}

// Listen implements computer.Process.
func (p *process) Listen(ctx context.Context, port int) (net.Listener, error) {
	return p.network.Listen(ctx, port)
}
