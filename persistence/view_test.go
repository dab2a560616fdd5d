package persistence

import (
	"errors"
	"runtime"
	"testing"
)

// count returns the number of open snapshots.
func (v *views) count() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.snapshots)
}

// TestSharedSnapshots counts Pebble's snapshots: all views of one state share one, and a state without views has none.
func TestSharedSnapshots(t *testing.T) {
	f := newFaultyJournal(t, Options{})
	f.mustAppend("a", 0)
	first, _ := f.View()
	same, _ := f.View()
	if n := f.views.count(); n != 1 {
		t.Fatalf("%d snapshots of one state", n)
	}
	f.mustAppend("a", 1)
	second, _ := f.View()
	if n := f.views.count(); n != 2 {
		t.Fatalf("%d snapshots of two states", n)
	}
	for _, v := range []View{first, first, same, second} {
		_ = v.Close() // a second time does nothing
	}
	if _, err := first.Head(0, "a"); !errors.Is(err, ErrClosed) {
		t.Fatalf("a closed view: %v", err)
	}
	f.mustAppend("a", 2)
	if n := f.views.count(); n != 1 {
		t.Fatalf("%d snapshots are open", n)
	}
	f.mustClose()
	if n := f.views.count(); n != 0 {
		t.Fatalf("%d snapshots after the end", n)
	}
}

// TestCloseWhileReading closes the journal during an iteration, which ends with its next step.
func TestCloseWhileReading(t *testing.T) {
	f := newFaultyJournal(t, Options{})
	for version := range uint64(3) {
		f.mustAppend("a", version)
	}
	for name, walk := range map[string]func(v View, yield func(Event, error) bool){
		"read": func(v View, yield func(Event, error) bool) { v.Read(0, "a", 0, Ascending)(yield) },
		"feed": func(v View, yield func(Event, error) bool) { v.Feed(0, 0, nil)(yield) },
	} {
		v, err := f.View()
		if err != nil {
			t.Fatal(err)
		}
		steps, closing := 0, make(chan error, 1)
		walk(v, func(_ Event, err error) bool {
			if steps++; steps > 1 {
				if !errors.Is(err, ErrClosed) {
					t.Fatalf("%s: step %d after the end: %v", name, steps, err)
				}
				return false
			}
			go func() { closing <- f.Close() }()
			for !f.views.closing.Load() {
				runtime.Gosched()
			}
			return true
		})
		if err := <-closing; err != nil {
			t.Fatal(err)
		}
		f = newFaultyJournal(t, Options{})
		for version := range uint64(3) {
			f.mustAppend("a", version)
		}
	}
	f.mustClose()
}
