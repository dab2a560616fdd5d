package actors

import (
	"context"
	"errors"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/persistence"
)

// putStream orders the rows that are put: it has no events, and no entity.
const putStream = persistence.Stream("rows/put")

// Put writes rows of an owner's lists past its entity, which is not brought into memory for them. It is for rows that no
// rule decides on: they take the place of rows under the same keys, whatever the entity is doing.
// Errors: ErrRetry, those of the journal, and ctx's; the rows may be written all the same.
func (s *System) Put(ctx context.Context, p persistence.Partition, owner string, rows ...entity.Row) error {
	t := s.terms[p].Load()
	if t == nil {
		return ErrRetry
	}
	entries, err := changes(owner, rows)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	s.journal.Append(persistence.Proposal{
		Partition: p, Stream: putStream, Epoch: t.epoch, Entries: entries,
	}, func(r persistence.Result) { done <- r.Err })
	select {
	case err := <-done:
		var lost *persistence.NotLeaderError
		if errors.As(err, &lost) {
			return ErrRetry
		}
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
