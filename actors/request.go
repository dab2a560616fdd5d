package actors

import (
	"errors"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
)

// ErrRetry says that the command did not take effect and may be sent again: its entity was stopping, starting over, or
// led elsewhere.
var ErrRetry = errors.New("the entity is not here for now")

// request is a command on its way to an entity. It is answered exactly once.
type request struct {
	command entity.Command
	// key is that of the entity, under which directories and supervisors know it.
	key string
	// connection is set where the request subscribes it.
	connection *connection
	arrived    time.Time
	answered   atomic.Bool
	reply      chan outcome
	// admitted is the in-flight counts to give back when it is answered.
	admitted [2]*atomic.Int64
	metrics  *kindMetrics
}

type outcome struct {
	message proto.Message
	err     error
}

func (r *request) answer(m proto.Message, err error) {
	if !r.answered.CompareAndSwap(false, true) {
		return
	}
	for _, n := range r.admitted {
		if n != nil {
			n.Add(-1)
		}
	}
	r.metrics.replied(r.arrived, err)
	r.reply <- outcome{m, err}
}

// admit counts the request in, and reports whether there was room for it.
func (r *request) admit(slot int, inFlight *atomic.Int64, limit int64) bool {
	r.admitted[slot] = inFlight
	return inFlight.Add(1) <= limit
}

// unavailable is the answer for an outcome that is not known, or a journal that does not take writes.
func unavailable(message string) *entity.Error {
	return &entity.Error{Code: entity.Unavailable, Message: message, RetryAfter: time.Second}
}
