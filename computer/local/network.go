package local

import (
	"context"
	"net"
	"sync"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/computer/local/sandbox"
	"github.com/atelier-run/atelier/entity"
)

// A network is the network of a process, a computer.Network. It is created before the process, adopts a network of the sandbox
// while the process waits at its gate, and is closed when the process has ended or has not been started.
type network struct {
	guest *guest
	// processID is for messages.
	processID string
	// closed is closed by close. Listeners end then.
	closed chan struct{}
	// of is set while the process waits at its gate, detach by attach.
	of *sandbox.Network
	// detach ends the link of an own network; nil: there is none.
	detach func()
	once   sync.Once
}

var _ computer.Network = (*network)(nil)

func newNetwork(g *guest, processID string) *network {
	return &network{guest: g, processID: processID, closed: make(chan struct{})}
}

// attach connects the process's own network in the same way as the network of the computer.
func (n *network) attach() (err error) {
	outside := n.guest.driver.o.Network
	if outside == nil {
		return nil
	}
	// Not with the context of the start, because the link is there as long as the process.
	n.detach, err = outside.Attach(context.Background(), n.guest.id, n.of.LinkFiles())
	return err
}

// close ends the listeners, and closes the server's side of the network.
func (n *network) close() {
	n.once.Do(func() {
		close(n.closed)
		if n.detach != nil {
			n.detach()
		}
		if n.of != nil {
			n.of.Close()
		}
	})
}

// check returns Unavailable if the process has ended.
func (n *network) check() error {
	select {
	case <-n.closed:
		return entity.Errorf(entity.Unavailable, "the process %s has ended", n.processID)
	default:
		return nil
	}
}

// explain returns the error of Dial and Listen.
func (n *network) explain(ctx context.Context, what string, port int, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if ended := n.check(); ended != nil {
		return ended
	}
	return entity.Errorf(entity.Unavailable, "cannot %s port %d of the process %s of workspace %s: %v", what, port, n.processID, n.guest.id, err)
}

// Dial implements computer.Network.
func (n *network) Dial(ctx context.Context, port int) (net.Conn, error) {
	if err := checkDialPort(port); err != nil {
		return nil, err
	}
	if err := n.check(); err != nil {
		return nil, err
	}
	c, err := n.of.Dial(ctx, port)
	if err != nil {
		return nil, n.explain(ctx, "connect to", port, err)
	}
	return c, nil
}

// Listen implements computer.Network.
func (n *network) Listen(ctx context.Context, port int) (net.Listener, error) {
	if err := checkListenPort(port); err != nil {
		return nil, err
	}
	if err := n.check(); err != nil {
		return nil, err
	}
	socket, err := n.of.Listen(ctx, port)
	if err != nil {
		return nil, n.explain(ctx, "listen on", port, err)
	}
	return newListener(socket, n.closed), nil
}

// Dial implements computer.Process.
func (p *process) Dial(ctx context.Context, port int) (net.Conn, error) {
	return p.network.Dial(ctx, port)
}

// Listen implements computer.Process.
func (p *process) Listen(ctx context.Context, port int) (net.Listener, error) {
	return p.network.Listen(ctx, port)
}

func checkDialPort(port int) error {
	if port < 1 || port > 65535 {
		return entity.Errorf(entity.InvalidRequest, "%d is not a port: a port is a number from 1 to 65535", port)
	}
	return nil
}

func checkListenPort(port int) error {
	if port < 0 || port > 65535 {
		return entity.Errorf(entity.InvalidRequest, "%d is not a port: a port is a number from 1 to 65535, or 0 for a free one", port)
	}
	return nil
}
