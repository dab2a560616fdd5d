package docker

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/computer/docker/agent"
	"github.com/atelier-run/atelier/entity"
)

// Dial implements computer.Host. The agent makes the connection and relays it, so that Dial works without a network, and with an engine
// on containers that this machine cannot reach. All connections of a container share one process of the agent, or more while there are
// more than agent.MaxStreams.
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
	s, mux, err := c.openStream(ctx)
	if err != nil {
		return nil, err
	}
	if err := connect(ctx, s, port); err != nil {
		_ = s.Close()
		return nil, err
	}
	near, far, err := socketPair()
	if err != nil {
		_ = s.Close()
		return nil, unavailable("connect to a port of the computer", err)
	}
	r := &relayed{UnixConn: near, closed: make(chan struct{})}
	go r.relay(far, s, mux.Done())
	return r, nil
}

// connect has the agent connect a stream with a port. Errors: unavailable if nothing listens on the port.
func connect(ctx context.Context, s *agent.Stream, port int) error {
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	_, err := s.Write(binary.BigEndian.AppendUint16(nil, uint16(port)))
	var answer []byte
	for b := make([]byte, 1); err == nil; answer = append(answer, b[0]) {
		if _, err = s.Read(b); err != nil || b[0] == '\n' || len(answer) == agent.MaxAnswer {
			break
		}
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return unavailable("connect to a port of the computer", err)
	case len(answer) > 0:
		return entity.Errorf(entity.Unavailable, "nothing listens on port %d of the computer: %s", port, bytes.ToValidUTF8(answer, nil))
	default:
		return nil
	}
}

// dialers are the processes of the agent in a container that make connections.
type dialers struct {
	// starting is held while one is started, which takes as long as any process of the engine.
	starting sync.Mutex

	mu  sync.Mutex
	all []*agent.Mux
}

// open returns a stream of one that has room for it; nil: none has.
func (l *dialers) open() (*agent.Stream, *agent.Mux) {
	l.mu.Lock()
	all := l.all
	l.mu.Unlock()
	for _, mux := range all {
		if s, err := mux.Open(); err == nil {
			return s, mux
		}
	}
	return nil, nil
}

func (l *dialers) add(mux *agent.Mux) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all[:len(l.all):len(l.all)], mux)
}

func (l *dialers) remove(mux *agent.Mux) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var left []*agent.Mux
	for _, m := range l.all {
		if m != mux {
			left = append(left, m)
		}
	}
	l.all = left
}

// openStream opens a stream to the agent's "dial", which it starts if none runs that has room.
func (c *runningContainer) openStream(ctx context.Context) (*agent.Stream, *agent.Mux, error) {
	if s, mux := c.dialers.open(); s != nil {
		return s, mux, nil
	}
	c.dialers.starting.Lock()
	defer c.dialers.starting.Unlock()
	if s, mux := c.dialers.open(); s != nil { // another caller has started one
		return s, mux, nil
	}
	if ctx.Err() != nil {
		return nil, nil, ctx.Err()
	}
	mux, err := c.startDialer(ctx)
	if err != nil {
		return nil, nil, err
	}
	s, err := mux.Open()
	if err != nil {
		return nil, nil, unavailable("connect to a port of the computer", err)
	}
	return s, mux, nil
}

// startDialer starts the agent's "dial", which ends with the container.
func (c *runningContainer) startDialer(ctx context.Context) (*agent.Mux, error) {
	s, err := c.open(ctx, nil, false, "dial")
	if err != nil {
		return nil, err
	}
	kind, text, err := s.readLine(ctx)
	if err == nil && kind != agent.Started {
		err = errors.New(text)
	}
	identity, invalid := parseIdentity(text)
	if err = errors.Join(err, invalid); err != nil {
		_ = s.conn.Close()
		return nil, unavailable("connect to a port of the computer", err)
	}
	// If the watch fails, the agent has ended already.
	ended, err := c.control.watch(ctx, agent.Watch{PID: identity.PID, Group: "dial"})
	if err != nil {
		ended = nil
	}
	mux := c.newMux(s, false)
	c.dialers.add(mux)
	go func() { _, _ = io.Copy(io.Discard, s.stderr) }()
	go func() {
		c.endMux(mux, s, identity.PID, ended)
		c.dialers.remove(mux)
	}()
	return mux, nil
}

// newMux returns the server's side of the Mux of an agent's session.
func (c *runningContainer) newMux(s *session, accepts bool) *agent.Mux {
	return agent.NewMux(s.stdout, frames{c, s.conn}, accepts)
}

// frames are the frames that the server writes to a Mux. If the agent accepts none of them for Options.Timeout, the write fails, and the
// Mux with it: callers that wait for the Mux would otherwise wait for ever, for example if a process of the container has stopped the
// agent. The agent of a frozen container has all the time that it needs.
type frames struct {
	container *runningContainer
	conn      net.Conn
}

// Write implements io.Writer.
func (f frames) Write(b []byte) (written int, err error) {
	for {
		wasFrozen := f.container.isFrozen()
		_ = f.conn.SetWriteDeadline(time.Now().Add(f.container.driver.options.Timeout)) // fails if the connection has ended
		n, err := f.conn.Write(b[written:])
		written += n
		isSlow := errors.Is(err, os.ErrDeadlineExceeded) && (n > 0 || wasFrozen || f.container.isFrozen())
		if err == nil || !isSlow {
			return written, err
		}
	}
}

// endMux waits until a Mux or the container has ended, and ends the agent's process and its session.
func (c *runningContainer) endMux(mux *agent.Mux, s *session, pid int, ended <-chan agent.Reply) {
	select {
	case <-mux.Done():
	case <-c.ended:
		mux.Close()
	}
	if ended != nil && !isClosed(c.ended) {
		// A frozen agent ends when it is thawed, because its input has ended.
		ctx, cancel := c.driver.limit(context.Background())
		defer cancel()
		_, _ = c.control.ask(ctx, agent.Request{End: pid})
	}
	_ = s.stdout.Close()
	_ = s.conn.Close()
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

// A relayed connection is the caller's end of a connection to or from a program in a container.
type relayed struct {
	*net.UnixConn
	once   sync.Once
	closed chan struct{}
}

// Close closes the connection. Bytes that were written before are still delivered.
func (r *relayed) Close() error {
	r.once.Do(func() { close(r.closed) })
	return r.UnixConn.Close()
}

// linger limits the time in which the relay of a closed connection delivers the remaining bytes.
const linger = 10 * time.Second

// relay copies between far, the other end of the connection, and the stream of the connection until both directions have ended, the caller
// has closed the connection, or the Mux has ended.
func (r *relayed) relay(far *net.UnixConn, s *agent.Stream, muxDone <-chan struct{}) {
	done := make(chan struct{})
	go func() {
		select {
		case <-r.closed:
			select {
			case <-time.After(linger):
			case <-muxDone:
			case <-done:
			}
		case <-muxDone:
		case <-done:
		}
		_ = s.Close()
		_ = far.Close()
	}()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = io.Copy(s, far)
		_ = s.CloseWrite()
	}()
	_, _ = io.Copy(far, s)
	_ = far.CloseWrite()
	<-sent
	close(done)
}
