package drive

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/drive/drivetest"
	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// TestRecoverIgnoresOperationsThatEndMeanwhile recovers a drive while a move over a folder runs. The move ends after the
// recovery has listed its intent, and its destination is then removed. The replaced folder, which is not swept yet, must not
// come back.
func TestRecoverIgnoresOperationsThatEndMeanwhile(t *testing.T) {
	dir, activity := t.TempDir(), &drivetest.Activity{}
	drives, err := New(Options{Dir: dir, Asker: activity})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		for range cap(drives.sweepSlots) {
			<-drives.sweepSlots
		}
		if err := drives.Close(); err != nil {
			t.Error(err)
		}
	}()
	for range cap(drives.sweepSlots) {
		drives.sweepSlots <- struct{}{} // large drives are swept
	}
	if err := drives.Provision(t.Context(), "ws_1"); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(dir, "ws_1", "files", "folder")
	for _, path := range []string{folder, filepath.Join(dir, "ws_1", "files", "other")} {
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	d, release, err := drives.Open(t.Context(), "ws_1")
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	moving, listed := make(chan struct{}), make(chan struct{})
	finishMove, finishList := make(chan struct{}), make(chan struct{})
	activity.Fail(func(m proto.Message, after bool) error {
		switch m.(type) {
		case *activityv1.Complete:
			if !after {
				close(moving)
				<-finishMove
			}
		case *activityv1.ListIntents:
			if after {
				close(listed)
				<-finishList
			}
		}
		return nil
	})
	change := Change{Author: &activityv1.Author{Actor: "web:usr_1"}, Principal: entity.Platform()}
	moved, recovered := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := d.Move(t.Context(), "other", "folder", true, change)
		moved <- err
	}()
	<-moving
	go func() { recovered <- drives.Recover(t.Context(), "ws_1") }()
	<-listed
	activity.Fail(nil)
	close(finishMove)
	if err := <-moved; err != nil {
		t.Fatal(err)
	}
	if err := d.Remove(t.Context(), "folder", change); err != nil {
		t.Fatal(err)
	}
	close(finishList)
	if err := <-recovered; err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(folder); !os.IsNotExist(err) {
		t.Errorf("the removed folder is back: %v, want %v", err, fs.ErrNotExist)
	}
}
