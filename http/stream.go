package http

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/atelier-run/atelier/entity/activity"
)

// lastWords is how long a client that reads has for what is under way when its stream ends.
const lastWords = time.Second

var (
	errEnded   = errors.New("the stream has ended")
	errSegment = errors.New("the stream's segment has ended")
)

// streamActivity sends the workspace's rows as server-sent events until the segment ends, the client leaves, the access
// ends or the server drains.
func (s *Server) streamActivity(c *call) error {
	subscription, err := decodeStream(c)
	if err != nil {
		return c.withhold(err)
	}
	ctx, end := context.WithCancelCause(c.ctx)
	defer end(nil)
	remove, err := s.watch.addStream(c.caller, end)
	if err != nil {
		return c.withhold(err)
	}
	defer remove()
	// A timer and not a deadline: what takes a deadline for its own would retry for that long.
	defer time.AfterFunc(jitter(s.options.StreamSegment), func() { end(errSegment) }).Stop()

	out := newSink(c.w, s.options.Limits.StallTime, func() { end(errEnded) })
	subscription.Send = func(frames []byte) error {
		s.metrics.sent(frames)
		return out.send(frames)
	}
	follow, err := s.options.Streams.Subscribe(ctx, subscription)
	if err != nil {
		return err
	}
	connectionOf(c.r.Context()).forStream()
	defer out.close()
	if out.open(s.options.Heartbeat) != nil {
		return nil // the client has gone
	}
	defer context.AfterFunc(ctx, out.hurry)()
	if err := follow(ctx); ctx.Err() == nil {
		c.w.failed = err
	}
	return nil
}

// decodeStream reads where to begin: the header wins over the query.
func decodeStream(c *call) (activity.Subscription, error) {
	in := activity.Subscription{WorkspaceID: c.workspace.id, Principal: c.caller.principal}
	q, err := parseQuery(c.r.URL.RawQuery, "cursor", "reads")
	if err != nil {
		return in, err
	}
	in.Reads = q.flag("reads", false)
	last := c.r.Header["Last-Event-Id"]
	switch {
	case len(last) > 1:
		q.fail(errInvalid)
	case len(last) == 1 && last[0] != "":
		if in.After, err = c.workspace.cursor.Position(last[0]); err != nil {
			q.fail(err)
		}
	default:
		q.position(c, &in.After)
	}
	return in, q.err
}

// jitter spreads a duration by ± 20 %, so that clients do not come back in a herd.
func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}

// sink is the way to one stream's client. Frames and heartbeats take turns; each write has a deadline ahead.
type sink struct {
	w       *response
	control *http.ResponseController
	// broken is called when a heartbeat does not reach the client.
	broken func()
	// turn is full while something is written.
	turn chan struct{}

	// life guards what the end of the stream changes.
	life   sync.Mutex
	leave  deadline
	beat   *time.Timer
	ending bool
	over   bool
}

func newSink(w *response, stall time.Duration, broken func()) *sink {
	control := http.NewResponseController(w.ResponseWriter)
	return &sink{
		w: w, control: control, broken: broken, turn: make(chan struct{}, 1),
		leave: deadline{set: control.SetWriteDeadline, stall: stall},
	}
}

// open sends the head and starts the heartbeat. From here on errors have no way to the client.
func (s *sink) open(heartbeat time.Duration) error {
	header := s.w.Header()
	header["Content-Type"] = []string{"text/event-stream"}
	header["Cache-Control"] = []string{"no-cache, no-store"}
	header["X-Accel-Buffering"] = []string{"no"}
	s.w.WriteHeader(http.StatusOK)
	s.life.Lock()
	s.beat = time.AfterFunc(heartbeat, func() { s.comment(heartbeat) })
	s.life.Unlock()
	return s.send(fmt.Appendf(nil, "retry: %d\n\n", 1000+rand.IntN(2001)))
}

// comment keeps an idle connection open. One that is being written to needs none.
func (s *sink) comment(heartbeat time.Duration) {
	select {
	case s.turn <- struct{}{}:
		if s.write([]byte(":\n\n")) != nil {
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

func (s *sink) send(frames []byte) error {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	return s.write(frames)
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

// close waits for a heartbeat that is under way. After it the connection is the server's again.
func (s *sink) close() {
	s.hurry()
	s.turn <- struct{}{}
	s.life.Lock()
	defer s.life.Unlock()
	s.beat.Stop()
	s.over = true
}
