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
const lastWords = time.Second

var (
	errEnded   = errors.New("the stream has ended")
	errSegment = errors.New("the stream's segment has ended")
)

// StreamClient sends frames to the client of a stream. Its functions are described at activity.Subscription.
type StreamClient struct {
	Send    func(frames []byte) error
	TrySend func(frames []byte) bool
}

// StreamTo sends server-sent events to the client until the segment ends, the client leaves, the access ends or the server
// drains. subscribe begins to listen and returns the function that runs the stream: it sends to the client, blocks until ctx
// ends, and nothing is sent after it returned. Errors before the first byte are returned: those of subscribe, rate_limited,
// unavailable.
func (c *Call) StreamTo(subscribe func(ctx context.Context, client StreamClient) (func(context.Context) error, error)) error {
	if c.Request.Method == http.MethodHead {
		return c.headOfStream()
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
	defer time.AfterFunc(jitter(s.options.StreamSegment), func() { end(errSegment) }).Stop()

	out := newSink(c.Response, s.options.Limits.StallTime, func() { end(errEnded) })
	follow, err := subscribe(ctx, StreamClient{
		Send: func(frames []byte) error {
			s.metrics.sent(frames)
			return out.send(frames)
		},
		TrySend: func(frames []byte) bool {
			if !out.trySend(frames) {
				return false // counted by the call of Send that follows
			}
			s.metrics.sent(frames)
			return true
		},
	})
	if err != nil {
		return err
	}
	connectionOf(c.Request.Context()).forStream()
	defer out.close()
	if out.open(s.options.Heartbeat) != nil {
		return nil // the client has gone
	}
	defer context.AfterFunc(ctx, out.hurry)()
	if err := follow(ctx); ctx.Err() == nil {
		c.Response.Failed = err
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
	broken func()
	// turn is full while something is written.
	turn chan struct{}
	// chunks is nil until the head is sent, and where the connection cannot be written to without waiting. It is used during
	// a turn only.
	chunks *chunkWriter

	// life guards what the end of the stream changes.
	life   sync.Mutex
	leave  deadline
	beat   *time.Timer
	ending bool
	over   bool
}

func newSink(w *Response, stall time.Duration, broken func()) *sink {
	control := http.NewResponseController(w.ResponseWriter)
	return &sink{
		w: w, control: control, broken: broken, turn: make(chan struct{}, 1),
		leave: deadline{set: control.SetWriteDeadline, stall: stall},
	}
}

// headOfStream answers HEAD with the headers of a stream.
func (c *Call) headOfStream() error {
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
	s.life.Lock()
	s.beat = time.AfterFunc(heartbeat, func() { s.comment(heartbeat) })
	s.life.Unlock()
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	if err := s.write(fmt.Appendf(nil, "retry: %d\n\n", 1000+rand.IntN(2001))); err != nil {
		return err
	}
	s.chunks = newChunkWriter(s.w.Request)
	return nil
}

// comment keeps an idle connection open. One that is being written to needs none.
func (s *sink) comment(heartbeat time.Duration) {
	select {
	case s.turn <- struct{}{}:
		if s.finishChunk() != nil || s.write([]byte(":\n\n")) != nil {
			s.broken()
		}
		<-s.turn
	default:
	}
	s.life.Lock()
	defer s.life.Unlock()
	if !s.ending {
		s.beat.Reset(heartbeat)
	}
}

// send writes frames, or what trySend has left of them.
func (s *sink) send(frames []byte) error {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	if s.chunks == nil || !s.chunks.begun {
		return s.write(frames)
	}
	err := s.finishChunk()
	s.chunks.begun = err != nil
	return err
}

// trySend writes frames without waiting, and reports whether it wrote them all. If not, send must be called with them.
func (s *sink) trySend(frames []byte) bool {
	select {
	case s.turn <- struct{}{}:
	default:
		return false // a heartbeat waits for the client
	}
	defer func() { <-s.turn }()
	if s.chunks == nil || s.chunks.begun || !s.extend() {
		return false
	}
	n, all := s.chunks.tryWrite(frames)
	s.w.bytes += int64(n)
	return all
}

// finishChunk writes what trySend has left of a chunk. The caller has the turn.
func (s *sink) finishChunk() error {
	if s.chunks == nil || len(s.chunks.rest) == 0 {
		return nil
	}
	if !s.extend() {
		return errEnded
	}
	n, err := s.chunks.finish()
	s.w.bytes += n
	return err
}

func (s *sink) write(frames []byte) error {
	if !s.extend() {
		return errEnded
	}
	if _, err := s.w.Write(frames); err != nil {
		return err
	}
	return s.control.Flush()
}

func (s *sink) extend() bool {
	s.life.Lock()
	defer s.life.Unlock()
	if !s.ending {
		s.leave.extend()
	}
	return !s.ending
}

// hurry lets nothing more begin and leaves a write that is under way little time.
func (s *sink) hurry() {
	s.life.Lock()
	defer s.life.Unlock()
	s.ending = true
	if !s.over {
		s.control.SetWriteDeadline(time.Now().Add(lastWords))
	}
}

// close waits for a write that is under way, and completes a chunk that was written in part. After it the connection is the
// server's again.
func (s *sink) close() {
	s.hurry()
	s.turn <- struct{}{}
	if s.chunks != nil {
		s.chunks.close()
	}
	s.life.Lock()
	defer s.life.Unlock()
	s.beat.Stop()
	s.over = true
}
