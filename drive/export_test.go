package drive_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/drive/drivetest"
)

// A readingContext calls reading before each read of the export, which asks for the context's error then.
type readingContext struct {
	context.Context
	reading func()
}

func (c readingContext) Err() error {
	c.reading()
	return c.Context.Err()
}

// exportedFile is a drive with one file, which is exported while it is changed.
type exportedFile struct {
	*testing.T
	path    string
	archive []byte
	drive.Exported
}

const (
	smallFile = 100 << 10
	largeFile = 3 << 20
)

// content returns a file's content, which consists of one letter.
func content(letter string, size int) string { return strings.Repeat(letter, size) }

// exportWhile exports a drive with a file. It calls change with the number of the call while the file may be read.
func exportWhile(t *testing.T, initial string, change func(path string, call int) error) exportedFile {
	t.Helper()
	dir := t.TempDir()
	f := exportedFile{T: t, path: filepath.Join(dir, workspace, "files", "data\n")}
	d := openDrive(t, open(t, dir, &drivetest.Activity{}))
	must(t, os.WriteFile(f.path, []byte(initial), 0o600))
	var archive bytes.Buffer
	calls := 0
	ctx := readingContext{t.Context(), func() {
		calls++
		if err := change(f.path, calls); err != nil {
			t.Error(err)
		}
	}}
	var err error
	f.Exported, err = d.Export(ctx, &archive)
	must(t, err)
	f.archive = archive.Bytes()
	return f
}

// entries returns the first letter and the size of each entry of the file, and checks that each but the last may be torn.
func (f exportedFile) entries() (letters string, sizes []int) {
	f.Helper()
	in := tar.NewReader(bytes.NewReader(f.archive))
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return letters, sizes
		}
		must(f.T, err)
		if h.Typeflag != tar.TypeReg {
			if changed := h.PAXRecords["ATELIER.changed.paths"]; h.Name == "./" && changed != strings.Join(f.ChangedPaths, " ") {
				f.Errorf("the archive names %s, the result %v", changed, f.ChangedPaths)
			}
			continue
		}
		text, err := io.ReadAll(in)
		must(f.T, err)
		letters, sizes = letters+string(text[:1]), append(sizes, len(text))
	}
}

// restored returns the content of the file after a restore of the archive, which VerifyArchive accepts.
func (f exportedFile) restored() string {
	f.Helper()
	if entries, err := drive.VerifyArchive(f.Context(), bytes.NewReader(f.archive)); err != nil || entries != f.Entries {
		f.Errorf("verified %d entries of %d, %v", entries, f.Entries, err)
	}
	dir := f.TempDir()
	d := openDrive(f.T, open(f.T, dir, &drivetest.Activity{}))
	must(f.T, d.Restore(f.Context(), "tsk_1", bytes.NewReader(f.archive), accept, change))
	text, err := os.ReadFile(filepath.Join(dir, workspace, "files", "data\n"))
	must(f.T, err)
	return string(text)
}

// changeTo returns a change that replaces the content in place during some calls.
func changeTo(letter string, size int, during func(call int) bool) func(string, int) error {
	return func(path string, call int) error {
		if !during(call) {
			return nil
		}
		return os.WriteFile(path, []byte(content(letter, size)), 0o600)
	}
}

func always(int) bool { return true }

func until(last int) func(int) bool { return func(call int) bool { return call <= last } }

func TestExportOfChangingFiles(t *testing.T) {
	for name, test := range map[string]struct {
		initial string
		change  func(path string, call int) error
		// letters are the first letters of the entries of the file.
		letters  string
		changed  int64
		vanished int64
		want     string
	}{
		"quiet":                 {content("a", smallFile), changeTo("b", smallFile, until(0)), "a", 0, 0, content("a", smallFile)},
		"small, for a while":    {content("a", smallFile), changeTo("b", smallFile, until(5)), "b", 0, 0, content("b", smallFile)},
		"small, always":         {content("a", smallFile), changeTo("b", smallFile, always), "b", 1, 0, content("b", smallFile)},
		"large, for a while":    {content("a", largeFile), changeTo("b", largeFile, func(call int) bool { return call == 4 }), "ab", 0, 0, content("b", largeFile)},
		"large, always":         {content("a", largeFile), changeTo("b", largeFile, always), "bbb", 1, 0, content("b", largeFile)},
		"large, truncated":      {content("a", largeFile), changeTo("b", 7, func(call int) bool { return call == 4 }), "ab", 0, 0, content("b", 7)},
		"small, grows to large": {content("a", smallFile), changeTo("b", largeFile, until(3)), "bb", 0, 0, content("b", largeFile)},
		"large, replaced":       {content("a", largeFile), replaceAt(4), "a", 0, 0, content("a", largeFile)},
		"small, time is put back": {content("a", smallFile), func(path string, call int) error {
			at, err := os.Stat(path)
			if call > 5 || err != nil {
				return err
			}
			must(t, os.WriteFile(path, []byte(content("b", smallFile)), 0o600))
			return os.Chtimes(path, at.ModTime(), at.ModTime())
		}, "b", 0, 0, content("b", smallFile)},
	} {
		t.Run(name, func(t *testing.T) {
			f := exportWhile(t, test.initial, test.change)
			letters, sizes := f.entries()
			if letters != test.letters || f.Changed != test.changed || f.Vanished != test.vanished {
				t.Errorf("entries %s of %v bytes, %d changed, %d vanished", letters, sizes, f.Changed, f.Vanished)
			}
			if want := []string{`"data\n"`}; test.changed > 0 && !slices.Equal(f.ChangedPaths, want) {
				t.Errorf("changed %v, want %v", f.ChangedPaths, want)
			}
			if got := f.restored(); got != test.want {
				t.Errorf("restored %d bytes of %.3q, want %d of %.3q", len(got), got, len(test.want), test.want)
			}
		})
	}
}

// replaceAt returns a change that replaces the file by a new file with the same content, as an upload does.
func replaceAt(during int) func(path string, call int) error {
	return func(path string, call int) error {
		if call != during {
			return nil
		}
		return errors.Join(os.WriteFile(path+".new", []byte(content("a", largeFile)), 0o600), os.Rename(path+".new", path))
	}
}

// TestExportOfVanishedFile removes two files when the first of them is written to the archive.
func TestExportOfVanishedFile(t *testing.T) {
	dir := t.TempDir()
	d := openDrive(t, open(t, dir, &drivetest.Activity{}))
	paths := []string{filepath.Join(dir, workspace, "files", "a"), filepath.Join(dir, workspace, "files", "b")}
	for _, path := range paths {
		must(t, os.WriteFile(path, nil, 0o600))
	}
	exported, err := d.Export(t.Context(), writerFunc(func(p []byte) (int, error) {
		for _, path := range paths {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Error(err)
			}
		}
		return len(p), nil
	}))
	if want := (drive.Exported{Entries: 2, Vanished: 1}); err != nil || exported.Entries != want.Entries || exported.Vanished != want.Vanished || exported.Changed != 0 {
		t.Errorf("%+v, %v; want %+v", exported, err, want)
	}
}

// TestSparseFiles exports and restores a file that consists of holes with a few blocks of data between them.
func TestSparseFiles(t *testing.T) {
	const size = 128 << 20
	from, to := t.TempDir(), t.TempDir()
	source, target := openDrive(t, open(t, from, &drivetest.Activity{})), openDrive(t, open(t, to, &drivetest.Activity{}))
	file, err := os.Create(filepath.Join(from, workspace, "files", "sparse"))
	must(t, err)
	defer file.Close()
	must(t, file.Truncate(size))
	for _, at := range []int64{0, 1<<20 - 3, 50<<20 + 1, size - 5} {
		_, err := file.WriteAt([]byte("data!"), at)
		must(t, err)
	}
	in, out := io.Pipe()
	go func() {
		_, err := source.Export(t.Context(), out)
		out.CloseWithError(err)
	}()
	must(t, target.Restore(t.Context(), "tsk_1", in, accept, change))
	copied, err := os.Open(filepath.Join(to, workspace, "files", "sparse"))
	must(t, err)
	defer copied.Close()
	var st unix.Stat_t
	must(t, unix.Fstat(int(copied.Fd()), &st))
	if st.Size != size || st.Blocks*512 > 1<<20 {
		t.Errorf("the restored file has %d bytes and uses %d", st.Size, st.Blocks*512)
	}
	for _, f := range []*os.File{file, copied} {
		_, err := f.Seek(0, io.SeekStart)
		must(t, err)
	}
	a, b := make([]byte, 1<<20), make([]byte, 1<<20)
	for at := 0; at < size; at += len(a) {
		_, err := io.ReadFull(file, a)
		must(t, err)
		_, err = io.ReadFull(copied, b)
		must(t, err)
		if !bytes.Equal(a, b) {
			t.Fatalf("the files differ after %d bytes", at)
		}
	}
}

// TestVerifyArchiveRefusesInvalidArchives gives it archives that Export does not write.
func TestVerifyArchiveRefusesInvalidArchives(t *testing.T) {
	for name, archive := range map[string][]byte{
		"outside":   newArchive(entry{"../x", "x"}),
		"hard link": newArchive(entry{"x", "y"}, entry{"z", "⇒../x"}),
		"truncated": newArchive(entry{"x", content("a", 5000)})[:3000],
		"no tar":    []byte(content("no tar", 1000)),
	} {
		if _, err := drive.VerifyArchive(t.Context(), bytes.NewReader(archive)); code(err) != drive.Corrupt {
			t.Errorf("%s: %v", name, err)
		}
	}
	if entries, err := drive.VerifyArchive(t.Context(), bytes.NewReader(newArchive(entry{"x", "y"}, entry{"./", ""}))); err != nil || entries != 2 {
		t.Errorf("a valid archive: %d, %v", entries, err)
	}
}
