package webdav

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"syscall"
	"time"

	"github.com/atelier-run/atelier/answer"
	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/drive/locks"
	"github.com/atelier-run/atelier/entity"
)

// Codes of errors that only this protocol has.
const (
	codePreconditionFailed entity.Code = "precondition_failed"
	codeInvalidRange       entity.Code = "invalid_range"
	codeOtherServer        entity.Code = "other_server"
	codeFiniteDepth        entity.Code = "finite_depth"
)

var (
	errPreconditionFailed = entity.Errorf(codePreconditionFailed, "a condition of the request does not hold")
	errInvalidRange       = entity.Errorf(codeInvalidRange, "the file has no byte in the range of the request")
	errOtherServer        = entity.Errorf(codeOtherServer, "the destination is not on this drive")
	errFiniteDepth        = entity.Errorf(codeFiniteDepth, "Depth: infinity is refused; list each folder with Depth: 1")
)

// statuses has the error codes that a drive shows to clients: some codes of package entity, and the codes of drives, of locks and of this
// protocol. All other codes are shown as entity.Internal.
var statuses = answer.Statuses.Of(
	entity.InvalidRequest, entity.Forbidden, entity.NotFound, entity.WorkspaceSuspended, entity.WorkspaceClosed, entity.MethodNotAllowed,
	entity.PayloadTooLarge, entity.UnsupportedMediaType, entity.LimitReached, entity.RateLimited, entity.Unavailable, drive.Full,
).With(answer.Table{
	drive.Exists:   http.StatusPreconditionFailed,
	drive.NoParent: http.StatusConflict,
	drive.IsFolder: http.StatusMethodNotAllowed,
	drive.Linked:   http.StatusConflict,
	drive.Overlap:  http.StatusForbidden,
	drive.Broken:   http.StatusBadRequest,

	locks.Locked:        http.StatusLocked,
	locks.Excluded:      http.StatusLocked,
	locks.TokenMismatch: http.StatusForbidden,
	locks.NoSuchLock:    http.StatusConflict,

	codePreconditionFailed: http.StatusPreconditionFailed,
	codeInvalidRange:       http.StatusRequestedRangeNotSatisfiable,
	codeOtherServer:        http.StatusBadGateway,
	codeFiniteDepth:        http.StatusForbidden,
})

// conditionElements are the XML elements that RFC 4918, section 16, defines for errors.
var conditionElements = map[entity.Code]string{
	locks.Locked:     "lock-token-submitted",
	locks.Excluded:   "no-conflicting-lock",
	codeFiniteDepth:  "propfind-finite-depth",
	locks.NoSuchLock: "lock-token-matches-request-uri",
}

// writeError answers with an error. An error without a known code becomes an internal error.
func (c *call) writeError(err error) {
	var e *entity.Error
	if !errors.As(err, &e) || statuses[e.Code] == 0 {
		e = c.internalError(err)
	}
	status := cmp.Or(statuses[e.Code], http.StatusInternalServerError)
	if status == http.StatusMethodNotAllowed {
		c.w.Header().Set("Allow", Allow)
	}
	wait := e.RetryAfter
	if status == http.StatusServiceUnavailable {
		wait = max(wait, time.Second)
	}
	if wait > 0 {
		c.w.Header().Set("Retry-After", answer.RetrySeconds(wait))
	}
	if element := conditionElements[e.Code]; element != "" {
		c.writeConditionError(status, element, err)
		return
	}
	c.writeJSONError(status, e)
}

// internalError returns the error for the client in place of one without a known code, which it logs.
func (c *call) internalError(err error) *entity.Error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return &entity.Error{Code: entity.Unavailable, Message: "the request was canceled", RetryAfter: time.Second}
	}
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		return &entity.Error{Code: entity.Unavailable, Message: "the server has too many files open; try again", RetryAfter: time.Second}
	}
	request := c.w.Header().Get("X-Request-Id")
	c.log.Error("a drive request failed", "request", request, "method", c.r.Method, "error", err)
	if request == "" {
		return entity.Errorf(entity.Internal, "internal error")
	}
	return entity.Errorf(entity.Internal, "internal error; the request's id is %s", request)
}

func (c *call) writeJSONError(status int, e *entity.Error) {
	header := c.w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	c.w.WriteHeader(status)
	json.NewEncoder(c.w).Encode(map[string]string{"error": string(e.Code), "message": e.Message})
}

// writeConditionError answers with the XML element for an error. The element of a lock conflict contains the locked path.
func (c *call) writeConditionError(status int, element string, err error) {
	c.w.Header().Set("Content-Type", xmlType)
	c.w.WriteHeader(status)
	content := ""
	if conflict, is := errors.AsType[*locks.Conflict](err); is {
		entry, err := c.drive.Stat(conflict.Path)
		content = "<D:href>" + escape(c.href(conflict.Path, err == nil && entry.Folder)) + "</D:href>"
	}
	fmt.Fprintf(c.w, `%s<D:error xmlns:D="DAV:"><D:%s>%s</D:%s></D:error>`, xmlHead, element, content, element)
}
