package server

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/atelier-run/atelier/answer"
	"github.com/atelier-run/atelier/entity"
)

// Errors that are identical for all their reasons, so that clients cannot distinguish these.
var (
	ErrUnauthorized  = entity.Errorf(entity.Unauthorized, "a valid credential is required")
	ErrNotFound      = entity.Errorf(entity.NotFound, "not found")
	ErrForbidden     = entity.Errorf(entity.Forbidden, "the credential may not do this")
	ErrInvalidCursor = entity.Errorf(entity.InvalidCursor, "")
	ErrOverloaded    = &entity.Error{Code: entity.Unavailable, Message: "the server is busy", RetryAfter: time.Second}
)

// Invalid returns an invalid_request error; the message names the field.
func Invalid(format string, args ...any) error {
	return entity.Errorf(entity.InvalidRequest, format, args...)
}

// publicError returns the part of an error that the client may see. Codes that are not in answer.Statuses, and errors that are no
// *entity.Error, become internal or unavailable.
func publicError(err error, requestID string) *entity.Error {
	var refused *entity.Error
	switch {
	case errors.As(err, &refused):
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return &entity.Error{Code: entity.Unavailable, Message: "the server did not answer in time", RetryAfter: time.Second}
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return ErrOverloaded
	}
	if refused == nil || refused.Code == entity.Internal || answer.Statuses[refused.Code] == 0 {
		return entity.Errorf(entity.Internal, "the server failed; report the request id %s to its operators", requestID)
	}
	switch refused.Code {
	case entity.NotFound:
		return ErrNotFound
	case entity.Unauthorized:
		return ErrUnauthorized
	}
	return refused
}

// PublicError returns the part of an error that the client may see, for responses that have begun already.
func (c *Call) PublicError(err error) *entity.Error {
	c.Response.Err = err
	return publicError(err, c.Response.ID)
}

// fail answers with an error. It does nothing once the response has begun.
func (w *Response) fail(err error) {
	if w.status != 0 {
		return
	}
	refused := publicError(err, w.ID)
	header := w.Header()
	for _, entityHeader := range []string{"Content-Length", "Content-Type", "Etag", "Last-Modified"} {
		header.Del(entityHeader)
	}
	switch refused.Code {
	case entity.Unavailable, entity.RateLimited:
		header.Set("Retry-After", answer.RetrySeconds(refused.RetryAfter))
	}
	if w.refuse != nil {
		w.refuse(w, refused)
		return
	}
	w.WriteRefusal(refused)
}

// WriteRefusal answers with an error as JSON, the ordinary form, with a challenge if the request lacks a credential, or if its OAuth token
// lacks a scope. It is for the functions Route.Refuse that answer only some errors in another form.
func (w *Response) WriteRefusal(refused *entity.Error) {
	switch refused.Code {
	case entity.Unauthorized:
		w.Header()["Www-Authenticate"] = w.challenges()
	case entity.Forbidden:
		if challenge := w.scopeChallenge(); challenge != "" {
			w.Header()["Www-Authenticate"] = []string{challenge}
		}
	}
	body := answer.Body{Error: refused.Code, Message: refused.Message, Reason: refused.Reason}
	if refused.Code == entity.InvalidCursor {
		body.Message = ""
	}
	w.WriteJSON(answer.Statuses[refused.Code], body)
}

// internalDetail returns the text to log for an internal error, which the client does not see; "" for other errors.
func internalDetail(err error) string {
	var refused *entity.Error
	if errors.As(err, &refused) && refused.Code != entity.Internal {
		return ""
	}
	return fmt.Sprint(err)
}
