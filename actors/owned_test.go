package actors_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/persistence"
)

// note is a kind that workspaces own, with identities <workspace>/<id>. ClaimSlug, by a member with the capability for
// sessions, counts in reserved_until, and panics without a workspace name.
const note = "note"

func withNotes(b *bench) {
	b.extra = append(b.extra, entity.Rules[*slugv1.Slug, slugv1.Command, slugv1.Event]{
		Name: note, Owner: entity.KindWorkspace,
		Zero: func(identity string) *slugv1.Slug { return &slugv1.Slug{Slug: identity} },
		Access: func(c slugv1.Command) entity.Access {
			if _, ok := c.(*slugv1.ClaimSlug); ok {
				return entity.Requires(entity.Changes(entity.Sessions))
			}
			return entity.Requires(entity.Reads(entity.Sessions))
		},
		Decide: func(_ entity.Call, _ *slugv1.Slug, c slugv1.Command) ([]slugv1.Event, error) {
			claim, ok := c.(*slugv1.ClaimSlug)
			if !ok {
				return nil, nil
			}
			if claim.GetWorkspaceName() == "" {
				panic("a claim without a name")
			}
			return []slugv1.Event{&slugv1.SlugReleased{WorkspaceId: claim.GetWorkspaceName()}}, nil
		},
		Evolve: func(s *slugv1.Slug, _ slugv1.Event) *slugv1.Slug {
			return &slugv1.Slug{Slug: s.GetSlug(), ReservedUntil: s.GetReservedUntil() + 1}
		},
		Reply: func(_ entity.Call, s *slugv1.Slug, _ slugv1.Command, _ []slugv1.Event) proto.Message { return s },
	}.Kind())
}

func toNote(id string, p *wirev1.Principal, m slugv1.Command) entity.Command {
	return entity.Command{Kind: note, Identity: id, Principal: p, Message: m}
}

var count = &slugv1.ClaimSlug{WorkspaceName: "n"}

func counted(m proto.Message) int64 { return m.(*slugv1.Slug).GetReservedUntil() }

// admitted makes a user a member of a workspace.
func (b *bench) admitted(workspaceID, userID string) {
	b.t.Helper()
	invitation := "inv_" + userID
	b.mustAsk(entity.Command{Kind: entity.KindWorkspace, Identity: workspaceID, Principal: person("usr_1"), Message: &workspacev1.Invite{
		InvitationId: invitation, Email: userID + "@example.com", Role: workspacev1.Role_ROLE_EDITOR,
		Inviter: &workspacev1.Person{UserId: "usr_1", Email: "usr_1@example.com"},
	}})
	b.mustAsk(entity.Command{Kind: entity.KindWorkspace, Identity: workspaceID, Principal: entity.Platform(), Message: &workspacev1.AcceptInvitation{
		InvitationId: invitation, Person: &workspacev1.Person{UserId: userID, Email: userID + "@example.com"},
	}})
}

func remove(userID string) entity.Command {
	return entity.Command{Kind: entity.KindWorkspace, Identity: "ws_1", Principal: person("usr_1"),
		Message: &workspacev1.RemoveMember{UserId: userID}}
}

func TestOwnedEntity(t *testing.T) {
	b := newBench(t, withNotes)
	b.createWorkspace("ws_1", "usr_1")
	for i := range 3 {
		if got := counted(b.mustAsk(toNote("ws_1/a", person("usr_1"), count))); got != int64(i+1) {
			t.Fatalf("command %d is answered %d", i, got)
		}
	}
	if got := counted(b.mustAsk(toNote("ws_1/b", person("usr_1"), &slugv1.ResolveSlug{}))); got != 0 {
		t.Errorf("another note has %d", got)
	}
	for id, want := range map[string]entity.Code{"ws_1/a": entity.NotFound, "ws_none/a": entity.NotFound} {
		if _, err := b.ask(toNote(id, person("usr_2"), count)); code(err) != want {
			t.Errorf("a stranger's command to %s: %v", id, err)
		}
	}
	b.restart()
	if got := counted(b.mustAsk(toNote("ws_1/a", person("usr_1"), &slugv1.ResolveSlug{}))); got != 3 {
		t.Errorf("after a restart the note has %d", got)
	}
}

// TestRemovedMemberCannotReachOwnedEntity verifies that the removal of a member applies to commands for owned entities at once,
// but only if it becomes durable.
func TestRemovedMemberCannotReachOwnedEntity(t *testing.T) {
	for _, durable := range []bool{true, false} {
		t.Run(fmt.Sprint("removal is durable ", durable), func(t *testing.T) {
			b := newBench(t, withNotes)
			b.createWorkspace("ws_1", "usr_1")
			b.admitted("ws_1", "usr_2")
			b.mustAsk(toNote("ws_1/a", person("usr_2"), count))
			held := make(chan func(), 8)
			b.faults.holding(func(p persistence.Proposal) bool { return p.Stream == "workspace/ws_1" && len(p.Events) > 0 }, held)
			removed := make(chan error, 1)
			go func() { _, err := b.ask(remove("usr_2")); removed <- err }()
			release := <-held
			after := make(chan error, 1)
			go func() { _, err := b.ask(toNote("ws_1/a", person("usr_2"), count)); after <- err }()
			b.eventually(func() bool { return b.metric("atelier_actor_in_flight", note) == 1 })
			select {
			case err := <-after:
				t.Fatalf("answered before the removal is durable: %v", err)
			default:
			}
			b.faults.holding(nil, nil)
			if !durable {
				b.faults.failing(refuseOnce("workspace/ws_1"))
			}
			release()
			if err := <-removed; (err == nil) != durable {
				t.Fatalf("the removal: %v", err)
			}
			err := <-after
			if durable && code(err) != entity.NotFound || !durable && err != nil {
				t.Errorf("the removed member's command: %v", err)
			}
		})
	}
}

func TestBusyOwnedEntityDelaysNoOther(t *testing.T) {
	b := newBench(t, withNotes)
	b.createWorkspace("ws_1", "usr_1")
	b.mustAsk(toNote("ws_1/busy", person("usr_1"), count))
	held := make(chan func(), 8192)
	b.faults.holding(func(p persistence.Proposal) bool { return p.Stream == note+"/ws_1/busy" }, held)
	var asking sync.WaitGroup
	refused := make(chan error, 8192)
	for range 4200 {
		asking.Go(func() {
			if _, err := b.ask(toNote("ws_1/busy", person("usr_1"), count)); err != nil {
				refused <- err
			}
		})
	}
	if err := <-refused; code(err) != entity.Unavailable {
		t.Errorf("refused with %v", err)
	}
	b.mustAsk(toNote("ws_1/idle", person("usr_1"), count))
	b.mustAsk(entity.Command{Kind: entity.KindWorkspace, Identity: "ws_1", Principal: person("usr_1"),
		Message: &workspacev1.SetDefaultModel{Tier: workspacev1.Tier_TIER_BALANCED}})
	b.faults.holding(nil, nil)
	go func() {
		for release := range held {
			release()
		}
	}()
	asking.Wait()
	close(held)
}

func TestFailingOwnedEntityDoesNotFailOwner(t *testing.T) {
	b := newBench(t, withNotes)
	b.createWorkspace("ws_1", "usr_1")
	b.mustAsk(toNote("ws_1/a", person("usr_1"), count))
	b.mustAsk(toNote("ws_1/b", person("usr_1"), count))
	if _, err := b.ask(toNote("ws_1/a", person("usr_1"), &slugv1.ClaimSlug{})); code(err) != entity.Internal {
		t.Errorf("a panic is answered %v", err)
	}
	for _, id := range []string{"ws_1/a", "ws_1/b"} {
		if got := counted(b.mustAsk(toNote(id, person("usr_1"), count))); got != 2 {
			t.Errorf("%s has %d", id, got)
		}
	}
	if got := b.metric("atelier_actor_restarts_total", note, "restart"); got != 1 {
		t.Errorf("%v restarts of notes", got)
	}
	if got := b.metric("atelier_actor_restarts_total", entity.KindWorkspace, "restart"); got != 0 {
		t.Errorf("%v restarts of workspaces", got)
	}
}

func TestOwnedEntitiesArePassivated(t *testing.T) {
	active := func(b *bench, kind string) float64 { return b.metric("atelier_actor_active", kind) }
	t.Run("together with their owner", func(t *testing.T) {
		b := newBench(t, withNotes, func(b *bench) { b.idle = time.Minute })
		b.createWorkspace("ws_1", "usr_1")
		b.mustAsk(toNote("ws_1/a", person("usr_1"), count))
		b.clock.Advance(2 * time.Minute)
		b.system.Sweep()
		b.eventually(func() bool { return active(b, note) == 0 && active(b, entity.KindWorkspace) == 0 })
		if got := counted(b.mustAsk(toNote("ws_1/a", person("usr_1"), count))); got != 2 {
			t.Errorf("the note has %d", got)
		}
	})
	t.Run("before their owner", func(t *testing.T) {
		b := newBench(t, withNotes, func(b *bench) { b.idle = time.Minute })
		b.createWorkspace("ws_1", "usr_1")
		b.mustAsk(toNote("ws_1/a", person("usr_1"), count))
		b.clock.Advance(2 * time.Minute)
		b.mustAsk(toNote("ws_1/b", person("usr_1"), count))
		b.system.Sweep()
		b.eventually(func() bool { return active(b, note) == 1 })
		if got := active(b, entity.KindWorkspace); got != 1 {
			t.Errorf("%v workspaces are active", got)
		}
	})
	t.Run("not while one of them is busy", func(t *testing.T) {
		b := newBench(t, withNotes, func(b *bench) { b.idle = time.Minute })
		b.createWorkspace("ws_1", "usr_1")
		b.mustAsk(toNote("ws_1/a", person("usr_1"), count))
		held := make(chan func(), 1)
		b.faults.holding(func(p persistence.Proposal) bool { return p.Stream == note+"/ws_1/a" }, held)
		answered := make(chan error, 1)
		go func() { _, err := b.ask(toNote("ws_1/a", person("usr_1"), count)); answered <- err }()
		release := <-held
		b.faults.holding(nil, nil)
		b.clock.Advance(2 * time.Minute)
		b.system.Sweep()
		// The workspace stays active because its note does.
		b.mustAsk(toNote("ws_1/b", person("usr_1"), count))
		release()
		if err := <-answered; err != nil {
			t.Error(err)
		}
	})
	t.Run("that were never written", func(t *testing.T) {
		b := newBench(t, withNotes)
		b.createWorkspace("ws_1", "usr_1")
		for i := range 8 {
			b.mustAsk(toNote(fmt.Sprintf("ws_1/%d", i), person("usr_1"), &slugv1.ResolveSlug{}))
		}
		b.eventually(func() bool { return active(b, note) == 0 })
	})
}

func TestOwnedCommandsDuringPassivation(t *testing.T) {
	b := newBench(t, withNotes, func(b *bench) { b.idle = time.Nanosecond })
	b.createWorkspace("ws_1", "usr_1")
	var acknowledged atomic.Int64
	var asking sync.WaitGroup
	for range 4 {
		asking.Go(func() {
			for range 100 {
				b.clock.Advance(time.Second)
				b.system.Sweep()
				b.mustAsk(toNote("ws_1/a", person("usr_1"), count))
				acknowledged.Add(1)
			}
		})
	}
	asking.Wait()
	if got := counted(b.mustAsk(toNote("ws_1/a", person("usr_1"), &slugv1.ResolveSlug{}))); got != acknowledged.Load() {
		t.Errorf("%d counted, %d acknowledged", got, acknowledged.Load())
	}
}

// TestBatchOfOwnedCommands verifies that each of several commands in one message is applied once, and that one that fails
// the owned entity's actor does not fail the others.
func TestBatchOfOwnedCommands(t *testing.T) {
	const each = 8
	b := newBench(t, withNotes)
	b.createWorkspace("ws_1", "usr_1")
	b.mustAsk(toNote("ws_1/a", person("usr_1"), count))
	held := make(chan func(), 1)
	b.faults.holding(func(p persistence.Proposal) bool { return p.Stream == "workspace/ws_1" && len(p.Events) > 0 }, held)
	var asking sync.WaitGroup
	asking.Go(func() {
		b.mustAsk(entity.Command{Kind: entity.KindWorkspace, Identity: "ws_1", Principal: person("usr_1"),
			Message: &workspacev1.SetDefaultModel{Tier: workspacev1.Tier_TIER_BALANCED}})
	})
	release := <-held
	send := func(n int, ask func()) {
		waiting := b.metric("atelier_actor_in_flight", note)
		for range n {
			asking.Go(ask)
		}
		b.eventually(func() bool { return b.metric("atelier_actor_in_flight", note) == waiting+float64(n) })
	}
	counts := func() { b.mustAsk(toNote("ws_1/a", person("usr_1"), count)) }
	send(each, counts)
	send(1, func() {
		if _, err := b.ask(toNote("ws_1/a", person("usr_1"), &slugv1.ClaimSlug{})); code(err) != entity.Internal {
			t.Errorf("a panic is answered %v", err)
		}
	})
	send(each, counts)
	b.faults.holding(nil, nil)
	release()
	asking.Wait()
	if got := counted(b.mustAsk(toNote("ws_1/a", person("usr_1"), &slugv1.ResolveSlug{}))); got != 2*each+1 {
		t.Errorf("%d commands are counted, not %d", got, 2*each+1)
	}
}
