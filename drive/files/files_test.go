package files

import (
	"log/slog"
	"testing"

	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/drive/drivetest"
	"github.com/atelier-run/atelier/entity"
)

// TestReadWithinTheRoom reads a file while the workspace has no room in the journal, in which each read is
// recorded.
func TestReadWithinTheRoom(t *testing.T) {
	full := entity.Errorf(entity.InsufficientStorage, "there is no room")
	var refused error
	drives, err := drive.New(drive.Options{
		Dir: t.TempDir(), Asker: &drivetest.Activity{}, Log: slog.New(slog.DiscardHandler), Room: func(string) error { return refused },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer drives.Close()
	files, access := Files{drives}, entity.DriveAccess{WorkspaceID: "ws_1"}
	if err := drives.Provision(t.Context(), access.WorkspaceID); err != nil {
		t.Fatal(err)
	}
	if _, err := files.Write(t.Context(), access, "a", []byte("content")); err != nil {
		t.Fatal(err)
	}
	for _, refused = range []error{nil, full} {
		content, _, err := files.Read(t.Context(), access, "a", 0, 100)
		if refused == nil && (err != nil || string(content) != "content") || refused != nil && !entity.HasCode(err, full.Code) {
			t.Errorf("no room: %v: %q, %v", refused, content, err)
		}
	}
}
