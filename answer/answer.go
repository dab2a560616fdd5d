// Package answer has the parts of answers that every door of HTTP needs: the server of the platform (http/server), the edge of the apps
// (edge) and the drives (drive/webdav). A door decides what it answers, and in which form; this package has the status of each error
// code, the ids of requests, what the access logs may show of a path, the report of a panic, and the counters.
package answer

import (
	"maps"
	"net/http"
	"strconv"
	"time"

	"github.com/atelier-run/atelier/entity"
)

// Table has the HTTP status of each error code that a door shows to its clients. The status of all other codes is 0.
type Table map[entity.Code]int

// Statuses is the only table of the codes of package entity. A door that shows only some of these codes calls Of.
var Statuses = Table{
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

// Of returns a table of some codes of t. It panics if t does not have one of them.
func (t Table) Of(codes ...entity.Code) Table {
	some := make(Table, len(codes))
	for _, code := range codes {
		if t[code] == 0 {
			panic("answer: no status for the code " + string(code))
		}
		some[code] = t[code]
	}
	return some
}

// With returns a table of the codes of t and of the codes that only one door has. It panics if t has one of them already.
func (t Table) With(own Table) Table {
	all := maps.Clone(t)
	for code, status := range own {
		if all[code] != 0 {
			panic("answer: two statuses for the code " + string(code))
		}
		all[code] = status
	}
	return all
}

// Body is the JSON form of an error in the answers of the platform and of the edge.
type Body struct {
	Error   entity.Code `json:"error"`
	Message string      `json:"message,omitzero"`
	Reason  string      `json:"reason,omitzero"`
}

// RetrySeconds returns a duration in seconds for Retry-After, rounded up, at least 1.
func RetrySeconds(d time.Duration) string {
	return strconv.Itoa(max(1, int((d+time.Second-1)/time.Second)))
}
