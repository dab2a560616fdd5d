package actors_test

import (
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/atelier-run/atelier/actors"
	"github.com/atelier-run/atelier/persistence"
)

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

func (b *bench) advance(d time.Duration) {
	b.clock.Advance(d)
	b.system.Tick()
}

func TestTimer(t *testing.T) {
	t.Run("command arrives once when due", func(t *testing.T) {
		b := newBench(t, withAgenda)
		b.setTimer("a", "late", 2*time.Hour)
		b.setTimer("a", "early", time.Hour)
		b.advance(time.Hour - time.Millisecond)
		if b.count("a", "ring", "early") != 0 || b.rows("timer") != 2 {
			t.Error("a timer rang before it was due")
		}
		b.advance(time.Millisecond)
		b.eventually(func() bool { return b.count("a", "ring", "early") == 1 })
		if b.count("a", "ring", "late") != 0 || b.rows("timer") != 1 {
			t.Error("a timer rang before it was due")
		}
		b.advance(time.Hour)
		b.eventually(func() bool { return b.count("a", "ring", "late") == 1 && b.rows("timer") == 0 })
		if b.count("a", "ring", "early") != 1 {
			t.Error("a timer rang twice")
		}
	})
	t.Run("timer in the past is due at once", func(t *testing.T) {
		b := newBench(t, withAgenda)
		b.setTimer("a", "now", 0)
		b.eventually(func() bool { return b.count("a", "ring", "now") == 1 })
		b.setTimer("a", "before", -time.Hour)
		b.eventually(func() bool { return b.count("a", "ring", "before") == 1 })
	})
	t.Run("cancelled timer does not ring", func(t *testing.T) {
		b := newBench(t, withAgenda)
		b.setTimer("a", "cancelled", time.Hour)
		b.setTimer("a", "kept", time.Hour)
		b.mustAsk(toAgenda("a", act("cancel", "cancelled")))
		b.advance(time.Hour)
		b.eventually(func() bool { return b.count("a", "ring", "kept") == 1 })
		if b.count("a", "ring", "cancelled") != 0 || b.rows("timer") != 0 {
			t.Error("a cancelled timer rang, or its row remains")
		}
	})
	t.Run("timer that is set again waits for the new time", func(t *testing.T) {
		b := newBench(t, withAgenda)
		b.setTimer("a", "moved", time.Hour)
		b.setTimer("a", "moved", 2*time.Hour)
		b.setTimer("a", "other", time.Hour)
		b.advance(time.Hour)
		b.eventually(func() bool { return b.count("a", "ring", "other") == 1 })
		if b.count("a", "ring", "moved") != 0 || b.rows("timer") != 1 {
			t.Error("the timer rang at the time that was replaced")
		}
	})
	t.Run("survives a restart without an active entity", func(t *testing.T) {
		b := newBench(t, withAgenda, func(b *bench) { b.idle = time.Minute })
		for i := range 20 {
			b.setTimer(fmt.Sprint(i), "t", time.Hour)
		}
		b.clock.Advance(2 * time.Minute)
		b.system.Sweep()
		b.eventually(func() bool { return b.metric("atelier_actor_active", "agenda") == 0 })
		b.restart()
		b.advance(time.Minute)
		if got := b.metric("atelier_actor_active", "agenda"); got != 0 {
			t.Errorf("%v entities are active", got)
		}
		b.advance(time.Hour)
		for i := range 20 {
			b.eventually(func() bool { return b.count(fmt.Sprint(i), "ring", "t") == 1 })
		}
	})
	t.Run("timer that its command does not remove is delivered again after pauses", func(t *testing.T) {
		b := newBench(t, withAgenda)
		b.mustAsk(toAgenda("deaf", act("deaf", "")))
		b.setTimer("deaf", "t", 0)
		b.setTimer("other", "t", time.Hour)
		b.eventually(func() bool { return b.metric("atelier_timers_delivered_total", "remains") >= 3 })
		b.advance(time.Hour)
		b.eventually(func() bool { return b.count("other", "ring", "t") == 1 })
		if got := b.metric("atelier_timers_delivered_total", "remains"); got > 20 {
			t.Errorf("it was delivered %v times", got)
		}
		b.mustAsk(toAgenda("deaf", act("cancel", "t")))
		b.eventually(func() bool { return b.rows("timer") == 0 })
	})
	t.Run("many timers that are due at once all ring", func(t *testing.T) {
		b := newBench(t, withAgenda)
		for i := range 500 {
			b.setTimer(fmt.Sprint(i%50), fmt.Sprint(i), time.Hour)
		}
		b.advance(time.Hour)
		b.eventually(func() bool { return b.rows("timer") == 0 })
		b.eventually(func() bool { return b.metric("atelier_timers_delivered_total", "done") == 500 })
	})
}

// TestTimersOfAClockThatWasAhead restarts the node with a clock that is right, after timers were set a year ahead. Timers with a pause (see
// agenda) ring at once, however many; the others wait for their time.
func TestTimersOfAClockThatWasAhead(t *testing.T) {
	const year, many = 365 * 24 * time.Hour, 300
	b := newBench(t, withAgenda)
	b.clock.Advance(year)
	b.setTimer("long", "late", time.Minute)
	for i := range many {
		b.setTimer(fmt.Sprint(i), "brief", time.Minute)
	}
	b.stop()
	b.clock.Advance(-year)
	b.start()
	b.eventually(func() bool { return b.rows("timer") == 1 })
	b.setTimer("now", "brief", time.Hour)
	for i := range many {
		if got := b.count(fmt.Sprint(i), "ring", "brief"); got != 1 {
			t.Fatalf("timer %d rang %d times", i, got)
		}
	}
	b.advance(time.Hour)
	b.eventually(func() bool { return b.count("now", "ring", "brief") == 1 })
	if b.count("long", "ring", "late") != 0 {
		t.Error("a timer without a pause rang before its time")
	}
	b.advance(year)
	b.eventually(func() bool { return b.count("long", "ring", "late") == 1 })
}

// A rowCounter counts the rows of timers that are read by one query at most.
type rowCounter struct{ most atomic.Int64 }

type countedView struct {
	persistence.View
	counter *rowCounter
}

func (v countedView) Index(p persistence.Partition, q persistence.Query) iter.Seq2[persistence.Entry, error] {
	if q.Index != "timer" {
		return v.View.Index(p, q)
	}
	return func(yield func(persistence.Entry, error) bool) {
		rows := int64(0)
		for row, err := range v.View.Index(p, q) {
			if rows++; rows > v.counter.most.Load() {
				v.counter.most.Store(rows)
			}
			if !yield(row, err) {
				return
			}
		}
	}
}

// TestSearchForTimersAheadInTurns restarts the node after many timers were set while the clock was ahead. Each turn reads few of their rows.
func TestSearchForTimersAheadInTurns(t *testing.T) {
	const year = 365 * 24 * time.Hour
	counter := &rowCounter{}
	b := newBench(t, withAgenda)
	b.clock.Advance(year)
	for i := range 2*actors.MaxSearched + 1 {
		b.setTimer("a", fmt.Sprint(i), time.Minute)
	}
	b.setTimer("a", "brief", time.Hour)
	b.stop()
	b.clock.Advance(-year)
	b.view = func(v persistence.View) persistence.View { return countedView{v, counter} }
	b.start()
	b.eventually(func() bool { return b.count("a", "ring", "brief") == 1 })
	if most := counter.most.Load(); most > actors.MaxSearched {
		t.Errorf("one turn read %d rows", most)
	}
}

// TestTimerIsSetAgain sets a timer for the same time again, while its command is delivered. Each time it rings again.
func TestTimerIsSetAgain(t *testing.T) {
	b := newBench(t, withAgenda)
	at := b.clock.Now()
	for range 50 {
		var setting sync.WaitGroup
		for range 4 {
			setting.Go(func() {
				for range 3 {
					b.mustAsk(toAgenda("a", timerOf("t", at)))
				}
			})
		}
		setting.Wait()
		b.eventually(func() bool { return b.rows("timer") == 0 })
	}
}
