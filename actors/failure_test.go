package actors_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/activity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/persistence"
)

func TestRequestsForFailingEntityAreAnswered(t *testing.T) {
	b := newBench(t, withFragile)
	var answered sync.WaitGroup
	for range 40 {
		answered.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			defer cancel()
			if _, err := b.router.Ask(ctx, toFragile(&slugv1.ClaimSlug{})); err == nil {
				t.Error("a panic is answered without an error")
			}
		})
	}
	answered.Wait()
	// The first answer comes before its actor fails, and the others may time out meanwhile.
	b.eventually(func() bool { return b.metric("atelier_actor_restarts_total", "fragile", "restart") > 0 })
	b.stop()
	b.eventually(func() bool { return b.metric("atelier_actor_in_flight", "fragile") == 0 })
	b.start()
}

// TestReadsAfterRefusedMarkerCountOnce verifies that a read without a row waits for the rows before it, like every answer, and
// is decided again if they are refused.
func TestReadsAfterRefusedMarkerCountOnce(t *testing.T) {
	b := newBench(t)
	b.createWorkspace("ws_1", "usr_1")
	b.mustAsk(record("ws_1", operation(activityv1.Kind_KIND_CREATE, "a")))
	held := make(chan func(), 8)
	b.faults.holding(func(p persistence.Proposal) bool { return p.Stream == "activity/ws_1" }, held)
	var acknowledged atomic.Uint64
	var reads sync.WaitGroup
	read := func() {
		if _, err := b.ask(record("ws_1", operation(activityv1.Kind_KIND_READ, "a"))); err == nil {
			acknowledged.Add(1)
		}
	}
	reads.Go(read)
	marker := <-held
	for range 3 {
		reads.Go(read)
	}
	b.eventually(func() bool { return b.metric("atelier_actor_in_flight", "activity") == 4 })
	b.faults.holding(nil, nil)
	b.faults.failing(refuseOnce("activity/ws_1"))
	marker()
	reads.Wait()
	if got := acknowledged.Load(); got != 3 {
		t.Errorf("%d of 4 reads were acknowledged, of which one's marker was refused", got)
	}
	read()
	read()
	seen := b.query(&activityv1.ReadSeenBy{Path: "a", Limit: 100}).(*activityv1.SeenBy).GetReaders()
	if len(seen) != 1 || seen[0].GetReadCount() != acknowledged.Load() {
		t.Errorf("seen by %v, after %d reads were acknowledged", seen, acknowledged.Load())
	}
}

// TestPanicHidesNoRefusal makes an entity fail while it answers a command, after it has learned that the next command was refused.
func TestPanicHidesNoRefusal(t *testing.T) {
	var panicked atomic.Bool
	b := newBench(t, func(b *bench) {
		b.observe = func(kind, _ string, _ []persistence.Event) {
			if kind == entity.KindSlug && panicked.CompareAndSwap(false, true) {
				panic("the observer fails")
			}
		}
	})
	held, refused := make(chan func(), 1), make(chan struct{})
	b.faults.holding(func(p persistence.Proposal) bool { return p.Stream == "slug/source" }, held)
	p := b.router.Partition("source")
	send := func(m proto.Message) chan error {
		answered := make(chan error, 1)
		go func() {
			_, err := b.system.Ask(t.Context(), p, entity.Command{Kind: entity.KindSlug, Identity: "source", Principal: entity.Platform(), Message: m})
			answered <- err
		}()
		return answered
	}
	claimed := send(&slugv1.ClaimSlug{WorkspaceId: "ws_source", WorkspaceName: "n", CreatorId: "usr_1"})
	write := <-held
	b.faults.holding(nil, nil)
	b.faults.failing(func(p persistence.Proposal) error {
		if p.Stream != "slug/source" {
			return nil
		}
		close(refused)
		return persistence.ErrRefused
	})
	released := send(&slugv1.ReleaseSlug{WorkspaceId: "ws_source"})
	<-refused
	b.faults.failing(nil)
	write()
	if err := <-claimed; err != nil {
		t.Error(err)
	}
	if err := <-released; code(err) != entity.Unavailable {
		t.Errorf("a command that was refused is answered with %v", err)
	}
	if got := b.mustAsk(entity.Command{Kind: entity.KindSlug, Identity: "source", Principal: entity.Platform(), Message: &slugv1.ResolveSlug{}}); got.(*slugv1.Slug).GetWorkspaceId() != "ws_source" {
		t.Errorf("the slug is %v", got)
	}
}

func TestRefusedFlushIsRetried(t *testing.T) {
	b := newBench(t)
	b.createWorkspace("ws_1", "usr_1")
	op := operation(activityv1.Kind_KIND_WRITE, ".git/x")
	op.Tree = ".git"
	var refused atomic.Int32
	b.faults.failing(func(p persistence.Proposal) error {
		if p.Stream == "activity/ws_1" && len(p.Events) > 0 && refused.Add(1) == 1 {
			return persistence.ErrRefused
		}
		return nil
	})
	f := b.follow(t, "ws_1", 0, false)
	b.mustAsk(record("ws_1", op))
	b.clock.Advance(activity.FoldWindow)
	f.wait(1)
	if refused.Load() < 2 {
		t.Error("nothing was refused")
	}
}

func TestSnapshotsAreUsedAcrossActivations(t *testing.T) {
	b := newBench(t, withFragile)
	for i := range 6 {
		for range 60 {
			b.mustAsk(toFragile(&slugv1.ClaimSlug{WorkspaceId: "ws_1"}))
		}
		if i%2 == 0 {
			b.restart()
		}
	}
	b.stop()
	b.start()
	v, err := b.journal.View()
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	snapshot, err := v.Snapshot(b.router.Partition("x"), "fragile/x")
	if err != nil || snapshot.Version < 256 {
		t.Errorf("the snapshot of 360 events is of version %d, %v", snapshot.Version, err)
	}
	if got := b.mustAsk(toFragile(&slugv1.ResolveSlug{})).(*slugv1.Slug).GetWorkspaceId(); got != "ws_1" {
		t.Errorf("the state from the snapshot is %q", got)
	}
}

func TestQueryOfMissingEntityLeavesNothingInMemory(t *testing.T) {
	b := newBench(t)
	for _, id := range []string{"one", "two", "three"} {
		b.mustAsk(entity.Command{Kind: entity.KindSlug, Identity: id, Principal: entity.Platform(), Message: &slugv1.ResolveSlug{}})
	}
	b.eventually(func() bool { return b.metric("atelier_actor_active", "slug") == 0 })
	b.createWorkspace("ws_1", "usr_1")
	b.mustAsk(entity.Command{Kind: entity.KindWorkspace, Identity: "ws_1", Principal: person("usr_1"), Message: &workspacev1.DescribeWorkspace{}})
	if got := b.metric("atelier_actor_active", "workspace"); got != 1 {
		t.Errorf("%v workspaces are active", got)
	}
}

func TestStreamOfGoneClientIsRemoved(t *testing.T) {
	b := newBench(t, func(b *bench) { b.idle = time.Minute })
	b.createWorkspace("ws_1", "usr_1")
	for range 20 {
		ctx, cancel := context.WithCancel(context.Background())
		go cancel()
		if _, err := b.router.Subscribe(ctx, activity.Subscription{WorkspaceID: "ws_1", Principal: person("usr_1")}); err == nil {
			cancel()
		}
	}
	b.eventually(func() bool {
		b.clock.Advance(2 * time.Minute)
		b.system.Sweep()
		return b.metric("atelier_actor_active", "workspace") == 0
	})
}
