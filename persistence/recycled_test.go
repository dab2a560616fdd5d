package persistence

import (
	"bytes"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/atelier-run/atelier/tests/race"
)

// appendToRecycled opens a store on fs, begins logs until Pebble overwrites old ones, and appends rows to the last log. The old bytes
// of the log are longer. It returns the path of the log.
func appendToRecycled(t *testing.T, fs vfs.FS, rows int) (s *Store, path string) {
	t.Helper()
	var reused atomic.Int32
	isReuse := faultOn(errorfs.ErrInjected, logSuffix, errorfs.OpReuseForWrite)
	s = mustOpen(t, smallOptions(errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if isReuse(op) != nil {
			reused.Add(1)
		}
		return nil
	})), "data"))
	for rotation := range 3 {
		for i := range rows + 4 {
			appendRows(t, s, 0, rotation, i)
		}
		reused.Store(0)
		if err := s.db.Flush(); err != nil { // begins another log
			t.Fatal(err)
		}
	}
	if reused.Load() == 0 {
		t.Fatal("the last log is a new file")
	}
	for i := range rows {
		appendRows(t, s, 0, 3, i)
	}
	return s, "data/" + storeName + "/" + lastPromise(s).name
}

// lastPromise returns the promise for the last log.
func lastPromise(s *Store) extent {
	s.synced.mu.Lock()
	defer s.synced.mu.Unlock()
	return slices.MaxFunc(s.synced.logs, func(a, b extent) int { return strings.Compare(a.name, b.name) })
}

// openTorn opens a directory, and returns its rows and whether its last log was reported as incomplete.
func openTorn(t *testing.T, i image, path string) (rows map[string]string, isTorn bool) {
	t.Helper()
	var log bytes.Buffer
	o := smallOptions(i.fileSystem(t), "data")
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	s := mustOpen(t, o)
	defer mustClose(t, s)
	rows, err := rowsOf(s)
	if err != nil {
		t.Fatal(err)
	}
	isTorn = metricOf(t, s, "atelier_journal_incomplete_logs_total") == 1
	if named := strings.Contains(log.String(), "level=ERROR") && strings.Contains(log.String(), path); named != isTorn {
		t.Errorf("incomplete: %v, and the log says %q", isTorn, log.String())
	}
	return rows, isTorn
}

// TestKilledInRecycledLog kills a process while its log overwrites an older log. The remainder of the older log is no incomplete record.
func TestKilledInRecycledLog(t *testing.T) {
	for rows := range 12 {
		fs := vfs.NewMem()
		s, path := appendToRecycled(t, fs, rows+1)
		all, err := rowsOf(s)
		if err != nil {
			t.Fatal(err)
		}
		killed := imageOf(t, fs, "data")
		if length := lastPromise(s).length; int(length) >= len(killed[path]) {
			t.Fatalf("%d of %d bytes of %s are new", length, len(killed[path]), path)
		}
		mustClose(t, s)
		if rows, isTorn := openTorn(t, killed, path); isTorn || !maps.Equal(rows, all) {
			t.Errorf("after the kill there are %d of %d rows, incomplete: %v", len(rows), len(all), isTorn)
		}
	}
}

// TestTornRecycledLog loses power while two records are written over other bytes, after each byte of the records. An incomplete record is
// reported once the number of the log is in the record's header.
func TestTornRecycledLog(t *testing.T) {
	race.Skip(t, "it opens thousands of damaged directories one after the other")
	fs := vfs.NewMem()
	s, path := appendToRecycled(t, fs, 2)
	before, began := imageOf(t, fs, "data"), int(lastPromise(s).length)
	appendRows(t, s, 0, 4, 0)
	content, end := imageOf(t, fs, "data")[path], int(lastPromise(s).length)
	mustClose(t, s)
	older := slices.Clone(content) // differs from each byte of the records
	for at := began; at < end; at++ {
		older[at] = ^content[at]
	}
	records := 0
	last, _ := openTorn(t, before, path)
	for at := began; at <= end; at++ {
		rows, isTorn := openTorn(t, before.replace(path, slices.Concat(content[:at], older[at:])), path)
		if !maps.Equal(rows, last) {
			last, began, records = rows, at, records+1
		}
		if written := at - began; isTorn != (written >= logNumberEnd) {
			t.Errorf("with %d bytes of record %d the log was reported: %v", written, records, isTorn)
		}
	}
	if records != 2 {
		t.Errorf("%d records", records)
	}
	zeros := slices.Concat(content[:end], make([]byte, len(content)-end))
	if _, isTorn := openTorn(t, before.replace(path, zeros), path); !isTorn {
		t.Error("a log that ends with bytes that were never stored was not reported")
	}
}
