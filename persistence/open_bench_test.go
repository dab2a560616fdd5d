package persistence

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// BenchmarkOpen measures the time to open a journal with five million events and with none, after an orderly end and
// after a kill, in turn. The killed journal with events has the longest log that Pebble allows: flushes are blocked until
// Pebble stalls writes.
func BenchmarkOpen(b *testing.B) {
	const events = 5_000_000
	root := b.TempDir()
	dirs := map[string]string{}
	for name, n := range map[string]int{"empty": 0, "full": events} {
		dir := filepath.Join(root, name)
		dirs[name], dirs[name+"-killed"] = dir, dir+"-killed"
		if err := openFilled(b, dir, n).Close(); err != nil {
			b.Fatal(err)
		}
		copyAfterKill(b, dir, dir+"-killed", n > 0)
	}
	took := map[string][]time.Duration{}
	for b.Loop() {
		for _, name := range []string{"empty", "full", "empty-killed", "full-killed"} {
			dir := dirs[name]
			if strings.HasSuffix(name, "-killed") { // the copy is opened once: it is closed afterwards
				dir = filepath.Join(b.TempDir(), "copy")
				copyTo(b, dirs[name], dir)
			}
			began := time.Now()
			s, err := Open(Options{Dir: dir, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				b.Fatal(err)
			}
			took[name] = append(took[name], time.Since(began))
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
		}
	}
	for name, all := range took {
		slices.Sort(all)
		b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, name+"-ms")
	}
	b.ReportMetric(0, "ns/op")
}

// openFilled returns an open journal with events of about 200 bytes in 1,000 streams.
func openFilled(b *testing.B, dir string, events int) *Store {
	s := openOn(b, vfs.Default, dir)
	a := newFiller(s, "bench/")
	for range events / a.each {
		a.append(b)
	}
	for range cap(a.room) {
		a.room <- struct{}{}
	}
	return s
}

// copyAfterKill copies a journal in the state in which a kill leaves it. If loaded, it has the longest log: creating
// tables blocks, and events are appended until Pebble stalls writes.
func copyAfterKill(b *testing.B, dir, to string, loaded bool) {
	var fault atomic.Pointer[func(errorfs.Op) error]
	s := openOn(b, errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if hold := fault.Load(); hold != nil {
			return (*hold)(op)
		}
		return nil
	})), dir)
	release := make(chan struct{})
	if loaded {
		isTable := faultOn(errors.New("table"), tableSuffix, errorfs.OpCreate)
		hold := func(op errorfs.Op) error {
			if isTable(op) != nil {
				<-release
			}
			return nil
		}
		fault.Store(&hold)
		for a := newFiller(s, "killed/"); a.append(b); {
		}
	}
	copyTo(b, dir, to)
	close(release)
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
}

// copyTo copies a directory durably, so that later syncs of the journal do not wait for the copy to be written.
func copyTo(b *testing.B, from, to string) {
	if _, err := vfs.Clone(vfs.Default, vfs.Default, from, to, vfs.CloneSync); err != nil {
		b.Fatal(err)
	}
}

func openOn(b *testing.B, fs vfs.FS, dir string) *Store {
	s, err := Open(Options{Dir: dir, FS: fs, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// filler appends batches of events to its streams in turn.
type filler struct {
	store  *Store
	kind   string
	each   int
	events []Event
	heads  []uint64
	next   int
	room   chan struct{}
}

func newFiller(s *Store, kind string) *filler {
	a := &filler{store: s, kind: kind, each: 100, heads: make([]uint64, 1000), room: make(chan struct{}, 512)}
	payload := make([]byte, 150)
	for range a.each {
		a.events = append(a.events, Event{Name: "bench.v1.Event", Payload: payload, Actor: "usr_1"})
	}
	return a
}

// append appends a batch, and reports whether there was room for it within two seconds. If not, writes are stalled.
func (a *filler) append(b *testing.B) bool {
	select {
	case a.room <- struct{}{}:
	case <-time.After(2 * time.Second):
		return false
	}
	i := a.next % len(a.heads)
	a.next++
	p := Partition(i % a.store.Partitions())
	a.store.Append(Proposal{
		Partition: p, Stream: Stream(fmt.Sprint(a.kind, i)), Expected: a.heads[i], Epoch: a.store.queue.lanes[p].epoch, Events: a.events,
	}, func(r Result) {
		if r.Err != nil {
			b.Error(r.Err)
		}
		<-a.room
	})
	a.heads[i] += uint64(a.each)
	return true
}
