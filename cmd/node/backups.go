package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/atelier-run/atelier/computer/archive"
	"github.com/atelier-run/atelier/computer/bucket"
	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// openBucket opens the bucket of backups. What an earlier process has left unfinished in the data directory's own folder
// is removed, also where the bucket is another one; large parts of uploads lie in that folder.
func openBucket(o Options) (bucket.Bucket, error) {
	dir := filepath.Join(o.Dir, "backups")
	if err := removeUnfinished(dir); err != nil {
		return nil, fmt.Errorf("the bucket of backups: %w", err)
	}
	at := bucket.Address{Folder: dir}
	if o.BackupURL != "" {
		var err error
		if at, err = bucket.Parse(o.BackupURL); err != nil {
			return nil, fmt.Errorf("the bucket of backups: %w", err)
		}
	}
	opened, err := at.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("the bucket of backups: %w", err)
	}
	return opened, nil
}

// removeUnfinished takes away what a process before had not finished writing; the data directory is this one's alone.
func removeUnfinished(dir string) error {
	within := os.DirFS(dir) // the folder's own name is no pattern
	unfinished, err := fs.Glob(within, "*/*.tar.zst.*.tmp")
	parts, alsoErr := fs.Glob(within, "part-*.tmp")
	unfinished, err = append(unfinished, parts...), errors.Join(err, alsoErr)
	for _, name := range unfinished {
		err = errors.Join(err, os.Remove(filepath.Join(dir, name)))
	}
	return err
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

// ArchiveSize is of archive.Drives.
func (a archived) ArchiveSize(ctx context.Context, workspaceID string) (int64, error) {
	d, release, err := a.Open(ctx, workspaceID)
	if err != nil {
		return 0, err
	}
	defer release()
	return d.ArchiveSize(ctx)
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
