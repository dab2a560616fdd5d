package oauth

import (
	"context"
	"errors"
	"net/http"

	"github.com/ory/fosite"

	"github.com/atelier-run/atelier/entity"
)

// Error refuses a request in the words of RFC 6749, section 5.2.
type Error struct {
	Status int
	// Name is the registered error code; Description is for the client's developers.
	Name, Description string
	cause             error
}

func (e *Error) Error() string { return e.Name + ": " + e.Description }
func (e *Error) Unwrap() error { return e.cause }

var (
	// errTarget is of RFC 8707.
	errTarget = &fosite.RFC6749Error{
		ErrorField: "invalid_target", CodeField: http.StatusBadRequest,
		DescriptionField: "The resource is another one than this server's.",
	}
	errUnavailable = &fosite.RFC6749Error{
		ErrorField: "temporarily_unavailable", CodeField: http.StatusServiceUnavailable,
		DescriptionField: "The server did not answer in time.",
	}
	errServer = &fosite.RFC6749Error{
		ErrorField: "server_error", CodeField: http.StatusInternalServerError,
		DescriptionField: "Something failed inside.",
	}
	// errStale is what a grant refuses that was good when it was looked at.
	errStale = errors.New("the code or token was used, has expired or was revoked")
)

// asError is how an error is told to a client. What failed inside stays inside.
func asError(err error) *Error {
	told := new(fosite.RFC6749Error)
	var failed inside
	switch {
	case errors.Is(err, errStale):
		told = fosite.ErrInvalidGrant
	case errors.Is(err, fosite.ErrInvalidState): // which no RFC knows
		told = fosite.ErrInvalidRequest.WithHintf("state must have at least %d characters.", fosite.MinParameterEntropy)
	case hasCode(err, entity.Unavailable), hasCode(err, entity.RateLimited),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		told = errUnavailable
	case errors.As(err, &failed):
		told = errServer
	case errors.As(err, &told) && told.CodeField < http.StatusInternalServerError, errors.Is(err, fosite.ErrTemporarilyUnavailable):
	default:
		told = errServer
	}
	return &Error{told.CodeField, told.ErrorField, told.GetDescription(), err}
}

// inside is an error of an entity, whatever fosite makes of it on the way.
type inside struct{ error }

func (i inside) Unwrap() error { return i.error }

// missing tells of an error that there is no such entity; refused that the entity would not.
func missing(err error) bool { return hasCode(err, entity.NotFound) }

func refused(err error) bool { return missing(err) || hasCode(err, entity.InvalidRequest) }

func hasCode(err error, code entity.Code) bool {
	var found *entity.Error
	return errors.As(err, &found) && found.Code == code
}

func orElse(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}
