package nodebackup

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/atelier-run/atelier/computer/archive"
	"github.com/atelier-run/atelier/computer/bucket"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

// fakeArchive stores the name of the workspace as its drive. Of the workspace "broken" it stores nothing.
type fakeArchive struct{ bucket.Bucket }

var errBroken = errors.New("the drive cannot be read")

func (a fakeArchive) SaveAs(ctx context.Context, workspaceID, backupID, object string, report func(done, total int64)) (*computerv1.Backup, error) {
	if workspaceID == "broken" {
		return nil, errBroken
	}
	report(int64(len(workspaceID)), int64(len(workspaceID)))
	seq := uint64(7)
	return &computerv1.Backup{Id: backupID, Object: object, Entries: 1, SizeBytes: int64(len(workspaceID)), Seq: &seq},
		put(ctx, a.Bucket, object, []byte(workspaceID))
}

func (a fakeArchive) Verify(ctx context.Context, b *computerv1.Backup, _ func(done, total int64)) (string, error) {
	_, err := read(ctx, a.Bucket, b.GetObject(), 100)
	return "", err
}

// unreadableArchive cannot read the drive of the workspace ws_2.
type unreadableArchive struct{ fakeArchive }

func (a unreadableArchive) SaveAs(
	ctx context.Context, workspaceID, backupID, object string, report func(done, total int64),
) (*computerv1.Backup, error) {
	if workspaceID == "ws_2" {
		report(1, 2)
		return nil, &archive.DriveError{Err: errBroken}
	}
	b, err := a.fakeArchive.SaveAs(ctx, workspaceID, backupID, object, report)
	b.UnreadableFiles, b.UnreadablePaths = 2, []string{`"a"`}
	return b, err
}

// TestUnreadableDrive: a drive that cannot be read does not end the backup of the others, and the manifest names the missing drive.
func TestUnreadableDrive(t *testing.T) {
	b, err := bucket.OpenFolder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, w := range []string{"ws_1", "ws_2", "ws_3"} {
		if err := os.MkdirAll(filepath.Join(dir, w, "files"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	_, err = Create(t.Context(), Source{
		Bucket: b, Archive: unreadableArchive{fakeArchive{b}}, Staging: filepath.Join(t.TempDir(), "checkpoint"), Drives: dir,
		Checkpoint: func(dir string) error { return os.Mkdir(dir, 0o700) },
		DriveSize: func(_ context.Context, w string) (int64, error) {
			if w == "ws_2" {
				return 0, errBroken
			}
			return 1, nil
		},
	}, "nbk_1", time.UnixMilli(5), func(Progress) {})
	if err != nil {
		t.Fatal(err)
	}
	m, err := ReadManifest(t.Context(), b, "")
	if err != nil || len(m.Drives) != 2 || m.Drives[1].WorkspaceID != "ws_3" || m.Drives[1].UnreadableFiles != 2 || len(m.Drives[1].UnreadablePaths) != 1 {
		t.Fatalf("%+v, %v", m, err)
	}
	if want := (FailedDrive{WorkspaceID: "ws_2", Reason: errBroken.Error()}); len(m.Failed) != 1 || m.Failed[0] != want {
		t.Errorf("failed: %+v", m.Failed)
	}
}

// create backs up a node with workspaces. It returns the folder of the bucket.
func create(t *testing.T, workspaces ...string) (folder string, b bucket.Bucket, m *Manifest, err error) {
	t.Helper()
	folder, dir := t.TempDir(), t.TempDir()
	if b, err = bucket.OpenFolder(folder); err != nil {
		t.Fatal(err)
	}
	for _, w := range append(workspaces, "no drive yet/..") {
		if err := os.MkdirAll(filepath.Join(dir, w, "files"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, w := range workspaces {
		images := filepath.Join(dir, w, "images/ses_1")
		if err := errors.Join(os.MkdirAll(images, 0o700), os.WriteFile(filepath.Join(images, "x"), []byte("image"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	source := Source{
		Bucket: b, Archive: fakeArchive{b}, Staging: filepath.Join(t.TempDir(), "checkpoint"), Drives: dir, Program: "test",
		Checkpoint: func(dir string) error {
			return errors.Join(os.MkdirAll(filepath.Join(dir, "store"), 0o700), os.WriteFile(filepath.Join(dir, "store", "x"), []byte("journal"), 0o600))
		},
		DriveSize: func(_ context.Context, w string) (int64, error) { return int64(len(w)), nil },
	}
	last := Progress{}
	m, err = Create(t.Context(), source, "nbk_1", time.UnixMilli(5), func(p Progress) {
		if p.DoneBytes < last.DoneBytes || p.DoneBytes > p.TotalBytes {
			t.Errorf("the progress %+v follows %+v", p, last)
		}
		last = p
	})
	if err == nil && (last.DrivesDone != len(workspaces) || last.DoneBytes != last.TotalBytes) {
		t.Errorf("the last progress is %+v", last)
	}
	return folder, b, m, err
}

func TestCreate(t *testing.T) {
	_, b, m, err := create(t, "ws_1", "ws_2")
	if err != nil || len(m.Drives) != 2 || m.Drives[1].WorkspaceID != "ws_2" || m.Drives[1].Seq != 7 || m.CreatedAt != 5 {
		t.Fatalf("%+v, %v", m, err)
	}
	for _, id := range []string{"", "nbk_1"} {
		got, err := ReadManifest(t.Context(), b, id)
		if err != nil || got.BackupID != "nbk_1" || len(got.Drives) != 2 || got.SizeBytes() != m.SizeBytes() {
			t.Errorf("%q: %+v, %v", id, got, err)
		}
	}
	dir := filepath.Join(t.TempDir(), "journal")
	if err := unpackTree(t.Context(), b, m.Journal, dir, func(int64, int64) {}); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "store", "x")); err != nil || string(text) != "journal" {
		t.Errorf("the journal is %q, %v", text, err)
	}
}

// TestFailedCreateLeavesNothing fails at the second drive.
func TestFailedCreateLeavesNothing(t *testing.T) {
	folder, b, _, err := create(t, "a", "broken")
	if !errors.Is(err, errBroken) || !strings.Contains(err.Error(), "the drive of broken") {
		t.Errorf("the error is %v", err)
	}
	for _, pattern := range []string{"*.*", "drives/*", "images/*"} {
		if left, err := filepath.Glob(filepath.Join(folder, "nbk_1", pattern)); err != nil || len(left) > 0 {
			t.Errorf("left %v, %v", left, err)
		}
	}
	if _, err := ReadManifest(t.Context(), b, ""); err == nil || !strings.Contains(err.Error(), "no complete backup") {
		t.Errorf("the manifest: %v", err)
	}
}

// TestInvalidManifests changes a manifest so that it names other objects than the objects of the backup.
func TestInvalidManifests(t *testing.T) {
	for name, change := range map[string]func(m *Manifest){
		"another version":       func(m *Manifest) { m.Version++ },
		"another backup":        func(m *Manifest) { m.BackupID = "nbk_2" },
		"another journal":       func(m *Manifest) { m.Journal.Name = "nbk_2/journal.tar.zst" },
		"a drive twice":         func(m *Manifest) { m.Drives = append(m.Drives, m.Drives[0]) },
		"a workspace elsewhere": func(m *Manifest) { m.Drives[0].WorkspaceID = "../ws_1" },
		"images twice":          func(m *Manifest) { m.Images = append(m.Images, m.Images[0]) },
		"images elsewhere":      func(m *Manifest) { m.Images[0].Name = "nbk_1/images/ws_2.tar.zst" },
		"a drive elsewhere":     func(m *Manifest) { m.Drives[0].Name = "nbk_1/drives/ws_2.tar.zst" },
	} {
		_, b, m, err := create(t, "ws_1")
		if err != nil {
			t.Fatal(err)
		}
		change(m)
		text, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if err := put(t.Context(), b, manifestObject("nbk_1"), text); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadManifest(t.Context(), b, "nbk_1"); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	_, b, _, _ := create(t, "ws_1")
	for _, id := range []string{"../x", "nbk_", "nbk_1/..", "nbk_2"} {
		if _, err := ReadManifest(t.Context(), b, id); err == nil {
			t.Errorf("%q is accepted", id)
		}
	}
}

// TestDamagedJournal changes, shortens and lengthens the archive of the journal.
func TestDamagedJournal(t *testing.T) {
	for name, damage := range map[string]func([]byte) []byte{
		"a changed byte": func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		"truncated":      func(b []byte) []byte { return b[:len(b)-1] },
		"longer":         func(b []byte) []byte { return append(b, 0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0) },
	} {
		_, b, m, err := create(t, "ws_1")
		if err != nil {
			t.Fatal(err)
		}
		content, err := read(t.Context(), b, m.Journal.Name, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if err := put(t.Context(), b, m.Journal.Name, damage(content)); err != nil {
			t.Fatal(err)
		}
		if err := unpackTree(t.Context(), b, m.Journal, "", func(int64, int64) {}); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}
