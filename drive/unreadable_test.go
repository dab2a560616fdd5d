package drive_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/drive/drivetest"
	"github.com/atelier-run/atelier/drive/quota"
	"github.com/atelier-run/atelier/tests/unprivileged"
)

// makeRemovable gives the folders below dir, at the end of the test, modes that allow their removal.
func makeRemovable(t *testing.T, dir string) {
	t.Cleanup(func() {
		if output, err := exec.Command("chmod", "-R", "u+rwX", dir).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, output)
		}
	})
}

// unreadable are the entries without permissions of closedDrive, and how many files and folders of each cannot be read.
var unreadable = map[string]int{"closed": 1, "listed/in": 1, "listed/sub": 1, "open/secret": 1, "searched": 1, "written": 1}

// closedDrive returns the folder of a drive with files and folders that its owner may not read.
func closedDrive(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	open(t, dir, &drivetest.Activity{})
	files := filepath.Join(dir, workspace, "files")
	at := func(path string) string { return filepath.Join(files, path) }
	for _, folder := range []string{"closed/sub", "listed/sub", "searched", "open/sub", "z"} {
		must(t, os.MkdirAll(at(folder), 0o755))
	}
	for _, file := range []string{"closed/in", "listed/in", "searched/in", "open/secret", "open/sub/a", "written", "z/last"} {
		must(t, os.WriteFile(at(file), []byte(file), 0o644))
	}
	must(t, os.Symlink("secret", at("open/link")))
	must(t, unix.Mkfifo(at("open/pipe"), 0))
	for path, mode := range map[string]os.FileMode{"closed": 0, "searched": 0o300, "listed": 0o444, "open/secret": 0, "written": 0o200} {
		must(t, os.Chmod(at(path), mode))
	}
	makeRemovable(t, dir)
	return dir
}

// TestExportWithoutPermission exports and restores a drive with files and folders that may not be read.
func TestExportWithoutPermission(t *testing.T) {
	if !unprivileged.Run(t) {
		return
	}
	dir := closedDrive(t)
	d := openDrive(t, open(t, dir, &drivetest.Activity{}))
	if size, err := d.ArchiveSize(t.Context()); err != nil || size == 0 {
		t.Errorf("the size of the archive is %d, %v", size, err)
	}
	var archive bytes.Buffer
	exported, err := d.Export(t.Context(), &archive)
	must(t, err)
	if exported.Unreadable != int64(len(unreadable)) || len(exported.UnreadablePaths) != 5 || exported.Changed+exported.Vanished > 0 {
		t.Errorf("exported %+v", exported)
	}
	for _, path := range exported.UnreadablePaths {
		if unreadable[strings.Trim(path, `"`)] == 0 {
			t.Errorf("%s is not one of those that cannot be read", path)
		}
	}
	modes := map[string]int64{}
	var root *tar.Header
	for in := tar.NewReader(bytes.NewReader(archive.Bytes())); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		modes[h.Name], root = h.Mode, h
	}
	want := []string{"./", "closed/", "listed/", "open/", "open/link", "open/sub/", "open/sub/a", "searched/", "z/", "z/last"}
	var names []string
	for name := range modes {
		names = append(names, name)
	}
	if slices.Sort(names); !slices.Equal(names, want) || modes["closed/"] != 0 || modes["searched/"] != 0o300 || modes["listed/"] != 0o444 {
		t.Errorf("the archive has %v", modes)
	}
	if records := root.PAXRecords; records["ATELIER.unreadable.files"] != "6" || records["ATELIER.unreadable.paths"] != strings.Join(exported.UnreadablePaths, " ") {
		t.Errorf("the archive's root has the records %v", records)
	}
	for path, mode := range map[string]os.FileMode{"closed": 0, "searched": 0o300, "open/secret": 0} {
		if info, err := os.Lstat(filepath.Join(dir, workspace, "files", path)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("after the export %s is %v, %v", path, info, err)
		}
	}

	fresh := t.TempDir()
	makeRemovable(t, fresh)
	restored := openDrive(t, open(t, fresh, &drivetest.Activity{}))
	must(t, restored.Restore(t.Context(), "tsk_1", bytes.NewReader(archive.Bytes()), accept, change))
	files := filepath.Join(fresh, workspace, "files")
	if text, err := os.ReadFile(filepath.Join(files, "z/last")); err != nil || string(text) != "z/last" {
		t.Errorf("restored %q, %v", text, err)
	}
	for path, mode := range map[string]os.FileMode{"closed": 0, "searched": 0o300, "listed": 0o444} {
		if info, err := os.Lstat(filepath.Join(files, path)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("restored %s as %v, %v", path, info, err)
		}
	}
}

// TestChangesWithoutPermission deletes and moves folders that may not be read, and measures and walks a drive that has them.
func TestChangesWithoutPermission(t *testing.T) {
	if !unprivileged.Run(t) {
		return
	}
	dir := closedDrive(t)
	drives, err := drive.New(drive.Options{
		Dir: dir, Asker: &drivetest.Activity{}, Log: slog.New(slog.DiscardHandler), Quota: quota.Limit{Bytes: 1 << 30},
	})
	must(t, err)
	t.Cleanup(func() { drives.Close() })
	d, release, err := drives.Open(t.Context(), workspace)
	must(t, err)
	t.Cleanup(release)
	must(t, drives.CheckSpace(t.Context(), workspace, nil))
	if used, _, err := d.Space(t.Context()); err != nil || used == 0 {
		t.Errorf("%d bytes are used, %v", used, err)
	}
	var visited []string
	must(t, d.Walk(t.Context(), func(path string, _ *unix.Stat_t) error {
		visited = append(visited, path)
		return nil
	}))
	for _, path := range []string{"closed", "searched", "listed", "open/secret", "z/last"} {
		if !slices.Contains(visited, path) {
			t.Errorf("the walk has not visited %s: %q", path, visited)
		}
	}
	files := filepath.Join(dir, workspace, "files")
	must(t, os.Rename(filepath.Join(files, "searched"), filepath.Join(files, "open", "searched")))
	_, err = d.Move(t.Context(), "open", "z/deeper", false, change) // which looks for entries that are too deep
	must(t, err)
	must(t, d.Remove(t.Context(), "z", change))
	must(t, d.Remove(t.Context(), "closed", change))
	must(t, d.Remove(t.Context(), "listed", change))
	left, err := os.ReadDir(files)
	must(t, err)
	if len(left) != 1 || left[0].Name() != "written" {
		t.Errorf("the drive still has %v", left)
	}
}
