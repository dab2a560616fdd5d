package actors_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	"github.com/atelier-run/atelier/persistence"
)

// loseCursors restarts the system with the initial cursors.
func (b *bench) loseCursors() {
	b.t.Helper()
	held := make(chan func(), 1024)
	b.faults.holding(func(p persistence.Proposal) bool { return p.Stream == "reactor/reactor" }, held)
	for p := range partitions {
		b.propose(persistence.Proposal{Partition: persistence.Partition(p), Stream: "reactor/reactor", Entries: []persistence.Change{{
			Entry: persistence.Entry{Index: "reactor", Value: "reactor", Data: binary.BigEndian.AppendUint64(nil, 0)},
		}}})
	}
	b.restart()
}

func TestLostCursorRepeatsNoCommand(t *testing.T) {
	release := func(slug string, event proto.Message) []entity.Reaction {
		e, claimed := event.(*slugv1.SlugClaimed)
		if slug != "source" || !claimed {
			return nil
		}
		return []entity.Reaction{
			{Command: record("ws_log", operation(activityv1.Kind_KIND_CREATE, slug+"/"+e.GetWorkspaceName()))},
			entity.Send(entity.KindSlug, "target", &slugv1.ReleaseSlug{WorkspaceId: "ws_target"}),
		}
	}
	b := newBench(t, func(b *bench) { b.react = release })
	b.claim("source", "c00")
	b.claim("source", "c01")
	b.settleAll()
	// The commands changed nothing the first time, because the target was not claimed. If they were repeated, they would.
	b.slug("target", &slugv1.ClaimSlug{WorkspaceId: "ws_target", WorkspaceName: "n", CreatorId: "usr_1"})
	b.settleAll()
	for range 2 {
		b.loseCursors()
		b.settleAll()
		b.expectRecorded("source", "c00", "c01")
		target := b.mustAsk(entity.Command{Kind: entity.KindSlug, Identity: "target", Principal: entity.Platform(), Message: &slugv1.ResolveSlug{}})
		if got := target.(*slugv1.Slug).GetWorkspaceId(); got != "ws_target" {
			t.Fatalf("the target is held by %q", got)
		}
	}
	b.claim("source", "c02")
	b.settleAll()
	target := b.mustAsk(entity.Command{Kind: entity.KindSlug, Identity: "target", Principal: entity.Platform(), Message: &slugv1.ResolveSlug{}})
	if got := target.(*slugv1.Slug).GetWorkspaceId(); got != "" {
		t.Errorf("a further event does not release the target from %q", got)
	}
}

// TestRefusalIsRemembered verifies that a repeated command is refused again, and that its alternative is sent once.
func TestRefusalIsRemembered(t *testing.T) {
	claim := func(by string) entity.Command {
		return entity.Command{Kind: entity.KindSlug, Identity: "target", Message: &slugv1.ClaimSlug{
			WorkspaceId: by, WorkspaceName: "n", CreatorId: "usr_1",
		}}
	}
	react := func(slug string, event proto.Message) []entity.Reaction {
		if _, claimed := event.(*slugv1.SlugClaimed); slug != "source" || !claimed {
			return nil
		}
		otherwise := record("ws_log", operation(activityv1.Kind_KIND_CREATE, "source/refused"))
		return []entity.Reaction{{Command: claim("ws_source"), Otherwise: &otherwise}}
	}
	b := newBench(t, func(b *bench) { b.react = react })
	b.slug("target", claim("ws_other").Message)
	b.claim("source", "c")
	b.settleAll()
	b.slug("target", &slugv1.ReleaseSlug{WorkspaceId: "ws_other"})
	b.loseCursors()
	b.settleAll()
	b.expectRecorded("source", "refused")
	target := b.mustAsk(entity.Command{Kind: entity.KindSlug, Identity: "target", Principal: entity.Platform(), Message: &slugv1.ResolveSlug{}})
	if got := target.(*slugv1.Slug).GetWorkspaceId(); got != "" {
		t.Errorf("a command that was refused takes effect when it is repeated: %q", got)
	}
}

func TestMarksExpireBeforeCursor(t *testing.T) {
	b, e := newParked(t)
	for i := range 20 {
		b.claim(fmt.Sprintf("good%d", i), "c00")
		b.claim(fmt.Sprintf("good%d", i), "c01")
	}
	b.settleAll()
	if got := b.rows("reaction"); got != 21 {
		t.Fatalf("there are %d marks, want one for each pair of streams", got)
	}
	b.eventually(func() bool { // the cursors are written soon
		if err := b.system.Expire(t.Context()); err != nil {
			t.Fatal(err)
		}
		return b.rows("reaction") == 1
	})
	e.failing(nil)
	b.resume("bad", false)
	b.eventually(func() bool { return len(b.parked()) == 0 })
	b.expectRecorded("bad", numbers(3)...)
	b.eventually(func() bool {
		if err := b.system.Expire(t.Context()); err != nil {
			t.Fatal(err)
		}
		return b.rows("reaction") == 0
	})
	b.claim("good1", "c02")
	b.settleAll()
	b.expectRecorded("good1", numbers(3)...)
}

func TestCommandIDsExpire(t *testing.T) {
	b := newBench(t)
	b.createWorkspace("ws_1", "usr_1")
	send := func(id string) uint64 {
		c := record("ws_1", operation(activityv1.Kind_KIND_WRITE, "f"))
		c.ID = id
		return b.mustAsk(c).(*activityv1.Recorded).GetSeq()
	}
	expire := func(want int) {
		t.Helper()
		if err := b.system.Expire(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := b.rows("command"); got != want {
			t.Errorf("%d replies are stored, want %d", got, want)
		}
	}
	first := send("old")
	b.clock.Advance(entity.CommandRetention - time.Minute)
	second := send("new")
	expire(2)
	if got := send("old"); got != first {
		t.Errorf("within the retention a repetition is answered %d, not %d", got, first)
	}
	b.clock.Advance(2 * time.Minute)
	expire(1)
	if got := send("new"); got != second {
		t.Errorf("a repetition is answered %d, not %d", got, second)
	}
	if got := send("old"); got != second+1 {
		t.Errorf("a command whose id has expired is answered %d, not %d", got, second+1)
	}
}

// TestShardFailsWhileCursorIsWritten restarts a shard while the cursor of its reactor is written, and removes the marks of the reactions
// before the cursor. The next reactor begins after them, and repeats none.
func TestShardFailsWhileCursorIsWritten(t *testing.T) {
	e := &echo{}
	b := newBench(t, withEcho(e))
	p, slug := b.router.Partition("ws_log"), b.sharing("ws_log") // the target forgets its marks too
	held := make(chan func(), 8)
	b.faults.holding(func(proposal persistence.Proposal) bool {
		return proposal.Partition == p && len(proposal.Entries) == 1 && proposal.Entries[0].Index == "reactor"
	}, held)
	b.claim(slug, "c00")
	if err := b.settle(slug); err != nil {
		t.Fatal(err)
	}
	again := make(chan struct{})
	e.failing(func(string, string) error { <-again; return nil })
	b.failReactor(slug, b.system.FailShard)
	b.faults.holding(nil, nil)
	b.eventually(func() bool {
		select {
		case write := <-held:
			write()
		default:
		}
		progress, err := b.system.Progress(p)
		return err == nil && progress.Cursor > 0 && len(held) == 0
	})
	if err := b.system.Expire(t.Context()); err != nil {
		t.Fatal(err)
	}
	close(again)
	if err := b.settle(slug); err != nil {
		t.Error(err)
	}
	b.expectRecorded(slug, "c00")
}

// TestOvertakenCommandIsNotRepeated delays a command of a reactor until the reactor of the next term has sent it again, its cursor has
// passed the event, the mark has expired and the target has left memory.
func TestOvertakenCommandIsNotRepeated(t *testing.T) {
	b := newBench(t, withEcho(&echo{}))
	var sent atomic.Int32
	delayed, release, applied := make(chan struct{}), make(chan struct{}), make(chan struct{})
	send := b.send
	b.send = func(ctx context.Context, c entity.Command) (proto.Message, error) {
		if c.Kind != entity.KindActivity || sent.Add(1) != 1 {
			return send(ctx, c)
		}
		close(delayed)
		<-release
		defer close(applied)
		return send(context.WithoutCancel(ctx), c) // answered even though the term has ended
	}
	b.claim("source", "c00")
	<-delayed
	p, log := b.router.Partition("source"), b.router.Partition("ws_log")
	for _, moved := range []persistence.Partition{p, log} { // the second move comes after the mark and ends its cache
		if _, err := b.journal.Move(t.Context(), moved, persistence.DefaultMember); err != nil {
			t.Fatal(err)
		}
		if err := b.settle("source"); err != nil {
			t.Fatal(err)
		}
		b.expectRecorded("source", "c00")
		b.expireMarks()
	}
	close(release)
	<-applied
	b.expectRecorded("source", "c00")
	b.claim("source", "c01")
	if err := b.settle("source"); err != nil {
		t.Fatal(err)
	}
	b.expectRecorded("source", "c00", "c01")
}

// TestResumedCommandIsNotTakenForLate verifies that the cursor, which has passed a parked stream, does not make a target drop the commands
// of that stream when it is resumed.
func TestResumedCommandIsNotTakenForLate(t *testing.T) {
	b, e := newParked(t)
	p := b.router.Partition("bad")
	b.eventually(func() bool {
		progress, err := b.system.Progress(p)
		return err == nil && progress.Cursor >= 6 // the events of the three claims
	})
	b.restart() // the targets have no marks in memory
	e.failing(nil)
	b.resume("bad", false)
	b.eventually(func() bool { return len(b.parked()) == 0 })
	b.expectRecorded("bad", numbers(3)...)
}

// expireMarks waits until the cursors have advanced and all marks have expired.
func (b *bench) expireMarks() {
	b.t.Helper()
	b.eventually(func() bool {
		if err := b.system.Expire(b.t.Context()); err != nil {
			b.t.Fatal(err)
		}
		return b.rows("reaction") == 0
	})
}
