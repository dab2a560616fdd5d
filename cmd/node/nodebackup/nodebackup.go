// Package nodebackup backs up whole nodes while they run, and restores them. A backup is a group of objects in a bucket:
//
//	<bucket>/<backup>/journal.tar.zst             a checkpoint of the journal
//	<bucket>/<backup>/drives/<workspace>.tar.zst  a drive, as in package computer/archive
//	<bucket>/<backup>/images/<workspace>.tar.zst  the images of the sessions of a workspace, if it has any
//	<bucket>/<backup>/manifest.json               names all of them, with sizes and hashes; written last
//	<bucket>/latest                               the id of the latest backup
//
// # Consistency
//
// Create takes the checkpoint of the journal first, and exports the drives afterwards. A drive therefore contains all
// operations with rows in the checkpoint, and perhaps later ones; the manifest has the seq that each covers. Restore loads each
// drive by drive.Drive.Restore into the restored journal, which records a row of the kind restore: the sequence says that the
// tree was replaced after the checkpoint's last row, and drive and sequence agree. Operations that were in flight at the time of
// the checkpoint are abandoned, because the drive is still empty when it is recovered.
//
// Images of sessions do not change, and exist before the input that names them. So all images that the checkpoint names are in the
// backup, except for images of sessions that were deleted before their images were copied.
//
// A backup contains neither the secret nor the marks of the data directory: a restored node has a new secret and a new timeline,
// so that older cursors and links in mails are refused. Of keys and passwords the journal has only hashes.
package nodebackup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"strings"

	"github.com/atelier-run/atelier/computer/bucket"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

// Manifest describes a backup.
type Manifest struct {
	// Version is manifestVersion, or imagesVersion if the backup has images, which older programs do not restore.
	Version int `json:"version"`
	// BackupID begins with IDPrefix.
	BackupID string `json:"backupId"`
	// CreatedAt is the time at which the backup began, in milliseconds since the Unix epoch.
	CreatedAt int64 `json:"createdAt"`
	// Program is the version of the program that took the backup.
	Program string  `json:"program"`
	Journal Object  `json:"journal"`
	Drives  []Drive `json:"drives"`
	// Images are the images of sessions.
	Images []Images `json:"images,omitempty"`
	// Failed lists the drives that could not be read. They are not in the backup.
	Failed []FailedDrive `json:"failed,omitempty"`
}

// A FailedDrive is a drive that is not in the backup.
type FailedDrive struct {
	WorkspaceID string `json:"workspaceId"`
	Reason      string `json:"reason"`
}

// An Object is an object of a backup, a compressed tar archive.
type Object struct {
	Name      string `json:"name"`
	SizeBytes int64  `json:"sizeBytes"`
	SHA256    []byte `json:"sha256"`
	Entries   int64  `json:"entries"`
}

// A Drive is the backup of a workspace's drive.
type Drive struct {
	WorkspaceID string `json:"workspaceId"`
	Object
	// Seq is a seq of the workspace's activity: all operations up to it are in the backup.
	Seq uint64 `json:"seq"`
	// ChangedFiles is the number of files that were changed during each attempt to copy them.
	ChangedFiles int64 `json:"changedFiles,omitempty"`
	// UnreadableFiles is the number of files and folders that the node may not read, UnreadablePaths has the first of their paths.
	UnreadableFiles int64    `json:"unreadableFiles,omitempty"`
	UnreadablePaths []string `json:"unreadablePaths,omitempty"`
}

// Images are the backup of the images of the sessions of a workspace.
type Images struct {
	WorkspaceID string `json:"workspaceId"`
	Object
}

// record returns the drive's backup as package computer/archive reads it.
func (d Drive) record(backupID string) *computerv1.Backup {
	return &computerv1.Backup{
		Id: backupID, Object: d.Name, SizeBytes: d.SizeBytes, Sha256: d.SHA256, Entries: d.Entries, Seq: &d.Seq,
	}
}

// Progress is the progress of a backup or a restore of a node. The total of a backup is an estimate.
type Progress struct {
	// Step is the present step.
	Step string `json:"step"`
	// Drives is the number of drives, and DrivesDone is the number of complete drives.
	Drives     int   `json:"drives"`
	DrivesDone int   `json:"drivesDone"`
	DoneBytes  int64 `json:"doneBytes"`
	TotalBytes int64 `json:"totalBytes"`
}

// Archive saves and loads drives in the bucket of the backup. computer/archive implements it.
type Archive interface {
	// SaveAs stores a backup of a workspace's drive as an object, durably. The error is an *archive.DriveError if the drive, and not the
	// bucket, has failed; then there is no object.
	SaveAs(ctx context.Context, workspaceID, backupID, object string, report func(done, total int64)) (*computerv1.Backup, error)
	// Verify reads a backup whole. failure says how it differs from the backup that was saved.
	Verify(ctx context.Context, backup *computerv1.Backup, report func(done, total int64)) (failure string, err error)
}

const (
	manifestVersion = 1
	imagesVersion   = 2
	// IDPrefix is the beginning of the ids of backups of nodes.
	IDPrefix = "nbk_"
	latest   = "latest"
	// maxManifest limits the manifest that is read, in bytes: some millions of drives.
	maxManifest = 1 << 30
	maxID       = 64
)

func journalObject(id string) string { return id + "/journal.tar.zst" }

func driveObject(id, workspaceID string) string { return id + "/drives/" + workspaceID + ".tar.zst" }

func imagesObject(id, workspaceID string) string { return id + "/images/" + workspaceID + ".tar.zst" }

func manifestObject(id string) string { return id + "/manifest.json" }

var (
	validID        = regexp.MustCompile(`^` + IDPrefix + `[0-9a-zA-Z]{1,60}$`)
	validWorkspace = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
)

// put stores a small object.
func put(ctx context.Context, b bucket.Bucket, name string, content []byte) error {
	return b.Put(ctx, name, func(to io.Writer) error {
		_, err := to.Write(content)
		return err
	})
}

// read reads a small object. It returns fs.ErrNotExist if there is none.
func read(ctx context.Context, b bucket.Bucket, name string, limit int64) ([]byte, error) {
	object, err := b.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	defer object.Close()
	content, err := io.ReadAll(io.LimitReader(object, limit+1))
	if err == nil && int64(len(content)) > limit {
		err = fmt.Errorf("the object %s has more than %d bytes", name, limit)
	}
	return content, err
}

// ReadManifest reads the manifest of a backup; of the latest one if id is empty. It fails if there is no such backup, or if the
// manifest is not valid.
func ReadManifest(ctx context.Context, b bucket.Bucket, id string) (*Manifest, error) {
	if id == "" {
		content, err := read(ctx, b, latest, maxID)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, errors.New("the bucket has no complete backup of a node")
		}
		if err != nil {
			return nil, err
		}
		id = strings.TrimSpace(string(content))
	}
	if !validID.MatchString(id) {
		return nil, fmt.Errorf("%q is not the id of a backup of a node", id)
	}
	content, err := read(ctx, b, manifestObject(id), maxManifest)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the bucket has no complete backup %s", id)
	}
	if err != nil {
		return nil, fmt.Errorf("backup %s: %w", id, err)
	}
	m := &Manifest{}
	if err := json.Unmarshal(content, m); err != nil {
		return nil, fmt.Errorf("backup %s: the manifest cannot be read: %w", id, err)
	}
	return m, m.check(id)
}

// check returns an error if the manifest is not one that Create writes.
func (m *Manifest) check(id string) error {
	switch {
	case m.Version < manifestVersion || m.Version > imagesVersion:
		return fmt.Errorf("backup %s: the manifest has version %d, and this program reads %d to %d", id, m.Version, manifestVersion, imagesVersion)
	case m.BackupID != id || m.Journal.Name != journalObject(id):
		return fmt.Errorf("backup %s: the manifest is one of backup %s", id, m.BackupID)
	}
	seen := map[string]bool{}
	for _, d := range m.Drives {
		if !validWorkspace.MatchString(d.WorkspaceID) || seen[d.WorkspaceID] || d.Name != driveObject(id, d.WorkspaceID) {
			return fmt.Errorf("backup %s: the manifest names an invalid drive %q", id, d.WorkspaceID)
		}
		seen[d.WorkspaceID] = true
	}
	clear(seen)
	for _, i := range m.Images {
		if !validWorkspace.MatchString(i.WorkspaceID) || seen[i.WorkspaceID] || i.Name != imagesObject(id, i.WorkspaceID) {
			return fmt.Errorf("backup %s: the manifest names invalid images %q", id, i.WorkspaceID)
		}
		seen[i.WorkspaceID] = true
	}
	return nil
}

// meter adds up the progress of several steps.
type meter struct {
	Progress
	report func(Progress)
	// before is the number of bytes of the steps that are complete.
	before int64
}

// step begins a step, and returns a function that reports its progress.
func (m *meter) step(name string) func(done, total int64) {
	m.Step = name
	m.report(m.Progress)
	return func(done, _ int64) {
		m.DoneBytes = max(m.DoneBytes, min(m.before+done, m.TotalBytes)) // a step may begin again
		m.report(m.Progress)
	}
}

// end ends a step of an expected number of bytes.
func (m *meter) end(bytes int64) {
	m.before += bytes
	m.DoneBytes = min(m.before, m.TotalBytes)
}
