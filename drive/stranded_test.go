package drive

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/atelier-run/atelier/drive/drivetest"
	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// TestStrandedEntryIsMovedBack fails the replacement of a folder after the folder was moved to the trash, and its way back as well.
// The next operation finds the folder in its place, and the failed one is not in flight any more.
func TestStrandedEntryIsMovedBack(t *testing.T) {
	dir, activity := t.TempDir(), &drivetest.Activity{}
	drives, err := New(Options{Dir: dir, Asker: activity, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer drives.Close()
	if err := drives.Provision(t.Context(), "ws_1"); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(dir, "ws_1", "files", "folder")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	d, release, err := drives.Open(t.Context(), "ws_1")
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	a, err := d.begin(Change{Author: &activityv1.Author{Actor: "web:usr_1"}, Principal: entity.Platform()})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.lock(t.Context(), "folder"); err != nil {
		t.Fatal(err)
	}
	op := d.operation(activityv1.Kind_KIND_CREATE, activityv1.EntryKind_ENTRY_KIND_FILE, "folder", a.change.Author)
	err = a.commit(op, 1<<40, func() (bool, error) {
		return false, errors.Join(errStranded, os.Rename(folder, filepath.Join(dir, "ws_1", "tmp", a.trashName())))
	})
	a.end()
	if !errors.Is(err, errStranded) {
		t.Fatalf("commit returned %v", err)
	}
	if _, release, err := drives.Open(t.Context(), "ws_1"); err != nil {
		t.Error(err)
	} else {
		release()
	}
	if _, err := os.Stat(folder); err != nil {
		t.Error(err)
	}
	if open := activity.Intents(); len(open) > 0 {
		t.Errorf("open intents: %v", open)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(drives.metrics.inFlight)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if n := families[0].GetMetric()[0].GetGauge().GetValue(); d.isInFlight(a.id) || n != 0 {
		t.Errorf("the operation is in flight: %t; %v are counted", d.isInFlight(a.id), n)
	}
}
