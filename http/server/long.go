package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/retry"
)

// RunLong runs an operation that lasts as long as its purpose and counts as a stream. ctx ends with an *entity.Error as its cause when the
// client has gone, the caller loses the access or the server shuts down; see Refusal and Server.attend. Errors: the errors of
// run, rate_limited, unavailable.
func (c *Call) RunLong(run func(ctx context.Context) error) error {
	ctx, end := context.WithCancelCause(c.Context)
	defer end(nil)
	remove, err := c.server.watcher.addStream(c, c.access(), end)
	if err != nil {
		return err
	}
	defer remove()
	if c.slots != nil {
		c.slots.release() // the stream has a slot of its own
	}
	return run(ctx)
}

// Submit calls a function of an operation that RunLong runs, with the time of an ordinary request. Errors: the errors of submit, or the
// refusal if ctx has ended with one and submit has failed.
func Submit[T any](ctx context.Context, c *Call, submit func(c *Call) (T, error)) (T, error) {
	limited, cancel := context.WithTimeout(ctx, c.RequestTime())
	defer cancel()
	result, err := submit(c.With(limited))
	c.server.releaseBody(c.Response) // the rest may wait for hours
	if refused := Refusal(ctx); err != nil && refused != nil {
		return result, refused
	}
	return result, err
}

// AwaitAnswer prepares the deadlines of the connection for an answer that is written at once after a long time. The request has
// been read. AwaitAnswer removes the read deadline: net/http reads ahead to notice that the client has gone, and the deadline would end the
// request; see limitBody. The write deadline is set again when the answer begins.
func (c *Call) AwaitAnswer() {
	http.NewResponseController(c.Response.ResponseWriter).SetReadDeadline(time.Time{})
	c.removeWriteDeadline()
	c.ExtendWrites()
}

// removeWriteDeadline removes the write deadline until Response.pace extends it: over HTTP/2 it would end the request even if
// nothing is being written.
func (c *Call) removeWriteDeadline() {
	http.NewResponseController(c.Response.ResponseWriter).SetWriteDeadline(time.Time{})
}

// Refusal returns the error that has ended the context of RunLong; nil if the context has not ended, or has ended because the output
// cannot be written.
func Refusal(ctx context.Context) *entity.Error {
	refused, _ := errors.AsType[*entity.Error](context.Cause(ctx))
	return refused
}

// Lasting is something that outlives the request that opened it.
type Lasting interface {
	// End ends it, and returns when it has ended.
	End(ctx context.Context) error
	// Ended is closed when it has ended.
	Ended() <-chan struct{}
}

// endPause is the pause before another attempt to end something.
const endPause = time.Second

// OpenLasting opens something that outlives the request. It ends it when the caller loses the access that the operation
// requires, or the server shuts down. Errors: the errors of open, rate_limited, unavailable.
func OpenLasting[T Lasting](c *Call, open func() (T, error)) (opened T, err error) {
	ctx, lose := context.WithCancelCause(context.WithoutCancel(c.Context))
	remove, err := c.server.watcher.addTerminal(c, lose)
	if err != nil {
		return opened, err
	}
	isOpen := false
	defer func() {
		if !isOpen {
			lose(nil)
			remove()
		}
	}()
	if opened, err = open(); err != nil {
		return opened, err
	}
	isOpen = true
	go func() {
		defer remove()
		defer lose(nil)
		select {
		case <-opened.Ended():
		case <-ctx.Done():
			c.EndLasting(opened)
		}
	}()
	return opened, nil
}

// EndLasting ends something, and tries again until it has ended.
func (c *Call) EndLasting(l Lasting) {
	for {
		select {
		case <-l.Ended():
			return
		default:
		}
		ctx, cancel := context.WithTimeout(context.Background(), c.RequestTime())
		err := l.End(ctx)
		cancel()
		if err == nil {
			return
		}
		c.Log().Error("ending a process failed", "error", err)
		if !retry.PauseUnless(context.Background(), endPause, l.Ended()) {
			return
		}
	}
}
