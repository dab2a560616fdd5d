package webdav

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/entity"
)

// Codes of this protocol's own refusals.
const (
	precondition entity.Code = "precondition_failed"
	locked       entity.Code = "locked"
	elsewhere    entity.Code = "other_server"
	finiteDepth  entity.Code = "finite_depth"
	foreignToken entity.Code = "lock_token_mismatch"
	noLock       entity.Code = "no_such_lock"
	lockConflict entity.Code = "lock_conflict"
)

var (
	errPrecondition = entity.Errorf(precondition, "a condition of the request does not hold")
	errForeign      = entity.Errorf(foreignToken, "the lock was made by someone else")
	errElsewhere    = entity.Errorf(elsewhere, "the destination is not on this drive")
	errFiniteDepth  = entity.Errorf(finiteDepth, "Depth: infinity is refused; walk the folders with Depth: 1")
)

// statuses is the one table from an error's code to the status of its answer.
var statuses = map[entity.Code]int{
	entity.InvalidRequest:       http.StatusBadRequest,
	entity.Forbidden:            http.StatusForbidden,
	entity.NotFound:             http.StatusNotFound,
	entity.WorkspaceSuspended:   http.StatusForbidden,
	entity.WorkspaceClosed:      http.StatusForbidden,
	entity.MethodNotAllowed:     http.StatusMethodNotAllowed,
	entity.PayloadTooLarge:      http.StatusRequestEntityTooLarge,
	entity.UnsupportedMediaType: http.StatusUnsupportedMediaType,
	entity.LimitReached:         http.StatusConflict,
	entity.RateLimited:          http.StatusTooManyRequests,
	entity.Unavailable:          http.StatusServiceUnavailable,

	drive.Exists:   http.StatusPreconditionFailed,
	drive.NoParent: http.StatusConflict,
	drive.IsFolder: http.StatusMethodNotAllowed,
	drive.Linked:   http.StatusConflict,
	drive.Overlap:  http.StatusForbidden,
	drive.Full:     http.StatusInsufficientStorage,
	drive.Broken:   http.StatusBadRequest,

	precondition: http.StatusPreconditionFailed,
	locked:       http.StatusLocked,
	elsewhere:    http.StatusBadGateway,
	finiteDepth:  http.StatusForbidden,
	foreignToken: http.StatusForbidden,
	noLock:       http.StatusConflict,
	lockConflict: http.StatusLocked,
}

// conditions are the XML elements that RFC 4918, section 16, names for refusals.
var conditions = map[entity.Code]string{
	locked:       "lock-token-submitted",
	lockConflict: "no-conflicting-lock",
	finiteDepth:  "propfind-finite-depth",
	noLock:       "lock-token-matches-request-uri",
}

func code(err error) entity.Code {
	var e *entity.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

func (c *call) fail(err error) {
	var e *entity.Error
	if !errors.As(err, &e) || statuses[e.Code] == 0 {
		e = c.unnamed(err)
	}
	status := cmp.Or(statuses[e.Code], http.StatusInternalServerError)
	wait := e.RetryAfter
	if status == http.StatusServiceUnavailable {
		wait = max(wait, time.Second)
	}
	if wait > 0 {
		c.w.Header().Set("Retry-After", strconv.Itoa(int((wait+time.Second-1)/time.Second)))
	}
	if element := conditions[e.Code]; element != "" {
		c.condition(status, element, err)
		return
	}
	c.answer(status, e)
}

// unnamed logs what a client cannot be told.
func (c *call) unnamed(err error) *entity.Error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return &entity.Error{Code: entity.Unavailable, Message: "the request ended", RetryAfter: time.Second}
	}
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		return &entity.Error{Code: entity.Unavailable, Message: "too many files are open", RetryAfter: time.Second}
	}
	request := c.w.Header().Get("X-Request-Id")
	c.log.Error("a drive request failed", "request", request, "method", c.r.Method, "error", err)
	if request == "" {
		return entity.Errorf(entity.Internal, "something went wrong inside")
	}
	return entity.Errorf(entity.Internal, "something went wrong inside; the request's id is %s", request)
}

func (c *call) answer(status int, e *entity.Error) {
	header := c.w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	c.w.WriteHeader(status)
	json.NewEncoder(c.w).Encode(map[string]string{"error": string(e.Code), "message": e.Message})
}

// condition answers with the element that names a refusal; a lock's with the path that is locked.
func (c *call) condition(status int, element string, err error) {
	c.w.Header().Set("Content-Type", xmlType)
	c.w.WriteHeader(status)
	inside := ""
	if path, is := conflictPath(err); is {
		entry, err := c.drive.Stat(path)
		inside = "<D:href>" + escape(c.href(path, err == nil && entry.Folder)) + "</D:href>"
	}
	fmt.Fprintf(c.w, `%s<D:error xmlns:D="DAV:"><D:%s>%s</D:%s></D:error>`, xmlHead, element, inside, element)
}
