package persistence

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// BenchmarkOpen measures how long the journal takes to open with five million events and with none, after it was closed
// and after its process was killed, in turns.
func BenchmarkOpen(b *testing.B) {
	const events = 5_000_000
	root := b.TempDir()
	dirs := map[string]string{}
	for name, n := range map[string]int{"empty": 0, "full": events} {
		dir := filepath.Join(root, name)
		s := openFilled(b, dir, n)
		killed := dir + "-killed"
		if err := os.CopyFS(killed, os.DirFS(dir)); err != nil {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		dirs[name], dirs[name+"-killed"] = dir, killed
	}
	took := map[string][]time.Duration{}
	for b.Loop() {
		for _, name := range []string{"empty", "full", "empty-killed", "full-killed"} {
			dir := dirs[name]
			if strings.HasSuffix(name, "-killed") { // the copy is opened once: it is closed afterwards
				dir = filepath.Join(b.TempDir(), "copy")
				if err := os.CopyFS(dir, os.DirFS(dirs[name])); err != nil {
					b.Fatal(err)
				}
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

// openFilled returns an open journal of events of about 200 bytes in 1,000 streams.
func openFilled(b *testing.B, dir string, events int) *Store {
	s, err := Open(Options{Dir: dir, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	const each = 100
	payload := make([]byte, 150)
	heads := map[int]uint64{}
	room := make(chan struct{}, 512)
	for i := range events / each {
		stream := i % 1000
		batch := make([]Event, each)
		for k := range batch {
			batch[k] = Event{Name: "bench.v1.Event", Payload: payload, Actor: "usr_1"}
		}
		room <- struct{}{}
		p := Partition(stream % s.Partitions())
		s.Append(Proposal{
			Partition: p, Stream: Stream(fmt.Sprint("bench/", stream)), Expected: heads[stream], Epoch: s.queue.lanes[p].epoch, Events: batch,
		}, func(r Result) {
			if r.Err != nil {
				b.Error(r.Err)
			}
			<-room
		})
		heads[stream] += each
	}
	for range cap(room) {
		room <- struct{}{}
	}
	return s
}
