package actors_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	journalv1 "github.com/atelier-run/atelier/messages/journal/v1"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	"github.com/atelier-run/atelier/persistence"
)

// echo reacts to claims of slugs: each records a row in the workspace ws_log, with a path of the slug and the claim. A test can
// make it fail.
type echo struct {
	mu   sync.Mutex
	fail func(slug, claim string) error
}

func (e *echo) failing(fail func(slug, claim string) error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fail = fail
}

func (e *echo) react(slug string, event proto.Message) []entity.Reaction {
	claimed, ok := event.(*slugv1.SlugClaimed)
	if !ok {
		return nil
	}
	if strings.HasPrefix(slug, "panics") {
		panic("no")
	}
	return []entity.Reaction{{Command: record("ws_log", operation(activityv1.Kind_KIND_CREATE, slug+"/"+claimed.GetWorkspaceName()))}}
}

// send sends the command of a reaction, unless the test makes it fail.
func (e *echo) send(ctx context.Context, b *bench, c entity.Command) (proto.Message, error) {
	e.mu.Lock()
	fail := e.fail
	e.mu.Unlock()
	if m, ok := c.Message.(*activityv1.Record); ok && fail != nil {
		slug, claim, _ := strings.Cut(m.GetOperations()[0].GetPath(), "/")
		if err := fail(slug, claim); err != nil {
			return nil, err
		}
	}
	return b.router.Ask(ctx, c)
}

func withEcho(e *echo) func(*bench) {
	return func(b *bench) {
		b.attempts, b.react = 3, e.react
		b.send = func(ctx context.Context, c entity.Command) (proto.Message, error) { return e.send(ctx, b, c) }
	}
}

func (b *bench) slug(identity string, m proto.Message) {
	b.t.Helper()
	b.mustAsk(entity.Command{Kind: entity.KindSlug, Identity: identity, Principal: entity.Platform(), Message: m})
}

// claim claims and releases a slug, so that it can be claimed again. The first of the two events has a reaction.
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

// recorded returns the rows of ws_log for the claims of a slug, in order.
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

// append appends events to the journal without the actors.
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

func TestFanOutDelaysNoOtherStream(t *testing.T) {
	const targets = 2000
	var inFlight, most atomic.Int64
	begun, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	react := func(slug string, event proto.Message) []entity.Reaction {
		_, claimed := event.(*slugv1.SlugClaimed)
		if slug != "wide" || !claimed {
			return (&echo{}).react(slug, event)
		}
		var all []entity.Reaction
		for i := range targets {
			all = append(all, entity.Send(entity.KindSlug, fmt.Sprintf("target%d", i), &slugv1.ReleaseSlug{WorkspaceId: "ws"}))
		}
		return all
	}
	var done atomic.Int64
	b := newBench(t, func(b *bench) {
		b.react = react
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
