package drive_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/drive/drivetest"
	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// TestRecoverAll verifies that a drive that cannot be recovered does not prevent the recovery of the drives after it.
func TestRecoverAll(t *testing.T) {
	activity := &drivetest.Activity{}
	drives := open(t, t.TempDir(), activity)
	var intend proto.Message = &activityv1.Intend{Intent: &activityv1.Intent{Id: "i1", Operation: &activityv1.Operation{
		Kind: activityv1.Kind_KIND_CREATE, Path: "a", EntryKind: activityv1.EntryKind_ENTRY_KIND_FOLDER, Author: change.Author,
	}}}
	if _, err := activity.Ask(t.Context(), entity.Command{Kind: entity.KindActivity, Identity: workspace, Message: intend}); err != nil {
		t.Fatal(err)
	}
	var after []string
	pages := [][]string{{"../invalid", "ws_0"}, {workspace}, nil}
	drives.RecoverAll(t.Context(), func(last string, _ int) ([]string, error) {
		after = append(after, last)
		return pages[len(after)-1], nil
	})
	if want := []string{"", "ws_0", workspace}; !slices.Equal(after, want) {
		t.Errorf("pages after %q, want %q", after, want)
	}
	if open := activity.Intents(); len(open) > 0 {
		t.Errorf("open intents: %v", open)
	}
}

// TestRecoverWithoutParent recovers a drive on which a folder was being replaced when the node crashed, and a process has removed
// the folder above it. The drive can be used.
func TestRecoverWithoutParent(t *testing.T) {
	dir, activity := t.TempDir(), &drivetest.Activity{}
	drives := open(t, dir, activity)
	for _, path := range []string{"gone/folder", "file/folder", "link/folder"} {
		id := "i-" + filepath.Dir(path)
		var intend proto.Message = &activityv1.Intend{Intent: &activityv1.Intent{Id: id, Inode: 1 << 40, Operation: &activityv1.Operation{
			Kind: activityv1.Kind_KIND_CREATE, Path: path, EntryKind: activityv1.EntryKind_ENTRY_KIND_FOLDER, Author: change.Author,
		}}}
		if _, err := activity.Ask(t.Context(), entity.Command{Kind: entity.KindActivity, Identity: workspace, Message: intend}); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(filepath.Join(dir, workspace, "tmp", id+".trash"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	files := filepath.Join(dir, workspace, "files")
	if err := errors.Join(os.WriteFile(filepath.Join(files, "file"), nil, 0o644), os.Symlink(".", filepath.Join(files, "link"))); err != nil {
		t.Fatal(err)
	}
	_, release, err := drives.Open(t.Context(), workspace)
	if err != nil {
		t.Fatal(err)
	}
	release()
	if open := activity.Intents(); len(open) > 0 {
		t.Errorf("open intents: %v", open)
	}
}
