package node

import (
	"context"
	"fmt"
	"io"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/computer/archive"
	"github.com/atelier-run/atelier/computer/bucket"
	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	"github.com/atelier-run/atelier/service/computer"
)

// openBucket opens the bucket for backups. The folder "backups" of the data directory is the default bucket, and the folder for
// temporary files if Options.BackupURL names another bucket. In both cases openBucket first removes the temporary files that
// an earlier process has left there. It fails if a file cannot be removed, or if the bucket's address is invalid or its folder
// cannot be created.
func openBucket(o Options) (bucket.Bucket, error) {
	dir := filepath.Join(o.Dir, "backups")
	if err := bucket.RemoveTemporaryFiles(dir); err != nil {
		return nil, fmt.Errorf("cannot remove temporary files of backups: %w", err)
	}
	at := bucket.Address{Folder: dir}
	if o.BackupURL != "" {
		var err error
		if at, err = bucket.Parse(o.BackupURL); err != nil {
			return nil, fmt.Errorf("the address of the bucket for backups is invalid: %w", err)
		}
	}
	opened, err := at.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot open the bucket for backups: %w", err)
	}
	return opened, nil
}

// archiveDrives implements archive.Drives: each method opens the drive of the workspace, calls the method of the same name and
// releases the drive.
type archiveDrives struct {
	*drive.Drives
	asker entity.Asker
	// ofTasks reports that drives are restored by tasks of computers, which can be cancelled; the mark is the id of the task.
	ofTasks bool
	// onDisk reports that archives are stored on the disk of the drives, where they belong to the workspace's share of a nearly full disk.
	onDisk bool
}

var _ archive.Drives = archiveDrives{}

// newArchive returns an archive of the node's drives in a bucket, for the tasks of computers.
func (n *Node) newArchive(b bucket.Bucket) *archive.Archive {
	return archive.New(b, archiveDrives{Drives: n.Drives, asker: n.Router, ofTasks: true, onDisk: isOnDisk(b, n.Drives.Dir())})
}

// isOnDisk reports whether a bucket is a folder on the file system of another folder.
func isOnDisk(b bucket.Bucket, dir string) bool {
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

// A reserveBucket is a bucket on the disk of the drives for objects that belong to no workspace. Put fails with Full before the reserve of
// the drives is touched.
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
func (a archiveDrives) Sequence(ctx context.Context, workspaceID string) (uint64, error) {
	recorded, err := entity.AskAsPlatform[*activityv1.Recorded](ctx, a.asker, entity.KindActivity, workspaceID, &activityv1.Record{})
	return recorded.GetSeq(), err
}

// Export implements archive.Drives.
func (a archiveDrives) Export(ctx context.Context, workspaceID string, to io.Writer) (archive.Exported, error) {
	d, release, err := a.Open(ctx, workspaceID)
	if err != nil {
		return archive.Exported{}, err
	}
	defer release()
	bounded := &shareWriter{Writer: to, require: func(size int) error { return a.RequireShare(ctx, workspaceID, size) }}
	if a.onDisk {
		to = bounded
	}
	exported, err := d.Export(ctx, to)
	if bounded.refusal != nil {
		err = bounded.refusal
	}
	return archive.Exported(exported), err
}

// Verify implements archive.Drives.
func (a archiveDrives) Verify(ctx context.Context, from io.Reader) (int64, error) {
	return drive.VerifyArchive(ctx, from)
}

// ArchiveSize implements archive.Drives.
func (a archiveDrives) ArchiveSize(ctx context.Context, workspaceID string) (int64, error) {
	d, release, err := a.Open(ctx, workspaceID)
	if err != nil {
		return 0, err
	}
	defer release()
	return d.ArchiveSize(ctx)
}

// Restore implements archive.Drives. The activity names the platform as the author of the changes.
func (a archiveDrives) Restore(ctx context.Context, workspaceID, mark string, from io.Reader, verify func(int64) error) error {
	d, release, err := a.Open(ctx, workspaceID)
	if err != nil {
		return err
	}
	defer release()
	change := drive.Change{Author: &activityv1.Author{Actor: entity.Actor(entity.Platform())}}
	if a.ofTasks {
		change.Guard = func() error { return computer.RequireTask(ctx, a.asker, workspaceID, mark) }
	}
	return d.Restore(ctx, mark, from, verify, change)
}
