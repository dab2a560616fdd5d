package archive_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/computer/archive"
	"github.com/atelier-run/atelier/computer/bucket"
	"github.com/atelier-run/atelier/entity"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

var _ computer.Archive = (*archive.Archive)(nil)

// drives have one drive, of lines: an entry each.
type drives struct {
	content string
	fail    error
	// replaced counts the restores that were not refused.
	replaced int
}

func (d *drives) Export(_ context.Context, _ string, to io.Writer) (int64, error) {
	if _, err := io.WriteString(to, d.content); err != nil {
		return 0, err
	}
	return int64(strings.Count(d.content, "\n")), d.fail
}

func (d *drives) ArchiveSize(context.Context, string) (int64, error) {
	return int64(len(d.content)), nil
}

func (d *drives) Restore(_ context.Context, _, _ string, from io.Reader, verify func(int64) error) error {
	content, err := io.ReadAll(from)
	if err != nil {
		return entity.Errorf(archive.Corrupt, "%v", err)
	}
	if err := verify(int64(bytes.Count(content, []byte("\n")))); err != nil {
		return err
	}
	d.content, d.replaced = string(content), d.replaced+1
	return nil
}

const before, after = "one\ntwo\n", "changed\n"

// memory is a bucket of objects in memory. With fail, nothing can be begun; with cut, objects end with an error after as
// many bytes.
type memory struct {
	objects map[string][]byte
	fail    error
	cut     int64
}

var errCut = errors.New("the connection is gone")

func (m *memory) Put(_ context.Context, name string, write func(io.Writer) error) error {
	var object bytes.Buffer
	err := m.fail
	if err == nil {
		err = write(&object)
	}
	if err == nil {
		m.objects[name] = object.Bytes()
	}
	return err
}

func (m *memory) Get(_ context.Context, name string) (io.ReadCloser, error) {
	object, there := m.objects[name]
	switch {
	case m.fail != nil:
		return nil, m.fail
	case !there:
		return nil, fs.ErrNotExist
	case m.cut > 0:
		return io.NopCloser(io.MultiReader(io.LimitReader(bytes.NewReader(object), m.cut), iotest.ErrReader(errCut))), nil
	}
	return io.NopCloser(bytes.NewReader(object)), nil
}

func (m *memory) Delete(_ context.Context, name string) error {
	delete(m.objects, name)
	return m.fail
}

func (m *memory) Close() error { return nil }

// reports has what was reported of progress.
type reports struct{ last, total int64 }

func (r *reports) add(done, total int64) { r.last, r.total = done, total }

func ignore(int64, int64) {}

// saved is a bucket with a backup of a drive that was changed after it.
func saved(t *testing.T) (*memory, *drives, *archive.Archive, *computerv1.Backup) {
	t.Helper()
	bucket := &memory{objects: map[string][]byte{}}
	d := &drives{content: before}
	a := archive.New(bucket, d)
	var all reports
	backup, err := a.Save(t.Context(), "ws_1", "bkp_1", all.add)
	if err != nil {
		t.Fatal(err)
	}
	if want := int64(len(before)); all.last != want || all.total != want {
		t.Errorf("progress %v", all)
	}
	d.content = after
	return bucket, d, a, backup
}

func TestRoundTrip(t *testing.T) {
	bucket, d, a, backup := saved(t)
	stored := bucket.objects[backup.GetObject()]
	sum := sha256.Sum256(stored)
	want := &computerv1.Backup{Id: "bkp_1", Object: "ws_1/bkp_1.tar.zst", SizeBytes: int64(len(stored)), Sha256: sum[:], Entries: 2}
	if !proto.Equal(backup, want) {
		t.Errorf("%v, want %v", backup, want)
	}
	var all reports
	if err := a.Load(t.Context(), "ws_1", "tsk_1", backup, all.add); err != nil || d.content != before {
		t.Errorf("%q, %v", d.content, err)
	}
	if want := backup.GetSizeBytes(); all.last != want || all.total != want {
		t.Errorf("progress %v", all)
	}
	for range 2 {
		if err := a.Remove(t.Context(), "ws_1", backup); err != nil {
			t.Error(err)
		}
	}
	if err := a.Load(t.Context(), "ws_1", "tsk_1", backup, ignore); code(err) != entity.NotFound {
		t.Errorf("a backup that was removed: %v", err)
	}
}

func code(err error) entity.Code {
	if refusal, is := errors.AsType[*entity.Error](err); is {
		return refusal.Code
	}
	return ""
}

// Whatever a bucket returns that was not saved is refused before anything is replaced.
func TestCorruptBackups(t *testing.T) {
	for name, spoil := range map[string]func(stored []byte, b *computerv1.Backup) []byte{
		"truncated":       func(s []byte, _ *computerv1.Backup) []byte { return s[:len(s)-3] },
		"empty":           func([]byte, *computerv1.Backup) []byte { return nil },
		"a byte changed":  func(s []byte, _ *computerv1.Backup) []byte { s[len(s)/2] ^= 1; return s },
		"bytes behind it": func(s []byte, _ *computerv1.Backup) []byte { return append(s, 0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0) },
		"another hash":    func(s []byte, b *computerv1.Backup) []byte { b.Sha256[0] ^= 1; return s },
		"another count":   func(s []byte, b *computerv1.Backup) []byte { b.Entries++; return s },
	} {
		bucket, d, a, backup := saved(t)
		bucket.objects[backup.GetObject()] = spoil(bucket.objects[backup.GetObject()], backup)
		if err := a.Load(t.Context(), "ws_1", "tsk_1", backup, ignore); code(err) != archive.Corrupt || d.replaced > 0 || d.content != after {
			t.Errorf("%s: %v, %q", name, err, d.content)
		}
	}
}

// A backup that fails leaves no object that could be taken for one.
func TestSaveFails(t *testing.T) {
	dir := t.TempDir()
	folder, err := bucket.OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	d := &drives{content: before, fail: errors.New("the disk is gone")}
	a := archive.New(folder, d)
	if _, err := a.Save(t.Context(), "ws_1", "bkp_1", ignore); !errors.Is(err, d.fail) {
		t.Error(err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*", "*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	d.fail = nil
	backup, err := a.Save(t.Context(), "ws_1", "bkp_1", ignore)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(dir, "ws_1", "bkp_1.tar.zst")); err != nil || info.Size() != backup.GetSizeBytes() || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

// What cannot be fetched now may be later: that is no refusal.
func TestLostConnection(t *testing.T) {
	bucket, d, a, backup := saved(t)
	bucket.cut = backup.GetSizeBytes() - 2
	err := a.Load(t.Context(), "ws_1", "tsk_1", backup, ignore)
	if !errors.Is(err, errCut) || entity.IsRefusal(err) || d.replaced > 0 {
		t.Errorf("%v", err)
	}
}

// A bucket that cannot be used is not tried again for a backup or a restore, which an operator waits for. Backups that are
// no longer kept are deleted when it can be used.
func TestUnusableBucket(t *testing.T) {
	m, d, a, backup := saved(t)
	m.fail = entity.Errorf(bucket.Unusable, "nothing answers")
	if err := a.Load(t.Context(), "ws_1", "tsk_1", backup, ignore); code(err) != bucket.Unusable || d.replaced > 0 {
		t.Errorf("%v", err)
	}
	if _, err := a.Save(t.Context(), "ws_1", "bkp_2", ignore); code(err) != bucket.Unusable {
		t.Errorf("%v", err)
	}
	m.fail = errors.New("nothing answers")
	if err := a.Remove(t.Context(), "ws_1", backup); err == nil || entity.IsRefusal(err) {
		t.Errorf("%v", err)
	}
}
