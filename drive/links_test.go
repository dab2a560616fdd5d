package drive_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/drive/drivetest"
	"github.com/atelier-run/atelier/drive/quota"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// makeLinks creates files and symbolic links with several names, in and out of each other's folders.
func makeLinks(t *testing.T, files string) {
	t.Helper()
	at := func(path string) string { return filepath.Join(files, path) }
	for _, folder := range []string{"a/b/c", ".hidden/x", "z"} {
		must(t, os.MkdirAll(at(folder), 0o755))
	}
	for _, file := range []string{"top", "a/b/c/deep", ".hidden/x/hidden", "z/large", "empty", "not\xffutf8\n"} {
		size := 100
		if file == "z/large" {
			size = largeFile
		}
		must(t, os.WriteFile(at(file), []byte(content(file[:1], size)), 0o640))
	}
	must(t, os.Truncate(at("empty"), 0))
	must(t, os.Symlink("nowhere", at("a/symbolic")))
	for name, target := range map[string]string{
		"top2": "top", "a/top3": "top", "a/b/deep2": "a/b/c/deep", "z/deep3": "a/b/c/deep", "shown": ".hidden/x/hidden",
		"a/b/c/" + strings.Repeat("n", 200): "z/large", "large": "z/large", "z/empty2": "empty", "a/bytes\xff": "not\xffutf8\n",
		"z/symbolic2": "a/symbolic", "symbolic3": "a/symbolic",
	} {
		must(t, os.Link(at(target), at(name)))
	}
}

// TestRestoreOfHardLinks restores files with several names on another drive.
func TestRestoreOfHardLinks(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	source, target := openDrive(t, open(t, from, &drivetest.Activity{})), openDrive(t, open(t, to, &drivetest.Activity{}))
	files := filepath.Join(from, workspace, "files")
	makeLinks(t, files)
	estimate, err := source.ArchiveSize(t.Context())
	must(t, err)
	exported, archive := exportOf(t, source)
	size, most := int64(len(archive)), int64(largeFile+200_000)
	if exported.Changed+exported.Vanished > 0 || size > most || estimate > most || estimate < largeFile {
		t.Errorf("%+v, %d bytes, %d were estimated", exported, size, estimate)
	}
	if entries, err := drive.VerifyArchive(t.Context(), bytes.NewReader(archive)); err != nil || entries != exported.Entries {
		t.Errorf("verified %d entries of %d, %v", entries, exported.Entries, err)
	}
	must(t, target.Restore(t.Context(), "tsk_1", bytes.NewReader(archive), func(n int64) error {
		if n != exported.Entries {
			t.Errorf("%d entries of %d", n, exported.Entries)
		}
		return nil
	}, change))
	compareEntries(t, filepath.Join(to, workspace, "files"), files)
}

// TestExportOfLinksWhileNamesAreGivenAway removes both names of a file after the first one was exported, and creates another file with the
// second name and a third one, which may have the inode number of the removed file.
func TestExportOfLinksWhileNamesAreGivenAway(t *testing.T) {
	dir := t.TempDir()
	d := openDrive(t, open(t, dir, &drivetest.Activity{}))
	at := func(name string) string { return filepath.Join(dir, workspace, "files", name) }
	must(t, os.MkdirAll(at("d/e"), 0o700))
	must(t, os.WriteFile(at("first"), []byte("old"), 0o600))
	must(t, os.Link(at("first"), at("d/e/second")))
	must(t, os.WriteFile(at("d/between"), []byte("x"), 0o600))
	isGiven := false
	var archive bytes.Buffer
	_, err := d.Export(t.Context(), writerFunc(func(p []byte) (int, error) {
		if !isGiven && bytes.Contains(p, []byte("between")) {
			isGiven = true
			must(t, errors.Join(os.Remove(at("first")), os.Remove(at("d/e/second"))))
			must(t, errors.Join(os.WriteFile(at("d/e/second"), []byte("new"), 0o600), os.Link(at("d/e/second"), at("third"))))
		}
		return archive.Write(p)
	}))
	must(t, err)
	in := tar.NewReader(&archive)
	for {
		h, err := in.Next()
		must(t, err)
		if h.Name != "d/e/second" {
			continue
		}
		if text, err := io.ReadAll(in); err != nil || string(text) != "new" || h.Typeflag != tar.TypeReg {
			t.Errorf("the second name has the type %q and the content %q, %v", h.Typeflag, text, err)
		}
		return
	}
}

// openLimited opens drives with a quota.
func openLimited(t *testing.T, dir string, limit quota.Limit, activity *drivetest.Activity) (*drive.Drives, *drive.Drive) {
	t.Helper()
	drives, err := drive.New(drive.Options{Dir: dir, Asker: activity, Log: slog.New(slog.DiscardHandler), Quota: limit})
	must(t, err)
	t.Cleanup(func() { drives.Close() })
	must(t, drives.Provision(t.Context(), workspace))
	return drives, openDrive(t, drives)
}

// TestRestoreOfHardLinksWithinQuota restores a drive that is within its quota because its files have several names.
func TestRestoreOfHardLinksWithinQuota(t *testing.T) {
	dir, activity := t.TempDir(), &drivetest.Activity{}
	drives, d := openLimited(t, dir, quota.Limit{Bytes: 6 << 20, Files: 100}, activity)
	files := filepath.Join(dir, workspace, "files")
	must(t, os.WriteFile(filepath.Join(files, "data"), []byte(content("a", 4<<20)), 0o600))
	for i := range 5 {
		must(t, os.Link(filepath.Join(files, "data"), filepath.Join(files, fmt.Sprint("name", i))))
	}
	must(t, drives.CheckSpace(t.Context(), workspace, nil))
	_, archive := exportOf(t, d)
	must(t, d.Restore(t.Context(), "tsk_1", bytes.NewReader(archive), accept, change))
	if rows := activity.Rows(); len(rows) != 1 || rows[0].GetKind() != activityv1.Kind_KIND_RESTORE {
		t.Errorf("rows %v", rows)
	}
	var st unix.Stat_t
	must(t, unix.Stat(filepath.Join(files, "data"), &st))
	if st.Nlink != 6 || st.Size != 4<<20 {
		t.Errorf("the restored file has %d names and %d bytes", st.Nlink, st.Size)
	}
	awaitSwept(t, dir)
	fresh, d := openLimited(t, dir, quota.Limit{Bytes: 6 << 20, Files: 100}, activity)
	if err := fresh.CheckSpace(t.Context(), workspace, nil); err != nil {
		t.Errorf("after the restore no process may run: %v", err)
	}
	if _, _, err := d.Put(t.Context(), "new", drive.Upload{Body: strings.NewReader("new"), Size: 3}, change); err != nil {
		t.Errorf("after the restore a file cannot be written: %v", err)
	}
}

// TestRestoreBeyondQuota restores archives whose content does not fit in the quota of the drive.
func TestRestoreBeyondQuota(t *testing.T) {
	var small []entry
	for i := range 600 {
		small = append(small, entry{fmt.Sprint(i), "x"})
	}
	small = append(small, entry{"./", ""})
	twice := newArchive(entry{"a", content("a", 3<<20)}, entry{"b", content("a", 3<<20)}, entry{"./", ""})
	for name, test := range map[string]struct {
		archive []byte
		limit   quota.Limit
		fits    bool
	}{
		"bytes":             {twice, quota.Limit{Bytes: 4 << 20}, false},
		"bytes that fit":    {twice, quota.Limit{Bytes: 7 << 20}, true},
		"blocks":            {newArchive(small...), quota.Limit{Bytes: 1 << 20}, false},
		"blocks that fit":   {newArchive(small...), quota.Limit{Bytes: 4 << 20}, true},
		"files":             {newArchive(small...), quota.Limit{Files: 600}, false},
		"files that fit":    {newArchive(small...), quota.Limit{Files: 620}, true},
		"holes":             {newArchive(entry{"a", content("\x00", 8<<20)}, entry{"./", ""}), quota.Limit{Bytes: 1 << 20}, true},
		"images and a file": {newArchive(entry{"a", content("a", 512<<10)}, entry{"./", ""}), quota.Limit{Bytes: 1 << 20}, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir, activity := t.TempDir(), &drivetest.Activity{}
			_, d := openLimited(t, dir, test.limit, activity)
			prepare(t, dir)
			if strings.HasPrefix(name, "images") {
				must(t, os.Mkdir(filepath.Join(dir, workspace, drive.ImagesName), 0o700))
				must(t, os.WriteFile(filepath.Join(dir, workspace, drive.ImagesName, "i"), []byte(content("i", 768<<10)), 0o600))
			}
			before := snapshot(t, dir)
			from := bytes.NewReader(test.archive)
			err := d.Restore(t.Context(), "tsk_1", from, accept, change)
			if name == "bytes" && from.Len() < 1<<20 {
				t.Errorf("the restore has read all but %d bytes of an archive that does not fit", from.Len())
			}
			if test.fits {
				must(t, err)
				return
			}
			if code(err) != drive.Full {
				t.Errorf("the restore returned %v", err)
			}
			checkAgreement(t, dir, activity, before, nil)
		})
	}
}
