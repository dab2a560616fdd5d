package bucket_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/atelier-run/atelier/computer/bucket"
	"github.com/atelier-run/atelier/computer/bucket/buckettest"
)

// newFolder returns a new folder and its bucket.
func newFolder(t *testing.T) (string, *bucket.Folder) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "new", "backups")
	f, err := bucket.OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	return dir, f
}

func TestFolder(t *testing.T) {
	buckettest.Run(t, func(t *testing.T) bucket.Bucket { _, f := newFolder(t); return f })
}

// listFiles returns the mode and the relative path of each file and folder below dir.
func listFiles(t *testing.T, dir string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := e.Info()
		below, _ := filepath.Rel(dir, path)
		all = append(all, info.Mode().String()+" "+below)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestFolderLayout checks the names and the modes of files, and that Put removes the temporary file that a crash during an
// earlier Put of the same object has left.
func TestFolderLayout(t *testing.T) {
	dir, f := newFolder(t)
	unfinished := filepath.Join(dir, "ws_1", "bkp_1.tar.zst.18a.tmp")
	if err := errors.Join(os.Mkdir(filepath.Dir(unfinished), 0o700), os.WriteFile(unfinished, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	during := 0
	err := f.Put(t.Context(), "ws_1/bkp_1.tar.zst", func(to io.Writer) error {
		during = len(listFiles(t, dir))
		_, err := io.WriteString(to, "content")
		return err
	})
	if err != nil || during != 2 {
		t.Errorf("Put returned %v; %d files and folders while the object was written, want 2", err, during)
	}
	if got, want := listFiles(t, dir), []string{"drwx------ ws_1", "-rw------- ws_1/bkp_1.tar.zst"}; !slices.Equal(got, want) {
		t.Errorf("the bucket has %q, want %q", got, want)
	}
}

// TestMissingFolder removes the folder, as if its disk were not mounted: operations fail, they do not create the folder, and they
// do not report that an object does not exist.
func TestMissingFolder(t *testing.T) {
	dir, f := newFolder(t)
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := f.Put(t.Context(), "a", func(io.Writer) error { return nil }); err == nil {
		t.Error("Put succeeded without the folder")
	}
	if _, err := f.Get(t.Context(), "a"); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Get returned %v, want an error other than fs.ErrNotExist", err)
	}
	if err := f.Delete(t.Context(), "a"); err == nil {
		t.Error("Delete succeeded without the folder")
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder was created again (%v)", err)
	}
}

// TestFolderConfinesNames checks that a name cannot leave the folder with "..", an absolute path or a symbolic link.
func TestFolderConfinesNames(t *testing.T) {
	dir, f := newFolder(t)
	if err := os.Symlink(filepath.Dir(dir), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"../a", "link/a", "/a"} {
		if err := f.Put(t.Context(), name, func(io.Writer) error { return nil }); err == nil {
			t.Errorf("Put(%q) succeeded, want an error", name)
		}
	}
	if all := listFiles(t, filepath.Dir(dir)); len(all) != 2 {
		t.Errorf("the parent folder has %q, want only the bucket and the link", all)
	}
}

func TestRemoveTemporaryFiles(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"ws_1/bkp_1.tar.zst", "ws_1/bkp_2.tar.zst.18a.tmp", "part-18a.tmp", "[ws_2]/bkp_1.tar.zst.x.tmp", "notes.tmp"} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := bucket.RemoveTemporaryFiles(dir); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	if err != nil || len(left) != 1 || filepath.Base(left[0]) != "bkp_1.tar.zst" {
		t.Errorf("below the folders: %v, %v", left, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "part-18a.tmp")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the part of an upload: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "notes.tmp")); err != nil {
		t.Errorf("another file: %v", err)
	}
}
