package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"github.com/atelier-run/atelier/entity"
)

// Statuses is the only table from error codes to HTTP statuses.
var Statuses = map[entity.Code]int{
	entity.InvalidRequest:       http.StatusBadRequest,
	entity.InvalidCursor:        http.StatusBadRequest,
	entity.Unauthorized:         http.StatusUnauthorized,
	entity.Forbidden:            http.StatusForbidden,
	entity.NotFound:             http.StatusNotFound,
	entity.MethodNotAllowed:     http.StatusMethodNotAllowed,
	entity.SlugTaken:            http.StatusConflict,
	entity.EmailTaken:           http.StatusConflict,
	entity.WorkspaceSuspended:   http.StatusForbidden,
	entity.WorkspaceClosed:      http.StatusForbidden,
	entity.BillingUser:          http.StatusConflict,
	entity.FinalOwner:           http.StatusConflict,
	entity.AlreadyMember:        http.StatusConflict,
	entity.InvitationExpired:    http.StatusConflict,
	entity.InvitationRevoked:    http.StatusConflict,
	entity.InvitationConsumed:   http.StatusConflict,
	entity.DeviceInUse:          http.StatusConflict,
	entity.AnchorConflict:       http.StatusConflict,
	entity.LinkInvalid:          http.StatusForbidden,
	entity.LimitReached:         http.StatusConflict,
	entity.InvalidCwd:           http.StatusUnprocessableEntity,
	entity.CwdConflict:          http.StatusConflict,
	entity.NoDefaultSession:     http.StatusNotFound,
	entity.NoPendingQuestion:    http.StatusConflict,
	entity.RequestIDReused:      http.StatusUnprocessableEntity,
	entity.TurnTaken:            http.StatusConflict,
	entity.UploadEnded:          http.StatusConflict,
	entity.PathInUse:            http.StatusConflict,
	entity.PortInUse:            http.StatusConflict,
	entity.ReconcileFailed:      http.StatusBadGateway,
	entity.DomainOccupied:       http.StatusConflict,
	entity.HostnameInUse:        http.StatusConflict,
	entity.DomainCleanupPending: http.StatusConflict,
	entity.DomainNotConfigured:  http.StatusNotFound,
	entity.PayloadTooLarge:      http.StatusRequestEntityTooLarge,
	entity.UnsupportedMediaType: http.StatusUnsupportedMediaType,
	entity.MisdirectedRequest:   http.StatusMisdirectedRequest,
	entity.RateLimited:          http.StatusTooManyRequests,
	entity.InsufficientStorage:  http.StatusInsufficientStorage,
	entity.Unavailable:          http.StatusServiceUnavailable,
	entity.Internal:             http.StatusInternalServerError,
}

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

// publicError returns the part of an error that the client may see. Codes that are not in Statuses, and errors that are no
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
	if refused == nil || refused.Code == entity.Internal || Statuses[refused.Code] == 0 {
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

type errorBody struct {
	Error   entity.Code `json:"error"`
	Message string      `json:"message,omitzero"`
	Reason  string      `json:"reason,omitzero"`
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
		header.Set("Retry-After", RetrySeconds(refused.RetryAfter))
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
	body := errorBody{refused.Code, refused.Message, refused.Reason}
	if refused.Code == entity.InvalidCursor {
		body.Message = ""
	}
	w.WriteJSON(Statuses[refused.Code], body)
}

// RetrySeconds returns a duration in seconds for Retry-After, rounded up, at least 1.
func RetrySeconds(d time.Duration) string {
	return strconv.Itoa(max(1, int((d+time.Second-1)/time.Second)))
}

// internalDetail returns the text to log for an internal error, which the client does not see; "" for other errors.
func internalDetail(err error) string {
	var refused *entity.Error
	if errors.As(err, &refused) && refused.Code != entity.Internal {
		return ""
	}
	return fmt.Sprint(err)
}
