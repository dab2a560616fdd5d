package persistence

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/atelier-run/atelier/tests/race"
)

// checkAll returns the faults that Check reports, and fails if it changes a file.
func checkAll(t *testing.T, fs vfs.FS) (faults []Fault) {
	t.Helper()
	before := imageOf(t, fs, "data")
	if err := Check(t.Context(), smallOptions(fs, "data"), func(f Fault) { faults = append(faults, f) }, nil); err != nil {
		t.Fatal(err)
	}
	if !before.equal(imageOf(t, fs, "data")) {
		t.Error("the check has changed the directory")
	}
	return faults
}

// TestCheckFindsWhatOpenRefuses damages each file of a closed and of a killed journal. Check reports a fault wherever Open refuses or rows
// would be missing, and each fault names a file of the directory.
func TestCheckFindsWhatOpenRefuses(t *testing.T) {
	race.Skip(t, "it opens thousands of damaged directories one after the other")
	h := newHistory(t)
	rng := rand.New(rand.NewPCG(2, 2))
	for name, whole := range map[string]image{"closed": h.closed, "killed": h.killed} {
		if faults := checkAll(t, whole.fileSystem(t)); len(faults) > 0 {
			t.Fatalf("%s: %+v", name, faults)
		}
		for _, path := range slices.Sorted(maps.Keys(whole)) {
			if strings.HasSuffix(path, lockName) {
				continue // an opening and a check make it
			}
			content := whole[path]
			damages := map[string][]byte{"missing": nil}
			for range 12 {
				if len(content) == 0 {
					continue
				}
				flipped, at := slices.Clone(content), rng.IntN(len(content))
				flipped[at] ^= 1 << rng.IntN(8)
				damages[fmt.Sprint("byte ", at)] = flipped
				damages[fmt.Sprint("cut off at byte ", at)] = content[:at]
			}
			for what, damaged := range damages {
				what = fmt.Sprintf("%s: %s, %s", name, path, what)
				other := whole.replace(path, damaged)
				faults := checkAll(t, other.fileSystem(t))
				if !h.opensWhole(t, other, what) && len(faults) == 0 {
					t.Errorf("%s: Open refuses, but Check reports nothing", what)
				}
				for _, f := range faults {
					if !strings.HasPrefix(f.File, "data") || f.What == "" {
						t.Errorf("%s: the fault names no file: %+v", what, f)
					}
				}
			}
		}
	}
}

// TestCheckRows changes rows in ways that no damage of the disk can, because they have checksums. Check, Store.Check and Repair report them,
// and Repair mends the differences that it can.
func TestCheckRows(t *testing.T) {
	stream := Stream("s/0-0")
	erased, counter, kept := Stream("session/ws_1/erased"), appendWorkspaceKey(nil, 0, "ws_1"), appendHeadKey(nil, 0, "session/ws_1/kept")
	head, event, feed := appendHeadKey(nil, 0, stream), appendNumber(appendEventPrefix(nil, 0, stream), 1), appendFeedKey(nil, 0, 1)
	for name, test := range map[string]struct {
		change  func(b *pebble.Batch) error
		says    string
		repairs bool
	}{
		"head missing":      {func(b *pebble.Batch) error { return b.Delete(head, nil) }, "the head of s/0-0 is version 0, but its last event is 1", true},
		"head malformed":    {func(b *pebble.Batch) error { return b.Set(head, nil, nil) }, "malformed head", true},
		"event missing":     {func(b *pebble.Batch) error { return b.Delete(event, nil) }, "event 1 of s/0-0, sequence 1 of the feed, is missing", false},
		"event malformed":   {func(b *pebble.Batch) error { return b.Set(event, []byte{0xff}, nil) }, "malformed record", false},
		"feed row missing":  {func(b *pebble.Batch) error { return b.Delete(feed, nil) }, "the feed lacks sequence 1", true},
		"snapshot too late": {func(b *pebble.Batch) error { return b.Set(appendSnapshotKey(nil, 0, stream), []byte{9, 1}, nil) }, "later than the head", true},
		"snapshot erased": {func(b *pebble.Batch) error { return b.Set(appendSnapshotKey(nil, 0, erased), []byte{1, 1}, nil) },
			"the events up to its version 1 were erased", true},
		"index entry":     {func(b *pebble.Batch) error { return b.Set(appendHeader(nil, 0, tagIndex), nil, nil) }, "malformed key of an index entry", false},
		"counter wrong":   {func(b *pebble.Batch) error { return b.Set(counter, []byte{1}, nil) }, "the counter of the workspace ws_1 is not the", true},
		"counter missing": {func(b *pebble.Batch) error { return b.Delete(counter, nil) }, "the counter of the workspace ws_1 is not the", true},
		"bytes wrong":     {func(b *pebble.Batch) error { return b.Set(kept, []byte{2, 2, 7, 0}, nil) }, "the head of session/ws_1/kept counts 7 bytes", true},
		"erased event": {func(b *pebble.Batch) error {
			return b.Set(appendNumber(appendEventPrefix(nil, 0, erased), 1), []byte{0}, nil)
		}, "stream session/ws_1/erased has the erased event 1", false},
		"epoch": {func(b *pebble.Batch) error { return b.Set(appendHeader(nil, 1, tagTerm), nil, nil) }, "the epoch", false},
	} {
		t.Run(name, func(t *testing.T) {
			fs := newHistory(t).closed.fileSystem(t)
			s := mustOpen(t, smallOptions(fs, "data"))
			appendOfWorkspace(t, s)
			mustClose(t, s)
			if faults := checkAll(t, fs); len(faults) > 0 {
				t.Errorf("a whole journal: %+v", faults)
			}
			s = mustOpen(t, smallOptions(fs, "data"))
			b := s.db.NewBatch()
			if err := test.change(b); err != nil {
				t.Fatal(err)
			}
			if err := s.db.Apply(b, pebble.Sync); err != nil {
				t.Fatal(err)
			}
			says := func(faults []Fault) bool {
				return slices.ContainsFunc(faults, func(f Fault) bool { return strings.Contains(f.What, test.says) && f.File == "data/store" })
			}
			var online []Fault
			if err := s.Check(t.Context(), func(f Fault) { online = append(online, f) }); err != nil || !says(online) {
				t.Errorf("online: %+v, %v", online, err)
			}
			mustClose(t, s)
			found := checkAll(t, fs)
			if name == "epoch" { // Open refuses, so that it is a fault of the file
				if len(found) == 0 {
					t.Error("offline: no fault")
				}
				return
			}
			if !says(found) {
				t.Errorf("offline: %+v", found)
			}
			var repaired []Fault
			if err := Repair(t.Context(), smallOptions(fs, "data"), func(f Fault) { repaired = append(repaired, f) }); err != nil || !says(repaired) {
				t.Errorf("repair: %+v, %v", repaired, err)
			}
			if remaining := checkAll(t, fs); test.repairs != (len(remaining) == 0) {
				t.Errorf("after the repair: %+v", remaining)
			}
		})
	}
}

// TestCheckLastRowOfFeed removes the last event of a partition with everything that names it, while the journal is open. The sequence that the
// feed has reached shows it, to a check of the running journal and to one of the closed journal.
func TestCheckLastRowOfFeed(t *testing.T) {
	fs := vfs.NewMem()
	s := mustOpen(t, smallOptions(fs, "data"))
	for i := range 2 {
		appendRows(t, s, 0, 0, i)
	}
	if err := s.Check(t.Context(), func(f Fault) { t.Errorf("a whole journal: %+v", f) }); err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
	s = mustOpen(t, smallOptions(fs, "data")) // its views do not share the state that was checked
	last, err := lastSequence(s.db, 0)
	if err != nil {
		t.Fatal(err)
	}
	b, stream := s.db.NewBatch(), Stream("s/0-1")
	for _, key := range [][]byte{appendFeedKey(nil, 0, last), appendNumber(appendEventPrefix(nil, 0, stream), 1), appendHeadKey(nil, 0, stream)} {
		if err := b.Delete(key, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.db.Apply(b, pebble.Sync); err != nil {
		t.Fatal(err)
	}
	says := fmt.Sprintf("the feed lacks the sequences %d to %d", last, last)
	var online []Fault
	if err := s.Check(t.Context(), func(f Fault) { online = append(online, f) }); err != nil || len(online) != 1 || !strings.Contains(online[0].What, says) {
		t.Errorf("online: %+v, %v", online, err)
	}
	mustClose(t, s)
	if offline := checkAll(t, fs); len(offline) != 1 || !strings.Contains(offline[0].What, says) {
		t.Errorf("offline: %+v", offline)
	}
}

// appendOfWorkspace appends two events to each of two streams of a workspace, and erases the first event of one.
func appendOfWorkspace(t *testing.T, s *Store) {
	t.Helper()
	event := []Event{{Name: "e", Payload: make([]byte, 40)}}
	for _, p := range []Proposal{
		{Stream: "session/ws_1/kept", Events: event}, {Stream: "session/ws_1/kept", Expected: 1, Events: event},
		{Stream: "session/ws_1/erased", Events: event}, {Stream: "session/ws_1/erased", Expected: 1, Erase: true, Events: event},
	} {
		p.Epoch = s.watchers.notices[0].Epoch
		results := make(chan Result, 1)
		s.Append(p, func(r Result) { results <- r })
		if r := <-results; r.Err != nil {
			t.Fatal(r.Err)
		}
	}
}

// TestCheckEnds ends the checks by their context, and refuses one of a journal that is open.
func TestCheckEnds(t *testing.T) {
	fs := newHistory(t).closed.fileSystem(t)
	s := mustOpen(t, smallOptions(fs, "data"))
	ended, end := context.WithCancel(t.Context())
	end()
	if err := s.Check(ended, func(Fault) {}); err != context.Canceled {
		t.Errorf("got %v", err)
	}
	if err := Check(t.Context(), smallOptions(fs, "data"), func(Fault) {}, nil); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("check of an open journal: %v", err)
	}
	mustClose(t, s)
	if err := s.Check(t.Context(), func(Fault) {}); err != ErrClosed {
		t.Errorf("check of a closed journal: %v", err)
	}
}

// TestCheckDamagedTable damages each table. The faults name this table only: the marks of the partitions are then unknown.
func TestCheckDamagedTable(t *testing.T) {
	fs := newHistory(t).closed.fileSystem(t)
	s := mustOpen(t, smallOptions(fs, "data"))
	if err := s.db.Flush(); err != nil { // no log has the epochs
		t.Fatal(err)
	}
	mustClose(t, s)
	whole, tables := imageOf(t, fs, "data"), 0
	for path, content := range whole {
		if !strings.HasSuffix(path, tableSuffix) {
			continue
		}
		tables++
		damaged := slices.Clone(content)
		damaged[0] ^= 1
		for _, f := range checkAll(t, whole.replace(path, damaged).fileSystem(t)) {
			if f.File != path {
				t.Errorf("%s is damaged, but the fault is %+v", path, f)
			}
		}
	}
	if tables == 0 {
		t.Error("the journal has no table")
	}
}
