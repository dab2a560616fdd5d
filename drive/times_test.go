package drive_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/drive/drivetest"
)

// compareEntries compares each entry of two folders.
func compareEntries(t *testing.T, got, want string) {
	t.Helper()
	a, err := drivetest.Entries(got, "user.atelier.restore")
	must(t, err)
	b, err := drivetest.Entries(want, "user.atelier.restore")
	must(t, err)
	for name := range b {
		if a[name] != b[name] {
			t.Errorf("%q is %.500s\nwant %.500s", name, a[name], b[name])
		}
	}
	if len(a) != len(b) {
		t.Errorf("%d entries, want %d", len(a), len(b))
	}
}

// exportOf exports the drive in a folder.
func exportOf(t *testing.T, d *drive.Drive) (drive.Exported, []byte) {
	t.Helper()
	var archive bytes.Buffer
	exported, err := d.Export(t.Context(), &archive)
	must(t, err)
	return exported, archive.Bytes()
}

// TestRestoreOfTimes restores files, folders, and links with times before 1970 and after 2262.
func TestRestoreOfTimes(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	source, target := openDrive(t, open(t, from, &drivetest.Activity{})), openDrive(t, open(t, to, &drivetest.Activity{}))
	files := filepath.Join(from, workspace, "files")
	for name, at := range map[string]time.Time{
		"1901": time.Date(1901, 12, 31, 0, 0, 0, 1, time.UTC), "1969": time.Date(1969, 12, 31, 23, 59, 58, 999_999_999, time.UTC),
		"1970": time.Unix(0, 0), "now": time.Date(2026, 1, 2, 3, 4, 5, 678_901_234, time.UTC),
		"2263": time.Date(2263, 1, 1, 0, 0, 0, 123_456_789, time.UTC), "2400": time.Date(2400, 2, 29, 0, 0, 0, 5, time.UTC),
	} {
		must(t, os.MkdirAll(filepath.Join(files, name, "folder"), 0o755))
		must(t, os.WriteFile(filepath.Join(files, name, "folder", "file"), []byte(name), 0o600))
		must(t, os.Symlink("file", filepath.Join(files, name, "folder", "link")))
		for _, path := range []string{"folder/file", "folder/link", "folder", "."} {
			times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Sec: at.Unix(), Nsec: int64(at.Nanosecond())}}
			must(t, unix.UtimesNanoAt(unix.AT_FDCWD, filepath.Join(files, name, path), times, unix.AT_SYMLINK_NOFOLLOW))
		}
	}
	_, archive := exportOf(t, source)
	must(t, target.Restore(t.Context(), "tsk_1", bytes.NewReader(archive), accept, change))
	compareEntries(t, filepath.Join(to, workspace, "files"), files)
}
