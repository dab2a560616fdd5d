package nodebackup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/atelier-run/atelier/computer/bucket"
	"github.com/atelier-run/atelier/drive"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	"github.com/atelier-run/atelier/persistence/datadir"
)

// A Target is the restored journal, with empty drives.
type Target interface {
	// RestoreDrive replaces the content of a workspace's drive by a backup, once for each id of a backup, and records a row of
	// it. isKnown is false if the journal does not have the workspace.
	RestoreDrive(ctx context.Context, workspaceID string, backup *computerv1.Backup, report func(done, total int64)) (isKnown bool, err error)
	// Close closes the journal and the drives, which are durable then.
	Close() error
}

// Restored is the result of a restore.
type Restored struct {
	BackupID  string `json:"backupId"`
	CreatedAt int64  `json:"createdAt"`
	// Drives is the number of drives. Skipped lists workspaces that were created while the backup was taken: the journal does not
	// have them.
	Drives  int      `json:"drives"`
	Skipped []string `json:"skipped,omitempty"`
	// Missing lists the drives that are not in the backup. The restored node has no drives for these workspaces until their computers
	// are replaced.
	Missing []FailedDrive `json:"missing,omitempty"`
}

// A Restoration restores a backup into a data directory.
type Restoration struct {
	Bucket  bucket.Bucket
	Archive Archive
	// Dir is the data directory, which must be empty or not exist, or have an unfinished restore of the same backup.
	Dir string
	// Open opens the journal and the drives in a folder with the layout of a data directory. No timer and no task runs.
	Open func(ctx context.Context, dir string) (Target, error)
	// Report is called with the progress, from one goroutine.
	Report func(Progress)
}

// Run verifies all objects of the backup, builds the data directory in a folder inside of it, and moves the parts to their places.
// Until it returns nil, no node starts on the directory. After an error or a crash, Run continues when it is called again.
func (r Restoration) Run(ctx context.Context, m *Manifest) (result Restored, err error) {
	result = Restored{BackupID: m.BackupID, CreatedAt: m.CreatedAt, Drives: len(m.Drives), Missing: m.Failed}
	d, err := datadir.BeginRestore(r.Dir, m.BackupID)
	if err != nil {
		return result, err
	}
	defer func() {
		if err != nil && ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
			err = fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		err = errors.Join(err, d.Close())
	}()
	if d.IsComplete {
		return result, d.Finish()
	}
	progress := &meter{report: r.Report, Progress: Progress{Drives: len(m.Drives), TotalBytes: 2 * m.SizeBytes()}}
	if err := r.verify(ctx, m, progress); err != nil {
		return result, err
	}
	progress.DrivesDone = 0
	if err := r.restoreJournal(ctx, m, d, progress); err != nil {
		return result, fmt.Errorf("the journal: %w", err)
	}
	if result.Skipped, err = r.restoreDrives(ctx, m, d.Dir, progress); err != nil {
		return result, err
	}
	if err := r.restoreImages(ctx, m, d.Dir, result.Skipped, progress); err != nil {
		return result, err
	}
	return result, d.Finish()
}

// SizeBytes returns the bytes of all objects.
func (m *Manifest) SizeBytes() int64 {
	size := m.Journal.SizeBytes
	for _, d := range m.Drives {
		size += d.SizeBytes
	}
	for _, i := range m.Images {
		size += i.SizeBytes
	}
	return size
}

// verify reads all objects whole.
func (r Restoration) verify(ctx context.Context, m *Manifest, progress *meter) error {
	if err := unpackTree(ctx, r.Bucket, m.Journal, "", progress.step("verifying the journal")); err != nil {
		return err
	}
	progress.end(m.Journal.SizeBytes)
	for _, d := range m.Drives {
		failure, err := r.Archive.Verify(ctx, d.record(m.BackupID), progress.step("verifying the drive "+d.WorkspaceID))
		if err == nil && failure != "" {
			err = errors.New(failure)
		}
		if err != nil {
			return fmt.Errorf("the drive of %s: %w", d.WorkspaceID, err)
		}
		progress.end(d.SizeBytes)
		progress.DrivesDone++
	}
	for _, i := range m.Images {
		if err := unpackTree(ctx, r.Bucket, i.Object, "", progress.step("verifying the images "+i.WorkspaceID)); err != nil {
			return err
		}
		progress.end(i.SizeBytes)
	}
	return nil
}

// restoreJournal creates the journal in the data directory, unless an earlier run has done so. An incomplete one has another
// name.
func (r Restoration) restoreJournal(ctx context.Context, m *Manifest, d *datadir.Restoration, progress *meter) error {
	defer progress.end(m.Journal.SizeBytes)
	if _, err := os.Stat(d.Journal); err == nil {
		return nil
	}
	partial := d.Journal + ".partial"
	if err := os.RemoveAll(partial); err != nil {
		return err
	}
	if err := unpackTree(ctx, r.Bucket, m.Journal, partial, progress.step("journal")); err != nil {
		return err
	}
	if err := os.Rename(partial, d.Journal); err != nil {
		return err
	}
	return syncDir(filepath.Dir(d.Journal))
}

// restoreDrives loads the drives, and returns the workspaces that the journal does not have.
func (r Restoration) restoreDrives(ctx context.Context, m *Manifest, dir string, progress *meter) (skipped []string, err error) {
	target, err := r.Open(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	for _, d := range m.Drives {
		isKnown, err := target.RestoreDrive(ctx, d.WorkspaceID, d.record(m.BackupID), progress.step("drive "+d.WorkspaceID))
		if err != nil {
			return nil, fmt.Errorf("the drive of %s: %w", d.WorkspaceID, err)
		}
		if !isKnown {
			skipped = append(skipped, d.WorkspaceID)
		}
		progress.end(d.SizeBytes)
		progress.DrivesDone++
	}
	return skipped, nil
}

// restoreImages loads the images of sessions beside the drives, except for workspaces that the journal does not have. Images that an
// earlier run has not loaded whole have another name.
func (r Restoration) restoreImages(ctx context.Context, m *Manifest, dir string, skipped []string, progress *meter) error {
	for _, i := range m.Images {
		home := filepath.Join(dir, datadir.DrivesName, i.WorkspaceID)
		images := filepath.Join(home, drive.ImagesName)
		partial := images + ".partial"
		if _, err := os.Stat(images); err == nil || slices.Contains(skipped, i.WorkspaceID) {
			progress.end(i.SizeBytes)
			continue
		}
		if err := errors.Join(os.RemoveAll(partial), os.MkdirAll(home, 0o750), os.Mkdir(partial, 0o700)); err != nil {
			return err
		}
		if err := unpackTree(ctx, r.Bucket, i.Object, partial, progress.step("images "+i.WorkspaceID)); err != nil {
			return err
		}
		if err := errors.Join(syncDir(partial), os.Rename(partial, images), syncDir(home), syncDir(filepath.Dir(home))); err != nil {
			return err
		}
		progress.end(i.SizeBytes)
	}
	return nil
}
