package local

import (
	"context"
	"net"
	"sync"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/computer/local/sandbox"
	"github.com/atelier-run/atelier/entity"
)

// Listen implements computer.Host.
func (d *Driver) Listen(ctx context.Context, workspaceID string, port int) (net.Listener, error) {
	if err := checkListenPort(port); err != nil {
		return nil, err
	}
	g, err := d.guest(workspaceID)
	if err != nil {
		return nil, err
	}
	box, err := g.awaken(ctx)
	if err != nil {
		return nil, err
	}
	socket, err := box.Network().Listen(ctx, port)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, entity.Errorf(entity.Unavailable, "cannot listen on port %d of the computer of workspace %s: %v", port, workspaceID, err)
	}
	return newListener(socket, box.Ended()), nil
}

// awaken returns the running computer, which it starts if it does not run. The time after which a computer without processes
// stops begins again.
func (g *guest) awaken(ctx context.Context) (*sandbox.Computer, error) {
	if err := g.take(ctx); err != nil {
		return nil, err
	}
	defer g.give()
	if err := g.check(); err != nil {
		return nil, err
	}
	if err := g.ensure(ctx); err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.awaitIdle()
	return g.box, nil
}

// A listener is a socket of the computer or of one process. It is closed when the computer or that process ends.
type listener struct {
	socket *net.TCPListener
	// slots has an element for each open connection.
	slots  chan struct{}
	closed chan struct{}

	mu       sync.Mutex
	isClosed bool
	open     map[*accepted]struct{}
}

func newListener(socket *net.TCPListener, ended <-chan struct{}) *listener {
	l := &listener{
		socket: socket, slots: make(chan struct{}, computer.MaxAccepted), closed: make(chan struct{}),
		open: map[*accepted]struct{}{},
	}
	go func() {
		select {
		case <-ended:
			_ = l.Close()
		case <-l.closed:
		}
	}()
	return l
}

// Accept implements net.Listener. It blocks while computer.MaxAccepted connections are open.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.socket.AcceptTCP()
	if err != nil {
		<-l.slots
		return nil, err
	}
	a := &accepted{TCPConn: c, listener: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isClosed {
		_ = c.Close()
		return nil, net.ErrClosed
	}
	l.open[a] = struct{}{}
	return a, nil
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return l.socket.Addr() }

// Close implements net.Listener.
func (l *listener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isClosed {
		return nil
	}
	l.isClosed = true
	close(l.closed)
	for a := range l.open {
		_ = a.TCPConn.Close()
	}
	return l.socket.Close()
}

// An accepted connection counts as open until it is closed.
type accepted struct {
	*net.TCPConn
	listener *listener
}

// Close implements net.Conn.
func (a *accepted) Close() error {
	err := a.TCPConn.Close()
	l := a.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, isOpen := l.open[a]; isOpen {
		delete(l.open, a)
		<-l.slots
	}
	return err
}
