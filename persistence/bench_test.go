package persistence

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// BenchmarkWriter compares the journal with the simplest durable group commit: a loop that drains a channel into a Pebble
// batch. Both write the same rows with the same options, each to a store of its own. They take turns in short slices and
// alternate which is first, so that other load on the machine affects both equally.
func BenchmarkWriter(b *testing.B) {
	for _, workers := range []int{1, 128, 256, 1024} {
		b.Run(fmt.Sprint("in flight=", workers), func(b *testing.B) { benchmarkWriter(b, workers) })
	}
}

// sliceTime is how long a variant runs before the other has its turn.
const sliceTime = 50 * time.Millisecond

func benchmarkWriter(b *testing.B, workers int) {
	ours, bare := newJournalWriter(b), newBareWriter(b)
	var mine, theirs tally
	ours.run(workers, sliceTime)
	bare.run(workers, sliceTime)
	for first := true; b.Loop(); first = !first {
		if first {
			mine.add(ours.run(workers, sliceTime))
		}
		theirs.add(bare.run(workers, sliceTime))
		if !first {
			mine.add(ours.run(workers, sliceTime))
		}
	}
	b.ReportMetric(mine.rate(), "journal/s")
	b.ReportMetric(theirs.rate(), "bare/s")
	b.ReportMetric(mine.rate()/theirs.rate(), "ratio")
	b.ReportMetric(0, "ns/op")
}

// tally is a number of appends and the time that they took.
type tally struct {
	appends int64
	took    time.Duration
}

func (t *tally) add(appends int64, took time.Duration) { t.appends += appends; t.took += took }
func (t *tally) rate() float64                         { return float64(t.appends) / t.took.Seconds() }

// appender appends one event to the stream of a worker and waits for the result.
type appender func(worker int)

func (a appender) run(workers int, slice time.Duration) (int64, time.Duration) {
	var total atomic.Int64
	var group sync.WaitGroup
	start := time.Now()
	for w := range workers {
		group.Go(func() {
			n := int64(0)
			for ; time.Since(start) < slice; n++ {
				a(w)
			}
			total.Add(n)
		})
	}
	group.Wait()
	return total.Load(), time.Since(start)
}

const maxWorkers = 1024

func sampleEvent() Event {
	return Event{
		Name: "atelier.workspace.v1.WorkspaceRenamed", Payload: []byte(strings.Repeat("0123456789", 20)), At: time.Now(),
		Actor: "usr_01jd0000000000000000000000", CommandID: "cmd_01jd0000000000000000000000", RequestID: "req_01jd0000000000000000000000",
	}
}

func workerStream(worker int) Stream { return Stream(fmt.Sprintf("workspace/ws_01jd%022d", worker)) }

func newJournalWriter(b *testing.B) appender {
	s := openBenchmark(b, b.TempDir())
	streams, versions, answers := workersState()
	results := make([]chan Result, maxWorkers)
	for w := range results {
		results[w] = answers[w]
	}
	events := []Event{sampleEvent()}
	epoch := s.watchers.notices[0].Epoch
	return func(w int) {
		s.Append(Proposal{Stream: streams[w], Expected: versions[w], Epoch: epoch, Events: events}, func(r Result) { results[w] <- r })
		if r := <-results[w]; r.Err != nil {
			b.Error(r.Err)
		}
		versions[w]++
	}
}

func workersState() ([]Stream, []uint64, []chan Result) {
	streams, answers := make([]Stream, maxWorkers), make([]chan Result, maxWorkers)
	for w := range streams {
		streams[w], answers[w] = workerStream(w), make(chan Result, 1)
	}
	return streams, make([]uint64, maxWorkers), answers
}

func openBenchmark(b *testing.B, dir string) *Store {
	s, err := Open(Options{Dir: dir, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	return s
}

type bareWrite struct {
	stream  Stream
	version uint64
	value   []byte
	done    chan Result
}

// newBareWriter returns an appender that writes encoded rows and checks nothing.
func newBareWriter(b *testing.B) appender {
	o := Options{Logger: slog.New(slog.DiscardHandler)}.withDefaults()
	db, err := pebble.Open(b.TempDir(), o.pebble(o.FS, &backgroundErrors{failure: newFailure(o.Logger), metrics: newMetrics()}))
	if err != nil {
		b.Fatal(err)
	}
	writes := make(chan bareWrite, 4096)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		bareLoop(b, db, writes)
	}()
	b.Cleanup(func() {
		close(writes)
		<-ended
		db.Close()
	})
	streams, versions, answers := workersState()
	event := sampleEvent()
	value := appendRecord(nil, &event, 1<<20, metadataSize(&event))
	return func(w int) {
		versions[w]++
		writes <- bareWrite{streams[w], versions[w], value, answers[w]}
		<-answers[w]
	}
}

func bareLoop(b *testing.B, db *pebble.DB, writes chan bareWrite) {
	var waiting []bareWrite
	batch := db.NewBatch()
	sequence := uint64(0)
	var key, value []byte
	for first := range writes {
		waiting = append(waiting[:0], first)
	drain:
		for len(waiting) < maxBatchProposals {
			select {
			case w := <-writes:
				waiting = append(waiting, w)
			default:
				break drain
			}
		}
		batch.Reset()
		for _, w := range waiting {
			sequence++
			key = appendNumber(appendEventPrefix(key[:0], 0, w.stream), w.version)
			_ = batch.Set(key, w.value, nil)
			key, value = appendFeedKey(key[:0], 0, sequence), appendPosition(value[:0], w.version, w.stream)
			_ = batch.Set(key, value, nil)
			key, value = appendHeadKey(key[:0], 0, w.stream), binary.AppendUvarint(value[:0], w.version)
			_ = batch.Set(key, value, nil)
		}
		if err := db.Apply(batch, pebble.Sync); err != nil {
			b.Error(err)
		}
		for _, w := range waiting {
			w.done <- Result{}
		}
	}
}

// BenchmarkView opens and closes a view of an unchanged journal.
func BenchmarkView(b *testing.B) {
	s := openBenchmark(b, b.TempDir())
	b.ReportAllocs()
	for b.Loop() {
		v, err := s.View()
		if err != nil {
			b.Fatal(err)
		}
		v.Close()
	}
}

// BenchmarkPage opens a view, reads the last 100 rows of a long stream, and closes it.
func BenchmarkPage(b *testing.B) {
	s := openBenchmark(b, b.TempDir())
	fillJournal(b, s, 100_000, 10)
	b.ReportAllocs()
	for b.Loop() {
		v, err := s.View()
		if err != nil {
			b.Fatal(err)
		}
		n := 0
		for _, err := range v.Read(0, workerStream(0), ^uint64(0), Descending) {
			if n++; err != nil || n == 100 {
				break
			}
		}
		v.Close()
	}
}

// BenchmarkHead looks up a stream that exists and one that does not.
func BenchmarkHead(b *testing.B) {
	s := openBenchmark(b, b.TempDir())
	fillJournal(b, s, 100_000, 10)
	v, err := s.View()
	if err != nil {
		b.Fatal(err)
	}
	defer v.Close()
	for name, stream := range map[string]Stream{"present": workerStream(0), "absent": "workspace/none"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := v.Head(0, stream); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkReplay reads rows of about 300 bytes. rows/s is the rate of rows.
func BenchmarkReplay(b *testing.B) {
	const rows, streams = 200_000, 10
	s := openBenchmark(b, b.TempDir())
	fillJournal(b, s, rows, streams)
	v, err := s.View()
	if err != nil {
		b.Fatal(err)
	}
	defer v.Close()
	b.Run("stream", func(b *testing.B) {
		benchmarkReplay(b, func() int {
			n := 0
			for e, err := range v.Read(0, workerStream(0), 0, Ascending) {
				if err != nil || len(e.Payload) == 0 {
					b.Fatal(err)
				}
				n++
			}
			return n
		})
	})
	b.Run("passed over", func(b *testing.B) {
		benchmarkReplay(b, func() int {
			last := uint64(0)
			for e, err := range v.Feed(0, 0, func(Stream) bool { return false }) {
				if err != nil {
					b.Fatal(err)
				}
				last = e.Sequence
			}
			return int(last)
		})
	})
	b.Run("feed", func(b *testing.B) {
		benchmarkReplay(b, func() int {
			n := 0
			for e, err := range v.Feed(1, 0, nil) {
				if err != nil || len(e.Payload) == 0 {
					b.Fatal(err)
				}
				n++
			}
			return n
		})
	})
}

func benchmarkReplay(b *testing.B, walk func() int) {
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n += walk()
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "rows/s")
}

// fillJournal writes one long stream to partition 0, and several streams in turn to partition 1.
func fillJournal(b *testing.B, s *Store, rows, streams int) {
	const each = 50
	var done sync.WaitGroup
	write := func(p Partition, stream Stream, version int) {
		proposal := Proposal{Partition: p, Stream: stream, Expected: uint64(version), Epoch: s.watchers.notices[p].Epoch}
		for i := range each {
			e := sampleEvent()
			e.CommandID = fmt.Sprintf("cmd_01jd%022d", version+i)
			e.RequestID = fmt.Sprintf("req_01jd%022d", version+i)
			proposal.Events = append(proposal.Events, e)
		}
		done.Add(1)
		s.Append(proposal, func(r Result) {
			if r.Err != nil {
				b.Error(r.Err)
			}
			done.Done()
		})
	}
	for version := 0; version < rows; version += each {
		write(0, workerStream(0), version)
		write(1, workerStream(version/each%streams), version/each/streams*each)
		if version%5000 == 0 {
			done.Wait()
		}
	}
	done.Wait()
	if err := s.db.Flush(); err != nil {
		b.Fatal(err)
	}
}
