package actors

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/persistence"
)

// ErrRetry means that a command did not take effect and may be sent again: its entity was being passivated or restarted, or its
// partition is moving.
var ErrRetry = errors.New("the entity is not available at the moment; send the command again")

// newRequest returns a request that counts against no limit.
func (s *System) newRequest(k *kind, c entity.Command) *request {
	k.metrics.inFlight.Inc()
	return &request{command: c, key: key(c.Kind, c.Identity), arrived: time.Now(), reply: make(chan outcome, 1), metrics: k.metrics}
}

// Ask sends a command to the entity that it names, in a partition that this system owns, and waits for the reply. The changes
// that a reply reports are durable. Ask returns *entity.Error, ErrRetry if the command did not take effect, and ctx's error;
// after ctx's error the command may take effect later. See "The way of a command" in the package comment.
func (s *System) Ask(ctx context.Context, p persistence.Partition, c entity.Command) (proto.Message, error) {
	k := s.kinds[c.Kind]
	if k == nil {
		return nil, unknownKind(c.Kind)
	}
	return s.deliver(ctx, p, s.newRequest(k, c))
}

// deliver posts a request and waits for its answer or for the end of ctx.
func (s *System) deliver(ctx context.Context, p persistence.Partition, r *request) (proto.Message, error) {
	if err := s.post(p, r); err != nil {
		r.answer(nil, err)
	}
	select {
	case o := <-r.reply:
		return o.message, o.err
	case <-ctx.Done():
		r.giveUp()
		return nil, ctx.Err()
	}
}

// post admits a request and sends it to an actor: step 1 of "The way of a command". After an error the caller answers the
// request.
func (s *System) post(p persistence.Partition, r *request) error {
	k := s.kinds[r.command.Kind]
	if !r.admit(0, &k.inFlight, maxInFlightOfKind) {
		return busy(r)
	}
	t := s.terms[p].Load()
	if t == nil {
		return ErrRetry
	}
	return t.post(k, r)
}

// busy counts a request as refused, and returns the error that says so.
func busy(r *request) error {
	r.metrics.refused.Inc()
	return unavailable("too many commands are in flight; try again")
}

// post sends a request to the actor of its entity or, if the entity has an owner, to the owner's, which authorizes it. If that
// actor is not active, post sends the request to the shard, which activates it. It returns Unavailable if the entity has too
// many requests in flight.
func (t *term) post(k *kind, r *request) error {
	now := t.system.clock()
	to := t.shard
	if own := t.find(r.key); own != nil {
		if !r.admit(1, &own.inFlight, maxInFlight) {
			return busy(r)
		}
		own.touch(now)
		to = own.pid
		if own.owner != nil {
			own.owner.touch(now)
			to = own.owner.pid
		}
	} else if k.root != k {
		if owner := t.find(key(k.root.Name, ownerOf(r.command.Identity))); owner != nil {
			owner.touch(now)
			to = owner.pid
		}
	}
	t.system.root.Send(to, r)
	return nil
}

// A request is a command on its way to an entity. It is answered exactly once, from any goroutine.
type request struct {
	command entity.Command
	// key identifies the entity in directories and supervisors; see key.
	key string
	// connection is the activity stream that the request subscribes, and reader the stream of a timeline; both may be nil.
	connection *connection
	reader     *timelineReader
	// access is the access that the owner has checked, and role the role of the sender.
	access  entity.Access
	role    workspacev1.Role
	arrived time.Time
	// wasHeld is set if the request is a query that was held. holder is the pipeline that holds it, and givenUp is set when the
	// sender does not wait any more; see held.go.
	wasHeld  bool
	holder   atomic.Pointer[pipeline]
	givenUp  atomic.Bool
	answered atomic.Bool
	reply    chan outcome
	// admitted are the counts of requests in flight that answer decrements.
	admitted [2]*atomic.Int64
	metrics  *kindMetrics
}

type outcome struct {
	message proto.Message
	err     error
}

// answer sends the reply to the caller of Ask. Only the first call has an effect.
func (r *request) answer(m proto.Message, err error) {
	if !r.answered.CompareAndSwap(false, true) {
		return
	}
	for _, n := range r.admitted {
		if n != nil {
			n.Add(-1)
		}
	}
	if r.wasHeld {
		r.metrics.repliedToHeld(err)
	} else {
		r.metrics.replied(r.arrived, err)
	}
	r.reply <- outcome{m, err}
}

// admit counts the request in one of its slots, and reports whether the limit allows it. answer decrements the count in either
// case.
func (r *request) admit(slot int, inFlight *atomic.Int64, limit int64) bool {
	r.admitted[slot] = inFlight
	return inFlight.Add(1) <= limit
}

// unavailable returns an Unavailable error with a hint to retry after a second.
func unavailable(message string) *entity.Error {
	return &entity.Error{Code: entity.Unavailable, Message: message, RetryAfter: time.Second}
}
