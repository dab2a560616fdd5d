package oauth

import (
	"context"
	"errors"
	"net/http"

	"github.com/atelier-run/atelier/entity"
)

// Error refuses a request in the form of RFC 6749, section 5.2.
type Error struct {
	Status int
	// Name is a registered error code. Description is for the developers of the client: printable ASCII without quotation
	// marks and backslashes.
	Name, Description string
	cause             error
}

// Error returns the text for logs. The cause is never shown to clients.
func (e *Error) Error() string {
	if e.cause != nil {
		return e.Name + ": " + e.cause.Error()
	}
	return e.Name + ": " + e.Description
}

// Unwrap returns the error of the entity that made the request fail, or nil.
func (e *Error) Unwrap() error { return e.cause }

func refusal(name, description string) *Error {
	return &Error{Status: http.StatusBadRequest, Name: name, Description: description}
}

// asError returns err if it is an *Error. Any other error is internal; the client sees only whether to try again.
func asError(err error) *Error {
	var refused *Error
	switch {
	case errors.As(err, &refused):
		return refused
	case entity.HasCode(err, entity.Unavailable, entity.RateLimited),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return &Error{http.StatusServiceUnavailable, "temporarily_unavailable", "The server did not answer in time. Try again.", err}
	}
	return &Error{http.StatusInternalServerError, "server_error", "The server failed.", err}
}
