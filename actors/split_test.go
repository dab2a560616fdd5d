package actors_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	"github.com/atelier-run/atelier/persistence"
)

// inSplit makes two systems run the partitions of one journal.
func inSplit(b *bench) { b.split = true }

// inBothModes runs a test with one system, and with two between which partitions move all the time.
func inBothModes(t *testing.T, test func(*testing.T, func(*bench))) {
	t.Run("one system", func(t *testing.T) { test(t, func(*bench) {}) })
	t.Run("split", func(t *testing.T) { test(t, func(b *bench) { b.split, b.wanders = true, true }) })
}

// moving moves partitions between the two systems while fn runs: after some of the commits, so that commands and reactions are
// in flight. fn runs until enough reports that there were enough moves.
func (b *bench) moving(seed uint64, fn func(enough func() bool)) {
	b.t.Helper()
	moved, stop := b.wander(seed)
	defer stop()
	fn(func() bool { return b.t.Failed() || moved() >= 3 })
}

// wander moves partitions until stop is called.
func (b *bench) wander(seed uint64) (moved func() int64, stop func()) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	committed := make(chan struct{}, 1)
	for _, member := range []string{persistence.DefaultMember, "other"} {
		terms := map[persistence.Partition]uint64{}
		b.journal.Member(member).Watch(ctx, func(told persistence.Notice) {
			began := terms[told.Partition] != told.Epoch
			terms[told.Partition] = told.Epoch
			if began || !told.Owned {
				return // a notice of a move, not of a commit
			}
			select {
			case committed <- struct{}{}:
			default:
			}
		})
	}
	var moves atomic.Int64
	var mover sync.WaitGroup
	mover.Go(func() {
		random := rand.New(rand.NewPCG(seed, 1))
		for {
			select {
			case <-committed:
			case <-ctx.Done():
				return
			}
			to := [...]string{persistence.DefaultMember, "other"}[random.IntN(2)]
			if _, err := b.journal.Move(ctx, persistence.Partition(random.IntN(partitions)), to); err != nil && ctx.Err() == nil {
				b.t.Errorf("move: %v", err)
				return
			}
			moves.Add(1)
		}
	})
	return moves.Load, func() {
		cancel()
		mover.Wait()
	}
}

func TestMovesLoseAndRepeatNothing(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			b := newBench(t, withNotes, inSplit)
			const workspaces, writers, each = 4, 3, 25
			var acknowledged [workspaces]atomic.Int64
			b.moving(seed, func(enough func() bool) {
				for w := range workspaces {
					b.createWorkspace(fmt.Sprint("ws_", w), "usr_1")
				}
				var writing sync.WaitGroup
				for w := range workspaces {
					for i := range writers {
						writing.Go(func() {
							for n := 0; n < each || !enough(); n++ {
								id := fmt.Sprint("ws_", w)
								c := toNote(id+"/a", person("usr_1"), count)
								c.ID = fmt.Sprintf("%d-%d", i, n)
								b.mustAsk(c)
								row := record(id, operation(activityv1.Kind_KIND_WRITE, fmt.Sprintf("%d/%d", i, n)))
								row.ID = c.ID
								b.mustAsk(row)
								acknowledged[w].Add(1)
							}
						})
					}
				}
				writing.Wait()
			})
			for w := range workspaces {
				id := fmt.Sprint("ws_", w)
				if got := counted(b.mustAsk(toNote(id+"/a", person("usr_1"), &slugv1.ResolveSlug{}))); got != acknowledged[w].Load() {
					t.Errorf("%s counts %d, %d were acknowledged", id, got, acknowledged[w].Load())
				}
				if got := b.mustAsk(record(id)).(*activityv1.Recorded).GetSeq(); int64(got) != acknowledged[w].Load() {
					t.Errorf("%s has %d rows, %d were acknowledged", id, got, acknowledged[w].Load())
				}
			}
		})
	}
}

func TestStreamsContinueAfterMoves(t *testing.T) {
	b := newBench(t, inSplit)
	b.createWorkspace("ws_1", "usr_1")
	f := b.follow(t, "ws_1", 0, false)
	rows := uint64(0)
	b.moving(7, func(enough func() bool) {
		for ; rows < 40 || !enough(); rows++ {
			c := record("ws_1", operation(activityv1.Kind_KIND_WRITE, fmt.Sprint(rows)))
			c.ID = fmt.Sprint(rows)
			b.mustAsk(c)
		}
	})
	contiguous(t, f.wait(rows), 1, rows)
}

func TestChainsContinueDuringMoves(t *testing.T) {
	b := newBench(t, inSplit)
	claims := 0
	b.moving(9, func(enough func() bool) {
		for ; claims < 24 || !enough(); claims++ {
			i := claims
			b.mustAsk(entity.Command{Kind: entity.KindSlug, Identity: fmt.Sprint("acme-", i), Principal: entity.Platform(),
				ID:      fmt.Sprint(i),
				Message: &slugv1.ClaimSlug{WorkspaceId: fmt.Sprint("ws_", i), WorkspaceName: "Acme", CreatorId: "usr_1"}})
		}
	})
	for i := range claims {
		if err := b.router.Settle(context.Background(), entity.KindSlug, fmt.Sprint("acme-", i)); err != nil {
			t.Fatal(err)
		}
		if _, err := b.list(entity.KindWorkspace, fmt.Sprint("ws_", i), "usr_1", &wirev1.List{Name: "members"}); err != nil {
			t.Errorf("workspace %d: %v", i, err)
		}
	}
}

// TestLateEndOfTermKeepsSuccessor verifies that the shard of an ended term that stops late does not change the entries of the
// next term.
func TestLateEndOfTermKeepsSuccessor(t *testing.T) {
	b := newBench(t, withNotes, inSplit, func(b *bench) { b.idle = time.Minute })
	b.createWorkspace("ws_1", "usr_1")
	p := b.router.Partition("ws_1")
	for i := range 20 {
		b.mustAsk(toNote("ws_1/a", person("usr_1"), count))
		if _, err := b.journal.Move(context.Background(), p, persistence.DefaultMember); err != nil { // a new term of the same owner
			t.Fatal(err)
		}
		if got := counted(b.mustAsk(toNote("ws_1/a", person("usr_1"), count))); got != int64(2*i+2) {
			t.Fatalf("after %d moves the note has %d", i+1, got)
		}
	}
	b.eventually(func() bool { return b.metric("atelier_actor_active", note) == 1 })
}
