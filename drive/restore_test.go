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

// entry is one of an archive: a folder where the name ends with a slash, a link where the content begins with an arrow.
type entry struct{ name, content string }

func archived(entries ...entry) []byte {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		h := &tar.Header{Format: tar.FormatPAX, Name: e.name, Mode: 0o644, Uid: os.Geteuid(), Gid: os.Getegid(), ModTime: time.Unix(1, 5)}
		switch target, link := strings.CutPrefix(e.content, "→"); {
		case strings.HasSuffix(e.name, "/"):
			h.Typeflag, h.Mode = tar.TypeDir, 0o755
		case link:
			h.Typeflag, h.Linkname = tar.TypeSymlink, target
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

// TestRoundTrip takes a drive with all that drives have through an archive into another one.
func TestRoundTrip(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	source, target := of(t, open(t, from, &drivetest.Activity{})), of(t, open(t, to, &drivetest.Activity{}))
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
		err := source.Patch(t.Context(), path, change, func([]drive.Property) []drive.Property { return props })
		must(t, err)
	}
	for _, path := range []string{"plain", "empty/inner", "empty", "."} {
		must(t, os.Chtimes(filepath.Join(files, path), time.Time{}, time.Unix(1_600_000_000, 123_456_789)))
	}
	want := described(t, files)
	delete(want, "pipe")

	var archive bytes.Buffer
	entries, err := source.Export(t.Context(), &archive)
	must(t, err)
	if int(entries) != len(want) {
		t.Errorf("%d entries of %d", entries, len(want))
	}
	must(t, os.WriteFile(filepath.Join(to, workspace, "files", "before"), nil, 0o600))
	seen := int64(0)
	must(t, target.Restore(t.Context(), "tsk_1", &archive, func(n int64) error { seen = n; return nil }, change))
	if seen != entries {
		t.Errorf("%d entries were verified", seen)
	}
	got := described(t, filepath.Join(to, workspace, "files"))
	for name := range want {
		if got[name] != want[name] {
			t.Errorf("%q is %q, was %q", name, got[name], want[name])
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d entries, %d before", len(got), len(want))
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

// described is each entry's mode, time and content. Links have no time of their own here.
func described(t *testing.T, root string) map[string]string {
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

// Nothing of an archive that is refused is seen, and nothing is left aside.
func TestRefusedArchives(t *testing.T) {
	whole := archived(entry{"a", strings.Repeat("content", 1000)}, entry{"./", ""})
	deep := strings.Repeat(strings.Repeat("d", 200)+"/", 200)
	for name, test := range map[string]struct {
		archive []byte
		code    entity.Code
	}{
		"truncated in a file": {whole[:4000], drive.Corrupt},
		"no archive":          {bytes.Repeat([]byte("x"), 2048), drive.Corrupt},
		"above":               {archived(entry{"../evil", "x"}), drive.Corrupt},
		"above, inside":       {archived(entry{"a/../../evil", "x"}), drive.Corrupt},
		"absolute":            {archived(entry{"/evil", "x"}), drive.Corrupt},
		"through a link out":  {archived(entry{"l", "→/tmp"}, entry{"l/evil", "x"}), drive.Corrupt},
		"a link up":           {archived(entry{"l", "→../.."}, entry{"l/evil", "x"}), drive.Corrupt},
		"folder on a link":    {archived(entry{"l", "→/tmp"}, entry{"l/", ""}), drive.Corrupt},
		"twice":               {archived(entry{"a", "x"}, entry{"a", "y"}), drive.Corrupt},
		"file as folder":      {archived(entry{"a", "x"}, entry{"a/b", "y"}), drive.Corrupt},
		"too deep":            {archived(entry{deep, ""}), drive.Corrupt},
		"a long name":         {archived(entry{strings.Repeat("n", 256), "x"}), drive.Corrupt},
	} {
		dir, activity := t.TempDir(), &drivetest.Activity{}
		d := of(t, open(t, dir, activity))
		prepare(t, dir)
		before := snapshot(t, dir)
		err := d.Restore(t.Context(), "tsk_1", bytes.NewReader(test.archive), accept, change)
		if refusal, is := errors.AsType[*entity.Error](err); !is || refusal.Code != test.code {
			t.Errorf("%s: %v", name, err)
		}
		agree(t, dir, activity, before, nil)
	}
}

func TestNothingBeforeItIsVerified(t *testing.T) {
	dir, activity := t.TempDir(), &drivetest.Activity{}
	d := of(t, open(t, dir, activity))
	prepare(t, dir)
	before := snapshot(t, dir)
	wrong := errors.New("another hash")
	archive := append(archived(entry{"a", "x"}, entry{"./", ""}), "behind the end"...)
	rest := bytes.NewReader(archive)
	err := d.Restore(t.Context(), "tsk_1", rest, func(n int64) error {
		if n != 2 || rest.Len() > 0 {
			t.Errorf("%d entries, %d bytes unread", n, rest.Len())
		}
		if now := snapshot(t, dir); !maps.Equal(now, before) {
			t.Errorf("replaced before it was verified: %v", now)
		}
		return wrong
	}, change)
	if !errors.Is(err, wrong) {
		t.Error(err)
	}
	agree(t, dir, activity, before, nil)
}

// Once restored, a repetition of the same restore leaves what was changed since.
func TestRestoreOnce(t *testing.T) {
	dir, activity := t.TempDir(), &drivetest.Activity{}
	d := of(t, open(t, dir, activity))
	prepare(t, dir)
	reader, _, err := d.Open("file")
	must(t, err)
	defer reader.Close()
	must(t, operations["restore"](t.Context(), d))
	if _, err := d.Stat("file"); err == nil {
		t.Error("a file of before is there")
	}
	if old, err := io.ReadAll(reader); err != nil || string(old) != "file" {
		t.Errorf("an open file reads %q, %v", old, err)
	}
	_, _, err = d.Put(t.Context(), "folder/after", drive.Upload{Body: strings.NewReader("new"), Size: 3}, change)
	must(t, err)
	must(t, operations["restore"](t.Context(), d))
	must(t, operations["restore"](t.Context(), of(t, open(t, dir, activity)))) // after a restart
	if got := snapshot(t, dir)["folder/after"]; got != "new" {
		t.Errorf("the repetition undid %q", got)
	}
	rows := activity.Rows()
	if len(rows) != 2 || rows[0].GetKind() != activityv1.Kind_KIND_RESTORE || rows[0].GetPath() != "" {
		t.Errorf("rows %v", rows)
	}
}

// A restore waits for the operations under way and keeps later ones out.
func TestRestoreHoldsTheWholeDrive(t *testing.T) {
	dir, activity := t.TempDir(), &drivetest.Activity{}
	d := of(t, open(t, dir, activity))
	prepare(t, dir)
	release, err := d.Hold(t.Context(), "folder/deep")
	must(t, err)
	verified, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- d.Restore(context.Background(), "tsk_1", bytes.NewReader(archived(entry{"./", ""})), func(int64) error {
			close(verified)
			return nil
		}, change)
	}()
	<-verified
	if _, err := d.Stat("folder/deep/leaf"); err != nil {
		t.Errorf("replaced under a lock: %v", err)
	}
	release()
	must(t, <-done)
	if _, err := d.Stat("folder"); err == nil {
		t.Error("not replaced")
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
			t.Errorf("%q: %t, %v", path, there, err)
		}
	}
	must(t, os.RemoveAll(filepath.Join(dir, workspace, "files")))
	if _, err := drives.Exists(t.Context(), workspace, ""); err == nil {
		t.Error("a drive that is gone can be read")
	}
	if _, _, err := drives.Usage(workspace); err == nil {
		t.Error("a drive that is gone is in use")
	}
}
