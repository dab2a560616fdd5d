package nodebackup

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/atelier-run/atelier/computer/archive"
	"github.com/atelier-run/atelier/computer/bucket"
	"github.com/atelier-run/atelier/entity"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

var errLost = errors.New("the answer was lost")

// lossyBucket stores an object and loses the answer.
type lossyBucket struct {
	bucket.Bucket
	name string
}

func (b lossyBucket) Put(ctx context.Context, name string, write func(to io.Writer) error) error {
	err := b.Bucket.Put(ctx, name, write)
	if err == nil && name == b.name {
		err = errLost
	}
	return err
}

// lossyCreate backs up a node with one workspace. The answer to the request that stores an object is lost.
func lossyCreate(t *testing.T, name string) (folder string, b bucket.Bucket, err error) {
	t.Helper()
	folder, drives := t.TempDir(), t.TempDir()
	opened, err := bucket.OpenFolder(folder)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(drives, "ws_1", "files"), 0o700); err != nil {
		t.Fatal(err)
	}
	b = lossyBucket{opened, name}
	_, err = Create(t.Context(), Source{
		Bucket: b, Archive: fakeArchive{b}, Staging: filepath.Join(t.TempDir(), "checkpoint"), Drives: drives,
		Checkpoint: func(dir string) error { return os.Mkdir(dir, 0o700) },
		DriveSize:  func(context.Context, string) (int64, error) { return 1, nil },
	}, "nbk_2", time.UnixMilli(5), func(Progress) {})
	if !errors.Is(err, errLost) {
		t.Fatalf("the error is %v", err)
	}
	return folder, b, err
}

// busyArchive refuses a number of attempts to read each drive, in the middle.
type busyArchive struct {
	Archive
	refusals int
}

func (a *busyArchive) SaveAs(
	ctx context.Context, workspaceID, backupID, object string, report func(done, total int64),
) (*computerv1.Backup, error) {
	if a.refusals--; a.refusals >= 0 {
		report(3, 4)
		return nil, &archive.DriveError{Err: entity.Errorf(entity.Unavailable, "too many drives are in use; try again")}
	}
	return a.Archive.SaveAs(ctx, workspaceID, backupID, object, report)
}

// busyCreate backs up a node with one workspace. Its drive is unavailable a number of times before each step. done is the progress.
func busyCreate(ctx context.Context, t *testing.T, refusals int) (m *Manifest, done []int64, err error) {
	t.Helper()
	drives, sizes := t.TempDir(), refusals
	b, err := bucket.OpenFolder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(drives, "ws_1", "files"), 0o700); err != nil {
		t.Fatal(err)
	}
	m, err = Create(ctx, Source{
		Bucket: b, Archive: &busyArchive{fakeArchive{b}, refusals}, Staging: filepath.Join(t.TempDir(), "checkpoint"), Drives: drives,
		Checkpoint: func(dir string) error { return os.Mkdir(dir, 0o700) },
		DriveSize: func(context.Context, string) (int64, error) {
			if sizes--; sizes >= 0 {
				return 0, entity.Errorf(entity.Unavailable, "the drive is being recovered; try again")
			}
			return 4, nil
		},
	}, "nbk_3", time.UnixMilli(5), func(p Progress) { done = append(done, p.DoneBytes) })
	return m, done, err
}

// TestUnavailableDrive: a drive that is unavailable for a while does not end the backup of all others.
func TestUnavailableDrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, done, err := busyCreate(t.Context(), t, driveAttempts-1)
		if err != nil || len(m.Drives) != 1 || !slices.IsSorted(done) {
			t.Errorf("%v with the progress %v, %v", m, done, err)
		}
		began := time.Now()
		m, _, err = busyCreate(t.Context(), t, driveAttempts)
		if err != nil || len(m.Drives) != 0 || len(m.Failed) != 1 || time.Since(began) > time.Minute {
			t.Errorf("a drive that stays unavailable: %+v, %v after %s", m, err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		if _, _, err := busyCreate(ctx, t, 1); err == nil || time.Since(began) > time.Second {
			t.Errorf("a backup that is cancelled during a pause: %v after %s", err, time.Since(began))
		}
	})
}

// TestLostAnswerForLatest: the latest backup can be restored, because the lost answer may be the answer for it.
func TestLostAnswerForLatest(t *testing.T) {
	_, b, _ := lossyCreate(t, latest)
	m, err := ReadManifest(t.Context(), b, "")
	if err != nil || m.BackupID != "nbk_2" {
		t.Fatalf("the latest backup is %v, %v", m, err)
	}
	if failure, err := (fakeArchive{b}).Verify(t.Context(), m.Drives[0].record("nbk_2"), nil); err != nil || failure != "" {
		t.Errorf("its drive: %q, %v", failure, err)
	}
}

// TestLostAnswerLeavesNothing loses the answers for the other objects.
func TestLostAnswerLeavesNothing(t *testing.T) {
	for _, name := range []string{journalObject("nbk_2"), driveObject("nbk_2", "ws_1"), manifestObject("nbk_2")} {
		folder, _, _ := lossyCreate(t, name)
		err := filepath.WalkDir(folder, func(path string, entry os.DirEntry, err error) error {
			if err == nil && !entry.IsDir() {
				t.Errorf("%s: %s is left", name, path)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}
