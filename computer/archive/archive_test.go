package archive_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"
	"gocloud.dev/blob/memblob"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/computer/archive"
	"github.com/atelier-run/atelier/entity"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

var _ computer.Archive = (*archive.Bucket)(nil)

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

// saved is a bucket with a backup of a drive that was changed after it.
func saved(t *testing.T) (*blob.Bucket, *drives, *archive.Bucket, *computerv1.Backup) {
	t.Helper()
	bucket := memblob.OpenBucket(nil)
	t.Cleanup(func() { bucket.Close() })
	d := &drives{content: before}
	a := archive.New(bucket, d)
	backup, err := a.Save(t.Context(), "ws_1", "bkp_1")
	if err != nil {
		t.Fatal(err)
	}
	d.content = after
	return bucket, d, a, backup
}

func TestRoundTrip(t *testing.T) {
	bucket, d, a, backup := saved(t)
	stored, err := bucket.ReadAll(t.Context(), backup.GetObject())
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(stored)
	want := &computerv1.Backup{Id: "bkp_1", Object: "ws_1/bkp_1.tar.zst", SizeBytes: int64(len(stored)), Sha256: sum[:], Entries: 2}
	if !proto.Equal(backup, want) {
		t.Errorf("%v, want %v", backup, want)
	}
	if err := a.Load(t.Context(), "ws_1", "tsk_1", backup); err != nil || d.content != before {
		t.Errorf("%q, %v", d.content, err)
	}
	for range 2 {
		if err := a.Remove(t.Context(), "ws_1", backup); err != nil {
			t.Error(err)
		}
	}
	if err := a.Load(t.Context(), "ws_1", "tsk_1", backup); code(err) != entity.NotFound {
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
		stored, err := bucket.ReadAll(t.Context(), backup.GetObject())
		if err == nil {
			err = bucket.WriteAll(t.Context(), backup.GetObject(), spoil(stored, backup), nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Load(t.Context(), "ws_1", "tsk_1", backup); code(err) != archive.Corrupt || d.replaced > 0 || d.content != after {
			t.Errorf("%s: %v, %q", name, err, d.content)
		}
	}
}

// A backup that fails leaves no object that could be taken for one.
func TestSaveFails(t *testing.T) {
	dir := t.TempDir()
	bucket, err := fileblob.OpenBucket(dir, &fileblob.Options{NoTempDir: true, Metadata: fileblob.MetadataDontWrite})
	if err != nil {
		t.Fatal(err)
	}
	defer bucket.Close()
	d := &drives{content: before, fail: errors.New("the disk is gone")}
	a := archive.New(bucket, d)
	if _, err := a.Save(t.Context(), "ws_1", "bkp_1"); !errors.Is(err, d.fail) {
		t.Error(err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*", "*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	d.fail = nil
	backup, err := a.Save(t.Context(), "ws_1", "bkp_1")
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(dir, "ws_1", "bkp_1.tar.zst")); err != nil || info.Size() != backup.GetSizeBytes() || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

// What cannot be fetched now may be later: that is no refusal.
func TestUnreachableBucket(t *testing.T) {
	bucket, d, a, backup := saved(t)
	if err := bucket.Close(); err != nil {
		t.Fatal(err)
	}
	if err := a.Load(t.Context(), "ws_1", "tsk_1", backup); err == nil || code(err) != "" || d.replaced > 0 {
		t.Errorf("%v", err)
	}
	if _, err := a.Save(t.Context(), "ws_1", "bkp_2"); err == nil || code(err) != "" {
		t.Errorf("%v", err)
	}
}
