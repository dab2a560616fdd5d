package docker

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"

	"github.com/atelier-run/atelier/computer/docker/agent"
	"github.com/atelier-run/atelier/entity"
)

// Listen implements computer.Host. The agent listens in the container and relays the connections over its standard streams, so
// that Listen works without a network, as Dial does.
func (d *Driver) Listen(ctx context.Context, workspaceID string, port int) (net.Listener, error) {
	if port < 0 || port > 65535 {
		return nil, entity.Errorf(entity.InvalidRequest, "%d is not a port", port)
	}
	if err := d.checkExists(workspaceID); err != nil {
		return nil, err
	}
	c, release, err := d.acquire(ctx, workspaceID)
	if err != nil {
		return nil, err
	}
	defer release()
	ctx, cancel := d.limit(ctx)
	defer cancel()
	s, err := c.open(ctx, nil, false, "listen", strconv.Itoa(port))
	if err != nil {
		return nil, err
	}
	l, err := c.listen(ctx, s, port)
	if err != nil {
		_ = s.conn.Close()
		return nil, err
	}
	return l, nil
}

// listen makes a session of the agent's "listen" a listener.
func (c *runningContainer) listen(ctx context.Context, s *session, port int) (*listener, error) {
	kind, text, err := s.readLine(ctx)
	if err != nil {
		return nil, unavailable("listen on a port of the computer", err)
	}
	if kind != agent.Started {
		return nil, entity.Errorf(entity.Unavailable, "cannot listen on port %d of the computer: %s", port, text)
	}
	number, rest, _ := strings.Cut(text, " ")
	identity, invalid := parseIdentity(rest)
	port, err = strconv.Atoi(number)
	if err = errors.Join(err, invalid); err != nil {
		return nil, unavailable("listen on a port of the computer", err)
	}
	// If the watch fails, the agent has ended already.
	ended, err := c.control.watch(ctx, agent.Watch{PID: identity.PID, Group: "listen"})
	if err != nil {
		ended = nil
	}
	l := &listener{
		addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}, mux: c.newMux(s, true),
	}
	go func() { _, _ = io.Copy(io.Discard, s.stderr) }()
	go c.endMux(l.mux, s, identity.PID, ended)
	return l, nil
}

// A listener is the server's side of the agent's "listen".
type listener struct {
	addr *net.TCPAddr
	mux  *agent.Mux
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	stream, err := l.mux.Accept()
	if err != nil {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.addr, Err: net.ErrClosed}
	}
	near, far, err := socketPair()
	if err != nil {
		_ = stream.Close()
		// Servers of HTTP try again after this error if no descriptor was free, and end after other ones.
		return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.addr, Err: err}
	}
	a := &accepted{relayed: relayed{UnixConn: near, closed: make(chan struct{})}, addr: l.addr}
	go a.relay(far, stream, l.mux.Done())
	return a, nil
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return l.addr }

// Close implements net.Listener.
func (l *listener) Close() error {
	l.mux.Close()
	return nil
}

// An accepted connection is the caller's end of a connection to a listener.
type accepted struct {
	relayed
	addr *net.TCPAddr
}

// LocalAddr implements net.Conn.
func (a *accepted) LocalAddr() net.Addr { return a.addr }

// RemoteAddr implements net.Conn. The port of the other end is not known.
func (a *accepted) RemoteAddr() net.Addr { return &net.TCPAddr{IP: a.addr.IP} }
