package actors_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/atelier-run/atelier/actors"
	"github.com/atelier-run/atelier/entity"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/persistence"
)

// A reader collects the rows and messages of the stream of a scroll.
type reader struct {
	t  *testing.T
	mu sync.Mutex
	// seqs are the numbers of the rows; log has "r<number>" for each row and "p<text>" for each message that was passed on.
	seqs   []uint64
	log    []string
	arrive chan struct{}
	block  chan struct{}
	cancel context.CancelFunc
	ended  chan error
}

func newReader(t *testing.T) *reader {
	return &reader{t: t, arrive: make(chan struct{}, 1), ended: make(chan error, 1)}
}

// read opens a stream of a scroll after a version.
func (b *bench) read(t *testing.T, id, userID string, after uint64, adjust ...func(*reader)) *reader {
	t.Helper()
	f := newReader(t)
	for _, fn := range adjust {
		fn(f)
	}
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel = cancel
	t.Cleanup(cancel)
	follow, err := b.router.FollowTimeline(ctx, entity.TimelineSubscription{
		Kind: scroll, Identity: id, Principal: person(userID), After: after, Send: f.send,
	})
	if err != nil {
		t.Fatal(err)
	}
	go func() { f.ended <- follow(ctx) }()
	return f
}

func (f *reader) send(batch entity.TimelineBatch) error {
	if f.block != nil {
		<-f.block
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(batch.Passed)+len(batch.Rows) == 0 {
		f.t.Error("an empty batch")
	}
	for _, m := range batch.Passed {
		f.log = append(f.log, "p"+m.(*sessionv1.PublishDelta).GetText())
	}
	for _, row := range batch.Rows {
		seq := row.Event.(*sessionv1.RowAdded).GetSeq()
		f.seqs = append(f.seqs, seq)
		f.log = append(f.log, fmt.Sprint("r", seq))
	}
	select {
	case f.arrive <- struct{}{}:
	default:
	}
	return nil
}

// wait waits until the rows and messages that have arrived satisfy a condition.
func (f *reader) wait(holds func() bool) {
	f.t.Helper()
	timeout := time.After(patience)
	for {
		f.mu.Lock()
		done := holds()
		f.mu.Unlock()
		if done {
			return
		}
		select {
		case <-f.arrive:
		case err := <-f.ended:
			f.t.Fatalf("the stream ended: %v", err)
		case <-timeout:
			f.t.Fatal("the rows have not arrived")
		}
	}
}

// rows returns the numbers of the rows when the last is at least want.
func (f *reader) rows(want uint64) []uint64 {
	f.t.Helper()
	f.wait(func() bool { return len(f.seqs) > 0 && f.seqs[len(f.seqs)-1] >= want })
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.seqs)
}

// entries returns the log when it has n entries.
func (f *reader) entries(n int) string {
	f.t.Helper()
	f.wait(func() bool { return len(f.log) >= n })
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.log, " ")
}

func (b *bench) pass(id, text string) {
	b.t.Helper()
	b.mustAsk(toScroll(id, entity.Platform(), &sessionv1.PublishDelta{Text: text}))
}

func TestTimelineStream(t *testing.T) {
	inBothModes(t, testTimelineStream)
}

// testTimelineStream verifies that streams have each row once, from history to the present, while rows are added concurrently.
func testTimelineStream(t *testing.T, mode func(*bench)) {
	const history, live, writers = 600, 60, 3
	b := newBench(t, withScrolls, mode)
	b.createWorkspace("ws_1", "usr_1")
	many := toScroll("ws_1/a", entity.Platform(), rows(history))
	many.ID = "history"
	b.mustAsk(many)
	var writing sync.WaitGroup
	for range writers {
		writing.Go(func() { b.addRows("ws_1/a", live) })
	}
	var readers []*reader
	for i := range 8 {
		readers = append(readers, b.read(t, "ws_1/a", "usr_1", uint64(i*80)))
	}
	writing.Wait()
	for i, f := range readers {
		contiguous(t, f.rows(history+writers*live), uint64(i*80)+1, history+writers*live)
		f.cancel()
		if err := <-f.ended; err != nil {
			t.Error(err)
		}
	}
	b.eventually(func() bool { return b.metric("atelier_timeline_readers") == 0 })
}

// TestTimelineStreamOrder verifies that messages that are passed on come between the rows that were decided before and after
// them.
func TestTimelineStreamOrder(t *testing.T) {
	b := newBench(t, withScrolls)
	b.createWorkspace("ws_1", "usr_1")
	b.addRows("ws_1/a", 1)
	f := b.read(t, "ws_1/a", "usr_1", 0)
	b.pass("ws_1/b", "elsewhere")
	b.pass("ws_1/a", "a")
	b.pass("ws_1/a", "b")
	if got := f.entries(3); got != "r1 pa pb" {
		t.Fatal(got)
	}
	held := make(chan func(), 8)
	b.faults.holding(func(p persistence.Proposal) bool { return p.Stream == scroll+"/ws_1/a" }, held)
	var adding sync.WaitGroup
	var release []func()
	for _, text := range []string{"c", "d"} {
		b.pass("ws_1/a", text)
		adding.Go(func() { b.addRows("ws_1/a", 1) })
		release = append(release, <-held)
	}
	b.pass("ws_1/a", "e")
	b.faults.holding(nil, nil)
	if got := f.entries(4); got != "r1 pa pb pc" {
		t.Fatal(got)
	}
	for _, fn := range release {
		fn()
	}
	adding.Wait()
	b.pass("ws_1/a", "f")
	if got := f.entries(9); got != "r1 pa pb pc r2 pd r3 pe pf" {
		t.Error(got)
	}
	if got := b.metric("atelier_timeline_passed_total"); got != 6 {
		t.Errorf("%v messages are passed on", got)
	}
}

// TestSlowTimelineReader verifies that a reader that takes nothing gets all rows later, but only a bounded number of messages
// that were passed on.
func TestSlowTimelineReader(t *testing.T) {
	const history, messages = 1200, 100
	b := newBench(t, withScrolls)
	b.createWorkspace("ws_1", "usr_1")
	b.addRows("ws_1/a", 1)
	f := b.read(t, "ws_1/a", "usr_1", 0, func(f *reader) { f.block = make(chan struct{}) })
	quick := b.read(t, "ws_1/a", "usr_1", 0)
	quick.rows(1)
	text := strings.Repeat("x", 1<<10)
	for range messages {
		b.pass("ws_1/a", text)
	}
	for range history / 100 {
		b.mustAsk(toScroll("ws_1/a", entity.Platform(), rows(100)))
	}
	contiguous(t, quick.rows(history+1), 1, history+1)
	if dropped := b.metric("atelier_timeline_dropped_total"); dropped < messages-64 {
		t.Errorf("%v messages are dropped", dropped)
	}
	close(f.block)
	contiguous(t, f.rows(history+1), 1, history+1)
	f.mu.Lock()
	defer f.mu.Unlock()
	if got := len(f.log) - len(f.seqs); got == 0 || got > 64 {
		t.Errorf("%d messages were passed on to the slow reader", got)
	}
	if first := slices.IndexFunc(f.log, func(s string) bool { return s[0] == 'p' }); first != 1 {
		t.Errorf("the first message is after %d rows", first)
	}
}

func TestTimelineStreamLosesAccess(t *testing.T) {
	for name, lose := range map[string]func(*bench){
		"by removal from the workspace": func(b *bench) { b.mustAsk(remove("usr_2")) },
		"by a change of the entity": func(b *bench) {
			b.mustAsk(toScroll("ws_1/a", person("usr_1"), &sessionv1.ChangeAudience{Add: []string{"usr_1"}}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, withScrolls)
			b.createWorkspace("ws_1", "usr_1")
			b.admitted("ws_1", "usr_2")
			b.addRows("ws_1/a", 1)
			loses, stays := b.read(t, "ws_1/a", "usr_2", 0), b.read(t, "ws_1/a", "usr_1", 0)
			loses.rows(1)
			lose(b)
			if err := <-loses.ended; code(err) != entity.NotFound {
				t.Errorf("the stream ends with %v", err)
			}
			b.addRows("ws_1/a", 1)
			contiguous(t, stays.rows(2), 1, 2)
			contiguous(t, loses.seqs, 1, 1)
		})
	}
}

// TestTimelineStreamGoesOn verifies that a stream goes on where it was after a change of its reader's role, a failed proposal and
// the end of its entity's actor.
func TestTimelineStreamGoesOn(t *testing.T) {
	b := newBench(t, withScrolls)
	b.createWorkspace("ws_1", "usr_1")
	b.admitted("ws_1", "usr_2")
	b.addRows("ws_1/a", 1)
	direct := func() <-chan error {
		follow, err := b.system.FollowTimeline(t.Context(), b.router.Partition("ws_1"), entity.TimelineSubscription{
			Kind: scroll, Identity: "ws_1/a", Principal: person("usr_2"), Send: func(entity.TimelineBatch) error { return nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { _, err := follow(t.Context()); ended <- err }()
		return ended
	}
	f := b.read(t, "ws_1/a", "usr_2", 0)
	f.rows(1)
	n := uint64(1)
	for _, interrupt := range []func(){
		func() { b.changeRole("usr_2", workspacev1.Role_ROLE_VIEWER) },
		func() {
			b.faults.failing(refuseOnce(scroll + "/ws_1/a"))
			if _, err := b.ask(toScroll("ws_1/a", entity.Platform(), rows(1))); err == nil {
				t.Error("a command that the journal refused is acknowledged")
			}
		},
		func() { b.system.FailShard(b.router.Partition("ws_1")) },
	} {
		ended := direct()
		interrupt()
		if err := <-ended; !errors.Is(err, actors.ErrRetry) {
			t.Errorf("the part of the stream ends with %v", err)
		}
		b.addRows("ws_1/a", 1)
		n++
		contiguous(t, f.rows(n), 1, n)
	}
}

// TestEndedTimelineReadersAreForgotten verifies that an entity leaves memory after its streams have ended, or were never run.
func TestEndedTimelineReadersAreForgotten(t *testing.T) {
	b := newBench(t, withScrolls, func(b *bench) { b.idle = time.Minute })
	b.createWorkspace("ws_1", "usr_1")
	b.addRows("ws_1/a", 1)
	active := func() float64 { return b.metric("atelier_actor_active", scroll) }
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := b.router.FollowTimeline(ctx, entity.TimelineSubscription{
		Kind: scroll, Identity: "ws_1/a", Principal: person("usr_1"), Send: func(entity.TimelineBatch) error { return nil },
	}); err != nil {
		t.Fatal(err)
	}
	f := b.read(t, "ws_1/a", "usr_1", 0)
	f.rows(1)
	b.clock.Advance(2 * time.Minute)
	b.system.Sweep()
	b.addRows("ws_1/a", 1)
	contiguous(t, f.rows(2), 1, 2)
	if got := active(); got != 1 {
		t.Errorf("%v entities are active", got)
	}
	f.cancel()
	if err := <-f.ended; err != nil {
		t.Error(err)
	}
	cancel()
	b.eventually(func() bool {
		b.clock.Advance(2 * time.Minute)
		b.system.Sweep()
		return active() == 0
	})
}

func TestTimelineStreamErrors(t *testing.T) {
	b := newBench(t, withScrolls)
	b.createWorkspace("ws_1", "usr_1")
	b.addRows("ws_1/a", 2)
	failed := errors.New("the client has gone")
	sub := entity.TimelineSubscription{
		Kind: scroll, Identity: "ws_1/a", Principal: person("usr_1"), Send: func(entity.TimelineBatch) error { return failed },
	}
	follow, err := b.router.FollowTimeline(t.Context(), sub)
	if err != nil {
		t.Fatal(err)
	}
	if err := follow(t.Context()); !errors.Is(err, failed) {
		t.Errorf("the stream ends with %v", err)
	}
	sub.After = 3
	if _, err := b.router.FollowTimeline(t.Context(), sub); code(err) != entity.InvalidCursor {
		t.Errorf("a stream after a version that does not exist: %v", err)
	}
	sub.Kind = "none"
	if _, err := b.router.FollowTimeline(t.Context(), sub); code(err) != entity.InvalidRequest {
		t.Errorf("a stream of a kind that does not exist: %v", err)
	}
}
