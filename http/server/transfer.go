package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/atelier-run/atelier/entity"
)

// TransferTo runs serve for a request that lasts as long as its bytes move and the caller has access. The package comment
// describes the whole flow. serve reads from the request that it gets, and answers with c.Response. If the access ends, or the client has
// gone, the context of that request ends with an *entity.Error as its cause.
func (c *Call) TransferTo(serve func(r *http.Request) error) error {
	ctx, end := context.WithCancelCause(c.Context)
	defer end(nil)
	defer c.server.watcher.addTransfer(c, end)()
	t := newTraffic(http.NewResponseController(c.Response.ResponseWriter), c.server.options.Limits, c.Request)
	defer t.finish()
	c.removeWriteDeadline()
	c.Response.pace = t.beforeWrite
	r := c.Request.WithContext(ctx)
	if r.ContentLength != 0 {
		r.Body = &transferBody{r.Body, t}
		c.Response.body = r.Body
	}
	// The cause is another *entity.Error if the access ended. Otherwise the client has gone or the request is over.
	defer context.AfterFunc(ctx, func() {
		if lost, is := errors.AsType[*entity.Error](context.Cause(ctx)); is && lost != errGone {
			t.cutOff(lost)
		}
	})()
	return serve(r)
}

// traffic sets the deadlines of a connection during a transfer.
//
// The read deadline of an upload is extended as long as its bytes arrive with the minimum rate; every other body has only the deadline
// that was set when the request began. The write deadline is extended as long as the client reads. cutOff may be called from any
// goroutine; after it no deadline is extended, so that a client that has lost the access cannot prolong a transfer.
type traffic struct {
	control *http.ResponseController

	mu            sync.Mutex
	bodyPace      bodyPace
	writeDeadline deadline
	// extendsReads reports that the read deadline is extended: the request is an upload.
	extendsReads bool
	// isBodyDone reports that the body has been read or closed. From then on there is no read deadline: net/http reads ahead,
	// and a deadline would end the request.
	isBodyDone bool
	// hasBegun reports that the response has begun.
	hasBegun bool
	// refusal is the error that has ended the access, or nil.
	refusal error
	// isFinished is set by finish. From then on, the deadlines belong to the connection's next request.
	isFinished bool
}

func newTraffic(control *http.ResponseController, limits Limits, r *http.Request) *traffic {
	stall := limits.StallTime
	return &traffic{
		control:       control,
		bodyPace:      bodyPace{set: control.SetReadDeadline, window: stall, least: limits.leastBytes(stall)},
		writeDeadline: deadline{set: control.SetWriteDeadline, stall: stall},
		extendsReads:  r.Method == http.MethodPut,
		isBodyDone:    r.ContentLength == 0,
	}
}

// cutOff ends the transfer because the access has ended, unless it is over. A response that has begun is aborted; otherwise endGrace
// remains to send the refusal.
func (t *traffic) cutOff(lost error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.isFinished {
		return
	}
	t.refusal = lost
	now := time.Now()
	if !t.isBodyDone {
		t.control.SetReadDeadline(now)
	}
	if t.hasBegun {
		t.control.SetWriteDeadline(now)
	} else {
		t.control.SetWriteDeadline(now.Add(endGrace))
	}
}

// beforeWrite is called before bytes of the response are written; its error ends the response.
func (t *traffic) beforeWrite() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.refusal == nil:
		t.hasBegun = true
		t.writeDeadline.extend()
	case t.hasBegun:
		return t.refusal
	}
	return nil
}

// beforeRead is called at a time before bytes of the body are read.
func (t *traffic) beforeRead(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.refusal == nil && t.extendsReads && !t.isBodyDone {
		t.bodyPace.beforeRead(now)
	}
}

// afterRead is called when n bytes of the body have been read in a time.
func (t *traffic) afterRead(n int, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bodyPace.afterRead(n, took)
}

// endBody is called once the whole body has been read. It removes the read deadline: the drive may take its own time.
func (t *traffic) endBody() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.refusal == nil && !t.isBodyDone {
		t.control.SetReadDeadline(time.Time{})
	}
	t.isBodyDone = true
}

// stopExtending leaves the read deadline as it is from now on. Call it after a read of the body has failed.
func (t *traffic) stopExtending() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.extendsReads = false
}

// boundRemainder bounds the time in which net/http reads the rest of a body that the handler did not read.
func (t *traffic) boundRemainder() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.refusal == nil && t.extendsReads && !t.isBodyDone {
		t.control.SetReadDeadline(time.Now().Add(t.bodyPace.window))
	}
}

// finish bounds the time in which the buffered rest of the response is written.
func (t *traffic) finish() {
	t.boundRemainder()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.isFinished = true
	switch {
	case t.refusal == nil:
		t.control.SetWriteDeadline(time.Now().Add(2 * t.writeDeadline.stall))
	case !t.hasBegun:
		t.control.SetWriteDeadline(time.Now().Add(endGrace))
	}
}

// transferBody is the body of a transfer.
type transferBody struct {
	io.ReadCloser
	traffic *traffic
}

func (b *transferBody) Read(p []byte) (int, error) {
	began := time.Now()
	b.traffic.beforeRead(began)
	n, err := b.ReadCloser.Read(p)
	b.traffic.afterRead(n, time.Since(began))
	switch err {
	case nil:
	case io.EOF:
		b.traffic.endBody()
	default:
		b.traffic.stopExtending()
	}
	return n, err
}

// Close closes the body; net/http reads the rest of it if it is short.
func (b *transferBody) Close() error {
	b.traffic.boundRemainder()
	defer b.traffic.endBody()
	return b.ReadCloser.Close()
}
