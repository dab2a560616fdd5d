package persistence

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/atelier-run/atelier/tests/testmachine"
	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/prometheus/client_golang/prometheus"
)

// mustBeDamaged opens a damaged directory, which must return ErrDamaged with all parts in its text, and change nothing.
func mustBeDamaged(t *testing.T, fs vfs.FS, o Options, parts ...string) {
	t.Helper()
	before := imageOf(t, fs, "")
	s, err := Open(o)
	if err == nil {
		s.Close()
		t.Fatal("it opened")
	}
	if !errors.Is(err, ErrDamaged) {
		t.Fatalf("not ErrDamaged: %v", err)
	}
	for _, part := range append(parts, o.Dir) {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
	if !before.equal(imageOf(t, fs, "")) {
		t.Error("the directory has changed")
	}
}

// TestMarksAreWrittenAgain fails a periodic write of the marks. The next one writes them although nothing has advanced since.
func TestMarksAreWrittenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var isBroken atomic.Bool
		isBroken.Store(true)
		broken := faultOn(errors.New("broken"), ".new", errorfs.OpCreate)
		fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if isBroken.Load() {
				return broken(op)
			}
			return nil
		}))
		w := newMarksWriter(fs, marksName, marks{partitions: make([]partitionMark, 1)}, slog.New(slog.DiscardHandler))
		go w.writePeriodically(func() error { return nil })
		defer w.stopPeriodicWrites()
		w.recordNotice(Notice{Epoch: 3, Sequence: 7})
		time.Sleep(marksInterval + 1)
		isBroken.Store(false)
		time.Sleep(marksInterval)
		if m, _, err := readMarks(fs, marksName); err != nil || m == nil || m.partitions[0] != (partitionMark{3, 7}) {
			t.Errorf("the marks are %+v, %v", m, err)
		}
	})
}

// TestMarks removes or exchanges parts of a data directory with marks outside it.
func TestMarks(t *testing.T) {
	h := newHistory(t)
	outside := image{}
	for path, content := range h.closed {
		if strings.HasSuffix(path, "/"+marksName) {
			path = "marks"
		}
		outside[path] = content
	}
	options := func(fs vfs.FS) Options {
		o := smallOptions(fs, "data")
		o.Marks = "marks"
		return o
	}
	t.Run("directory removed", func(t *testing.T) {
		fs := image{"marks": outside["marks"]}.fileSystem(t)
		mustBeDamaged(t, fs, options(fs), "data/FORMAT is missing", "marks")
	})
	t.Run("store removed", func(t *testing.T) {
		fs := image{"marks": outside["marks"], "data/LOCK": {}, "data/FORMAT": outside["data/FORMAT"]}.fileSystem(t)
		mustBeDamaged(t, fs, options(fs), "data/store is missing")
	})
	t.Run("marks removed", func(t *testing.T) {
		fs := outside.replace("marks", nil).fileSystem(t)
		mustBeDamaged(t, fs, options(fs), "the marks of the journal are missing", "marks")
	})
	t.Run("another journal", func(t *testing.T) {
		fs := newHistory(t).closed.replace("marks", outside["marks"]).fileSystem(t)
		mustBeDamaged(t, fs, options(fs), "belong to journal")
	})
	t.Run("older copy of the journal", func(t *testing.T) {
		fs := outside.fileSystem(t)
		s := mustOpen(t, options(fs))
		appendRows(t, s, 0, 10, 10)
		mustClose(t, s)
		later := imageOf(t, fs, "")["marks"]
		fs = outside.replace("marks", later).fileSystem(t)
		mustBeDamaged(t, fs, options(fs), "older than MANIFEST")
	})
	t.Run("whole", func(t *testing.T) {
		mustClose(t, mustOpen(t, options(outside.fileSystem(t))))
	})
}

// crashedWithoutLogs returns the file system of a process that crashed with three events in data, without the logs of the journal. The
// marks promise the events.
func crashedWithoutLogs(t *testing.T) *vfs.MemFS {
	t.Helper()
	fs := vfs.NewCrashableMem()
	s := mustOpen(t, smallOptions(fs, "data"))
	appendRows(t, s, 3, 0, 0)
	if err := s.marksWriter.write(); err != nil {
		t.Fatal(err)
	}
	crashed := fs.CrashClone(vfs.CrashCloneCfg{})
	mustClose(t, s)
	removeLogs(t, crashed)
	return crashed
}

// removeLogs removes the logs of the journal in data.
func removeLogs(t *testing.T, fs vfs.FS) {
	t.Helper()
	names, err := fs.List("data/store")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, logSuffix) {
			if err := fs.Remove("data/store/" + name); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestLogRemovedAfterCrash removes the log after a crash, and with it events that the marks promise.
func TestLogRemovedAfterCrash(t *testing.T) {
	crashed := crashedWithoutLogs(t)
	mustBeDamaged(t, crashed, smallOptions(crashed, "data"), "partition", "has contained event")
}

// TestDirectoryWithoutMarks opens a directory from before there were marks. From then on it does not open without them.
func TestDirectoryWithoutMarks(t *testing.T) {
	h := newHistory(t)
	unmarked := strings.TrimSuffix(string(h.crashed["data/"+formatName]), formatMarked)
	fs := h.crashed.replace("data/"+formatName, []byte(unmarked)).replace("data/"+marksName, nil).fileSystem(t)
	s := mustOpen(t, smallOptions(fs, "data"))
	if rows, err := rowsOf(s); err != nil || len(rows) != len(h.rows) {
		t.Fatalf("%d rows, want %d: %v", len(rows), len(h.rows), err)
	}
	mustClose(t, s)
	if err := fs.Remove("data/" + marksName); err != nil {
		t.Fatal(err)
	}
	mustBeDamaged(t, fs, smallOptions(fs, "data"), "marks")
}

// TestStoreWrittenWithoutMarks lets an older program, which keeps no marks, write to the store in between.
func TestStoreWrittenWithoutMarks(t *testing.T) {
	fs := newHistory(t).closed.fileSystem(t)
	o := smallOptions(fs, "data").withDefaults()
	for range 2 {
		db, err := pebble.Open("data/store", o.pebble(fs, &backgroundErrors{failure: newFailure(discardLog), metrics: newMetrics()}))
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	mustClose(t, mustOpen(t, smallOptions(fs, "data")))
}

func TestAccept(t *testing.T) {
	fs := newHistory(t).closed.fileSystem(t)
	o := smallOptions(fs, "data")
	s := mustOpen(t, o)
	timeline := s.Timeline()
	if _, err := Accept(o); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Fatalf("accepted while it is open: %v", err)
	}
	mustClose(t, s)
	if err := fs.Remove("data/" + marksName); err != nil {
		t.Fatal(err)
	}
	mustBeDamaged(t, fs, o, "marks")
	a, err := Accept(o)
	if err != nil || a.Events != 19 || a.Missing != 0 {
		t.Fatalf("%+v, %v", a, err)
	}
	s = mustOpen(t, o)
	if s.Timeline() == timeline {
		t.Fatal("the timeline is the one before")
	}
	mustClose(t, s)
}

func TestTimeline(t *testing.T) {
	dir := t.TempDir()
	timeline := func(name string) string {
		s := mustOpen(t, smallOptions(nil, dir+"/"+name))
		defer mustClose(t, s)
		return s.Timeline()
	}
	first := timeline("data")
	if len(first) != 32 || timeline("data") != first {
		t.Fatal("another opening has another timeline")
	}
	s := mustOpen(t, smallOptions(nil, dir+"/data"))
	if err := s.Checkpoint(dir + "/checkpoint"); err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
	checkpoint := timeline("checkpoint")
	if checkpoint == first || timeline("checkpoint") != checkpoint {
		t.Fatal("a checkpoint has no timeline of its own")
	}
	file, err := vfs.Default.Open(dir + "/data/" + marksName)
	if err != nil {
		t.Fatal(err)
	}
	recognises := fileIDOf(file) != ""
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if !recognises {
		testmachine.Lacks(t, "the file system stores no time of birth")
	}
	if err := os.CopyFS(dir+"/copy", os.DirFS(dir+"/data")); err != nil {
		t.Fatal(err)
	}
	copied := timeline("copy")
	if copied == first || timeline("copy") != copied {
		t.Fatal("a copy has no timeline of its own")
	}
	if err := os.RemoveAll(dir + "/data"); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(dir+"/data", os.DirFS(dir+"/copy")); err != nil {
		t.Fatal(err)
	}
	if restored := timeline("data"); restored == first || restored == copied {
		t.Fatal("a restored copy has no timeline of its own")
	}
}

// TestDamagedTableWhileOpen damages a table of an open journal: reads of it fail, and the journal continues.
func TestDamagedTableWhileOpen(t *testing.T) {
	fs := vfs.NewMem()
	s := mustOpen(t, smallOptions(fs, "data"))
	defer mustClose(t, s)
	appendRows(t, s, 0, 0, 0)
	if err := s.db.Flush(); err != nil {
		t.Fatal(err)
	}
	names, err := fs.List("data/store")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !strings.HasSuffix(name, tableSuffix) {
			continue
		}
		file, err := fs.OpenReadWrite("data/store/"+name, vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.WriteAt([]byte("damage"), 20); err != nil {
			t.Fatal(err)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
	}
	v, err := s.View()
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	for _, failed := range v.Read(0, "s/0-0", 0, Ascending) {
		err = failed
	}
	if !pebble.IsCorruptionError(err) {
		t.Fatalf("the read of a damaged table: %v", err)
	}
	if err := s.Err(); err != nil {
		t.Fatalf("the journal has failed: %v", err)
	}
}

// TestSnapshotTooLarge drops a snapshot, logs its stream and counts it.
func TestSnapshotTooLarge(t *testing.T) {
	var log bytes.Buffer
	o := smallOptions(vfs.NewMem(), "data")
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	s := mustOpen(t, o)
	s.SaveSnapshot(0, 1, "workspace/large", Snapshot{Version: 1, State: make([]byte, maxProposalBytes)})
	mustClose(t, s)
	if !strings.Contains(log.String(), "stream=workspace/large bytes=8388608") {
		t.Errorf("the log says %s", log.String())
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(s.metrics.snapshots)
	families, err := registry.Gather()
	if err != nil || len(families) != 1 {
		t.Fatalf("%v, %v", families, err)
	}
	for _, series := range families[0].Metric {
		want := 0.0
		if series.GetLabel()[0].GetValue() == string(reasonTooLarge) {
			want = 1
		}
		if series.GetCounter().GetValue() != want {
			t.Errorf("counted %v, want %v", series, want)
		}
	}
}
