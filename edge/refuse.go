package edge

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/atelier-run/atelier/answer"
	"github.com/atelier-run/atelier/edge/pages"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/limit"
)

// drainTime bounds how long the edge reads the rest of a request's body after the edge has refused the request, or after the
// app has answered before the end of the body.
const drainTime = 10 * time.Second

var noIndex = []string{"noindex"}

// statuses has the error codes that the edge shows to clients. All other codes are shown as Internal.
var statuses = answer.Statuses.Of(
	entity.InvalidRequest, entity.Unauthorized, entity.Forbidden, entity.NotFound, entity.MethodNotAllowed, entity.PayloadTooLarge,
	entity.RateLimited, entity.Unavailable, entity.Internal,
)

// statusOf returns the HTTP status of an error: 502 for errGateway, 504 for reasonTimeout, and otherwise the status of the code.
func statusOf(err *entity.Error) int {
	switch {
	case err == errGateway:
		return http.StatusBadGateway
	case err.Reason == reasonTimeout:
		return http.StatusGatewayTimeout
	default:
		return statuses[err.Code]
	}
}

// shown returns the error that the client sees instead of err. It hides internal errors.
func shown(err error) *entity.Error {
	var refused *entity.Error
	if !errors.As(err, &refused) {
		return &entity.Error{Code: entity.Unavailable, Message: "the server did not answer in time", RetryAfter: time.Second}
	}
	if statuses[refused.Code] == 0 || refused.Code == entity.Internal {
		return entity.Errorf(entity.Internal, "the server failed")
	}
	return refused
}

// refuse answers a request with an error. A document request gets a page, or, for errUnauthorized of a private app, a redirect to the
// launch of the app. Any other request gets the error in the JSON form of the API. refuse does nothing if the response has begun.
func (e *Edge) refuse(x *exchange, err error) {
	if x.status != 0 {
		return
	}
	x.failure = err
	x.drain()
	refused := shown(err)
	h := x.Header()
	clear(h) // a response of the app may have set headers
	document := isDocument(x.request)
	if document && refused == errUnauthorized && x.target != nil && x.stopped() == nil {
		x.outcome = outcomeSignIn
		e.redirect(x, http.StatusFound, e.launchAddress(x))
		return
	}
	if x.outcome != outcomeEnded {
		x.outcome = outcomeOf(refused.Code)
	}
	if refused.RetryAfter > 0 {
		h["Retry-After"] = []string{answer.RetrySeconds(refused.RetryAfter)}
	}
	status := statusOf(refused)
	x.guard()
	if document {
		pages.Render(x, status, e.page(x, refused))
		return
	}
	if refused.Code == entity.Unauthorized {
		h["Www-Authenticate"] = []string{`Bearer realm="app"`}
	}
	// It cannot fail: the body has texts only.
	body, _ := json.Marshal(answer.Body{Error: refused.Code, Message: refused.Message, Reason: refused.Reason})
	h["Content-Type"] = []string{"application/json"}
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	x.WriteHeader(status)
	if x.request.Method != http.MethodHead {
		_, _ = x.Write(body) // fails only if the client has gone
	}
}

// drain reads the rest of the request's body, within the bounds of limit.Drain and drainTime, because most clients read the response only
// after they have sent the whole request.
func (x *exchange) drain() {
	if x.request.ContentLength == 0 || x.stopped() != nil {
		return
	}
	_ = http.NewResponseController(x.ResponseWriter).SetReadDeadline(time.Now().Add(drainTime))
	limit.Drain(x.request, x.request.Body)
}

// guard sets the headers of a response that the edge makes itself.
func (x *exchange) guard() {
	h := x.Header()
	h["X-Request-Id"] = []string{x.id}
	h["X-Robots-Tag"] = noIndex
	h["Cache-Control"] = []string{"no-store"}
	h["Referrer-Policy"] = []string{"same-origin"}
	h["X-Content-Type-Options"] = []string{"nosniff"}
	if x.strict != nil {
		h[strictTransport] = x.strict
	}
}

// redirect redirects a browser. The browser sends no referrer, because the address may contain a grant.
func (e *Edge) redirect(x *exchange, status int, to string) {
	x.guard()
	h := x.Header()
	h["Referrer-Policy"] = []string{"no-referrer"}
	h["Location"] = []string{to}
	x.WriteHeader(status)
}

// page returns the page for an error.
func (e *Edge) page(x *exchange, refused *entity.Error) pages.Page {
	p := pages.Page{Title: "This page cannot be shown", Text: pages.Sentence(refused.Message), Request: x.id, Frames: e.scheme + "://" + e.o.PublicURL.Host}
	switch refused.Reason {
	case reasonStarting:
		p.Title, p.Text = "The app is starting", "This page is shown again by itself as soon as the app is ready."
		p.Refresh, p.Request, p.Busy = int(retryTime/time.Second), "", true
		return p
	case reasonFailed:
		p.Title, p.Text, p.Refresh = "The app is down", "It does not run at the moment, and is started again. This page is shown again by itself.", 5
		if x.target != nil && x.target.state == stateFailed {
			p.Text, p.Refresh = "It could not be started. Its members see the reason in the workspace.", 0
		}
		return p
	case reasonDisabled:
		p.Title, p.Text, p.Request = "The app is disabled", "A member of its workspace has switched it off.", ""
		return p
	case reasonSuspended:
		p.Title, p.Text, p.Request = "The app is suspended", "Its workspace is suspended.", ""
		return p
	case reasonMissing:
		p.Title, p.Text, p.Request = "The app has no folder", "Its folder was moved or removed. Members of its workspace can choose another one.", ""
		return p
	}
	switch refused.Code {
	case entity.NotFound:
		p.Title, p.Text, p.Request = "No app here", "The address is wrong, or the app no longer exists.", ""
	case entity.Forbidden:
		p.Title = "Not allowed"
	case entity.RateLimited:
		p.Title = "Too many requests"
	case entity.Internal:
		p.Title, p.Text = "The server failed", "This is not your fault. Try again in a moment."
	default:
		if statusOf(refused) >= http.StatusInternalServerError {
			p.Title = "Temporarily unavailable"
		}
	}
	return p
}
