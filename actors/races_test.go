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

// leavingActivity has activity hold back what it flushes when it leaves memory, and returns what releases it. The
// workspace stays in memory.
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

// workspaceAnswers asks the workspace for something.
func (b *bench) workspaceAnswers() {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 20*time.Second)
	defer cancel()
	if _, err := b.router.Ask(ctx, remove("usr_nobody")); err != nil && ctx.Err() != nil {
		b.t.Fatalf("the workspace does not answer: %v", err)
	}
}

// A command may wait for an owned entity that is leaving when its owner is asked to leave as well.
func TestOwnerStaysForAnOwnedEntityThatComesBack(t *testing.T) {
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

// An entity that fails while it is leaving takes commands again.
func TestEntityThatFailsWhileItLeaves(t *testing.T) {
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
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := b.router.Ask(ctx, record("ws_1", operation(activityv1.Kind_KIND_WRITE, "b"))); err != nil {
		t.Error(err)
	}
}

// The metrics of a partition are those of its latest term, however late the one before ends.
func TestParkedStreamsAreCountedAfterANewTerm(t *testing.T) {
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
