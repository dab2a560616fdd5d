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

// endGrace is the time in which a client can read the rest when its stream or transfer is ended.
const endGrace = time.Second

var (
	errStreamEnded  = errors.New("the stream has ended")
	errSegmentEnded = errors.New("the stream's segment has ended")
)

// StreamClient sends frames to the client of a stream. Its functions are described at activity.Subscription.
type StreamClient struct {
	Send    func(frames []byte) error
	TrySend func(frames []byte) bool
}

// StreamTo sends server-sent events to the client until the segment is over, the client leaves, the access ends or the
// server shuts down. The package comment describes the whole flow.
//
// subscribe registers for events and returns the function that runs the stream: it sends to the client, blocks until ctx ends,
// and does not send after it has returned. An error of subscribe becomes the response. Errors: the errors of subscribe,
// rate_limited, unavailable.
func (c *Call) StreamTo(subscribe func(ctx context.Context, client StreamClient) (func(context.Context) error, error)) error {
	return c.streamTo(access{}, subscribe)
}

// StreamWithAccess is StreamTo for a source that does not end when the caller loses its access: the stream ends when the caller no longer
// has the access that the operation requires.
func (c *Call) StreamWithAccess(subscribe func(ctx context.Context, client StreamClient) (func(context.Context) error, error)) error {
	return c.streamTo(c.access(), subscribe)
}

func (c *Call) streamTo(required access, subscribe func(ctx context.Context, client StreamClient) (func(context.Context) error, error)) error {
	if c.Request.Method == http.MethodHead {
		return c.answerStreamHead()
	}
	s := c.server
	ctx, end := context.WithCancelCause(c.Context)
	defer end(nil)
	remove, err := s.watcher.addStream(c, required, end)
	if err != nil {
		return c.Withhold(err)
	}
	defer remove()
	c.patience.waiting.Add(1)
	// This is a timer and not a deadline of ctx, because code that sees a deadline would retry until then.
	defer time.AfterFunc(jitter(s.options.StreamSegment), func() { end(errSegmentEnded) }).Stop()

	out := newSink(c.Response, s.options.Limits.StallTime, func() { end(errStreamEnded) })
	follow, err := subscribe(ctx, StreamClient{
		Send: func(frames []byte) error {
			s.metrics.countFrames(frames)
			return out.send(frames)
		},
		TrySend: func(frames []byte) bool {
			if !out.trySend(frames) {
				return false // counted by the call of Send that follows
			}
			s.metrics.countFrames(frames)
			return true
		},
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

// jitter varies a duration by ± 20 %, so that clients do not all reconnect at once.
func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}

// sink writes to the client of one stream. Frames and heartbeats are written one at a time, each with a write deadline.
type sink struct {
	w       *Response
	control *http.ResponseController
	// onBroken is called when a heartbeat cannot be written.
	onBroken func()
	// writing is full during a write.
	writing chan struct{}
	// chunks writes without waiting, during a write only. It is nil until the head is sent, and for connections that can only
	// be written to through net/http.
	chunks *chunkWriter

	// mu guards the fields below.
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

// answerStreamHead answers HEAD with the headers of a stream.
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
	// no-transform (RFC 9111, section 5.2.2.6): proxies that compress, such as development servers, would hold frames back.
	header["Cache-Control"] = []string{"no-cache, no-store, no-transform"}
	header["X-Accel-Buffering"] = []string{"no"}
	w.WriteHeader(http.StatusOK)
}

// open sends the response head and starts the heartbeat. After it no error response is possible.
func (s *sink) open(heartbeat time.Duration) error {
	s.w.writeStreamHead()
	s.mu.Lock()
	s.heartbeat = time.AfterFunc(heartbeat, func() { s.sendHeartbeat(heartbeat) })
	s.mu.Unlock()
	s.writing <- struct{}{}
	defer func() { <-s.writing }()
	if err := s.write(fmt.Appendf(nil, "retry: %d\n\n", 1000+rand.IntN(2001))); err != nil {
		return err
	}
	s.chunks = newChunkWriter(s.w.Request)
	return nil
}

// sendHeartbeat sends a comment, which keeps an idle connection open. It sends none during a write.
func (s *sink) sendHeartbeat(heartbeat time.Duration) {
	select {
	case s.writing <- struct{}{}:
		if s.finishChunk() != nil || s.write([]byte(":\n\n")) != nil {
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

// send writes frames, or the rest that trySend has left of them.
func (s *sink) send(frames []byte) error {
	s.writing <- struct{}{}
	defer func() { <-s.writing }()
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
	case s.writing <- struct{}{}:
	default:
		return false // a heartbeat waits for the client
	}
	defer func() { <-s.writing }()
	if s.chunks == nil || s.chunks.begun || !s.extend() {
		return false
	}
	n, all := s.chunks.tryWrite(frames)
	s.w.bytes += int64(n)
	return all
}

// finishChunk writes the rest that trySend has left of a chunk. The caller holds writing.
func (s *sink) finishChunk() error {
	if s.chunks == nil || len(s.chunks.rest) == 0 {
		return nil
	}
	if !s.extend() {
		return errStreamEnded
	}
	n, err := s.chunks.finish()
	s.w.bytes += n
	return err
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

// beginEnd refuses further writes and gives a write in flight endGrace.
func (s *sink) beginEnd() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isEnding = true
	if !s.isClosed {
		s.control.SetWriteDeadline(time.Now().Add(endGrace))
	}
}

// close waits for a write in flight, and completes a chunk that was written in part. After it the connection belongs to net/http
// again.
func (s *sink) close() {
	s.beginEnd()
	s.writing <- struct{}{}
	if s.chunks != nil {
		s.chunks.close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heartbeat.Stop()
	s.isClosed = true
}
