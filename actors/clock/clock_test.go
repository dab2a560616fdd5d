package node_test

import (
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/atelier-run/atelier/cmd/node"
)

// dial is a wall clock that is set, beside a monotonic one that is not.
type dial struct {
	mu     sync.Mutex
	wall   time.Time
	passed time.Duration
}

func (d *dial) clock() func() time.Time {
	return node.SteadyClock(func() (time.Time, time.Duration) {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.wall, d.passed
	})
}

// pass lets time pass, and step sets the wall clock.
func (d *dial) pass(by time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wall, d.passed = d.wall.Add(by), d.passed+by
}

func (d *dial) step(by time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wall = d.wall.Add(by)
}

var noon = time.UnixMilli(1_800_000_000_000)

func TestSteadyClock(t *testing.T) {
	d := &dial{wall: noon}
	now := d.clock()
	is := func(want time.Time) {
		t.Helper()
		if got := now(); !got.Equal(want) {
			t.Errorf("%v, want %v", got.Sub(noon), want.Sub(noon))
		}
	}
	is(noon)
	d.pass(time.Hour)
	is(noon.Add(time.Hour))
	d.step(time.Hour)
	is(noon.Add(2 * time.Hour))
	d.step(-time.Minute)
	is(noon.Add(2 * time.Hour))
	d.pass(16 * time.Second)
	is(noon.Add(2*time.Hour + 15*time.Second))
	d.pass(15*time.Minute + 44*time.Second)
	is(d.wall)
	d.pass(time.Second)
	is(d.wall)
}

func TestSteadyClockNeverGoesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := &dial{wall: noon}
		now := d.clock()
		last := now()
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			d.step(time.Duration(rapid.Int64Range(-int64(time.Hour), int64(time.Hour)).Draw(t, "step")))
			passed := time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "passed"))
			d.pass(passed)
			told := now()
			if told.Sub(last) < passed-passed/16-time.Nanosecond {
				t.Fatalf("%v passed, and the clock went on by %v", passed, told.Sub(last))
			}
			if told.Before(d.wall) {
				t.Fatalf("%v is behind the wall's %v", told, d.wall)
			}
			last = told
		}
	})
}

func TestSteadyClockIsOneForAll(t *testing.T) {
	d := &dial{wall: noon}
	now := d.clock()
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			last := now()
			for i := range 2000 {
				d.step(time.Duration(i%7-3) * time.Second)
				d.pass(time.Millisecond)
				if told := now(); told.Before(last) {
					t.Errorf("%v after %v", told, last)
				} else {
					last = told
				}
			}
		})
	}
	clients.Wait()
}
