package drive_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/drive/drivetest"
	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// An entry of an archive is a folder if its name ends with a slash, and a symbolic or hard link to the rest of its content if the content
// begins with an arrow or a double arrow.
type entry struct{ name, content string }

// newArchive returns a tar archive of the entries.
func newArchive(entries ...entry) []byte {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		h := &tar.Header{Format: tar.FormatPAX, Name: e.name, Mode: 0o644, Uid: os.Geteuid(), Gid: os.Getegid(), ModTime: time.Unix(1, 5)}
		switch target, link := strings.CutPrefix(e.content, "→"); {
		case strings.HasSuffix(e.name, "/"):
			h.Typeflag, h.Mode = tar.TypeDir, 0o755
		case link:
			h.Typeflag, h.Linkname = tar.TypeSymlink, target
		case strings.HasPrefix(e.content, "⇒"):
			h.Typeflag, h.Linkname = tar.TypeLink, strings.TrimPrefix(e.content, "⇒")
		default:
			h.Typeflag, h.Size = tar.TypeReg, int64(len(e.content))
		}
		if err := w.WriteHeader(h); err != nil {
			panic(err)
		}
		if h.Size > 0 {
			if _, err := io.WriteString(w, e.content); err != nil {
				panic(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return out.Bytes()
}

func accept(int64) error { return nil }

// TestRestoreOfExport restores the export of a drive with every kind of entry on another drive, and compares the two.
func TestRestoreOfExport(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	source, target := openDrive(t, open(t, from, &drivetest.Activity{})), openDrive(t, open(t, to, &drivetest.Activity{}))
	long := strings.Repeat("d/", 120) + strings.Repeat("n", 200)
	files := filepath.Join(from, workspace, "files")
	must(t, os.MkdirAll(filepath.Join(files, filepath.Dir(long)), 0o755))
	must(t, os.MkdirAll(filepath.Join(files, "empty/inner"), 0o750))
	for name, content := range map[string]string{
		"ü/日本.txt": "utf", "plain": "", long: "long", "large": strings.Repeat("0123456789abcdef", 1<<16), "not\xffutf8\n": "bytes",
	} {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(files, name)), 0o755))
		must(t, os.WriteFile(filepath.Join(files, name), []byte(content), 0o640))
	}
	must(t, os.Chmod(filepath.Join(files, "plain"), 0o755))
	must(t, os.Symlink("plain", filepath.Join(files, "link")))
	must(t, os.Symlink("/etc/passwd", filepath.Join(files, "outside")))
	must(t, unix.Mkfifo(filepath.Join(files, "pipe"), 0o600))
	props := []drive.Property{{Space: "urn:x", Local: "colour", Inner: "<b>blau</b>"}}
	for _, path := range []string{"", "plain", "empty"} {
		err := source.Patch(t.Context(), path, change, func([]drive.Property) ([]drive.Property, error) { return props, nil })
		must(t, err)
	}
	for _, path := range []string{"plain", "empty/inner", "empty", "."} {
		must(t, os.Chtimes(filepath.Join(files, path), time.Time{}, time.Unix(1_600_000_000, 123_456_789)))
	}
	want := describe(t, files)
	delete(want, "pipe")

	var archive bytes.Buffer
	exported, err := source.Export(t.Context(), &archive)
	must(t, err)
	entries := exported.Entries
	if int(entries) != len(want) {
		t.Errorf("the export has %d entries, want %d", entries, len(want))
	}
	must(t, os.WriteFile(filepath.Join(to, workspace, "files", "before"), nil, 0o600))
	seen := int64(0)
	must(t, target.Restore(t.Context(), "tsk_1", &archive, func(n int64) error { seen = n; return nil }, change))
	if seen != entries {
		t.Errorf("verify got %d entries, want %d", seen, entries)
	}
	got := describe(t, filepath.Join(to, workspace, "files"))
	for name := range want {
		if got[name] != want[name] {
			t.Errorf("%q is %q, want %q", name, got[name], want[name])
		}
	}
	if len(got) != len(want) {
		t.Errorf("the restored drive has %d entries, want %d", len(got), len(want))
	}
	for _, path := range []string{"", "plain", "empty"} {
		if kept, err := target.Properties(path); err != nil || len(kept) != 1 || kept[0] != props[0] {
			t.Errorf("properties of %q: %v, %v", path, kept, err)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// describe returns mode, time and content of each entry by its path. For links it leaves the time out.
func describe(t *testing.T, root string) map[string]string {
	t.Helper()
	all := map[string]string{}
	must(t, filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, path)
		text := info.Mode().String()
		switch {
		case info.Mode().IsRegular():
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text += string(content)
		case info.Mode()&os.ModeSymlink != 0:
			target, err := os.Readlink(path)
			all[name] = text + target
			return err
		}
		all[name] = text + info.ModTime().UTC().String()
		return nil
	}))
	return all
}

// TestRestoreRefusesInvalidArchives verifies that a refused archive leaves the drive unchanged and the staging folder empty.
func TestRestoreRefusesInvalidArchives(t *testing.T) {
	whole := newArchive(entry{"a", strings.Repeat("content", 1000)}, entry{"./", ""})
	deep := strings.Repeat(strings.Repeat("d", 200)+"/", 200)
	for name, test := range map[string]struct {
		archive []byte
		code    entity.Code
	}{
		"truncated in a file":              {whole[:4000], drive.Corrupt},
		"no archive":                       {bytes.Repeat([]byte("x"), 2048), drive.Corrupt},
		"above":                            {newArchive(entry{"../evil", "x"}), drive.Corrupt},
		"above, inside":                    {newArchive(entry{"a/../../evil", "x"}), drive.Corrupt},
		"absolute":                         {newArchive(entry{"/evil", "x"}), drive.Corrupt},
		"through a link out":               {newArchive(entry{"l", "→/tmp"}, entry{"l/evil", "x"}), drive.Corrupt},
		"a link up":                        {newArchive(entry{"l", "→../.."}, entry{"l/evil", "x"}), drive.Corrupt},
		"folder on a link":                 {newArchive(entry{"l", "→/tmp"}, entry{"l/", ""}), drive.Corrupt},
		"twice":                            {newArchive(entry{"a", "x"}, entry{"b", "y"}, entry{"a", "z"}), drive.Corrupt},
		"file as folder":                   {newArchive(entry{"a", "x"}, entry{"a/b", "y"}), drive.Corrupt},
		"too deep":                         {newArchive(entry{deep, ""}), drive.Corrupt},
		"a long name":                      {newArchive(entry{strings.Repeat("n", 256), "x"}), drive.Corrupt},
		"hard link to nothing":             {newArchive(entry{"a", "⇒b"}), drive.Corrupt},
		"hard link to a later entry":       {newArchive(entry{"a", "⇒b"}, entry{"b", "x"}), drive.Corrupt},
		"hard link to itself":              {newArchive(entry{"a", "⇒a"}), drive.Corrupt},
		"hard link in place of a file":     {newArchive(entry{"a", "x"}, entry{"b", "y"}, entry{"a", "⇒b"}), drive.Corrupt},
		"file in place of a hard link":     {newArchive(entry{"a", "x"}, entry{"b", "⇒a"}, entry{"b", "y"}), drive.Corrupt},
		"hard link to a folder":            {newArchive(entry{"f/", ""}, entry{"a", "⇒f"}), drive.Corrupt},
		"hard link to the root":            {newArchive(entry{"a", "⇒./"}), drive.Corrupt},
		"hard link above":                  {newArchive(entry{"a", "⇒../../other/file"}), drive.Corrupt},
		"hard link above, inside":          {newArchive(entry{"f/a", "x"}, entry{"b", "⇒f/../f/a"}), drive.Corrupt},
		"hard link to an absolute path":    {newArchive(entry{"a", "⇒/etc/passwd"}), drive.Corrupt},
		"hard link without a target":       {newArchive(entry{"a", "⇒"}), drive.Corrupt},
		"hard link through a link out":     {newArchive(entry{"l", "→/etc"}, entry{"a", "⇒l/passwd"}), drive.Corrupt},
		"hard link through a link inside":  {newArchive(entry{"f/a", "x"}, entry{"l", "→f"}, entry{"b", "⇒l/a"}), drive.Corrupt},
		"hard link through a file":         {newArchive(entry{"f", "x"}, entry{"b", "⇒f/a"}), drive.Corrupt},
		"hard link to a path of the drive": {newArchive(entry{"a", "⇒file"}), drive.Corrupt},
	} {
		dir, activity := t.TempDir(), &drivetest.Activity{}
		d := openDrive(t, open(t, dir, activity))
		prepare(t, dir)
		before := snapshot(t, dir)
		err := d.Restore(t.Context(), "tsk_1", bytes.NewReader(test.archive), accept, change)
		if refusal, is := errors.AsType[*entity.Error](err); !is || refusal.Code != test.code {
			t.Errorf("%s: %v", name, err)
		}
		checkAgreement(t, dir, activity, before, nil)
	}
}

func TestRestoreVerifiesBeforeItReplaces(t *testing.T) {
	dir, activity := t.TempDir(), &drivetest.Activity{}
	d := openDrive(t, open(t, dir, activity))
	prepare(t, dir)
	before := snapshot(t, dir)
	wrong := errors.New("wrong hash")
	archive := append(newArchive(entry{"a", "x"}, entry{"./", ""}), "behind the end"...)
	rest := bytes.NewReader(archive)
	err := d.Restore(t.Context(), "tsk_1", rest, func(n int64) error {
		if n != 2 || rest.Len() > 0 {
			t.Errorf("%d entries, %d bytes unread", n, rest.Len())
		}
		if now := snapshot(t, dir); !maps.Equal(now, before) {
			t.Errorf("the drive changed before the archive was verified: %v", now)
		}
		return wrong
	}, change)
	if !errors.Is(err, wrong) {
		t.Error(err)
	}
	checkAgreement(t, dir, activity, before, nil)
}

// TestRepeatedRestoreKeepsLaterChanges repeats a restore with the same mark, also after a restart.
func TestRepeatedRestoreKeepsLaterChanges(t *testing.T) {
	dir, activity := t.TempDir(), &drivetest.Activity{}
	d := openDrive(t, open(t, dir, activity))
	prepare(t, dir)
	reader, _, err := d.Open("file")
	must(t, err)
	defer reader.Close()
	must(t, operations["restore"](t.Context(), d))
	if _, err := d.Stat("file"); err == nil {
		t.Error("a file from before the restore is still there")
	}
	if old, err := io.ReadAll(reader); err != nil || string(old) != "file" {
		t.Errorf("a file that was open during the restore reads %q, %v", old, err)
	}
	_, _, err = d.Put(t.Context(), "folder/after", drive.Upload{Body: strings.NewReader("new"), Size: 3}, change)
	must(t, err)
	must(t, operations["restore"](t.Context(), d))
	must(t, operations["restore"](t.Context(), openDrive(t, open(t, dir, activity)))) // after a restart
	if got := snapshot(t, dir)["folder/after"]; got != "new" {
		t.Errorf("after repetitions a later file has %q, want \"new\"", got)
	}
	rows := activity.Rows()
	if len(rows) != 2 || rows[0].GetKind() != activityv1.Kind_KIND_RESTORE || rows[0].GetPath() != "" {
		t.Errorf("rows %v", rows)
	}
}

// TestOverlappingRestoresReplaceOnce runs a restore while an earlier attempt at it, which was given up, still runs.
func TestOverlappingRestoresReplaceOnce(t *testing.T) {
	dir, activity := t.TempDir(), &drivetest.Activity{}
	d := openDrive(t, open(t, dir, activity))
	prepare(t, dir)
	unpacked, resume, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		archive := newArchive(entry{"folder/", ""}, entry{"./", ""})
		done <- d.Restore(context.Background(), "tsk_1", bytes.NewReader(archive), func(int64) error {
			close(unpacked)
			<-resume
			return nil
		}, change)
	}()
	<-unpacked
	must(t, operations["restore"](t.Context(), d))
	_, _, err := d.Put(t.Context(), "folder/after", drive.Upload{Body: strings.NewReader("new"), Size: 3}, change)
	must(t, err)
	close(resume)
	must(t, <-done)
	if got := snapshot(t, dir)["folder/after"]; got != "new" {
		t.Errorf("after the earlier attempt has ended a later file has %q, want \"new\"", got)
	}
	if rows := activity.Rows(); len(rows) != 2 {
		t.Errorf("rows %v", rows)
	}
}

// TestRestoreWaitsForHeldPaths verifies that a restore replaces the tree only after all path locks are released.
func TestRestoreWaitsForHeldPaths(t *testing.T) {
	dir, activity := t.TempDir(), &drivetest.Activity{}
	d := openDrive(t, open(t, dir, activity))
	prepare(t, dir)
	release, err := d.Hold(t.Context(), "folder/deep")
	must(t, err)
	verified, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- d.Restore(context.Background(), "tsk_1", bytes.NewReader(newArchive(entry{"./", ""})), func(int64) error {
			close(verified)
			return nil
		}, change)
	}()
	<-verified
	if _, err := d.Stat("folder/deep/leaf"); err != nil {
		t.Errorf("the drive was replaced while a path was locked: %v", err)
	}
	release()
	must(t, <-done)
	if _, err := d.Stat("folder"); err == nil {
		t.Error("the drive was not replaced")
	}
}

// TestExportOfSparseFiles verifies that files that are longer than the disk do not make an export endless.
func TestExportOfSparseFiles(t *testing.T) {
	dir := t.TempDir()
	d := openDrive(t, open(t, dir, &drivetest.Activity{}))
	for name, size := range map[string]int64{"small": 1 << 20, "endless": 1 << 43} {
		path := filepath.Join(dir, workspace, "files", name)
		must(t, os.WriteFile(path, nil, 0o600))
		must(t, os.Truncate(path, size))
	}
	if size, err := d.ArchiveSize(t.Context()); err != nil || size < 1<<20 || size > 2<<20 {
		t.Errorf("ArchiveSize returned %d, %v", size, err)
	}
	var out bytes.Buffer
	if done, err := d.Export(t.Context(), &out); err != nil || done.Entries != 2 || done.Changed != 1 {
		t.Errorf("Export returned %+v, %v", done, err)
	}
	// The record of files that are not as on the drive names it.
	if n := bytes.Count(out.Bytes(), []byte("endless")); n != 1 || out.Len() < 1<<20 {
		t.Errorf("the archive has %d bytes and names the endless file %d times", out.Len(), n)
	}
}

// TestExportOfFileThatBecomesSparse makes a file longer than the disk after the first attempt to copy it has begun.
func TestExportOfFileThatBecomesSparse(t *testing.T) {
	dir := t.TempDir()
	d := openDrive(t, open(t, dir, &drivetest.Activity{}))
	path := filepath.Join(dir, workspace, "files", "data")
	must(t, os.WriteFile(path, []byte(content("a", largeFile)), 0o600))
	written := 0
	done, err := d.Export(t.Context(), writerFunc(func(p []byte) (int, error) {
		if written == 0 {
			must(t, os.Truncate(path, 1<<43))
		}
		if written += len(p); written > 64<<20 {
			return 0, errors.New("the archive is endless")
		}
		return len(p), nil
	}))
	if err != nil || done.Entries != 2 || done.Changed != 1 {
		t.Errorf("Export returned %+v, %v after %d bytes", done, err, written)
	}
}

func TestUsageAndExistence(t *testing.T) {
	dir := t.TempDir()
	drives := open(t, dir, &drivetest.Activity{})
	prepare(t, dir)
	used, total, err := drives.Usage(workspace)
	if err != nil || total == 0 || used > total {
		t.Errorf("%d of %d, %v", used, total, err)
	}
	for path, want := range map[string]bool{"": true, "folder": true, "folder/deep/leaf": true, "other/x": false, "none": false} {
		if there, err := drives.Exists(t.Context(), workspace, path); err != nil || there != want {
			t.Errorf("Exists(%q) is %t, %v", path, there, err)
		}
	}
	must(t, os.RemoveAll(filepath.Join(dir, workspace, "files")))
	if _, err := drives.Exists(t.Context(), workspace, ""); err == nil {
		t.Error("Exists reports the root of a lost drive")
	}
	if _, _, err := drives.Usage(workspace); err == nil {
		t.Error("Usage succeeds for a lost drive")
	}
}
