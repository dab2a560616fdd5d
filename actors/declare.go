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
)

// A state that was recorded before its kind declared timers or tasks has no rows for them. The first term of a partition
// under such rules has the entities write their rows: those that the kind's EffectIndexes name, each by a DeclareEffects
// command. Once all have, a row of declaredIndex for each kind and index says so, and later terms pass it over.
const (
	declaredIndex  = "declared"
	declaredStream = persistence.Stream("rows/declared")
	// declarePage and declaring bound the entities that are looked up at once and those that are told at the same time.
	declarePage = 64
	declaring   = 8
	// declareAttempts bounds the attempts to tell one entity, which begin firstDeclarePause apart, a pause that doubles.
	declareAttempts   = 10
	firstDeclarePause = 10 * time.Millisecond
)

var errNotDeclared = errors.New("some entities have not written the rows of their timers and tasks")

func isDeclaration(m proto.Message) bool {
	_, is := m.(*runtimev1.DeclareEffects)
	return is
}

func declaredValue(kind, index string) string { return kind + "\x00" + index }

// declareEffects has the entities of a partition write the rows that they lack. It ends with ctx. What fails is logged and
// is done again in the next term.
func (s *System) declareEffects(ctx context.Context, p persistence.Partition, epoch uint64) {
	var done []persistence.Change
	for _, name := range slices.Sorted(maps.Keys(s.kinds)) {
		k := s.kinds[name]
		for _, index := range k.EffectIndexes {
			value := declaredValue(name, index)
			before, err := s.remains(p, declaredIndex, value)
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
				s.log.Error("timers and tasks without rows are looked for again in the next term",
					slog.Int("partition", int(p)), slog.String("kind", name), slog.String("index", index), slog.Any("error", err))
			}
			if ctx.Err() != nil {
				return
			}
		}
	}
	if len(done) > 0 {
		s.journal.Append(persistence.Proposal{Partition: p, Stream: declaredStream, Epoch: epoch, Entries: done}, func(persistence.Result) {
			// Where it is lost, the next term looks again.
		})
	}
}

// declareIndex tells the entities of a kind that an index names to write their rows. Errors: errNotDeclared where some
// could not, those of the journal, and ctx's.
func (s *System) declareIndex(ctx context.Context, p persistence.Partition, k *kind, index string) error {
	var failed error
	for after := ""; ; {
		page, err := s.IndexOwners(p, index, after, declarePage)
		if err != nil || len(page) == 0 {
			return errors.Join(failed, err)
		}
		after = page[len(page)-1]
		var group errgroup.Group
		group.SetLimit(declaring)
		for _, identity := range page {
			group.Go(func() error { return s.declare(ctx, p, k.Name, identity) })
		}
		if err := group.Wait(); err != nil {
			failed = fmt.Errorf("%w: %w", errNotDeclared, err)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

func (s *System) declare(ctx context.Context, p persistence.Partition, kind, identity string) error {
	pause := firstDeclarePause
	for attempt := 1; ; attempt++ {
		asking, cancel := context.WithTimeout(ctx, deliveryTimeout)
		_, err := s.Ask(asking, p, entity.Command{
			Kind: kind, Identity: identity, Principal: entity.Platform(), Message: &runtimev1.DeclareEffects{},
		})
		cancel()
		if err == nil || attempt == declareAttempts {
			return err
		}
		timer := time.NewTimer(pause)
		pause *= 2
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}
