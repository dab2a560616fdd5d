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

func folder(t *testing.T) (string, *bucket.Folder) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "new", "backups")
	f, err := bucket.OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	return dir, f
}

func TestFolder(t *testing.T) {
	buckettest.Run(t, func(t *testing.T) bucket.Bucket { _, f := folder(t); return f })
}

// names are the files of a folder with their modes.
func names(t *testing.T, dir string) (all []string) {
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

// An object is a file of its name, which the owner alone reads. What a crash has left of an earlier attempt goes with the next.
func TestFolderLayout(t *testing.T) {
	dir, f := folder(t)
	unfinished := filepath.Join(dir, "ws_1", "bkp_1.tar.zst.18a.tmp")
	if err := errors.Join(os.Mkdir(filepath.Dir(unfinished), 0o700), os.WriteFile(unfinished, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	during := 0
	err := f.Put(t.Context(), "ws_1/bkp_1.tar.zst", func(to io.Writer) error {
		during = len(names(t, dir))
		_, err := io.WriteString(to, "content")
		return err
	})
	if err != nil || during != 2 {
		t.Errorf("%v, %d names while it was written", err, during)
	}
	if got, want := names(t, dir), []string{"drwx------ ws_1", "-rw------- ws_1/bkp_1.tar.zst"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// Where the folder is gone, because its disk is not mounted, nothing is created and nothing is taken for absent.
func TestFolderIsGone(t *testing.T) {
	dir, f := folder(t)
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := f.Put(t.Context(), "a", func(io.Writer) error { return nil }); err == nil {
		t.Error("an object was put")
	}
	if _, err := f.Get(t.Context(), "a"); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("get: %v", err)
	}
	if err := f.Delete(t.Context(), "a"); err == nil {
		t.Error("an object was deleted")
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder: %v", err)
	}
}

// Names do not lead out of the folder, by dots or by a link.
func TestFolderConfinesNames(t *testing.T) {
	dir, f := folder(t)
	if err := os.Symlink(filepath.Dir(dir), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"../a", "link/a", "/a"} {
		if err := f.Put(t.Context(), name, func(io.Writer) error { return nil }); err == nil {
			t.Errorf("%s was put", name)
		}
	}
	if all := names(t, filepath.Dir(dir)); len(all) != 2 {
		t.Errorf("%q", all)
	}
}
