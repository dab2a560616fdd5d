// Package archives connects the drives of a node with archives and buckets: it reads and restores drives for package computer/archive,
// and keeps archives on the disk of the drives within the share of their workspace.
package archives

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/computer/archive"
	"github.com/atelier-run/atelier/computer/bucket"
	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	"github.com/atelier-run/atelier/service/computer"
)

// Drives implements archive.Drives: each method opens the drive of the workspace, calls the method of the same name and
// releases the drive.
type Drives struct {
	*drive.Drives
	Asker entity.Asker
	// OfTasks reports that drives are restored by tasks of computers, which can be cancelled; the mark is the id of the task.
	OfTasks bool
	// OnDisk reports that archives are stored on the disk of the drives, where they belong to the workspace's share of a nearly full disk.
	OnDisk bool
}

var _ archive.Drives = Drives{}

// IsOnDisk reports whether a bucket is a folder on the file system of another folder.
func IsOnDisk(b bucket.Bucket, dir string) bool {
	folder, is := b.(*bucket.Folder)
	if !is {
		return false
	}
	var ofBucket, ofDir unix.Stat_t
	return unix.Stat(folder.Dir(), &ofBucket) == nil && unix.Stat(dir, &ofDir) == nil && ofBucket.Dev == ofDir.Dev
}

// A shareWriter writes to the disk of the drives while that is permitted.
type shareWriter struct {
	io.Writer
	require func(size int) error
	// refusal is the error of require. Export hides the errors of its writer.
	refusal error
}

func (w *shareWriter) Write(p []byte) (int, error) {
	if w.refusal = w.require(len(p)); w.refusal != nil {
		return 0, w.refusal
	}
	return w.Writer.Write(p)
}

// Reserve returns a bucket on the disk of the drives for objects that belong to no workspace. Put fails with Full before the reserve of the
// drives is touched.
func Reserve(b bucket.Bucket, drives *drive.Drives) bucket.Bucket {
	return reserveBucket{b, func(size int) error {
		if err := drives.RequireReserve(size); err != nil {
			return fmt.Errorf("%w; store the backup on another disk or in a bucket, or make space", err)
		}
		return nil
	}}
}

type reserveBucket struct {
	bucket.Bucket
	require func(size int) error
}

// Put implements bucket.Bucket.
func (b reserveBucket) Put(ctx context.Context, name string, write func(to io.Writer) error) error {
	return b.Bucket.Put(ctx, name, func(to io.Writer) error {
		bounded := &shareWriter{Writer: to, require: b.require}
		err := write(bounded)
		if bounded.refusal != nil {
			err = bounded.refusal
		}
		return err
	})
}

// Sequence implements archive.Drives.
func (a Drives) Sequence(ctx context.Context, workspaceID string) (uint64, error) {
	recorded, err := entity.AskAsPlatform[*activityv1.Recorded](ctx, a.Asker, entity.KindActivity, workspaceID, &activityv1.Record{})
	return recorded.GetSeq(), err
}

// Export implements archive.Drives.
func (a Drives) Export(ctx context.Context, workspaceID string, to io.Writer) (archive.Exported, error) {
	d, release, err := a.Open(ctx, workspaceID)
	if err != nil {
		return archive.Exported{}, err
	}
	defer release()
	bounded := &shareWriter{Writer: to, require: func(size int) error { return a.RequireShare(ctx, workspaceID, size) }}
	if a.OnDisk {
		to = bounded
	}
	exported, err := d.Export(ctx, to)
	if bounded.refusal != nil {
		err = bounded.refusal
	}
	return archive.Exported(exported), err
}

// Verify implements archive.Drives.
func (a Drives) Verify(ctx context.Context, from io.Reader) (int64, error) {
	return drive.VerifyArchive(ctx, from)
}

// ArchiveSize implements archive.Drives.
func (a Drives) ArchiveSize(ctx context.Context, workspaceID string) (int64, error) {
	d, release, err := a.Open(ctx, workspaceID)
	if err != nil {
		return 0, err
	}
	defer release()
	return d.ArchiveSize(ctx)
}

// Restore implements archive.Drives. The activity names the platform as the author of the changes.
func (a Drives) Restore(ctx context.Context, workspaceID, mark string, from io.Reader, verify func(int64) error) error {
	d, release, err := a.Open(ctx, workspaceID)
	if err != nil {
		return err
	}
	defer release()
	change := drive.Change{Author: &activityv1.Author{Actor: entity.Actor(entity.Platform())}}
	if a.OfTasks {
		change.Guard = func() error { return computer.RequireTask(ctx, a.Asker, workspaceID, mark) }
	}
	return d.Restore(ctx, mark, from, verify, change)
}

// OpenBucket opens the bucket for backups. The folder "backups" of the data directory is the default bucket, and the folder for
// temporary files if url names another bucket. In both cases OpenBucket first removes the temporary files that
// an earlier process has left there. It fails if a file cannot be removed, or if the bucket's address is invalid or its folder
// cannot be created.
func OpenBucket(dataDir, url string) (bucket.Bucket, error) {
	dir := filepath.Join(dataDir, "backups")
	if err := bucket.RemoveTemporaryFiles(dir); err != nil {
		return nil, fmt.Errorf("cannot remove temporary files of backups: %w", err)
	}
	at := bucket.Address{Folder: dir}
	if url != "" {
		var err error
		if at, err = bucket.Parse(url); err != nil {
			return nil, fmt.Errorf("the address of the bucket for backups is invalid: %w", err)
		}
	}
	opened, err := at.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot open the bucket for backups: %w", err)
	}
	return opened, nil
}

// OpenOther opens the bucket of a backup of a node, with the folder of backups in the data directory for temporary files. Errors:
// invalid_request if the address is invalid or a folder in the data directory.
func OpenOther(dataDir, address string) (bucket.Bucket, error) {
	at, err := bucket.Parse(address)
	if err != nil {
		return nil, entity.Errorf(entity.InvalidRequest, "the address of the bucket is invalid: %v", err)
	}
	if at.Folder != "" {
		if isInside, err := contains(dataDir, at.Folder); err != nil {
			return nil, err
		} else if isInside {
			return nil, entity.Errorf(entity.InvalidRequest, "%s is in the data directory, with which the backup would be lost: name a folder outside of it", at.Folder)
		}
	}
	return at.Open(filepath.Join(dataDir, "backups"))
}

// contains reports whether a path, which need not exist, is a folder or below it. Symbolic links are resolved.
func contains(folder, path string) (bool, error) {
	in, err := os.Stat(folder)
	if err != nil {
		return false, err
	}
	if path, err = filepath.Abs(path); err != nil {
		return false, err
	}
	for { // the part that exists, without links
		resolved, err := filepath.EvalSymlinks(path)
		if err == nil {
			path = resolved
			break
		}
		if !errors.Is(err, fs.ErrNotExist) || filepath.Dir(path) == path {
			return false, err
		}
		path = filepath.Dir(path)
	}
	for ; ; path = filepath.Dir(path) {
		if at, err := os.Stat(path); err != nil {
			return false, err
		} else if os.SameFile(in, at) {
			return true, nil
		}
		if filepath.Dir(path) == path {
			return false, nil
		}
	}
}
