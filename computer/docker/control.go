package docker

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/client"

	"github.com/atelier-run/atelier/computer/docker/agent"
	"github.com/atelier-run/atelier/entity"
)

// A control is the connection to the init of a container. When it ends, so do the container's processes.
type control struct {
	conn    net.Conn
	timeout time.Duration
	// ready has the first reply.
	ready chan agent.Reply
	ended chan struct{}
	// said is the end of init's standard error.
	said *tail

	mu      sync.Mutex
	last    uint64
	pending map[uint64]chan agent.Reply
	// watched has the channels for the ends of processes.
	watched map[int]chan agent.Reply
}

// maxPending bounds the requests to one init that are under way.
const maxPending = 1000

func newControl(attached client.HijackedResponse, timeout time.Duration) *control {
	c := &control{
		conn: attached.Conn, timeout: timeout, ready: make(chan agent.Reply, 1), ended: make(chan struct{}), said: &tail{},
		pending: map[uint64]chan agent.Reply{}, watched: map[int]chan agent.Reply{},
	}
	lines, out := io.Pipe()
	go func() {
		_, err := stdcopy.StdCopy(out, c.said, attached.Reader)
		out.CloseWithError(err)
	}()
	go func() {
		defer close(c.ended)
		defer c.conn.Close()
		defer lines.Close()
		scanner := bufio.NewScanner(lines)
		scanner.Buffer(nil, agent.MaxLine)
		for scanner.Scan() {
			var r agent.Reply
			if json.Unmarshal(scanner.Bytes(), &r) != nil || !c.deliver(r) {
				return
			}
		}
	}()
	return c
}

// deliver passes a reply to the caller that waits for it. It returns false for a second reply with a version, which init
// never sends.
func (c *control) deliver(r agent.Reply) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case r.Version != 0:
		select {
		case c.ready <- r:
		default:
			return false
		}
	case r.Ended != 0:
		if waiting := c.watched[r.Ended]; waiting != nil {
			delete(c.watched, r.Ended)
			waiting <- r
		}
	default:
		if waiting := c.pending[r.ID]; waiting != nil {
			delete(c.pending, r.ID)
			waiting <- r
		}
	}
	return true
}

func (c *control) close() { _ = c.conn.Close() }

// awaitReady waits for init's first reply, and returns the version of its protocol.
func (c *control) awaitReady(ctx context.Context) (int, error) {
	select {
	case r := <-c.ready:
		return r.Version, nil
	case <-c.ended:
		return 0, errors.New("it has ended: " + c.said.String())
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// ask sends a request to init and returns its reply. It returns Unavailable if the container has ended, if it does not answer, or
// if init cannot do it.
func (c *control) ask(ctx context.Context, r agent.Request) (agent.Reply, error) {
	waiting := make(chan agent.Reply, 1)
	c.mu.Lock()
	if len(c.pending) >= maxPending {
		c.mu.Unlock()
		return agent.Reply{}, entity.Errorf(entity.Unavailable, "the computer has too many requests under way; try again")
	}
	c.last++
	r.ID = c.last
	c.pending[r.ID] = waiting
	line, err := json.Marshal(r)
	if err == nil {
		// A line is written as a whole, or the connection cannot be used any more.
		_ = c.conn.SetWriteDeadline(time.Now().Add(c.timeout))
		if _, err = c.conn.Write(append(line, '\n')); err != nil {
			_ = c.conn.Close()
		}
	}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.pending, r.ID)
		c.mu.Unlock()
	}()
	if err != nil {
		return agent.Reply{}, unavailable("reach the container", err)
	}
	select {
	case reply := <-waiting:
		if reply.Error != "" {
			return reply, unavailable("control the container", errors.New(reply.Error))
		}
		return reply, nil
	case <-c.ended:
		return agent.Reply{}, entity.Errorf(entity.Unavailable, "the computer has stopped")
	case <-ctx.Done():
		return agent.Reply{}, ctx.Err()
	}
}

// watch asks init to watch a process. The channel gets one reply when the process has ended.
func (c *control) watch(ctx context.Context, w agent.Watch) (<-chan agent.Reply, error) {
	waiting := make(chan agent.Reply, 1)
	c.mu.Lock()
	c.watched[w.PID] = waiting
	c.mu.Unlock()
	_, err := c.ask(ctx, agent.Request{Watch: &w})
	if err != nil {
		c.mu.Lock()
		delete(c.watched, w.PID)
		c.mu.Unlock()
	}
	return waiting, err
}

// A tail keeps the last bytes that were written to it.
type tail struct {
	mu    sync.Mutex
	bytes []byte
}

const tailSize = 1 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bytes = append(t.bytes, b[max(len(b)-tailSize, 0):]...)
	t.bytes = t.bytes[max(len(t.bytes)-tailSize, 0):]
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.bytes))
}
