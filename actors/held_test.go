package actors_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"
	"weak"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/actors"
	"github.com/atelier-run/atelier/entity"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/persistence"
)

type answer struct {
	message proto.Message
	err     error
}

// await sends a query that waits until a scroll has a number of rows.
func (b *bench) await(ctx context.Context, kind, id string, p *wirev1.Principal, n uint64) <-chan answer {
	answered := make(chan answer, 1)
	go func() {
		m, err := b.router.Ask(ctx, entity.Command{Kind: kind, Identity: id, Principal: p, Message: &sessionv1.AwaitInput{Seq: n}})
		answered <- answer{m, err}
	}()
	return answered
}

func (b *bench) held(kind string) float64 { return b.metric("atelier_actor_held_queries", kind) }

// patiently returns a context for a query that waits.
func patiently(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func TestWaitingQueries(t *testing.T) {
	inBothModes(t, testWaitingQueries)
}

func testWaitingQueries(t *testing.T, mode func(*bench)) {
	const writers, each = 3, 20
	b := newBench(t, withScrolls, mode)
	b.createWorkspace("ws_1", "usr_1")
	var answers []<-chan answer
	for n := range uint64(writers * each) {
		answers = append(answers, b.await(patiently(t), scroll, "ws_1/a", person("usr_1"), n+1))
	}
	var writing sync.WaitGroup
	for range writers {
		writing.Go(func() { b.addRows("ws_1/a", each) })
	}
	for i, answered := range answers {
		a := <-answered
		if a.err != nil {
			t.Fatalf("the query for %d rows: %v", i+1, a.err)
		}
		if n, role := described(a.message); n < uint64(i+1) || role != "ROLE_OWNER" {
			t.Errorf("the query for %d rows is answered with %d for %s", i+1, n, role)
		}
	}
	writing.Wait()
	b.eventually(func() bool { return b.held(scroll) == 0 && b.metric("atelier_actor_in_flight", scroll) == 0 })
}

// TestWaitIsAnsweredWhenDurable verifies that a query waits for the commit of the change that answers it, and that a change that
// the journal refuses does not answer it.
func TestWaitIsAnsweredWhenDurable(t *testing.T) {
	for _, durable := range []bool{true, false} {
		b := newBench(t, withScrolls)
		b.createWorkspace("ws_1", "usr_1")
		answered := b.await(patiently(t), scroll, "ws_1/a", person("usr_1"), 1)
		b.eventually(func() bool { return b.held(scroll) == 1 })
		held := make(chan func(), 8)
		b.faults.holding(func(p persistence.Proposal) bool { return p.Stream == scroll+"/ws_1/a" }, held)
		added := make(chan error, 1)
		go func() { _, err := b.ask(toScroll("ws_1/a", person("usr_1"), rows(1))); added <- err }()
		release := <-held
		late := b.await(patiently(t), scroll, "ws_1/a", person("usr_1"), 1) // the state has the row, but the journal has not
		b.eventually(func() bool { return b.metric("atelier_actor_in_flight", scroll) == 2 })
		b.faults.holding(nil, nil)
		if !durable {
			b.faults.failing(refuseOnce(scroll + "/ws_1/a"))
		}
		select {
		case a := <-answered:
			t.Fatalf("answered before the change is durable: %v", a)
		case a := <-late:
			t.Fatalf("answered before the change is durable: %v", a)
		default:
		}
		release()
		if err := <-added; (err == nil) != durable {
			t.Fatalf("the change: %v", err)
		}
		if !durable {
			b.eventually(func() bool { return b.held(scroll) == 2 })
			b.addRows("ws_1/a", 1)
		}
		for _, answers := range []<-chan answer{answered, late} {
			if a := <-answers; a.err != nil {
				t.Errorf("durable %v: %v", durable, a.err)
			}
		}
	}
}

func TestGivenUpWaitsAreFreed(t *testing.T) {
	const waits = 200
	b := newBench(t, withScrolls, func(b *bench) { b.idle = time.Minute })
	b.createWorkspace("ws_1", "usr_1")
	b.addRows("ws_1/a", 1)
	ctx, cancel := context.WithCancel(t.Context())
	var messages []weak.Pointer[sessionv1.AwaitInput]
	var waiting sync.WaitGroup
	p := b.router.Partition("ws_1")
	for range waits {
		m := &sessionv1.AwaitInput{Seq: 9}
		messages = append(messages, weak.Make(m))
		waiting.Go(func() {
			if _, err := b.system.Ask(ctx, p, toScroll("ws_1/a", person("usr_1"), m)); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	b.eventually(func() bool { return b.held(scroll) == waits })
	b.clock.Advance(2 * time.Minute)
	b.system.Sweep()
	b.addRows("ws_1/a", 1) // the entity is still active, and decides
	if got := b.held(scroll); got != waits {
		t.Errorf("%v queries are held", got)
	}
	cancel()
	waiting.Wait()
	b.eventually(func() bool { return b.held(scroll) == 0 })
	b.system.Sweep()
	b.eventually(func() bool {
		runtime.GC()
		remembered := 0
		for _, m := range messages {
			if m.Value() != nil {
				remembered++
			}
		}
		return remembered == 0
	})
	b.clock.Advance(2 * time.Minute)
	b.system.Sweep()
	b.eventually(func() bool { return b.metric("atelier_actor_active", scroll) == 0 })
}

// TestWaitOnBlankEntityLeavesNothing verifies that an entity that was never written leaves memory with its last held query.
func TestWaitOnBlankEntityLeavesNothing(t *testing.T) {
	b := newBench(t, withScrolls)
	b.createWorkspace("ws_1", "usr_1")
	ctx, cancel := context.WithCancel(t.Context())
	answered := b.await(ctx, scroll, "ws_1/none", person("usr_1"), 1)
	b.eventually(func() bool { return b.held(scroll) == 1 })
	cancel()
	<-answered
	b.eventually(func() bool { return b.metric("atelier_actor_active", scroll) == 0 })
}

func TestWaitingQueriesBlockNoCommand(t *testing.T) {
	const most = 4096
	b := newBench(t, withScrolls)
	b.createWorkspace("ws_1", "usr_1")
	var answers []<-chan answer
	for range most {
		answers = append(answers, b.await(patiently(t), scroll, "ws_1/a", person("usr_1"), 2))
	}
	b.eventually(func() bool { return b.held(scroll) == most })
	if got := b.metric("atelier_actor_in_flight", scroll); got != 0 {
		t.Errorf("%v commands are in flight", got)
	}
	a := <-b.await(patiently(t), scroll, "ws_1/a", person("usr_1"), 2)
	if code(a.err) != entity.Unavailable {
		t.Errorf("one query more: %v", a.err)
	}
	b.addRows("ws_1/a", 2)
	for _, answered := range answers {
		if a := <-answered; a.err != nil {
			t.Fatal(a.err)
		}
	}
	b.eventually(func() bool { return b.held(scroll) == 0 })
}

func TestWaitOutlivesActor(t *testing.T) {
	for name, end := range map[string]func(*bench){
		"its shard fails": func(b *bench) { b.system.FailShard(b.router.Partition("ws_1")) },
		"a rule panics": func(b *bench) {
			if _, err := b.ask(toScroll("ws_1/a", person("usr_1"), rows(13))); code(err) != entity.Internal {
				b.t.Errorf("a panic is answered %v", err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, withScrolls)
			b.createWorkspace("ws_1", "usr_1")
			answered := b.await(patiently(t), scroll, "ws_1/a", person("usr_1"), 2)
			b.eventually(func() bool { return b.held(scroll) == 1 })
			direct := make(chan error, 1)
			go func() {
				_, err := b.system.Ask(patiently(t), b.router.Partition("ws_1"), toScroll("ws_1/a", entity.Platform(), &sessionv1.AwaitInput{Seq: 2}))
				direct <- err
			}()
			b.eventually(func() bool { return b.held(scroll) == 2 })
			end(b)
			if err := <-direct; !errors.Is(err, actors.ErrRetry) {
				t.Errorf("the query ends with %v", err)
			}
			b.addRows("ws_1/a", 2)
			if a := <-answered; a.err != nil {
				t.Error(a.err)
			}
		})
	}
}

func TestWaitIsAuthorizedAgain(t *testing.T) {
	b := newBench(t, withScrolls)
	b.createWorkspace("ws_1", "usr_1")
	for _, id := range []string{"usr_2", "usr_3", "usr_4"} {
		b.admitted("ws_1", id)
	}
	removed := b.await(patiently(t), scroll, "ws_1/a", person("usr_2"), 1)
	changed := b.await(patiently(t), scroll, "ws_1/a", person("usr_3"), 1)
	hidden := b.await(patiently(t), scroll, "ws_1/a", person("usr_4"), 1)
	b.eventually(func() bool { return b.held(scroll) == 3 })
	b.mustAsk(remove("usr_2"))
	if a := <-removed; code(a.err) != entity.NotFound {
		t.Errorf("the query of the removed member: %v", a)
	}
	b.changeRole("usr_3", workspacev1.Role_ROLE_VIEWER)
	b.mustAsk(toScroll("ws_1/a", person("usr_1"), &sessionv1.ChangeAudience{Add: []string{"usr_1", "usr_3"}}))
	if a := <-hidden; code(a.err) != entity.NotFound {
		t.Errorf("the query of the member who does not see the scroll: %v", a)
	}
	b.eventually(func() bool { return b.held(scroll) == 1 })
	b.addRows("ws_1/a", 1)
	a := <-changed
	if a.err != nil {
		t.Fatal(a.err)
	}
	if _, role := described(a.message); role != "ROLE_VIEWER" {
		t.Errorf("the answer is for a %s", role)
	}
}

func TestWaitWithoutOwner(t *testing.T) {
	b := newBench(t, withScrolls)
	if a := <-b.await(patiently(t), freeScroll, "a", person("usr_9"), 1); code(a.err) != entity.NotFound {
		t.Errorf("a stranger's query: %v", a)
	}
	answered := b.await(patiently(t), freeScroll, "a", person("usr_1"), 1)
	b.eventually(func() bool { return b.held(freeScroll) == 1 })
	b.mustAsk(entity.Command{Kind: freeScroll, Identity: "a", Principal: person("usr_1"), Message: rows(1)})
	if a := <-answered; a.err != nil {
		t.Error(a.err)
	}
}
