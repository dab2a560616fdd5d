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

// TransferTo runs serve for a request that lasts as long as its bytes move and the caller has access (watch.go). serve gets
// the request to read from, and answers with c.w. If the access is lost, the request's context ends with the *entity.Error
// that says why as its cause.
func (c *Call) TransferTo(serve func(r *http.Request) error) error {
	ctx, end := context.WithCancelCause(c.Context)
	defer end(nil)
	defer c.server.watch.addTransfer(c, end)()
	t := newTraffic(http.NewResponseController(c.Response.ResponseWriter), c.server.options.Limits.StallTime, c.Request)
	defer t.finish()
	c.Response.pace = t.beforeWrite
	r := c.Request.WithContext(ctx)
	if r.ContentLength != 0 {
		r.Body = &transferBody{r.Body, t}
	}
	// The access ends by a cause that says why; without one the client has gone, or the request is over.
	defer context.AfterFunc(ctx, func() {
		if lost, is := errors.AsType[*entity.Error](context.Cause(ctx)); is {
			t.cutOff(lost)
		}
	})()
	return serve(r)
}

// traffic keeps the deadlines of a connection while a transfer, a request on a drive, uses it.
//
// The body of an upload has a deadline ahead as long as its bytes arrive, every other body only the one deadline that was
// set when the request began. The answer has a deadline ahead as long as its bytes leave. cut ends both, from any
// goroutine: after it no deadline moves any further, so that a client cannot keep going what it has lost the access to.
type traffic struct {
	control *http.ResponseController

	mu                sync.Mutex
	arriving, leaving deadline
	// extends: the body has a deadline ahead as long as its bytes arrive.
	extends bool
	// arrived: no more bytes of the body are waited for. A deadline would then end the request: the server reads ahead.
	arrived bool
	// begun: bytes of the answer were sent.
	begun bool
	// lost is why the access ended.
	lost error
}

func newTraffic(control *http.ResponseController, stall time.Duration, r *http.Request) *traffic {
	return &traffic{
		control:  control,
		arriving: deadline{set: control.SetReadDeadline, stall: stall},
		leaving:  deadline{set: control.SetWriteDeadline, stall: stall},
		extends:  r.Method == http.MethodPut,
		arrived:  r.ContentLength == 0,
	}
}

// cut ends the transfer because the access has ended. An answer that has begun breaks off; else lastWords are left to
// refuse the request.
func (t *traffic) cutOff(lost error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lost = lost
	now := time.Now()
	if !t.arrived {
		t.control.SetReadDeadline(now)
	}
	if t.begun {
		t.control.SetWriteDeadline(now)
	} else {
		t.control.SetWriteDeadline(now.Add(endGrace))
	}
}

// send is called before bytes of the answer leave; its error ends the answer.
func (t *traffic) beforeWrite() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.lost == nil:
		t.begun = true
		t.leaving.extend()
	case t.begun:
		return t.lost
	}
	return nil
}

// receive is called before bytes of the body are waited for.
func (t *traffic) beforeRead() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lost == nil && t.extends && !t.arrived {
		t.arriving.extend()
	}
}

// received is called once the whole body has arrived: what the drive then does with it takes its own time.
func (t *traffic) received() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lost == nil && !t.arrived {
		t.control.SetReadDeadline(time.Time{})
	}
	t.arrived = true
}

// leave bounds the time in which the rest of a body may arrive, which net/http reads.
func (t *traffic) boundRemainder() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lost == nil && t.extends && !t.arrived {
		t.control.SetReadDeadline(time.Now().Add(t.arriving.stall))
	}
}

// finish gives what is buffered the time to leave, after the rest of the body has arrived.
func (t *traffic) finish() {
	t.boundRemainder()
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.lost == nil:
		t.control.SetWriteDeadline(time.Now().Add(2 * t.leaving.stall))
	case !t.begun:
		t.control.SetWriteDeadline(time.Now().Add(endGrace))
	}
}

// transferBody is the body of a transfer.
type transferBody struct {
	io.ReadCloser
	traffic *traffic
}

func (b *transferBody) Read(p []byte) (int, error) {
	b.traffic.beforeRead()
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.traffic.received()
	}
	return n, err
}

// Close waits for the rest of a body, where that is short. Nobody waits for more of it afterwards.
func (b *transferBody) Close() error {
	b.traffic.boundRemainder()
	defer b.traffic.received()
	return b.ReadCloser.Close()
}
