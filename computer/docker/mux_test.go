package docker

import (
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/computer/docker/agent"
)

// TestMuxOfAStoppedAgent opens a stream to an agent that reads nothing, as one does that a process of the container has stopped.
func TestMuxOfAStoppedAgent(t *testing.T) {
	const timeout = 30 * time.Second
	open := func(t *testing.T, c *runningContainer, change func(agent net.Conn)) (took time.Duration, err error) {
		near, far := net.Pipe()
		var peer sync.WaitGroup
		peer.Go(func() { change(far) })
		s := &session{conn: near, stdout: newPipe()}
		mux := c.newMux(s, false)
		began := time.Now()
		_, err = mux.Open()
		took = time.Since(began)
		mux.Close()
		s.stdout.end()
		_ = far.Close()
		peer.Wait()
		return took, err
	}
	container := func() *runningContainer {
		return &runningContainer{driver: &Driver{options: Options{Timeout: timeout}}, thawed: make(chan struct{})}
	}
	t.Run("it is given up", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := container()
			close(c.thawed)
			if took, err := open(t, c, func(net.Conn) {}); err == nil || took != timeout {
				t.Errorf("after %s: %v", took, err)
			}
		})
	})
	t.Run("one that is slow is not", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := container()
			close(c.thawed)
			slowly := func(agent net.Conn) {
				for b := make([]byte, 1); ; time.Sleep(timeout - time.Second) {
					if _, err := agent.Read(b); err != nil {
						return
					}
				}
			}
			if took, err := open(t, c, slowly); err != nil {
				t.Errorf("after %s: %v", took, err)
			}
		})
	})
	t.Run("one in a frozen container is not", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := container()
			thaw := func(agent net.Conn) {
				time.Sleep(10 * timeout)
				close(c.thawed)
				_, _ = agent.Read(make([]byte, 1<<10))
			}
			if took, err := open(t, c, thaw); err != nil || took != 10*timeout {
				t.Errorf("after %s: %v", took, err)
			}
		})
	})
}

// TestListenerWithoutDescriptors accepts a connection while the server has no free descriptor. A server of HTTP tries again after such an
// error, and ends after others.
func TestListenerWithoutDescriptors(t *testing.T) {
	near, far := net.Pipe()
	l := &listener{addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8000}, mux: agent.NewMux(near, near, true)}
	program := agent.NewMux(far, far, false)
	defer func() { _, _ = near.Close(), far.Close() }()
	accept := func() (net.Conn, error) {
		t.Helper()
		if _, err := program.Open(); err != nil {
			t.Fatal(err)
		}
		return l.Accept()
	}
	var limit unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &limit); err != nil {
		t.Fatal(err)
	}
	if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: limit.Max}, nil); err != nil {
		t.Fatal(err)
	}
	_, err := accept()
	if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, &limit, nil); err != nil {
		t.Fatal(err)
	}
	if e, is := err.(interface{ Temporary() bool }); !is || !e.Temporary() {
		t.Errorf("without descriptors, Accept returned %v", err)
	}
	c, err := accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
}
