package drive_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/drive/drivetest"
	"github.com/atelier-run/atelier/entity"
)

// nested returns a path of n folders.
func nested(n int) string { return strings.TrimSuffix(strings.Repeat("d/", n), "/") }

// makeDeepTree creates n nested folders with a file in the deepest one. Its path is too long for one system call.
func makeDeepTree(t *testing.T, files, top string, n int) {
	t.Helper()
	root, err := os.OpenRoot(files)
	must(t, err)
	defer root.Close()
	must(t, root.MkdirAll(top+"/"+nested(n-1), 0o755))
	must(t, root.WriteFile(top+"/"+nested(n-1)+"/leaf", []byte("leaf"), 0o644))
}

func TestPathsDeeperThanMaxDepthAreRefused(t *testing.T) {
	dir, activity := t.TempDir(), &drivetest.Activity{}
	d := openDrive(t, open(t, dir, activity))
	files := filepath.Join(dir, workspace, "files")
	bottom, above := nested(drive.MaxDepth), nested(drive.MaxDepth-1)
	must(t, os.MkdirAll(filepath.Join(files, bottom), 0o755))
	must(t, os.MkdirAll(filepath.Join(files, "two/folders"), 0o755))
	must(t, os.WriteFile(filepath.Join(files, "file"), nil, 0o644))
	put := func(path string) error {
		_, _, err := d.Put(t.Context(), path, drive.Upload{Body: strings.NewReader("x"), Size: 1}, change)
		return err
	}
	move := func(from, to string) error {
		_, err := d.Move(t.Context(), from, to, true, change)
		return err
	}
	duplicate := func(from, to string) error {
		_, err := d.Copy(t.Context(), from, to, true, false, change)
		return err
	}
	before := snapshot(t, dir)
	for name, err := range map[string]error{
		"upload": put(bottom + "/a"), "folder": d.MakeFolder(t.Context(), bottom+"/a", change),
		"move of a file": move("file", bottom+"/a"), "copy of a file": duplicate("file", bottom+"/a"),
		"move of a folder": move("two", above+"/a"), "copy of a folder": duplicate("two", above+"/a"),
	} {
		if code(err) != entity.LimitReached {
			t.Errorf("%s: %v", name, err)
		}
	}
	checkAgreement(t, dir, &drivetest.Activity{}, before, nil)
	must(t, put(above+"/a"))
	must(t, move(above+"/a", "up"))
	must(t, move("two/folders", above+"/a"))
	must(t, duplicate("file", above+"/b"))
	must(t, move("d", "e")) // not deeper than before
}

// TestDeepTreesOfProcesses exports, restores, copies, moves and removes a tree that is deeper than MaxDepth, which
// processes can create.
func TestDeepTreesOfProcesses(t *testing.T) {
	const depth = 1200
	dir, all := t.TempDir(), &activities{}
	drives := openMin(t, dir, all, 2)
	d, release, err := drives.Open(t.Context(), numbered(0))
	must(t, err)
	defer release()
	files := filepath.Join(dir, numbered(0), "files")
	makeDeepTree(t, files, "deep", depth)
	must(t, os.Mkdir(filepath.Join(files, "small"), 0o755))

	var archive bytes.Buffer
	before, most := descriptors(t), 0
	exported, err := d.Export(t.Context(), writerFunc(func(p []byte) (int, error) {
		most = max(most, descriptors(t))
		return archive.Write(p)
	}))
	must(t, err)
	if most > before+4 {
		t.Errorf("an export holds %d descriptors, want at most 4", most-before)
	}
	if entries := exported.Entries; entries != depth+3 { // the leaf, the folder small and the root
		t.Errorf("%d entries in the archive", exported.Entries)
	}
	other, releaseOther, err := drives.Open(t.Context(), numbered(1))
	must(t, err)
	defer releaseOther()
	must(t, other.Restore(t.Context(), "tsk_1", bytes.NewReader(archive.Bytes()), accept, change))
	if entry, err := other.Stat("deep/" + nested(depth-1) + "/leaf"); err != nil || entry.Size != 4 {
		t.Errorf("the leaf after a restore: %v, %v", entry, err)
	}

	if _, err := d.Copy(t.Context(), "deep", "copy", false, false, change); code(err) != entity.LimitReached {
		t.Errorf("a copy: got %v, want limit_reached", err)
	}
	if _, err := d.Move(t.Context(), "deep", "small/deep", false, change); code(err) != entity.LimitReached {
		t.Errorf("a move that makes it deeper: got %v, want limit_reached", err)
	}
	_, err = d.Move(t.Context(), "small", "deep", true, change)
	must(t, err)
	must(t, other.Remove(t.Context(), "deep", change))
	rows := all.of(numbered(1)).Rows()
	if last := rows[len(rows)-1]; last.GetCount() != depth+1 {
		t.Errorf("the row of the removal counts %d entries, want %d", last.GetCount(), depth+1)
	}
	for i := range 2 {
		eventually(t, func() bool {
			left, err := os.ReadDir(filepath.Join(dir, numbered(i), "tmp"))
			return err == nil && len(left) == 0
		})
	}
}

// TestRemoveFoldersWithoutPermissions removes folders that not even their owner may write to.
func TestRemoveFoldersWithoutPermissions(t *testing.T) {
	dir, activity := t.TempDir(), &drivetest.Activity{}
	d := openDrive(t, open(t, dir, activity))
	files := filepath.Join(dir, workspace, "files")
	must(t, os.MkdirAll(filepath.Join(files, "a/b/c"), 0o755))
	must(t, os.WriteFile(filepath.Join(files, "a/b/c/f"), nil, 0o400))
	for _, path := range []string{"a/b/c", "a/b", "a"} {
		must(t, os.Chmod(filepath.Join(files, path), 0o500))
	}
	must(t, d.Remove(t.Context(), "a", change))
	checkAgreement(t, dir, activity, nil, map[string]string{})
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func code(err error) entity.Code {
	refusal, is := errors.AsType[*entity.Error](err)
	if !is {
		return ""
	}
	return refusal.Code
}
