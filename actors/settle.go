package actors

import (
	"context"
	"errors"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/persistence"
)

// errParked answers Settle for a stream with parked reactions.
var errParked = &entity.Error{
	Code: entity.Unavailable, Message: "the change was made, but its consequences are suspended after repeated failures, until an operator resumes them",
}

// A settleRequest is a request of Settle: it is answered when the reactions to the events that one stream, or every stream, has
// recorded so far are done.
type settleRequest struct {
	// stream is empty for every stream of the partition.
	stream persistence.Stream
	// upTo is a sequence: the feed must be read up to it first.
	upTo uint64
	// open counts the lanes that the request waits for.
	open int
	done chan error
}

// conclude counts one lane as done, and answers the request after the last lane or after an error.
func (s *settleRequest) conclude(err error) {
	if s.stream == "" && errors.Is(err, errParked) {
		err = nil // SettleAll does not wait for parked streams
	}
	if s.open--; s.open > 0 && err == nil {
		return
	}
	select {
	case s.done <- err:
	default: // answered
	}
}

// Settle waits until every reaction to the events that an entity has recorded so far is done. It does not wait for the
// consequences of those reactions for their targets, nor for reactions to other entities. It returns ErrRetry, unavailable if
// the entity's reactions are parked, and ctx's error.
func (s *System) Settle(ctx context.Context, p persistence.Partition, kind, identity string) error {
	return s.settle(ctx, p, &settleRequest{stream: persistence.Stream(key(kind, identity)), done: make(chan error, 1)})
}

// SettleAll waits until every reaction to the events that a partition has recorded so far is done, except for parked streams.
// It returns ErrRetry and ctx's error.
func (s *System) SettleAll(ctx context.Context, p persistence.Partition) error {
	return s.settle(ctx, p, &settleRequest{done: make(chan error, 1)})
}

func (s *System) settle(ctx context.Context, p persistence.Partition, m *settleRequest) error {
	t := s.terms[p].Load()
	if t == nil {
		return ErrRetry
	}
	s.root.Send(t.shard, m)
	select {
	case err := <-m.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// answerSettleRequests answers the requests for events that have been read, or lets them wait for the lanes.
func (r *reactor) answerSettleRequests() {
	rest := r.waiting[:0]
	for _, w := range r.waiting {
		if !r.loaded || r.read < w.upTo {
			rest = append(rest, w)
			continue
		}
		if w.stream == "" {
			r.awaitAll(w)
		} else {
			r.await(w)
		}
	}
	clear(r.waiting[len(rest):])
	r.waiting = rest
}

// await makes a request wait for the lane of its stream, which then runs before other lanes.
func (r *reactor) await(w *settleRequest) {
	w.open = 1
	l := r.lanes[w.stream]
	switch {
	case r.parked[w.stream] != nil:
		w.conclude(errParked)
	case l == nil || l.done == l.last:
		w.conclude(nil)
	default:
		l.waiting = append(l.waiting, laneWaiter{l.last, w})
		r.prioritize(l)
		r.startLanes()
	}
}

// awaitAll makes a request wait for all lanes, except the lanes of parked streams.
func (r *reactor) awaitAll(w *settleRequest) {
	w.open = 1 // concluded below, so that a request that waits for no lane is answered at once
	for _, l := range r.lanes {
		if r.parked[l.stream] == nil && l.done < l.last {
			w.open++
			l.waiting = append(l.waiting, laneWaiter{l.last, w})
		}
	}
	w.conclude(nil)
}
