package drive

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/atelier-run/atelier/drive/drivetest"
	"github.com/atelier-run/atelier/entity"
)

func TestWalkSlotsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots := make(walkSlots, 1)
		release, err := slots.acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := slots.acquire(t.Context()); err == nil || err.(*entity.Error).Code != entity.Unavailable {
			t.Errorf("a walk without a free slot: got %v, want unavailable", err)
		}
		release()
		if _, err := slots.acquire(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestCopiesAndRemovalsOfFoldersNeedWalkSlots(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		drives, err := New(Options{Dir: dir, Asker: &drivetest.Activity{}, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer drives.Close()
		if err := drives.Provision(t.Context(), "ws_1"); err != nil {
			t.Fatal(err)
		}
		d, _, err := drives.Open(t.Context(), "ws_1")
		if err != nil {
			t.Fatal(err)
		}
		if err := d.MakeFolder(t.Context(), "a", Change{}); err != nil {
			t.Fatal(err)
		}
		for range maxWalks {
			drives.copySlots <- struct{}{}
			drives.countSlots <- struct{}{}
		}
		var refusal *entity.Error
		if _, err := d.Copy(t.Context(), "a", "b", false, false, Change{}); !errors.As(err, &refusal) || refusal.Code != entity.Unavailable {
			t.Errorf("a copy without a free slot: got %v, want unavailable", err)
		}
		if err := d.Remove(t.Context(), "a", Change{}); !errors.As(err, &refusal) || refusal.Code != entity.Unavailable {
			t.Errorf("a removal without a free slot: got %v, want unavailable", err)
		}
		if _, err := d.Copy(t.Context(), "a", "b", false, true, Change{}); err != nil {
			t.Errorf("a shallow copy, which needs no slot: %v", err)
		}
	})
}
