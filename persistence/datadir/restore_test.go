package datadir_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/atelier-run/atelier/persistence"
	"github.com/atelier-run/atelier/persistence/datadir"
)

// beginRestore begins or continues a restore of a backup, which ends with the test.
func beginRestore(t *testing.T, dir, backupID string) *datadir.Restoration {
	t.Helper()
	r, err := datadir.BeginRestore(dir, backupID)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// buildParts makes the parts of a data directory in the folder of a restore, as nodebackup does.
func buildParts(t *testing.T, r *datadir.Restoration) {
	t.Helper()
	journal, err := datadir.OpenJournal(datadir.JournalOptions(r.Dir, persistence.Options{Partitions: 1, CacheBytes: 1 << 20}))
	if err != nil {
		t.Fatal(err)
	}
	if err := journal.Close(); err != nil {
		t.Fatal(err)
	}
}

// prepareError returns the error that keeps a node from starting.
func prepareError(dir string) error {
	_, err := datadir.Prepare(dir, datadir.JournalOptions(dir, persistence.Options{}))
	return err
}

func TestRestore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	r := beginRestore(t, dir, "nbk_1")
	if _, err := datadir.BeginRestore(dir, "nbk_1"); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("a second restore at the same time: %v", err)
	}
	if err := r.Finish(); err == nil {
		t.Error("a restore without a journal can be finished")
	}
	buildParts(t, r)
	if err := prepareError(dir); !errors.Is(err, datadir.ErrRestoring) {
		t.Errorf("before the end: %v", err)
	}
	if err := r.Finish(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(r.Close(), prepareError(dir)); err != nil {
		t.Errorf("after the end: %v", err)
	}
	if _, err := datadir.BeginRestore(dir, "nbk_1"); err == nil || !strings.Contains(err.Error(), "empty") {
		t.Errorf("a restore into a directory in use: %v", err)
	}
}

// TestRestoresAtTheSameTime has several restores of a backup into one directory. One of them ends, the others change nothing.
func TestRestoresAtTheSameTime(t *testing.T) {
	for range 20 {
		dir := filepath.Join(t.TempDir(), "data")
		var ended atomic.Int32
		var restores sync.WaitGroup
		for range 8 {
			restores.Go(func() {
				r, err := datadir.BeginRestore(dir, "nbk_1")
				for err != nil && strings.Contains(err.Error(), "another process") {
					r, err = datadir.BeginRestore(dir, "nbk_1")
				}
				if err != nil {
					return // the directory is in use
				}
				for _, part := range []string{"installation", "journal"} {
					if err := os.WriteFile(filepath.Join(r.Dir, part), nil, 0o600); err != nil {
						t.Error(err)
					}
				}
				if err := errors.Join(r.Finish(), r.Close()); err != nil {
					t.Error(err)
				}
				ended.Add(1)
			})
		}
		restores.Wait()
		if _, err := os.Stat(filepath.Join(dir, "restoring")); ended.Load() != 1 || !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("%d restores have ended; the folder of the next one: %v", ended.Load(), err)
		}
	}
}

// TestRestoreIsFinishedAfterCrash crashes between the moves of the parts.
func TestRestoreIsFinishedAfterCrash(t *testing.T) {
	parts := []string{"drives", "secret", "secret.sum", "installation", "journal"}
	for moved := range len(parts) + 1 {
		dir := t.TempDir()
		r := beginRestore(t, dir, "nbk_1")
		buildParts(t, r)
		timeline := timelineOf(t, r.Dir)
		if err := datadir.WriteDurably(filepath.Join(r.Dir, "complete"), nil); err != nil {
			t.Fatal(err)
		}
		for _, name := range parts[:moved] {
			if err := os.Rename(filepath.Join(r.Dir, name), filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		r.Close()
		if err := prepareError(dir); !errors.Is(err, datadir.ErrRestoring) {
			t.Errorf("%d parts moved: a node starts: %v", moved, err)
		}
		if _, err := datadir.BeginRestore(dir, "nbk_2"); err == nil || !strings.Contains(err.Error(), "nbk_1") {
			t.Errorf("%d parts moved: the restore of another backup: %v", moved, err)
		}
		again := beginRestore(t, dir, "nbk_1")
		if !again.IsComplete {
			t.Errorf("%d parts moved: the restore is not complete", moved)
		}
		if err := again.Finish(); err != nil {
			t.Errorf("%d parts moved: %v", moved, err)
		}
		if err := prepareError(dir); err != nil || timelineOf(t, dir) != timeline {
			t.Errorf("%d parts moved: %v, or the directory was taken for a copy", moved, err)
		}
	}
}

// timelineOf returns the timeline of the journal in a data directory.
func timelineOf(t *testing.T, dir string) string {
	t.Helper()
	journal, err := datadir.OpenJournal(datadir.JournalOptions(dir, persistence.Options{CacheBytes: 1 << 20}))
	if err != nil {
		t.Fatal(err)
	}
	defer journal.Close()
	return journal.Timeline()
}
