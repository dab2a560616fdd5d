package drive

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/atelier-run/atelier/drive/drivetest"
	"github.com/atelier-run/atelier/entity"
)

func TestWalksAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := make(walks, 1)
		leave, err := room.enter(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := room.enter(t.Context()); err == nil || err.(*entity.Error).Code != entity.Unavailable {
			t.Errorf("one walk too many: %v", err)
		}
		leave()
		if _, err := room.enter(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestCopiesAndRemovalsOfFoldersWaitTheirTurn(t *testing.T) {
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
			drives.copying <- struct{}{}
			drives.counting <- struct{}{}
		}
		var refusal *entity.Error
		if _, err := d.Copy(t.Context(), "a", "b", false, false, Change{}); !errors.As(err, &refusal) || refusal.Code != entity.Unavailable {
			t.Errorf("one copy too many: %v", err)
		}
		if err := d.Remove(t.Context(), "a", Change{}); !errors.As(err, &refusal) || refusal.Code != entity.Unavailable {
			t.Errorf("one removal too many: %v", err)
		}
		if _, err := d.Copy(t.Context(), "a", "b", false, true, Change{}); err != nil {
			t.Errorf("a copy that walks nothing: %v", err)
		}
	})
}
