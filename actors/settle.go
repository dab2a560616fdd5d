package actors

import (
	"context"
	"errors"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/persistence"
)

// errParked answers the caller of Settle for a stream whose reactions are suspended.
var errParked = &entity.Error{
	Code: entity.Unavailable, Message: "the change was made; its consequences are delayed until an operator has looked at them",
}

// settle asks a reactor to answer when it has done what a stream, or every stream, has recorded so far.
type settle struct {
	// stream is empty for every stream of the partition.
	stream persistence.Stream
	// upTo is the sequence up to which the feed is to be read first.
	upTo uint64
	// open counts the lanes that are waited for.
	open int
	done chan error
}

// end counts one lane that is done, and answers with the last or with an error.
func (s *settle) end(err error) {
	if s.stream == "" && errors.Is(err, errParked) {
		err = nil // SettleAll leaves parked streams out
	}
	if s.open--; s.open > 0 && err == nil {
		return
	}
	select {
	case s.done <- err:
	default: // answered
	}
}

// Settle waits until every reaction to what an entity has recorded so far is done. It does not wait for what follows from
// those reactions for the entities that they concern, nor for other entities of the partition.
// Errors: ErrRetry, unavailable if the entity's reactions are parked, and ctx's.
func (s *System) Settle(ctx context.Context, p persistence.Partition, kind, identity string) error {
	return s.settle(ctx, p, &settle{stream: persistence.Stream(key(kind, identity)), done: make(chan error, 1)})
}

// SettleAll waits until every reaction to what a partition has recorded so far is done, but for streams that are parked.
// Errors: ErrRetry, and ctx's.
func (s *System) SettleAll(ctx context.Context, p persistence.Partition) error {
	return s.settle(ctx, p, &settle{done: make(chan error, 1)})
}

func (s *System) settle(ctx context.Context, p persistence.Partition, m *settle) error {
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

// answerSettled answers the callers of Settle whose events have been read, or has them wait for lanes.
func (r *reactor) answerSettled() {
	rest := r.waiting[:0]
	for _, w := range r.waiting {
		if !r.recalled || r.read < w.upTo {
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

func (r *reactor) await(w *settle) {
	w.open = 1
	l := r.lanes[w.stream]
	switch {
	case r.parked[w.stream] != nil:
		w.end(errParked)
	case l == nil || l.done == l.last:
		w.end(nil)
	default:
		l.waiting = append(l.waiting, settling{l.last, w})
		r.hasten(l)
		r.startLanes()
	}
}

func (r *reactor) awaitAll(w *settle) {
	w.open = 1 // answered below where there is nothing to wait for
	for _, l := range r.lanes {
		if r.parked[l.stream] == nil && l.done < l.last {
			w.open++
			l.waiting = append(l.waiting, settling{l.last, w})
		}
	}
	w.end(nil)
}
