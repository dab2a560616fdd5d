package nodebackup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/atelier-run/atelier/computer/archive"
	"github.com/atelier-run/atelier/computer/bucket"
	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/entity"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	"github.com/atelier-run/atelier/retry"
)

// Source is the running node that Create backs up.
type Source struct {
	Bucket  bucket.Bucket
	Archive Archive
	// Checkpoint writes a consistent copy of the journal to a folder that does not exist.
	Checkpoint func(dir string) error
	// Staging is the path of that folder. It is on the file system of the journal, so that files are linked instead of copied.
	// Create removes it.
	Staging string
	// Drives is the folder of the drives, with a folder for each workspace.
	Drives string
	// DriveSize returns an estimate of the bytes of a drive's archive.
	DriveSize func(ctx context.Context, workspaceID string) (int64, error)
	// Program is the version of the program.
	Program string
}

// Create takes a backup of a node with an id, and returns its manifest. It reports its progress from one goroutine. A drive that cannot
// be read does not end the backup of the others: the manifest names it as failed. If Create fails, it deletes the objects that it has
// stored, unless only the object latest could not be stored: then it is unknown whether latest names this backup, which is complete.
func Create(ctx context.Context, s Source, id string, now time.Time, report func(Progress)) (_ *Manifest, err error) {
	if !validID.MatchString(id) {
		return nil, fmt.Errorf("%q is not a valid id of a backup of a node", id)
	}
	m := &Manifest{Version: manifestVersion, BackupID: id, CreatedAt: now.UnixMilli(), Program: s.Program, Drives: []Drive{}}
	var workspaces []string
	isComplete := false
	defer func() {
		if err != nil && !isComplete {
			err = errors.Join(err, s.discard(ctx, id, workspaces[:min(len(m.Drives)+len(m.Failed)+1, len(workspaces))]))
		}
	}()
	progress := &meter{report: report}
	if err := s.saveJournal(ctx, m, progress); err != nil {
		return nil, fmt.Errorf("the journal: %w", err)
	}
	// The drives are listed after the checkpoint: every workspace in it that has a drive has its folder.
	if workspaces, err = s.workspaces(); err != nil {
		return nil, err
	}
	sizes := make([]int64, len(workspaces))
	for i, w := range workspaces {
		progress.TotalBytes += s.imagesSize(w)
		err := patiently(ctx, func() (err error) {
			sizes[i], err = s.DriveSize(ctx, w)
			return err
		})
		if ctx.Err() != nil {
			return nil, fmt.Errorf("the drive of %s: %w", w, err)
		}
		if err != nil {
			sizes[i] = 0 // SaveAs fails as well, or can do without the estimate
		}
		progress.TotalBytes += sizes[i]
	}
	progress.Drives = len(workspaces)
	for i, w := range workspaces {
		if err := s.saveImages(ctx, m, w, progress); err != nil {
			return nil, fmt.Errorf("the images of %s: %w", w, err)
		}
		var b *computerv1.Backup
		err := patiently(ctx, func() (err error) {
			b, err = s.Archive.SaveAs(ctx, w, id, driveObject(id, w), progress.step("drive "+w))
			return err
		})
		progress.end(sizes[i])
		progress.DrivesDone++
		if failed := (&archive.DriveError{}); errors.As(err, &failed) && ctx.Err() == nil {
			m.Failed = append(m.Failed, FailedDrive{WorkspaceID: w, Reason: failed.Error()})
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("the drive of %s: %w", w, err)
		}
		m.Drives = append(m.Drives, Drive{
			WorkspaceID: w, Seq: b.GetSeq(), ChangedFiles: b.GetChangedFiles(),
			UnreadableFiles: b.GetUnreadableFiles(), UnreadablePaths: b.GetUnreadablePaths(),
			Object: Object{Name: b.GetObject(), SizeBytes: b.GetSizeBytes(), SHA256: b.GetSha256(), Entries: b.GetEntries()},
		})
	}
	progress.step("manifest")
	text, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	if err := put(ctx, s.Bucket, manifestObject(id), text); err != nil {
		return nil, err
	}
	isComplete = true
	if err := put(ctx, s.Bucket, latest, []byte(id)); err != nil {
		return nil, fmt.Errorf("the backup %s is complete, but it may not be the one that %q names: %w", id, latest, err)
	}
	return m, nil
}

// driveAttempts is the number of attempts to read a drive that is unavailable, such as one of too many in use.
const driveAttempts = 5

// reading has the pauses between these attempts. All pauses together are at most half a minute.
var reading = retry.Policy{First: 2 * time.Second, Longest: time.Minute}

// patiently calls read again, after pauses, while it returns Unavailable.
func patiently(ctx context.Context, read func() error) error {
	var err error
	for attempt := range reading.Attempts(ctx) {
		err = read()
		if !entity.HasCode(err, entity.Unavailable) || attempt == driveAttempts {
			return err
		}
	}
	return err
}

// saveJournal takes a checkpoint of the journal and stores it.
func (s Source) saveJournal(ctx context.Context, m *Manifest, progress *meter) (err error) {
	if err := os.RemoveAll(s.Staging); err != nil {
		return err
	}
	report := progress.step("journal")
	defer func() { err = errors.Join(err, os.RemoveAll(s.Staging)) }()
	if err := s.Checkpoint(s.Staging); err != nil {
		return err
	}
	size, err := treeSize(s.Staging)
	if err != nil {
		return err
	}
	progress.TotalBytes = size
	if m.Journal, err = packTree(ctx, s.Bucket, journalObject(m.BackupID), s.Staging, false, report); err != nil {
		return err
	}
	progress.end(size)
	return nil
}

// imagesDir returns the folder of the images of a workspace's sessions, which does not exist if it has none.
func (s Source) imagesDir(workspaceID string) string {
	return filepath.Join(s.Drives, workspaceID, drive.ImagesName)
}

// imagesSize returns about how many bytes the images of a workspace have.
func (s Source) imagesSize(workspaceID string) int64 {
	size, _ := treeSize(s.imagesDir(workspaceID)) // an image may vanish, and there may be none
	return size
}

// saveImages stores the images of a workspace, if it has any.
func (s Source) saveImages(ctx context.Context, m *Manifest, workspaceID string, progress *meter) error {
	dir, size := s.imagesDir(workspaceID), s.imagesSize(workspaceID)
	if sessions, err := os.ReadDir(dir); len(sessions) == 0 {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return err
	}
	object, err := packTree(ctx, s.Bucket, imagesObject(m.BackupID, workspaceID), dir, true, progress.step("images "+workspaceID))
	if err != nil {
		return err
	}
	progress.end(size)
	m.Version = imagesVersion
	m.Images = append(m.Images, Images{workspaceID, object})
	return nil
}

// workspaces returns the workspaces that have a drive, in order.
func (s Source) workspaces() ([]string, error) {
	entries, err := os.ReadDir(s.Drives)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, entry := range entries {
		// A drive that is being provisioned has no files yet.
		if at, err := os.Stat(filepath.Join(s.Drives, entry.Name(), "files")); err == nil && at.IsDir() && validWorkspace.MatchString(entry.Name()) {
			all = append(all, entry.Name())
		}
	}
	slices.Sort(all)
	return all, nil
}

// discardTime limits the deletion of the objects of a failed backup.
const discardTime = time.Minute

// discard deletes the objects of a backup that has failed, even if ctx has ended. Among them are the objects of the drives and images
// of workspaces: the last one may be stored although storing it has failed.
func (s Source) discard(ctx context.Context, id string, workspaces []string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), discardTime)
	defer cancel()
	names := []string{manifestObject(id), journalObject(id)}
	for _, w := range workspaces {
		names = append(names, driveObject(id, w), imagesObject(id, w))
	}
	for _, name := range names {
		if err := s.Bucket.Delete(ctx, name); err != nil {
			return fmt.Errorf("the failed backup %s could not be deleted: %w", id, err)
		}
	}
	return nil
}
