package drive_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/drive/drivetest"
	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	"github.com/atelier-run/atelier/tests/await"
)

const workspace = "ws_1"

// open opens the drives below dir with a provisioned workspace.
func open(t *testing.T, dir string, activity *drivetest.Activity) *drive.Drives {
	t.Helper()
	drives, err := drive.New(drive.Options{Dir: dir, Asker: activity, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := drives.Provision(t.Context(), workspace); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { drives.Close() })
	return drives
}

// openDrive opens the workspace's drive until the end of the test.
func openDrive(t *testing.T, drives *drive.Drives) *drive.Drive {
	t.Helper()
	d, release, err := drives.Open(t.Context(), workspace)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return d
}

var change = drive.Change{Author: &activityv1.Author{Actor: "api-key:1", UserId: "usr_1"}}

// operations are changes of a drive that prepare has filled.
var operations = map[string]func(ctx context.Context, d *drive.Drive) error{
	"create": func(ctx context.Context, d *drive.Drive) error {
		_, _, err := d.Put(ctx, "new", drive.Upload{Body: strings.NewReader("new"), Size: 3}, change)
		return err
	},
	"write": func(ctx context.Context, d *drive.Drive) error {
		_, _, err := d.Put(ctx, "file", drive.Upload{Body: strings.NewReader("changed"), Size: -1}, change)
		return err
	},
	"folder": func(ctx context.Context, d *drive.Drive) error { return d.MakeFolder(ctx, "fresh", change) },
	"remove": func(ctx context.Context, d *drive.Drive) error { return d.Remove(ctx, "folder", change) },
	"move": func(ctx context.Context, d *drive.Drive) error {
		_, err := d.Move(ctx, "file", "folder/file", true, change)
		return err
	},
	"move over file": func(ctx context.Context, d *drive.Drive) error {
		_, err := d.Move(ctx, "file", "other", true, change)
		return err
	},
	"move over folder": func(ctx context.Context, d *drive.Drive) error {
		_, err := d.Move(ctx, "file", "folder", true, change)
		return err
	},
	"copy": func(ctx context.Context, d *drive.Drive) error {
		_, err := d.Copy(ctx, "folder", "copy", true, false, change)
		return err
	},
	"restore": func(ctx context.Context, d *drive.Drive) error {
		archive := newArchive(entry{"folder/new", "restored"}, entry{"folder/", ""}, entry{"./", ""})
		return d.Restore(ctx, "tsk_1", bytes.NewReader(archive), func(int64) error { return nil }, change)
	},
	"copy over folder": func(ctx context.Context, d *drive.Drive) error {
		_, err := d.Copy(ctx, "other", "folder", true, false, change)
		return err
	},
}

// prepare creates the files and folders that the operations change.
func prepare(t *testing.T, dir string) {
	t.Helper()
	files := filepath.Join(dir, workspace, "files")
	if err := os.MkdirAll(filepath.Join(files, "folder", "deep"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"file", "other", "folder/deep/leaf"} {
		if err := os.WriteFile(filepath.Join(files, name), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCrash stops the process at each command, before or after it takes effect, and starts another on the same disk. Then
// either both the disk and the sequence have the operation or neither has it, and the staging folder becomes empty.
func TestCrash(t *testing.T) {
	for name, operate := range operations {
		for _, command := range []string{"Intend", "Complete"} {
			for _, after := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %s, after=%t", name, command, after), func(t *testing.T) {
					t.Parallel()
					crash(t, operate, command, after)
				})
			}
		}
	}
}

func crash(t *testing.T, operate func(context.Context, *drive.Drive) error, command string, after bool) {
	dir, activity := t.TempDir(), &drivetest.Activity{}
	first := open(t, dir, activity)
	prepare(t, dir)
	before := snapshot(t, dir)
	want := snapshotAfter(t, operate)
	stopped := stopAt(t, activity, command, after)
	go operate(context.Background(), openDrive(t, first))
	<-stopped

	second := open(t, dir, activity)
	if err := second.Recover(t.Context(), workspace); err != nil {
		t.Fatal(err)
	}
	checkAgreement(t, dir, activity, before, want)
	if happened := command == "Complete"; happened != (len(activity.Rows()) == 1) {
		t.Errorf("%d rows", len(activity.Rows()))
	}
}

// snapshotAfter returns the content of the disk after the operation without a crash.
func snapshotAfter(t *testing.T, operate func(context.Context, *drive.Drive) error) map[string]string {
	t.Helper()
	dir := t.TempDir()
	drives := open(t, dir, &drivetest.Activity{})
	prepare(t, dir)
	if err := operate(t.Context(), openDrive(t, drives)); err != nil {
		t.Fatal(err)
	}
	return snapshot(t, dir)
}

// stopAt blocks a command of the first process until the end of the test, as if the process had died, and closes the returned
// channel when the command arrives. Later commands come from the second process and are not blocked.
func stopAt(t *testing.T, activity *drivetest.Activity, command string, after bool) <-chan struct{} {
	stopped, forever := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(forever) })
	hung := false
	activity.Fail(func(m proto.Message, isAfter bool) error {
		if hung || string(m.ProtoReflect().Descriptor().Name()) != command || isAfter != after {
			return nil
		}
		hung = true
		activity.Fail(nil)
		close(stopped)
		<-forever
		return drivetest.ErrUnknown
	})
	return stopped
}

// checkAgreement verifies that no intent is open and that the disk agrees with the rows: it has the content before if there is
// no row, and after if there is one. It then waits until the staging folder is empty.
func checkAgreement(t *testing.T, dir string, activity *drivetest.Activity, before, after map[string]string) {
	t.Helper()
	if open := activity.Intents(); len(open) > 0 {
		t.Errorf("%d intents are open", len(open))
	}
	want := before
	if len(activity.Rows()) == 1 {
		want = after
	}
	if got := snapshot(t, dir); !maps.Equal(got, want) {
		t.Errorf("%d rows and the disk has %v, want %v", len(activity.Rows()), got, want)
	}
	awaitSwept(t, dir)
}

// awaitSwept waits until the staging folder is empty.
func awaitSwept(t *testing.T, dir string) {
	t.Helper()
	await.Seen(t, "an empty staging folder", func() (any, bool) {
		entries, err := os.ReadDir(filepath.Join(dir, workspace, "tmp"))
		if err != nil {
			t.Fatal(err)
		}
		return entries, len(entries) == 0
	})
}

// snapshot returns the content of each file of the workspace by its path, and "folder" for folders.
func snapshot(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := filepath.Join(dir, workspace, "files")
	seen := map[string]string{}
	err := filepath.WalkDir(files, func(path string, entry os.DirEntry, err error) error {
		if err != nil || path == files {
			return err
		}
		name, _ := filepath.Rel(files, path)
		if entry.IsDir() {
			seen[name] = "folder"
			return nil
		}
		content, err := os.ReadFile(path)
		seen[name] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return seen
}

// TestCrashBetweenTrashAndRename crashes a move when the replaced entry is in the trash and the source is not yet renamed.
func TestCrashBetweenTrashAndRename(t *testing.T) {
	for _, name := range []string{"move over folder", "copy over folder"} {
		t.Run(name, func(t *testing.T) {
			dir, activity := t.TempDir(), &drivetest.Activity{}
			first := open(t, dir, activity)
			prepare(t, dir)
			before := snapshot(t, dir)
			stopped := stopAt(t, activity, "Intend", true)
			go operations[name](context.Background(), openDrive(t, first))
			<-stopped
			trash := filepath.Join(dir, workspace, "tmp", activity.Intents()[0].GetId()+".trash")
			if err := os.Rename(filepath.Join(dir, workspace, "files", "folder"), trash); err != nil {
				t.Fatal(err)
			}
			if err := open(t, dir, activity).Recover(t.Context(), workspace); err != nil {
				t.Fatal(err)
			}
			checkAgreement(t, dir, activity, before, nil)
			if rows := activity.Rows(); len(rows) > 0 {
				t.Errorf("got rows %v, want none", rows)
			}
		})
	}
}

func TestOpenFailsUntilDriveIsRecovered(t *testing.T) {
	dir, activity := t.TempDir(), &drivetest.Activity{}
	drives := open(t, dir, activity)
	activity.Fail(func(proto.Message, bool) error { return drivetest.ErrUnknown })
	if _, _, err := drives.Open(t.Context(), workspace); err == nil {
		t.Error("a drive was opened although its intents are unknown")
	}
	activity.Fail(nil)
	openDrive(t, drives)
	if _, _, err := drives.Open(t.Context(), "ws_2"); err == nil {
		t.Error("a drive was opened that is not provisioned")
	}
	if err := drives.Recover(t.Context(), "ws_2"); err != nil {
		t.Error(err)
	}
	for _, id := range []string{"", "..", "a/b", "ws_1/files"} {
		if _, _, err := drives.Open(t.Context(), id); err == nil {
			t.Errorf("a drive with the invalid id %q was opened", id)
		}
	}
}

// TestRecoverSparesRunningOperations recovers a drive while an operation is between its intent and its rename.
func TestRecoverSparesRunningOperations(t *testing.T) {
	dir, activity := t.TempDir(), &drivetest.Activity{}
	drives := open(t, dir, activity)
	prepare(t, dir)
	d := openDrive(t, drives)
	inside, resume := make(chan struct{}), make(chan struct{})
	activity.Fail(func(m proto.Message, after bool) error {
		if _, is := m.(*activityv1.Intend); is && after {
			close(inside)
			<-resume
		}
		return nil
	})
	failed := make(chan error)
	go func() { failed <- operations["write"](context.Background(), d) }()
	<-inside
	if err := drives.Recover(t.Context(), workspace); err != nil {
		t.Fatal(err)
	}
	close(resume)
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	checkAgreement(t, dir, activity, nil, snapshotAfter(t, operations["write"]))
}

// TestCrashOfMoveOntoHardLink crashes a move between two hard links of one file. The inode at the destination then does not
// show that the move has happened.
func TestCrashOfMoveOntoHardLink(t *testing.T) {
	for _, after := range []bool{false, true} {
		dir, activity := t.TempDir(), &drivetest.Activity{}
		first := open(t, dir, activity)
		prepare(t, dir)
		files := filepath.Join(dir, workspace, "files")
		if err := errors.Join(os.Remove(filepath.Join(files, "other")), os.Link(filepath.Join(files, "file"), filepath.Join(files, "other"))); err != nil {
			t.Fatal(err)
		}
		command := map[bool]string{false: "Intend", true: "Complete"}[after]
		stopped := stopAt(t, activity, command, !after)
		go operations["move over file"](context.Background(), openDrive(t, first))
		<-stopped
		if err := open(t, dir, activity).Recover(t.Context(), workspace); err != nil {
			t.Fatal(err)
		}
		_, err := os.Stat(filepath.Join(files, "file"))
		if rows := len(activity.Rows()); after != (rows == 1) || after != errors.Is(err, os.ErrNotExist) {
			t.Errorf("move has happened: %t; got %d rows, source: %v", after, rows, err)
		}
	}
}

func TestPutRefusesBodyOfOtherSize(t *testing.T) {
	dir, activity := t.TempDir(), &drivetest.Activity{}
	d := openDrive(t, open(t, dir, activity))
	for _, size := range []int64{2, 4} {
		_, _, err := d.Put(t.Context(), "a", drive.Upload{Body: strings.NewReader("abc"), Size: size}, change)
		if refusal, is := errors.AsType[*entity.Error](err); !is || refusal.Code != drive.Broken {
			t.Errorf("3 bytes with the announced size %d: got %v, want broken_upload", size, err)
		}
	}
	checkAgreement(t, dir, activity, map[string]string{}, nil)
}
