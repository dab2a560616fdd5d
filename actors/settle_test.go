package actors_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/atelier-run/atelier/actors"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/persistence"
)

// A waitingContext closes waits when its user begins to wait for its end. The user has sent its message by then.
type waitingContext struct {
	context.Context
	once  sync.Once
	waits chan struct{}
}

func (c *waitingContext) Done() <-chan struct{} {
	c.once.Do(func() { close(c.waits) })
	return c.Context.Done()
}

// startSettle calls a function that waits for reactions in a goroutine, and returns the channel of its result. When startSettle
// returns, the request is in the mailbox of the shard.
func startSettle(t *testing.T, settle func(context.Context) error) <-chan error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	waiting := &waitingContext{Context: ctx, waits: make(chan struct{})}
	outcome := make(chan error, 1)
	go func() { outcome <- settle(waiting) }()
	<-waiting.waits
	return outcome
}

// awaitReactor waits until the reactor of a partition has handled all earlier messages.
func (b *bench) awaitReactor(p persistence.Partition) {
	b.t.Helper()
	if err := b.system.Resume(b.t.Context(), p, "slug/nothing", false); code(err) != entity.NotFound {
		b.t.Fatalf("a stream that is not parked is resumed: %v", err)
	}
}

// sharing returns another slug in the same partition.
func (b *bench) sharing(slug string) string {
	for i := 0; ; i++ {
		if other := fmt.Sprint("other", i); b.router.Partition(other) == b.router.Partition(slug) {
			return other
		}
	}
}

// TestSettleAllDuringParking parks a stream while callers wait for its partition: they wait for the other streams and get no
// error.
func TestSettleAllDuringParking(t *testing.T) {
	e := &echo{}
	b := newBench(t, withEcho(e))
	p, slow := b.router.Partition("bad"), b.sharing("bad")
	begun, fail, release := make(chan struct{}, 2), make(chan struct{}), make(chan struct{})
	var once [2]sync.Once
	e.failing(func(slug, _ string) error {
		if slug == "bad" {
			once[0].Do(func() { begun <- struct{}{} })
			<-fail
			return errors.New("never")
		}
		once[1].Do(func() { begun <- struct{}{} })
		<-release
		return nil
	})
	b.claim("bad", "c")
	b.claim(slow, "c")
	<-begun
	<-begun
	all := startSettle(t, func(ctx context.Context) error { return b.system.SettleAll(ctx, p) })
	own := startSettle(t, func(ctx context.Context) error { return b.system.Settle(ctx, p, entity.KindSlug, "bad") })
	b.awaitReactor(p)
	close(fail)
	if err := <-own; code(err) != entity.Unavailable {
		t.Errorf("the stream that is parked settles with %v", err)
	}
	b.awaitReactor(p)
	select {
	case err := <-all:
		t.Errorf("the partition settles with %v before its slow stream", err)
	default:
	}
	close(release)
	if err := <-all; err != nil {
		t.Errorf("the partition settles with %v beside a parked stream", err)
	}
	b.expectRecorded(slow, "c")
}

// TestReactionsContinueAfterShardRestart restarts a shard with messages that its reactor has not handled: they are lost, the
// waiting callers are answered, and the new reactor gets later messages.
func TestReactionsContinueAfterShardRestart(t *testing.T) {
	b := newBench(t, withEcho(&echo{}))
	b.system.DelayWorkers(time.Hour) // the shard restarts earlier than its reactor
	p := b.router.Partition("acme")
	b.settleAll() // without open reactions, no timer of the reactor sends it messages
	b.faults.reading(func(of persistence.Partition) {
		if of == p {
			panic("the feed cannot be read")
		}
	})
	b.claim("acme", "c00")
	b.eventually(func() bool { return b.metric("atelier_actor_restarts_total", "reactor", "restart") == 1 })
	b.faults.reading(nil)
	b.claim("acme", "c01")
	b.eventually(func() bool { return b.metric("atelier_actor_mailbox_messages", "reactor") == 1 })
	all := startSettle(t, func(ctx context.Context) error { return b.system.SettleAll(ctx, p) })
	b.eventually(func() bool { return b.metric("atelier_actor_mailbox_messages", "reactor") == 2 })
	b.system.FailShard(p)
	if err := <-all; !errors.Is(err, actors.ErrRetry) {
		t.Errorf("the partition settles with %v without its reactor", err)
	}
	b.eventually(func() bool { return len(b.recorded("acme")) == 2 })
	b.claim("acme", "c02") // only feedGrew makes the reactor read on
	b.eventually(func() bool { return len(b.recorded("acme")) == 3 })
	b.expectRecorded("acme", numbers(3)...)
}
