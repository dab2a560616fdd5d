package actors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	runtimev1 "github.com/atelier-run/atelier/messages/runtime/v1"
	"github.com/atelier-run/atelier/persistence"
	"github.com/atelier-run/atelier/retry"
)

// A state that was recorded before its kind declared timers or tasks has no rows for them. The first term of a partition under
// such rules sends a DeclareEffects command to each entity that the kind's EffectIndexes list, which makes it write its rows.
// When all entities of an index have done so, a row of declaredIndex records it for the kind and the index, and later terms
// skip them.
const (
	declaredIndex  = "declared"
	declaredStream = persistence.Stream("rows/declared")
	// declarePage limits the entities that are listed at once. maxDeclaring limits the entities that get the command concurrently.
	declarePage  = 64
	maxDeclaring = 8
	// declareAttempts limits the attempts for one entity.
	declareAttempts = 10
)

var errIncompleteDeclaration = errors.New("some entities have not written the rows of their timers and tasks")

func isDeclareEffects(m proto.Message) bool {
	_, is := m.(*runtimev1.DeclareEffects)
	return is
}

func declaredValue(kind, index string) string { return kind + "\x00" + index }

// declareEffects makes the entities of a partition write the rows that they lack. It returns when ctx ends. Errors are logged;
// the next term repeats the work.
func (s *System) declareEffects(ctx context.Context, p persistence.Partition, epoch uint64) {
	var done []persistence.Change
	for _, name := range slices.Sorted(maps.Keys(s.kinds)) {
		k := s.kinds[name]
		for _, index := range k.EffectIndexes {
			value := declaredValue(name, index)
			before, err := s.rowExists(p, declaredIndex, value)
			if err == nil && before {
				continue
			}
			if err == nil {
				err = s.declareIndex(ctx, p, k, index)
			}
			if err == nil {
				var row []byte
				row, err = proto.Marshal(&runtimev1.Declared{At: s.clock().UnixMilli()})
				done = append(done, persistence.Change{Entry: persistence.Entry{Index: declaredIndex, Value: value, Data: row}})
			}
			if err != nil && ctx.Err() == nil && !errors.Is(err, persistence.ErrClosed) {
				s.log.Error("cannot write the missing rows of timers and tasks; the partition's next term tries again",
					slog.Int("partition", int(p)), slog.String("kind", name), slog.String("index", index), slog.Any("error", err))
			}
			if ctx.Err() != nil {
				return
			}
		}
	}
	if len(done) > 0 {
		s.journal.Append(persistence.Proposal{Partition: p, Stream: declaredStream, Epoch: epoch, Entries: done}, func(persistence.Result) {
			// If the proposal fails, the next term repeats the work.
		})
	}
}

// declareIndex sends DeclareEffects to the entities that an index lists. It returns errIncompleteDeclaration if the command has failed for an
// entity, the journal's errors, and ctx's error.
func (s *System) declareIndex(ctx context.Context, p persistence.Partition, k *kind, index string) error {
	var failed error
	for after := ""; ; {
		page, err := s.IndexOwners(p, index, after, declarePage)
		if err != nil || len(page) == 0 {
			return errors.Join(failed, err)
		}
		after = page[len(page)-1]
		var group errgroup.Group
		group.SetLimit(maxDeclaring)
		for _, identity := range page {
			group.Go(func() error { return s.declare(ctx, p, k.Name, identity) })
		}
		if err := group.Wait(); err != nil {
			failed = fmt.Errorf("%w: %w", errIncompleteDeclaration, err)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// declaring has the pauses between the attempts for one entity.
var declaring = retry.Policy{First: 10 * time.Millisecond, Longest: 5 * time.Second}

// declare sends DeclareEffects to one entity, until it succeeds or the attempts are used up.
func (s *System) declare(ctx context.Context, p persistence.Partition, kind, identity string) error {
	for attempt := range declaring.Attempts(ctx) {
		asking, cancel := context.WithTimeout(ctx, deliveryTimeout)
		_, err := s.Ask(asking, p, entity.Command{
			Kind: kind, Identity: identity, Principal: entity.Platform(), Message: &runtimev1.DeclareEffects{},
		})
		cancel()
		if err == nil || attempt == declareAttempts {
			return err
		}
	}
	return ctx.Err()
}
