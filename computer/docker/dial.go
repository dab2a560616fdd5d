package docker

import (
	"context"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/computer/docker/agent"
	"github.com/atelier-run/atelier/entity"
)

// Dial implements computer.Host. The agent relays the connection, so that it works without a network, and with an engine whose
// containers this machine cannot reach.
func (d *Driver) Dial(ctx context.Context, workspaceID string, port int) (net.Conn, error) {
	if port < 1 || port > 65535 {
		return nil, entity.Errorf(entity.InvalidRequest, "%d is not a port", port)
	}
	if err := d.checkExists(workspaceID); err != nil {
		return nil, err
	}
	c, err := d.current(workspaceID)
	if err != nil {
		return nil, err
	}
	ctx, cancel := d.limit(ctx)
	defer cancel()
	s, err := c.open(ctx, nil, false, "dial", strconv.Itoa(port))
	if err != nil {
		return nil, err
	}
	conn, err := c.relay(ctx, s, port)
	if err != nil {
		_ = s.conn.Close()
		return nil, err
	}
	return conn, nil
}

// relay connects a session of the agent's "dial" with a new pair of sockets, and returns one of these.
func (c *runningContainer) relay(ctx context.Context, s *session, port int) (net.Conn, error) {
	kind, text, err := s.readLine(ctx)
	if err != nil {
		return nil, unavailable("connect to a port of the computer", err)
	}
	identity, err := parseIdentity(text)
	if kind != agent.Started || err != nil {
		return nil, entity.Errorf(entity.Unavailable, "nothing listens on port %d of the computer: %s", port, text)
	}
	near, far, err := socketPair()
	if err != nil {
		return nil, unavailable("connect to a port of the computer", err)
	}
	// If the watch fails, the agent has ended already.
	ended, err := c.control.watch(ctx, agent.Watch{PID: identity.PID, Group: "dial"})
	if err != nil {
		ended = nil
	}
	r := &relayed{UnixConn: near, closed: make(chan struct{})}
	go r.run(c, s, far, identity.PID, ended)
	return r, nil
}

// socketPair returns two connected sockets.
func socketPair() (near, far *net.UnixConn, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	var conns [2]*net.UnixConn
	for i, fd := range pair {
		file := os.NewFile(uintptr(fd), "relay")
		conn, failed := net.FileConn(file) // it has a descriptor of its own
		_ = file.Close()
		if failed != nil {
			err = failed
			continue
		}
		conns[i] = conn.(*net.UnixConn)
	}
	if err == nil {
		return conns[0], conns[1], nil
	}
	for _, conn := range conns {
		if conn != nil {
			_ = conn.Close()
		}
	}
	return nil, nil, err
}

// A relayed connection is the caller's end.
type relayed struct {
	*net.UnixConn
	once   sync.Once
	closed chan struct{}
}

// Close closes the connection. What was written before is still delivered.
func (r *relayed) Close() error {
	r.once.Do(func() { close(r.closed) })
	return r.UnixConn.Close()
}

// linger is how long the relay of a closed connection may take to deliver what was written.
const linger = 10 * time.Second

// run relays until both directions have ended or the caller has closed the connection, and then ends the agent.
func (r *relayed) run(c *runningContainer, s *session, far *net.UnixConn, pid int, ended <-chan agent.Reply) {
	go func() { _, _ = io.Copy(io.Discard, s.stderr) }()
	sent, received := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = io.Copy(s.conn, far)
		if conn, ok := s.conn.(client.CloseWriter); ok {
			_ = conn.CloseWrite()
		}
	}()
	go func() {
		defer close(received)
		_, _ = io.Copy(far, s.stdout)
		_ = far.CloseWrite()
	}()
	select {
	case <-r.closed:
		select {
		case <-sent:
			// The agent has what was written, or gets it before the end of its input. It ends when the program answers.
		case <-time.After(linger):
		}
		select {
		case <-received:
		case <-time.After(linger):
		}
	case <-c.ended:
	case <-received:
		select {
		case <-sent:
		case <-r.closed:
		case <-c.ended:
		}
	}
	if ended != nil && !isClosed(c.ended) {
		ctx, cancel := c.driver.limit(context.Background())
		defer cancel()
		_, _ = c.control.ask(ctx, agent.Request{End: pid})
	}
	_ = s.stdout.Close()
	_ = s.conn.Close()
	_ = far.Close()
}
