package server

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/retry"
)

// errGone is the cause of the end of the context of an operation if the client has gone. No client gets it as an answer.
var errGone = &entity.Error{Code: entity.Unavailable, Message: "the client has gone", RetryAfter: time.Second}

// attend gives a call the context of its operation. The caller calls end when the request has been served.
//
// net/http ends the context of a request when the client has gone and, in HTTP/1, also when the client has closed its sending side and waits
// for the response, as nc -N and many probes do. TCP does not tell these apart until something is written. A change would be made and its
// answer lost. Therefore a brief operation runs to its end, also for a client that has gone. A transfer, and a long operation that changes
// something, goes on after the client has closed its sending side: it may wait for Limits.RequestTime (Call.Waiting), and has as much time
// again to answer, and then ends with errGone. Where the server keeps writing to the client (Lines.KeepAlive), it ends as soon as a write
// fails, and not by time. All other operations, and all if the connection is lost, end with errGone at once. A wait ends earlier if its
// slot is needed for a new stream (watcher.passSlot); the operation then has Limits.RequestTime to answer.
func (s *Server) attend(c *Call) (end func()) {
	request, allowed := c.Request.Context(), s.options.Limits.RequestTime
	if c.operation.Timing == Brief {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(request), allowed)
		c.Context = ctx
		return cancel
	}
	ctx, leave := context.WithCancelCause(context.WithoutCancel(request))
	waits, endWaits := context.WithCancel(ctx)
	c.Context, c.patience = ctx, &patience{request: request, waits: waits, endWaits: endWaits}
	unwatch := context.AfterFunc(request, func() {
		if c.operation.outlastsRequest() && isHalfClosed(c.Request) {
			if retry.Pause(waits, allowed); ctx.Err() != nil {
				return
			}
			if endWaits(); !retry.Pause(ctx, allowed) || c.Response.isKeptAlive.Load() {
				return
			}
		}
		leave(errGone)
	})
	return func() {
		unwatch()
		leave(nil)
	}
}

// outlastsRequest reports whether the operation goes on when the client has closed its sending side. The commands of operators end long
// operations by leaving.
func (op *operation) outlastsRequest() bool {
	return op.Scope != ScopeOperator && (op.Timing == Transfer || !slices.Contains(readingMethods, op.Method))
}

// isHalfClosed reports whether the client of a request may still wait for the response after the context of the request has ended.
func isHalfClosed(r *http.Request) bool {
	c := connectionOf(r.Context())
	return c != nil && c.heads != nil && c.heads.isHalfClosed.Load()
}

// isGone reports whether the operation has ended because the client has gone, or may have gone and was waited for long enough.
func (c *Call) isGone() bool { return context.Cause(c.Context) == errGone }

// patience is how long an operation waits for a client that may have gone.
type patience struct {
	// request is the context of the request. It ends when the client has gone or may have gone; see Server.attend.
	request context.Context
	// waits ends when the waits of the operation end. endWaits ends it.
	waits    context.Context
	endWaits context.CancelFunc
	// waiting is the number of waits that last now. A stream of events is a wait from its beginning to its end.
	waiting atomic.Int64
}

// Waiting returns a context for a wait of at most a time within ctx. The wait ends earlier if the client may have gone, while there is
// still time to answer.
func (c *Call) Waiting(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, most)
	if c.patience == nil {
		return ctx, cancel
	}
	c.patience.waiting.Add(1)
	unwatch := context.AfterFunc(c.patience.waits, cancel)
	return ctx, sync.OnceFunc(func() {
		unwatch()
		cancel()
		c.patience.waiting.Add(-1)
	})
}
