package http

import (
	"context"
	"net/http"
	"strings"
	"time"
)

// publicShare is the part of the requests under way that anybody may take. A body that comes slowly, or a queue, holds
// one for long; with more of them strangers would keep out who has a credential.
const publicShare = 4

// operate takes a request through its operation.
func (s *Server) operate(op *operation, w *response, r *http.Request) {
	w.route = op
	if op.manner != streaming {
		defer s.requests.Add(-1)
		if s.requests.Add(1) > int64(s.options.Limits.Requests) {
			w.fail(errOverloaded)
			return
		}
	}
	if op.scope == public {
		defer s.publicRequests.Add(-1)
		if s.publicRequests.Add(1) > int64(max(1, s.options.Limits.Requests/publicShare)) {
			w.fail(errOverloaded)
			return
		}
	}
	c := &call{ctx: r.Context(), server: s, operation: op, w: w, r: r}
	if op.manner == brief || op.manner == paged {
		ctx, cancel := context.WithTimeout(c.ctx, s.options.Limits.RequestTime)
		defer cancel()
		c.ctx = ctx
	}
	err := c.admit()
	if err == nil {
		err = op.handler(c)
	}
	if err != nil {
		w.failed = err
		c.fail(err)
	}
}

// limitBody bounds the time that a body may take to arrive, also where nobody reads it: net/http then waits for it before
// it sends the answer. Transfers extend it. Requests without one keep no read deadline, which would end them early: the
// server reads ahead to notice that a client has gone.
func (w *response) limitBody(r *http.Request, d time.Duration) {
	if r.ContentLength != 0 {
		http.NewResponseController(w.ResponseWriter).SetReadDeadline(time.Now().Add(d))
	}
}

// overDrive tells whether the request is for a drive, whose clients know HTTP Basic.
func (w *response) overDrive() bool {
	return w.route != nil && strings.HasPrefix(w.route.path, drivePath)
}

// challenges are the ways to authenticate.
func (w *response) challenges() []string {
	if w.overDrive() {
		return []string{"Bearer", `Basic realm="Atelier", charset="UTF-8"`}
	}
	return []string{"Bearer"}
}
