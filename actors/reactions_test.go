package actors_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/actors"
	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	journalv1 "github.com/atelier-run/atelier/messages/journal/v1"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	"github.com/atelier-run/atelier/persistence"
)

// echo reacts to the claims of slugs: each has a row recorded in the workspace ws_log, whose path tells slug and claim.
// It fails as a test wants.
type echo struct {
	mu   sync.Mutex
	fail func(slug, claim string) error
}

func (e *echo) failing(fail func(slug, claim string) error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fail = fail
}

func (e *echo) react(_ context.Context, slug string, event proto.Message) ([]entity.Reaction, error) {
	claim := event.(*slugv1.SlugClaimed).GetWorkspaceName()
	e.mu.Lock()
	fail := e.fail
	e.mu.Unlock()
	if fail != nil {
		if err := fail(slug, claim); err != nil {
			return nil, err
		}
	}
	return entity.Reactions(record("ws_log", operation(activityv1.Kind_KIND_CREATE, slug+"/"+claim))), nil
}

func withEcho(e *echo) func(*bench) {
	return func(b *bench) {
		b.attempts = 3
		b.reactions = map[string]actors.Reaction{entity.MessageName(&slugv1.SlugClaimed{}): e.react}
	}
}

func (b *bench) slug(identity string, m proto.Message) {
	b.t.Helper()
	b.mustAsk(entity.Command{Kind: entity.KindSlug, Identity: identity, Principal: entity.Platform(), Message: m})
}

// claim claims a slug and releases it, so that it can be claimed again: two events, of which the first is reacted to.
func (b *bench) claim(slug, claim string) {
	b.t.Helper()
	b.slug(slug, &slugv1.ClaimSlug{WorkspaceId: "ws_" + slug, WorkspaceName: claim, CreatorId: "usr_1"})
	b.slug(slug, &slugv1.ReleaseSlug{WorkspaceId: "ws_" + slug})
}

func (b *bench) settle(slug string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return b.router.Settle(ctx, entity.KindSlug, slug)
}

func (b *bench) settleAll() {
	b.t.Helper()
	for p := range partitions {
		if err := b.system.SettleAll(b.t.Context(), persistence.Partition(p)); err != nil {
			b.t.Fatal(err)
		}
	}
}

// recorded are the rows of ws_log that a slug's claims led to, in the order of their recording.
func (b *bench) recorded(slug string) []string {
	b.t.Helper()
	v, err := b.journal.View()
	if err != nil {
		b.t.Fatal(err)
	}
	defer v.Close()
	var claims []string
	for event, err := range v.Read(b.router.Partition("ws_log"), "activity/ws_log", 1, persistence.Ascending) {
		if err != nil {
			b.t.Fatal(err)
		}
		_, rest, found := strings.Cut(string(event.Payload), slug+"/")
		if found {
			claim, _, _ := strings.Cut(rest, `"`)
			claims = append(claims, claim)
		}
	}
	return claims
}

func (b *bench) expectRecorded(slug string, want ...string) {
	b.t.Helper()
	if got := b.recorded(slug); !slices.Equal(got, want) {
		b.t.Errorf("the claims of %s were reacted to as %v, want %v", slug, got, want)
	}
}

func (b *bench) parked() []*journalv1.Parked {
	b.t.Helper()
	rows, err := b.router.ParkedReactions(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return rows
}

func (b *bench) resume(slug string, skip bool) {
	b.t.Helper()
	if err := b.router.ResumeReactions(b.t.Context(), "slug/"+slug, skip); err != nil {
		b.t.Fatal(err)
	}
}

func numbers(n int) []string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("c%02d", i))
	}
	return all
}

func TestReactionsOfOneStreamRunInOrder(t *testing.T) {
	e := &echo{}
	b := newBench(t, withEcho(e), func(b *bench) { b.attempts = 1000 })
	var mu sync.Mutex
	attempts := map[string]int{}
	e.failing(func(slug, claim string) error { // the first two attempts of every third claim fail
		mu.Lock()
		defer mu.Unlock()
		attempts[slug+claim]++
		if strings.HasSuffix(claim, "3") && attempts[slug+claim] <= 2 {
			return errors.New("not now")
		}
		return nil
	})
	var work sync.WaitGroup
	for i := range 8 {
		work.Go(func() {
			for _, claim := range numbers(12) {
				b.claim(fmt.Sprintf("stream%d", i), claim)
			}
		})
	}
	work.Wait()
	for i := range 8 {
		slug := fmt.Sprintf("stream%d", i)
		if err := b.settle(slug); err != nil {
			t.Fatal(err)
		}
		b.expectRecorded(slug, numbers(12)...)
	}
}

func TestSettleWaitsForItsOwnStreamOnly(t *testing.T) {
	e := &echo{}
	b := newBench(t, withEcho(e))
	begun, release := make(chan struct{}), make(chan struct{})
	e.failing(func(slug, _ string) error {
		if slug == "slow" {
			close(begun)
			<-release
		}
		return nil
	})
	b.claim("slow", "c")
	<-begun
	for i := range 4 * partitions {
		slug := fmt.Sprintf("fast%d", i)
		b.claim(slug, "c")
		if err := b.settle(slug); err != nil {
			t.Fatal(err)
		}
		b.expectRecorded(slug, "c")
	}
	b.expectRecorded("slow")
	close(release)
	if err := b.settle("slow"); err != nil {
		t.Fatal(err)
	}
	b.expectRecorded("slow", "c")
}

func TestParkedStream(t *testing.T) {
	b, e := newParked(t)
	b.expectRecorded("bad", "c00")
	rows := b.parked()
	if len(rows) != 1 || rows[0].GetStream() != "slug/bad" || rows[0].GetVersion() != 3 || rows[0].GetAttempts() != 3 ||
		rows[0].GetError() != "never" || rows[0].GetEvent() != "atelier.slug.v1.SlugClaimed" || rows[0].GetSince() == 0 {
		t.Fatalf("parked: %v", rows)
	}
	partition := fmt.Sprint(b.router.Partition("bad"))
	if got := b.metric("atelier_reactor_parked_streams", partition); got != 1 {
		t.Errorf("%v streams of the partition are parked", got)
	}
	for i := range 2 * partitions { // others go on, of its partition, too
		slug := fmt.Sprintf("good%d", i)
		b.claim(slug, "c")
		if err := b.settle(slug); err != nil {
			t.Fatal(err)
		}
		b.expectRecorded(slug, "c")
	}
	b.restart()
	b.claim("bad", "c03")
	if err := b.settle("bad"); code(err) != entity.Unavailable {
		t.Errorf("a parked stream settles with %v", err)
	}
	if rows := b.parked(); len(rows) != 1 || rows[0].GetVersion() != 3 {
		t.Fatalf("after a restart %v are parked", rows)
	}
	b.resume("bad", false) // it fails again
	b.eventually(func() bool { return len(b.parked()) == 1 && b.metric("atelier_reactor_reactions_total", "parked") == 1 })
	b.expectRecorded("bad", "c00")
	e.failing(nil)
	b.resume("bad", false)
	b.eventually(func() bool { return len(b.parked()) == 0 })
	b.expectRecorded("bad", "c00", "c01", "c02", "c03")
	b.eventually(func() bool { return b.metric("atelier_reactor_parked_streams", partition) == 0 })
	b.claim("bad", "c04")
	if err := b.settle("bad"); err != nil {
		t.Error(err)
	}
	b.restart()
	b.settleAll()
	b.expectRecorded("bad", "c00", "c01", "c02", "c03", "c04")
	if err := b.router.ResumeReactions(t.Context(), "slug/bad", false); code(err) != entity.NotFound {
		t.Errorf("what is not parked is resumed: %v", err)
	}
}

// newParked makes a stream whose second of three claims cannot be reacted to, and waits until it is parked.
func newParked(t *testing.T) (*bench, *echo) {
	e := &echo{}
	b := newBench(t, withEcho(e))
	e.failing(func(slug, claim string) error {
		if slug == "bad" && claim == "c01" {
			return errors.New("never")
		}
		return nil
	})
	for _, claim := range numbers(3) {
		b.claim("bad", claim)
	}
	b.eventually(func() bool { return len(b.parked()) == 1 })
	return b, e
}

func TestSkipPassesOverOneEvent(t *testing.T) {
	b, _ := newParked(t)
	b.resume("bad", true)
	b.eventually(func() bool { return len(b.parked()) == 0 })
	b.expectRecorded("bad", "c00", "c02")
	b.claim("bad", "c03")
	if err := b.settle("bad"); err != nil {
		t.Error(err)
	}
	b.restart()
	b.settleAll()
	b.expectRecorded("bad", "c00", "c02", "c03")
}

// A panic, and an event that cannot be decoded, park their stream and nothing else.
func TestWhatCannotBeReactedToParksItsStream(t *testing.T) {
	e := &echo{}
	b := newBench(t, withEcho(e))
	e.failing(func(slug, _ string) error {
		if slug == "panics" {
			panic("no")
		}
		return nil
	})
	b.claim("panics", "c")
	b.append("slug/garbled", persistence.Event{Name: "atelier.slug.v1.SlugClaimed", Payload: []byte{0xff}})
	b.eventually(func() bool { return len(b.parked()) == 2 })
	for i := range 2 * partitions {
		slug := fmt.Sprintf("good%d", i)
		b.claim(slug, "c")
		if err := b.settle(slug); err != nil {
			t.Fatal(err)
		}
	}
	b.resume("garbled", true)
	b.eventually(func() bool { return len(b.parked()) == 1 })
}

// append appends events past the actors.
func (b *bench) append(stream persistence.Stream, events ...persistence.Event) {
	b.t.Helper()
	_, identity, _ := strings.Cut(string(stream), "/")
	b.propose(persistence.Proposal{Partition: b.router.Partition(identity), Stream: stream, Events: events})
}

func (b *bench) propose(p persistence.Proposal) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	epochs := make(chan uint64, 2*partitions)
	b.journal.Watch(ctx, func(n persistence.Notice) {
		if n.Partition == p.Partition {
			select {
			case epochs <- n.Epoch:
			default:
			}
		}
	})
	p.Epoch = <-epochs
	done := make(chan error, 1)
	b.journal.Append(p, func(r persistence.Result) { done <- r.Err })
	if err := <-done; err != nil {
		b.t.Fatal(err)
	}
}

// loseCursors restarts with the cursors as they were in the beginning.
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

func TestLosingTheCursorRepeatsNothing(t *testing.T) {
	release := func(_ context.Context, slug string, event proto.Message) ([]entity.Reaction, error) {
		if slug != "source" {
			return nil, nil
		}
		return entity.Reactions(
			record("ws_log", operation(activityv1.Kind_KIND_CREATE, slug+"/"+event.(*slugv1.SlugClaimed).GetWorkspaceName())),
			entity.Command{Kind: entity.KindSlug, Identity: "target", Message: &slugv1.ReleaseSlug{WorkspaceId: "ws_target"}},
		), nil
	}
	b := newBench(t, func(b *bench) {
		b.reactions = map[string]actors.Reaction{entity.MessageName(&slugv1.SlugClaimed{}): release}
	})
	b.claim("source", "c00")
	b.claim("source", "c01")
	b.settleAll()
	// The first executions changed nothing, since nobody had claimed the target. A repetition would.
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

// A command that was refused is refused again when it is repeated, and its alternative is sent once.
func TestARefusalIsRemembered(t *testing.T) {
	claim := func(by string) entity.Command {
		return entity.Command{Kind: entity.KindSlug, Identity: "target", Message: &slugv1.ClaimSlug{
			WorkspaceId: by, WorkspaceName: "n", CreatorId: "usr_1",
		}}
	}
	react := func(_ context.Context, slug string, _ proto.Message) ([]entity.Reaction, error) {
		if slug != "source" {
			return nil, nil
		}
		otherwise := record("ws_log", operation(activityv1.Kind_KIND_CREATE, "source/refused"))
		return []entity.Reaction{{Command: claim("ws_source"), Otherwise: &otherwise}}, nil
	}
	b := newBench(t, func(b *bench) {
		b.reactions = map[string]actors.Reaction{entity.MessageName(&slugv1.SlugClaimed{}): react}
	})
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

func TestAFanOutDelaysNobody(t *testing.T) {
	const targets = 2000
	var inFlight, most atomic.Int64
	begun, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	react := func(_ context.Context, slug string, event proto.Message) ([]entity.Reaction, error) {
		if slug != "wide" {
			return (&echo{}).react(t.Context(), slug, event)
		}
		var all []entity.Command
		for i := range targets {
			all = append(all, entity.Command{Kind: entity.KindSlug, Identity: fmt.Sprintf("target%d", i), Message: &slugv1.ReleaseSlug{WorkspaceId: "ws"}})
		}
		return entity.Reactions(all...), nil
	}
	var done atomic.Int64
	b := newBench(t, func(b *bench) {
		b.reactions = map[string]actors.Reaction{entity.MessageName(&slugv1.SlugClaimed{}): react}
		b.send = func(ctx context.Context, c entity.Command) (proto.Message, error) {
			if strings.HasPrefix(c.Identity, "target") {
				defer inFlight.Add(-1)
				most.Store(max(most.Load(), inFlight.Add(1)))
				once.Do(func() { close(begun) })
				<-release
				defer done.Add(1)
			}
			return b.router.Ask(ctx, c)
		}
	})
	b.claim("wide", "c")
	<-begun
	for i := range 2 * partitions {
		slug := fmt.Sprintf("narrow%d", i)
		b.claim(slug, "c")
		if err := b.settle(slug); err != nil {
			t.Fatal(err)
		}
	}
	close(release)
	if err := b.settle("wide"); err != nil {
		t.Fatal(err)
	}
	if done.Load() != targets || most.Load() > 64 {
		t.Errorf("%d of %d commands were sent, %d at once", done.Load(), targets, most.Load())
	}
}

// rows counts the rows of an index over all partitions.
func (b *bench) rows(index string) int {
	b.t.Helper()
	v, err := b.journal.View()
	if err != nil {
		b.t.Fatal(err)
	}
	defer v.Close()
	n := 0
	for p := range partitions {
		for _, err := range v.Index(persistence.Partition(p), persistence.Query{Index: index, Prefix: true}) {
			if err != nil {
				b.t.Fatal(err)
			}
			n++
		}
	}
	return n
}

func TestMarksExpireBehindTheCursor(t *testing.T) {
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
