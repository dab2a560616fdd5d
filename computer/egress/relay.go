package egress

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A stream is one end of a connection. Its methods may be called concurrently.
type stream interface {
	io.ReadWriter
	// CloseWrite sends the end of the written bytes.
	CloseWrite() error
	// abort closes the stream with a reset, so that reads and writes fail. It may be called more than once.
	abort()
	// finish closes a stream after the peer has closed it. It returns when the peer has all bytes, or never will have them.
	finish(ctx context.Context)
}

// relay copies between the computer's end of a connection and the end of the destination. It returns when both peers have
// closed, or when it has reset both, because one of them has reset, no byte has passed for the idle time, or the computer is
// detached.
func (c *computer) relay(inner, outer stream) {
	abort := func() {
		inner.abort()
		outer.abort()
	}
	idle := watch(c.egress.limits.TCPIdle, abort)
	defer idle.stop()
	defer context.AfterFunc(c.running, abort)()
	var out sync.WaitGroup
	out.Go(func() { copyStream(outer, inner, idle, c.egress.metrics.out, abort) })
	copyStream(inner, outer, idle, c.egress.metrics.in, abort)
	out.Wait()
	outer.finish(c.running)
	inner.finish(c.running)
}

// streamBuffers are the buffers of copyStream.
var streamBuffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// copyStream copies until the end of from, which it passes on. If a read or write fails, it calls abort.
func copyStream(to, from stream, idle *watchdog, bytes prometheus.Counter, abort func()) {
	buffer := streamBuffers.Get().(*[32 << 10]byte)
	defer streamBuffers.Put(buffer)
	for {
		n, err := from.Read(buffer[:])
		if n > 0 {
			idle.touch()
			if _, err := to.Write(buffer[:n]); err != nil {
				abort()
				return
			}
			idle.touch()
			bytes.Add(float64(n))
		}
		switch {
		case errors.Is(err, io.EOF):
			if to.CloseWrite() != nil {
				abort()
			}
			return
		case err != nil:
			abort()
			return
		}
	}
}

// A socket is a stream of the server's kernel.
type socket struct{ *net.TCPConn }

func (s socket) abort() {
	// The linger time of 0 makes Close send a reset. It fails only if the socket is closed.
	_ = s.SetLinger(0)
	s.Close()
}

// finish leaves the last bytes to the kernel.
func (s socket) finish(context.Context) { s.Close() }

// A watchdog calls a function when it has not been touched for some time.
type watchdog struct {
	idle   time.Duration
	expire func()
	// touched is the time of the last touch after start.
	touched atomic.Int64
	start   time.Time

	mu    sync.Mutex
	timer *time.Timer
}

// watch starts a watchdog, which the caller must stop.
func watch(idle time.Duration, expire func()) *watchdog {
	w := &watchdog{idle: idle, expire: expire, start: time.Now()}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(idle, w.check)
	return w
}

func (w *watchdog) touch() { w.touched.Store(int64(time.Since(w.start))) }

func (w *watchdog) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer.Stop()
	w.timer = nil
}

func (w *watchdog) check() {
	left := w.idle - (time.Since(w.start) - time.Duration(w.touched.Load()))
	if left <= 0 {
		w.expire()
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.timer.Reset(left)
	}
}
