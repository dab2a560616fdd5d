package node

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/atelier-run/atelier/cmd/node/check"
	"github.com/atelier-run/atelier/persistence"
)

// faultsOf returns the faults that check.Run or check.Repair reports.
func (h *home) faultsOf(repair bool) (faults []persistence.Fault) {
	h.Helper()
	run := check.Run
	if repair {
		run = check.Repair
	}
	h.check(run(h.Context(), h.dir, slog.New(slog.DiscardHandler), func(f persistence.Fault) { faults = append(faults, f) }))
	return faults
}

// TestRepairEffects removes the rows of timers and adds one that follows from no event. Both are faults, which Repair mends.
func TestRepairEffects(t *testing.T) {
	h := newUnprovisionedHome(t) // has a task
	h.backupEvery = time.Hour
	if !h.hasRows("task") {
		t.Fatal("the home has no task")
	}
	h.removeRows("task")
	h.stop()
	says := func(faults []persistence.Fault, part string) bool {
		return slices.ContainsFunc(faults, func(f persistence.Fault) bool {
			return strings.Contains(f.What, part) && f.Repair != "" && f.File == filepath.Join(h.dir, "journal")
		})
	}
	if found := h.faultsOf(false); !says(found, "the index task lacks a row for computer/"+ws) {
		t.Errorf("check: %+v", found)
	}
	if repaired := h.faultsOf(true); !says(repaired, "the index task lacks a row") || !repaired[0].Repaired {
		t.Errorf("repair: %+v", repaired)
	}
	if found := h.faultsOf(false); len(found) > 0 {
		t.Errorf("after the repair: %+v", found)
	}
	h.check(os.Remove(h.blockedDrive()))
	h.start()
	h.done() // the task that was mended provisions the computer
}

// TestCheckDrives removes a file, a drive, and adds one of no workspace.
func TestCheckDrives(t *testing.T) {
	h := newHome(t)
	h.put("a", "a")
	h.stop()
	if found := h.faultsOf(false); len(found) > 0 {
		t.Fatalf("%+v", found)
	}
	expect := func(file, what string) {
		t.Helper()
		if found := h.faultsOf(false); len(found) != 1 || found[0].File != file || !strings.Contains(found[0].What, what) {
			t.Errorf("%+v, want %s: %s", found, file, what)
		}
	}
	drives := filepath.Join(h.dir, "drives")
	file := filepath.Join(drives, ws, "files", "a")
	h.check(os.Remove(file))
	expect(file, "says that it exists")
	h.check(os.WriteFile(file, nil, 0o600))
	h.check(os.Mkdir(filepath.Join(drives, "ws_other"), 0o700))
	expect(filepath.Join(drives, "ws_other"), "belongs to no workspace")
	h.check(os.Remove(filepath.Join(drives, "ws_other")))
	h.check(os.Rename(filepath.Join(drives, ws), filepath.Join(h.dir, "away")))
	expect(filepath.Join(drives, ws, "files"), "the drive is missing")
	h.check(os.Rename(filepath.Join(h.dir, "away"), filepath.Join(drives, ws)))
	h.start()
}

// TestRepairFeed removes the first or the last row of a feed beside a file that a drive lacks. Repair mends the feed, and only reports the file.
func TestRepairFeed(t *testing.T) {
	for _, last := range []bool{false, true} {
		h := newHome(t)
		h.put("a", "a")
		partition := h.Router.Partition(ws)
		h.stop()
		h.removeFeedRow(partition, last)
		file := filepath.Join(h.dir, "drives", ws, "files", "a")
		h.check(os.Remove(file))
		if found := h.faultsOf(false); len(found) != 1 || !strings.Contains(found[0].What, "the feed lacks sequence ") || found[0].Repair == "" {
			t.Errorf("last %t: check: %+v", last, found)
		}
		if repaired := h.faultsOf(true); len(repaired) != 2 || !repaired[0].Repaired || repaired[1].File != file {
			t.Errorf("last %t: repair: %+v", last, repaired)
		}
		if found := h.faultsOf(false); len(found) != 1 || found[0].File != file {
			t.Errorf("last %t: after the repair: %+v", last, found)
		}
		h.start()
	}
}

// removeFeedRow removes the first or the last row of a feed from the tables of a journal that is not open.
func (h *home) removeFeedRow(p persistence.Partition, last bool) {
	h.Helper()
	store := filepath.Join(h.dir, "journal", "store")
	logs := map[string][]byte{} // the file SYNCED promises them
	files, err := os.ReadDir(store)
	h.check(err)
	for _, file := range files {
		if path := filepath.Join(store, file.Name()); strings.HasSuffix(path, ".log") {
			logs[path], err = os.ReadFile(path)
			h.check(err)
		}
	}
	db, err := pebble.Open(store, &pebble.Options{
		Comparer: persistence.Comparer, FormatMajorVersion: pebble.FormatTableFormatV6, Logger: quietLogger{},
	})
	h.check(err)
	rows, err := db.NewIter(&pebble.IterOptions{LowerBound: []byte{byte(p >> 8), byte(p), 'g'}, UpperBound: []byte{byte(p >> 8), byte(p), 'g' + 1}})
	h.check(err)
	isThere := rows.First()
	if last {
		isThere = rows.Last()
	}
	if !isThere {
		h.Fatal("the feed is empty")
	}
	h.check(db.Delete(rows.Key(), pebble.Sync))
	h.check(rows.Close())
	h.check(db.Flush())
	h.check(db.Compact(h.Context(), []byte{0}, []byte{0xff}, false))
	h.check(db.Close())
	for path, content := range logs {
		h.check(os.WriteFile(path, content, 0o600))
	}
}

// quietLogger is a logger of Pebble without output.
type quietLogger struct{}

func (quietLogger) Infof(string, ...any)              {}
func (quietLogger) Errorf(string, ...any)             {}
func (quietLogger) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
