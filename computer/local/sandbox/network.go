package sandbox

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
)

// A Network is the server's side of a network: the network of a computer, or the own network of a process. All methods may be
// called concurrently.
type Network struct {
	computer *Computer
	// link has the files of the link of a process's own network.
	link []*os.File

	mu sync.RWMutex
	// namespace is the namespace of a process's own network; nil: the network is the network of the computer.
	namespace *os.File
	isClosed  bool
}

// Network returns the network of the computer, which need not be closed.
func (c *Computer) Network() *Network { return &Network{computer: c} }

// LinkFiles returns the files of the link of a process's own network. Close closes them, too.
func (n *Network) LinkFiles() []*os.File { return n.link }

// Close closes the files of the network of a process that has ended. Dial and Listen then return ErrEnded. It may be called more
// than once.
func (n *Network) Close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.isClosed {
		return
	}
	n.isClosed = true
	closeAll(n.link)
	if n.namespace != nil {
		_ = n.namespace.Close()
	}
}

// Dial connects to a TCP port of the network's loopback interface.
func (n *Network) Dial(ctx context.Context, port int) (net.Conn, error) {
	file, err := n.call(ctx, request{Op: opDial, Port: port})
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return net.FileConn(file)
}

// Listen listens on a TCP port of the network's loopback interface; 0: any free port. The caller closes the listener when the
// processes of the network have ended: the socket would otherwise live on, with the network.
func (n *Network) Listen(ctx context.Context, port int) (*net.TCPListener, error) {
	file, err := n.call(ctx, request{Op: opListen, Port: port})
	if err != nil {
		return nil, err
	}
	defer file.Close()
	l, err := net.FileListener(file)
	if err != nil {
		return nil, err
	}
	listener, is := l.(*net.TCPListener)
	if !is {
		_ = l.Close()
		return nil, errors.New("the computer has answered with another socket")
	}
	return listener, nil
}

// call sends a request that concerns the network to the init, and returns the file of the answer.
func (n *Network) call(ctx context.Context, r request) (*os.File, error) {
	waiting, err := n.sendCall(&r)
	if err != nil {
		return nil, err
	}
	file, err := n.computer.await(ctx, r.Call, waiting)
	if err == nil && file == nil {
		err = errors.New("the computer has answered without a socket")
	}
	return file, err
}

// sendCall sends a request while the namespace is not closed.
func (n *Network) sendCall(r *request) (<-chan answer, error) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	switch {
	case n.isClosed:
		return nil, ErrEnded
	case n.namespace == nil:
		return n.computer.sendCall(r)
	default:
		return n.computer.sendCall(r, n.namespace)
	}
}

// adoptNetwork passes the files of a network to the process that the network was made for.
func (c *Computer) adoptNetwork(e event, files []*os.File) {
	c.mu.Lock()
	p := c.processes[e.Process]
	c.mu.Unlock()
	if p == nil || p.networked == nil || len(files) == 0 {
		closeAll(files)
		return
	}
	n := &Network{computer: c, namespace: files[0], link: files[1:]}
	select {
	case p.networked <- n:
	default:
		n.Close()
	}
}

// awaitNetwork returns the own network of a process that has arrived at its gate, or nil if it has none. The init has sent it
// before it has started the process.
func (p *Process) awaitNetwork(ctx context.Context) (*Network, error) {
	if p.networked == nil {
		return nil, nil
	}
	select {
	case n := <-p.networked:
		return n, nil
	case <-p.ended:
		return nil, p.explain(ctx, ErrEnded)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
