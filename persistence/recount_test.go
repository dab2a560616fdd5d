package persistence

import (
	"bytes"
	"log/slog"
	"maps"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// countedRows returns the rows that a recount has counted in an opening, according to its log, and whether it continued an earlier one.
func countedRows(t *testing.T, log string) (rows int, continued bool) {
	t.Helper()
	for _, found := range regexp.MustCompile(`msg="counted the bytes.* rows=(\d+)`).FindAllStringSubmatch(log, -1) {
		n, err := strconv.Atoi(found[1])
		if err != nil {
			t.Fatal(err)
		}
		rows += n
	}
	return rows, strings.Contains(log, "continuing to count")
}

// TestRecountContinuesAfterKill ends the process at each sync of the log while the events of an older journal are counted, in streams that
// are longer than a batch. The next start counts the rest alone, and the counters and heads are exact.
func TestRecountContinuesAfterKill(t *testing.T) {
	const events, limit = 12, 7
	disk := vfs.NewCrashableMem()
	created := smallOptions(disk, "data")
	created.Partitions = 1
	s := mustOpen(t, created)
	for _, stream := range lawStreams {
		for i := range uint64(events) {
			done := make(chan Result, 1)
			s.Append(Proposal{Stream: stream, Expected: i, Epoch: s.watchers.notices[0].Epoch, Events: []Event{{Name: "e", Payload: make([]byte, 50)}}},
				func(r Result) { done <- r })
			if r := <-done; r.Err != nil {
				t.Fatal(r.Err)
			}
		}
	}
	want := sumRows(t, s.db, 0)
	mustClose(t, s)
	forgetCounts(t, disk, "data")

	var mu sync.Mutex
	var killed []*vfs.MemFS
	rng := rand.New(rand.NewPCG(1, 1))
	fs := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if strings.HasSuffix(op.Path, logSuffix) && (op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData) {
			mu.Lock()
			defer mu.Unlock()
			for _, percent := range []int{0, 100} {
				killed = append(killed, disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng}))
			}
		}
		return nil
	}))
	o := smallOptions(fs, "data")
	o.recountRows = limit
	mustClose(t, mustOpen(t, o))

	continuations := map[int]bool{}
	for i, fs := range killed {
		var log bytes.Buffer
		o := smallOptions(fs, "data")
		o.recountRows, o.Logger = limit, slog.New(slog.NewTextHandler(&log, nil))
		s := mustOpen(t, o)
		if got := map[string]uint64{"ws_a": s.WorkspaceBytes(0, "ws_a"), "ws_b": s.WorkspaceBytes(0, "ws_b")}; !maps.Equal(got, want) {
			t.Errorf("kill %d: the counters are %v, want %v", i, got, want)
		}
		mustClose(t, s)
		if err := Check(t.Context(), o, func(f Fault) { t.Errorf("kill %d: %+v", i, f) }, nil); err != nil {
			t.Fatal(err)
		}
		if rows, continued := countedRows(t, log.String()); continued {
			continuations[rows] = true
		}
	}
	// The rows of the four streams of workspaces, and all rows of the feed.
	all := (len(lawStreams)-1)*events + len(lawStreams)*events
	for rows := all - limit; rows > 0; rows -= limit {
		if !continuations[rows] {
			t.Errorf("no start after a kill has counted the last %d of %d rows alone; there were %v", rows, all, continuations)
		}
	}
}

// BenchmarkRecount counts the events of an older journal of a million events.
func BenchmarkRecount(b *testing.B) {
	const events = 1_000_000
	s := openFilled(b, b.TempDir(), 0)
	defer s.Close()
	f := newFiller(s, "session/ws_a/")
	for range events / f.each {
		f.append(b)
	}
	for range cap(f.room) {
		f.room <- struct{}{}
	}
	for b.Loop() {
		for p := range Partition(s.Partitions()) {
			if err := recount(s.db, p, defaultRecountRows, discardLog); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(events*float64(b.N)/b.Elapsed().Seconds(), "events/s")
}
