package drive_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/drive/drivetest"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// TestMoveOfReplacedSource replaces the source of a move while the intent is being recorded, and the node crashes before the intent is
// completed. The rows agree with the disk after the recovery.
func TestMoveOfReplacedSource(t *testing.T) {
	dir, activity := t.TempDir(), &drivetest.Activity{}
	drives := open(t, dir, activity)
	files := filepath.Join(dir, workspace, "files")
	if err := os.WriteFile(filepath.Join(files, "a"), []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	activity.Fail(func(m proto.Message, after bool) error {
		switch m.(type) {
		case *activityv1.Intend:
			if after {
				saved := filepath.Join(files, "a.tmp")
				return errors.Join(os.WriteFile(saved, []byte("new"), 0o644), os.Rename(saved, filepath.Join(files, "a")))
			}
		case *activityv1.Complete, *activityv1.Abandon:
			return drivetest.ErrUnknown
		}
		return nil
	})
	d, release, err := drives.Open(t.Context(), workspace)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Move(t.Context(), "a", "b", false, change); err == nil {
		t.Error("the move succeeded without the activity")
	}
	release()
	if err := drives.Close(); err != nil {
		t.Fatal(err)
	}
	activity.Fail(nil)
	openDrive(t, open(t, dir, activity))
	if open := activity.Intents(); len(open) > 0 {
		t.Errorf("open intents: %v", open)
	}
	_, err = os.Stat(filepath.Join(files, "b"))
	if moved := err == nil; moved != (len(activity.Rows()) == 1) {
		t.Errorf("the file has moved: %t, but the rows are %v", moved, activity.Rows())
	}
}
