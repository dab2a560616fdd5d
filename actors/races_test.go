package actors_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	"github.com/atelier-run/atelier/persistence"
)

// leavingActivity delays the flush of an activity entity that passivates, and returns the function that ends the delay. The
// workspace stays active.
func leavingActivity(b *bench) (release func()) {
	b.t.Helper()
	b.createWorkspace("ws_1", "usr_1")
	b.mustAsk(record("ws_1", operation(activityv1.Kind_KIND_WRITE, "a")))
	held := make(chan func(), 8)
	b.faults.holding(func(p persistence.Proposal) bool { return p.Stream == "activity/ws_1" && len(p.Events) == 0 }, held)
	b.clock.Advance(2 * time.Minute)
	b.workspaceAnswers()
	b.system.Sweep()
	return <-held
}

// workspaceAnswers waits for the answer to a query of the workspace.
func (b *bench) workspaceAnswers() {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 3*time.Minute)
	defer cancel()
	if _, err := b.router.Ask(ctx, remove("usr_nobody")); err != nil && ctx.Err() != nil {
		b.t.Fatalf("the workspace does not answer: %v", err)
	}
}

// TestOwnerStaysActiveForReactivatedEntity has a command wait for an owned entity that passivates when its owner is asked to
// passivate as well.
func TestOwnerStaysActiveForReactivatedEntity(t *testing.T) {
	b := newBench(t, func(b *bench) { b.idle = time.Minute })
	release := leavingActivity(b)
	recorded := make(chan error, 1)
	go func() {
		_, err := b.ask(record("ws_1", operation(activityv1.Kind_KIND_WRITE, "b")))
		recorded <- err
	}()
	b.eventually(func() bool { return b.metric("atelier_actor_in_flight", entity.KindActivity) >= 2 }) // the flush, and the command
	b.workspaceAnswers()                                                                               // the command has come to the workspace, most likely
	b.clock.Advance(2 * time.Minute)
	b.system.Sweep()
	b.eventually(func() bool { return len(b.system.Active(b.router.Partition("ws_1"), entity.KindWorkspace)) == 0 })
	b.faults.holding(nil, nil)
	release()
	if err := <-recorded; err != nil {
		t.Error(err)
	}
	b.workspaceAnswers()
}

// TestEntityFailsWhilePassivating verifies that an entity that fails while it passivates handles commands again.
func TestEntityFailsWhilePassivating(t *testing.T) {
	b := newBench(t, func(b *bench) { b.idle = time.Minute })
	b.createWorkspace("ws_1", "usr_1")
	b.mustAsk(record("ws_1", operation(activityv1.Kind_KIND_WRITE, "a")))
	var failed atomic.Bool
	b.faults.failing(func(p persistence.Proposal) error {
		if p.Stream == "activity/ws_1" && len(p.Events) == 0 && failed.CompareAndSwap(false, true) {
			panic("the flush fails")
		}
		return nil
	})
	b.clock.Advance(2 * time.Minute)
	b.system.Sweep()
	b.eventually(failed.Load)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if _, err := b.router.Ask(ctx, record("ws_1", operation(activityv1.Kind_KIND_WRITE, "b"))); err != nil {
		t.Error(err)
	}
}

// TestMetricsOfLatestTerm verifies that the latest term sets the metrics of a partition, even if the term before ends later.
func TestMetricsOfLatestTerm(t *testing.T) {
	b, _ := newParked(t)
	p := b.router.Partition("bad")
	for range 20 {
		if _, err := b.journal.Move(t.Context(), p, persistence.DefaultMember); err != nil {
			t.Fatal(err)
		}
		b.settleAll()
		b.eventually(func() bool { return b.metric("atelier_reactor_parked_streams", fmt.Sprint(p)) == 1 })
	}
	b.stop()
	if got := b.metric("atelier_reactor_parked_streams", fmt.Sprint(p)); got != 0 {
		t.Errorf("%v streams are parked in a system that has stopped", got)
	}
	b.start()
}
