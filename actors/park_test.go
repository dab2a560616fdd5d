package actors_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/atelier-run/atelier/actors"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/persistence"
)

func TestParkedStream(t *testing.T) {
	b, e := newParked(t)
	b.expectRecorded("bad", "c00")
	rows := b.parked()
	if len(rows) != 1 || rows[0].GetStream() != "slug/bad" || rows[0].GetVersion() != 3 || rows[0].GetAttempts() != 3 ||
		rows[0].GetError() != "never" || rows[0].GetEvent() != "atelier.slug.v1.SlugClaimed" || rows[0].GetSince() == 0 {
		t.Fatalf("parked: %v", rows)
	}
	partition := fmt.Sprint(b.router.Partition("bad"))
	b.eventually(func() bool { return b.metric("atelier_reactor_parked_streams", partition) == 1 })
	for i := range 2 * partitions { // reactions of other streams continue, also of its partition
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
		t.Errorf("a stream that is not parked is resumed: %v", err)
	}
}

// newParked returns a bench with a parked stream: the reaction to the second of its three claims fails.
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

func TestSkipOneEvent(t *testing.T) {
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

// TestFailingReactionParksOnlyItsStream verifies that a panic and an event that cannot be decoded park their stream and no
// other.
func TestFailingReactionParksOnlyItsStream(t *testing.T) {
	b := newBench(t, withEcho(&echo{}))
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

// TestShardFailsWhileStreamIsUnparked restarts a shard while the row of a stream that has caught up is being removed. The next reactor does
// not take the stream for a parked one, and runs its later reactions.
func TestShardFailsWhileStreamIsUnparked(t *testing.T) {
	b, e := newParked(t)
	e.failing(nil)
	held := make(chan func(), 1)
	b.faults.holding(changesParked, held)
	b.resume("bad", false)
	remove := <-held
	b.faults.holding(nil, nil)
	b.failReactor("bad", b.system.FailShard)
	remove()
	b.claim("bad", "c03")
	if err := b.settle("bad"); err != nil {
		t.Error(err)
	}
	b.expectRecorded("bad", numbers(4)...)
}

// TestReactorFailsWhileEventIsSkipped makes a reactor fail while an event is skipped. The operator is told that the stream is not resumed,
// and no other event is skipped.
func TestReactorFailsWhileEventIsSkipped(t *testing.T) {
	for name, fail := range map[string]func(*bench, persistence.Partition){
		"the reactor": (*bench).panicReactor,
		"its shard":   func(b *bench, p persistence.Partition) { b.system.FailShard(p) },
	} {
		t.Run(name, func(t *testing.T) {
			b, _ := newParked(t)
			held := make(chan func(), 1)
			b.faults.holding(changesParked, held)
			skipped := make(chan error, 1)
			go func() { skipped <- b.router.ResumeReactions(b.t.Context(), "slug/bad", true) }()
			write := <-held
			b.faults.holding(nil, nil)
			b.failReactor("bad", func(p persistence.Partition) { fail(b, p) })
			write()
			if err := <-skipped; code(err) != entity.Unavailable {
				t.Errorf("the event is skipped with %v", err)
			}
			if rows := b.parked(); len(rows) != 1 || rows[0].GetVersion() != 4 {
				t.Errorf("parked: %v", rows)
			}
			b.resume("bad", false)
			b.eventually(func() bool { return len(b.parked()) == 0 })
			b.expectRecorded("bad", "c00", "c02")
		})
	}
}

// TestUnknownSkipIsNotRetried makes the outcome of a skip unknown to its caller. The error has no hint to retry, because the retry would
// skip the next event as well.
func TestUnknownSkipIsNotRetried(t *testing.T) {
	check := func(t *testing.T, err error) {
		t.Helper()
		var refused *entity.Error
		if !errors.As(err, &refused) || refused.Code != entity.Unavailable || refused.RetryAfter != 0 {
			t.Errorf("the skip is answered with %#v", err)
		}
	}
	t.Run("the partition fails", func(t *testing.T) {
		b, _ := newParked(t)
		b.faults.failing(func(p persistence.Proposal) error {
			if !changesParked(p) {
				return nil
			}
			written := make(chan struct{})
			b.journal.Append(p, func(persistence.Result) { close(written) })
			<-written
			return persistence.ErrUnknown
		})
		check(t, b.router.ResumeReactions(t.Context(), "slug/bad", true))
		b.faults.failing(nil)
		if _, err := b.journal.Move(t.Context(), b.router.Partition("bad"), persistence.DefaultMember); err != nil {
			t.Fatal(err)
		}
		b.resume("bad", false)
		b.eventually(func() bool { return len(b.parked()) == 0 })
		b.expectRecorded("bad", "c00", "c02")
	})
	t.Run("the caller gives up", func(t *testing.T) {
		b, e := newParked(t)
		e.failing(func(string, string) error { return errors.New("never") }) // so that the stream is parked again
		held := make(chan func(), 1)
		b.faults.holding(changesParked, held)
		ctx, giveUp := context.WithCancel(t.Context())
		skipped := make(chan error, 1)
		go func() { skipped <- b.router.ResumeReactions(ctx, "slug/bad", true) }()
		write := <-held
		giveUp()
		check(t, <-skipped)
		b.faults.holding(nil, nil)
		write()
		b.eventually(func() bool { return b.parked()[0].GetVersion() > 3 })
	})
}

// panicReactor makes the reactor of a partition panic once.
func (b *bench) panicReactor(p persistence.Partition) {
	b.t.Helper()
	panicked := make(chan struct{})
	b.faults.reading(func(of persistence.Partition) {
		if of == p {
			close(panicked)
			panic("the feed cannot be read")
		}
	})
	b.claim(b.sharing("bad"), "c")
	<-panicked
	b.faults.reading(nil)
}

// changesParked reports whether a proposal changes the row of a parked stream.
func changesParked(p persistence.Proposal) bool {
	return len(p.Entries) == 1 && p.Entries[0].Index == "parked"
}

// failReactor makes the reactor of a slug's partition fail, and returns when the next one has read its state, or waits before that.
func (b *bench) failReactor(slug string, fail func(persistence.Partition)) {
	b.t.Helper()
	p := b.router.Partition(slug)
	fail(p)
	ctx, cancel := context.WithTimeout(b.t.Context(), 300*time.Millisecond)
	defer cancel()
	for errors.Is(b.system.SettleAll(ctx, p), actors.ErrRetry) { // answered by the reactor that failed
	}
}

// TestInterruptedRetry verifies that after a retry that a restart interrupts, the stream is still parked, and the next retry
// repeats no command.
func TestInterruptedRetry(t *testing.T) {
	b, e := newParked(t)
	begun, release := make(chan struct{}), make(chan struct{})
	e.failing(func(slug, claim string) error {
		if slug == "bad" && claim == "c02" {
			close(begun)
			<-release
		}
		return nil
	})
	b.resume("bad", false)
	<-begun
	b.expectRecorded("bad", "c00", "c01")
	close(release)
	e.failing(nil)
	b.restart()
	b.settleAll()
	if len(b.parked()) == 1 { // the restart came before the row's removal
		b.resume("bad", false)
		b.eventually(func() bool { return len(b.parked()) == 0 })
	}
	b.expectRecorded("bad", "c00", "c01", "c02")
}
