package clock_test

import (
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/atelier-run/atelier/actors/clock"
)

// manualTime is a wall clock that a test sets, and a monotonic clock that it advances.
type manualTime struct {
	mu     sync.Mutex
	wall   time.Time
	passed time.Duration
}

// clock returns a steady clock that reads both clocks.
func (d *manualTime) clock() func() time.Time {
	return clock.Steady(func() (time.Time, time.Duration) {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.wall, d.passed
	})
}

// pass advances both clocks.
func (d *manualTime) pass(by time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wall, d.passed = d.wall.Add(by), d.passed+by
}

// step moves the wall clock alone.
func (d *manualTime) step(by time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wall = d.wall.Add(by)
}

var noon = time.UnixMilli(1_800_000_000_000)

func TestSteady(t *testing.T) {
	d := &manualTime{wall: noon}
	now := d.clock()
	expect := func(want time.Time) {
		t.Helper()
		if got := now(); !got.Equal(want) {
			t.Errorf("%v, want %v", got.Sub(noon), want.Sub(noon))
		}
	}
	expect(noon)
	d.pass(time.Hour)
	expect(noon.Add(time.Hour))
	d.step(time.Hour)
	expect(noon.Add(2 * time.Hour))
	d.step(-time.Minute)
	expect(noon.Add(2 * time.Hour))
	d.pass(16 * time.Second)
	expect(noon.Add(2*time.Hour + 15*time.Second))
	d.pass(15*time.Minute + 44*time.Second)
	expect(d.wall)
	d.pass(time.Second)
	expect(d.wall)
}

func TestSteadyNeverGoesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := &manualTime{wall: noon}
		now := d.clock()
		last := now()
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			d.step(time.Duration(rapid.Int64Range(-int64(time.Hour), int64(time.Hour)).Draw(t, "step")))
			passed := time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "passed"))
			d.pass(passed)
			read := now()
			if read.Sub(last) < passed-passed/16-time.Nanosecond {
				t.Fatalf("the clock advanced by %[2]v in %[1]v", passed, read.Sub(last))
			}
			if read.Before(d.wall) {
				t.Fatalf("%v is behind the wall's %v", read, d.wall)
			}
			last = read
		}
	})
}

func TestSteadyConcurrently(t *testing.T) {
	d := &manualTime{wall: noon}
	now := d.clock()
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			last := now()
			for i := range 2000 {
				d.step(time.Duration(i%7-3) * time.Second)
				d.pass(time.Millisecond)
				if read := now(); read.Before(last) {
					t.Errorf("%v after %v", read, last)
				} else {
					last = read
				}
			}
		})
	}
	clients.Wait()
}
