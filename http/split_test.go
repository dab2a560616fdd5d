package http_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/atelier-run/atelier/cmd/node"
	"github.com/atelier-run/atelier/persistence"
)

// newSplitStage returns a stage with partitions that move between two actor systems during requests.
func newSplitStage(t *testing.T) *stage { return newStageOf(t, 2) }

// splitting moves partitions between a node's members at random, after some of the commits, until the function that it
// returns is called.
func splitting(t *testing.T, n *node.Node) (settled func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	committed := make(chan struct{}, 1)
	for member := range n.Systems {
		terms := map[persistence.Partition]uint64{}
		n.Journal.Member(node.MemberName(member)).Watch(ctx, func(told persistence.Notice) {
			began := terms[told.Partition] != told.Epoch
			terms[told.Partition] = told.Epoch
			if began || !told.Owned {
				return // a move, and no commit
			}
			select {
			case committed <- struct{}{}:
			default:
			}
		})
	}
	moves := 0
	var mover sync.WaitGroup
	mover.Go(func() {
		random := rand.New(rand.NewPCG(1, 2))
		for {
			select {
			case <-committed:
			case <-ctx.Done():
				return
			}
			if random.IntN(10) > 0 {
				continue
			}
			p, to := persistence.Partition(random.IntN(n.Journal.Partitions())), node.MemberName(random.IntN(len(n.Systems)))
			if _, err := n.Journal.Move(ctx, p, to); err != nil && ctx.Err() == nil && n.Journal.Err() == nil {
				t.Errorf("partition %d does not move: %v", p, err)
				return
			}
			moves++
		}
	})
	return func() {
		cancel()
		mover.Wait()
		t.Logf("%d moves", moves)
	}
}
