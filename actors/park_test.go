package actors_test

import (
	"errors"
	"fmt"
	"testing"

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
	if got := b.metric("atelier_reactor_parked_streams", partition); got != 1 {
		t.Errorf("%v streams of the partition are parked", got)
	}
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
