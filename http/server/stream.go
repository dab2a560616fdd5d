package server

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// lastWords is how long a client that reads has for what is under way when its stream ends.
const endGrace = time.Second

var (
	errStreamEnded  = errors.New("the stream has ended")
	errSegmentEnded = errors.New("the stream's segment has ended")
)

// StreamTo sends server-sent events to the client until the segment ends, the client leaves, the access ends or the server
// drains. subscribe begins to listen and returns the function that runs the stream: it calls send, blocks until ctx ends,
// and does not call send after it returned. Errors before the first byte are returned: those of subscribe, rate_limited,
// unavailable.
func (c *Call) StreamTo(subscribe func(ctx context.Context, send func([]byte) error) (func(context.Context) error, error)) error {
	if c.Request.Method == http.MethodHead {
		return c.answerStreamHead()
	}
	s := c.server
	ctx, end := context.WithCancelCause(c.Context)
	defer end(nil)
	remove, err := s.watch.addStream(c.Caller, end)
	if err != nil {
		return c.Withhold(err)
	}
	defer remove()
	// A timer and not a deadline: what takes a deadline for its own would retry for that long.
	defer time.AfterFunc(jitter(s.options.StreamSegment), func() { end(errSegmentEnded) }).Stop()

	out := newSink(c.Response, s.options.Limits.StallTime, func() { end(errStreamEnded) })
	follow, err := subscribe(ctx, func(frames []byte) error {
		s.metrics.countFrames(frames)
		return out.send(frames)
	})
	if err != nil {
		return err
	}
	connectionOf(c.Request.Context()).limitWriteBuffer()
	defer out.close()
	if out.open(s.options.Heartbeat) != nil {
		return nil // the client has gone
	}
	defer context.AfterFunc(ctx, out.beginEnd)()
	if err := follow(ctx); ctx.Err() == nil {
		c.Response.Err = err
	}
	return nil
}

// jitter spreads a duration by ± 20 %, so that clients do not come back in a herd.
func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}

// sink is the way to one stream's client. Frames and heartbeats take turns; each write has a deadline ahead.
type sink struct {
	w       *Response
	control *http.ResponseController
	// broken is called when a heartbeat does not reach the client.
	onBroken func()
	// turn is full while something is written.
	writing chan struct{}

	// life guards what the end of the stream changes.
	mu            sync.Mutex
	writeDeadline deadline
	heartbeat     *time.Timer
	isEnding      bool
	isClosed      bool
}

func newSink(w *Response, stall time.Duration, broken func()) *sink {
	control := http.NewResponseController(w.ResponseWriter)
	return &sink{
		w: w, control: control, onBroken: broken, writing: make(chan struct{}, 1),
		writeDeadline: deadline{set: control.SetWriteDeadline, stall: stall},
	}
}

// headOfStream answers HEAD with the headers of a stream.
func (c *Call) answerStreamHead() error {
	err := c.Authorize()
	if err == nil {
		c.Response.writeStreamHead()
	}
	return err
}

func (w *Response) writeStreamHead() {
	header := w.Header()
	header["Content-Type"] = []string{"text/event-stream"}
	header["Cache-Control"] = []string{"no-cache, no-store"}
	header["X-Accel-Buffering"] = []string{"no"}
	w.WriteHeader(http.StatusOK)
}

// open sends the head and starts the heartbeat. From here on errors have no way to the client.
func (s *sink) open(heartbeat time.Duration) error {
	s.w.writeStreamHead()
	s.mu.Lock()
	s.heartbeat = time.AfterFunc(heartbeat, func() { s.sendHeartbeat(heartbeat) })
	s.mu.Unlock()
	return s.send(fmt.Appendf(nil, "retry: %d\n\n", 1000+rand.IntN(2001)))
}

// comment keeps an idle connection open. One that is being written to needs none.
func (s *sink) sendHeartbeat(heartbeat time.Duration) {
	select {
	case s.writing <- struct{}{}:
		if s.write([]byte(":\n\n")) != nil {
			s.onBroken()
		}
		<-s.writing
	default:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isEnding {
		s.heartbeat.Reset(heartbeat)
	}
}

func (s *sink) send(frames []byte) error {
	s.writing <- struct{}{}
	defer func() { <-s.writing }()
	return s.write(frames)
}

func (s *sink) write(frames []byte) error {
	if !s.extend() {
		return errStreamEnded
	}
	if _, err := s.w.Write(frames); err != nil {
		return err
	}
	return s.control.Flush()
}

func (s *sink) extend() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isEnding {
		s.writeDeadline.extend()
	}
	return !s.isEnding
}

// hurry lets nothing more begin and leaves a write that is under way little time.
func (s *sink) beginEnd() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isEnding = true
	if !s.isClosed {
		s.control.SetWriteDeadline(time.Now().Add(endGrace))
	}
}

// close waits for a heartbeat that is under way. After it the connection is the server's again.
func (s *sink) close() {
	s.beginEnd()
	s.writing <- struct{}{}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heartbeat.Stop()
	s.isClosed = true
}
