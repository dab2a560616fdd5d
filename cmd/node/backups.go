package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"
	_ "gocloud.dev/blob/s3blob" // s3:// in BackupURL

	"github.com/atelier-run/atelier/computer/archive"
	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// openBucket opens the bucket of backups. One in a folder makes each object beside its place and renames it there: the
// folder for temporary files may lie on another file system.
func openBucket(ctx context.Context, o Options) (*blob.Bucket, error) {
	dir := filepath.Join(o.Dir, "backups")
	if err := removeUnfinished(dir); err != nil {
		return nil, fmt.Errorf("the bucket of backups: %w", err)
	}
	if o.BackupURL != "" {
		at, err := url.Parse(o.BackupURL)
		if err != nil {
			return nil, fmt.Errorf("the bucket of backups: %w", err)
		}
		if at.Scheme != fileblob.Scheme {
			return other(ctx, o.BackupURL)
		}
		dir = at.Path
	}
	bucket, err := fileblob.OpenBucket(dir, &fileblob.Options{
		CreateDir: true, DirFileMode: 0o700, NoTempDir: true, Metadata: fileblob.MetadataDontWrite,
	})
	if err != nil {
		return nil, fmt.Errorf("the bucket of backups: %w", err)
	}
	return bucket, nil
}

// removeUnfinished takes away what a process before had not finished writing; the data directory is this one's alone.
func removeUnfinished(dir string) error {
	unfinished, err := fs.Glob(os.DirFS(dir), "*/*.tar.zst.*.tmp") // the folder's own name is no pattern
	for _, name := range unfinished {
		err = errors.Join(err, os.Remove(filepath.Join(dir, name)))
	}
	return err
}

func other(ctx context.Context, address string) (*blob.Bucket, error) {
	bucket, err := blob.OpenBucket(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("the bucket of backups: %w", err)
	}
	return bucket, nil
}

// archived are the drives as an archive of backups sees them.
type archived struct{ *drive.Drives }

var _ archive.Drives = archived{}

// Export is of archive.Drives.
func (a archived) Export(ctx context.Context, workspaceID string, to io.Writer) (int64, error) {
	d, release, err := a.Open(ctx, workspaceID)
	if err != nil {
		return 0, err
	}
	defer release()
	return d.Export(ctx, to)
}

// Restore is of archive.Drives.
func (a archived) Restore(ctx context.Context, workspaceID, mark string, from io.Reader, verify func(int64) error) error {
	d, release, err := a.Open(ctx, workspaceID)
	if err != nil {
		return err
	}
	defer release()
	return d.Restore(ctx, mark, from, verify, drive.Change{Author: &activityv1.Author{Actor: entity.Actor(entity.Platform())}})
}
