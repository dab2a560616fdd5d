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

// fakeDrives has one drive with the content text. Each line counts as an entry of its archive.
type fakeDrives struct {
	content string
	// seq is the last seq of the activity.
	seq uint64
	// exportErr is the error of Export.
	exportErr error
	// replaced counts the calls of Restore that succeeded.
	replaced int
}

func (d *fakeDrives) Sequence(context.Context, string) (uint64, error) { return d.seq, nil }

// Export implements archive.Drives. A row is recorded meanwhile.
func (d *fakeDrives) Export(_ context.Context, _ string, to io.Writer) (archive.Exported, error) {
	d.seq++
	if _, err := io.WriteString(to, d.content); err != nil {
		return archive.Exported{}, err
	}
	return archive.Exported{Entries: int64(strings.Count(d.content, "\n")), Changed: 1, ChangedPaths: []string{`"a"`}, Vanished: 2,
		Unreadable: 3, UnreadablePaths: []string{`"b"`}}, d.exportErr
}

func (d *fakeDrives) Verify(_ context.Context, from io.Reader) (int64, error) {
	content, err := io.ReadAll(from)
	if err != nil {
		return 0, entity.Errorf(archive.Corrupt, "%v", err)
	}
	return int64(bytes.Count(content, []byte("\n"))), nil
}

func (d *fakeDrives) ArchiveSize(context.Context, string) (int64, error) {
	return int64(len(d.content)), nil
}

func (d *fakeDrives) Restore(_ context.Context, _, _ string, from io.Reader, verify func(int64) error) error {
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

// The content of the drive when the backup is saved, and after the change that follows.
const before, after = "one\ntwo\n", "changed\n"

// failingWriter fails with an error.
type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

// memoryBucket is a bucket in memory.
type memoryBucket struct {
	objects map[string][]byte
	// err is the error of all operations.
	err error
	// writeErr is the error of writing an object.
	writeErr error
	// readable is the number of bytes of an object that can be read before errDisconnected; 0: the whole object.
	readable int64
}

// errDisconnected is the error of reading an object beyond readable bytes.
var errDisconnected = errors.New("the connection was closed")

func (m *memoryBucket) Put(_ context.Context, name string, write func(io.Writer) error) error {
	var object bytes.Buffer
	err := m.err
	if err == nil && m.writeErr != nil {
		err = write(failingWriter{m.writeErr})
	}
	if err == nil && m.writeErr == nil {
		err = write(&object)
	}
	if err == nil {
		m.objects[name] = object.Bytes()
	}
	return err
}

func (m *memoryBucket) Get(_ context.Context, name string) (io.ReadCloser, error) {
	object, exists := m.objects[name]
	switch {
	case m.err != nil:
		return nil, m.err
	case !exists:
		return nil, fs.ErrNotExist
	case m.readable > 0:
		return io.NopCloser(io.MultiReader(io.LimitReader(bytes.NewReader(object), m.readable), iotest.ErrReader(errDisconnected))), nil
	}
	return io.NopCloser(bytes.NewReader(object)), nil
}

func (m *memoryBucket) Delete(_ context.Context, name string) error {
	delete(m.objects, name)
	return m.err
}

func (m *memoryBucket) Close() error { return nil }

// lastReport is the most recent report of progress.
type lastReport struct{ done, total int64 }

func (r *lastReport) set(done, total int64) { r.done, r.total = done, total }

// ignore drops reports of progress.
func ignore(int64, int64) {}

// saveBackup returns an archive with a backup of a drive, after which the drive was changed.
func saveBackup(t *testing.T) (*memoryBucket, *fakeDrives, *archive.Archive, *computerv1.Backup) {
	t.Helper()
	bucket := &memoryBucket{objects: map[string][]byte{}}
	d := &fakeDrives{content: before, seq: 7}
	a := archive.New(bucket, d)
	var progress lastReport
	backup, err := a.Save(t.Context(), "ws_1", "bkp_1", progress.set)
	if err != nil {
		t.Fatal(err)
	}
	if want := int64(len(before)); progress.done != want || progress.total != want {
		t.Errorf("the last report of progress is %v, want all %d bytes", progress, want)
	}
	d.content = after
	return bucket, d, a, backup
}

func TestSaveLoadAndRemove(t *testing.T) {
	bucket, d, a, backup := saveBackup(t)
	stored := bucket.objects[backup.GetObject()]
	sum := sha256.Sum256(stored)
	want := &computerv1.Backup{Id: "bkp_1", Object: "ws_1/bkp_1.tar.zst", SizeBytes: int64(len(stored)), Sha256: sum[:], Entries: 2,
		Seq: proto.Uint64(7), ChangedFiles: 1, ChangedPaths: []string{`"a"`}, VanishedFiles: 2, UnreadableFiles: 3, UnreadablePaths: []string{`"b"`}}
	if !proto.Equal(backup, want) {
		t.Errorf("Save returned %v, want %v", backup, want)
	}
	var progress lastReport
	if err := a.Load(t.Context(), "ws_1", "tsk_1", backup, progress.set); err != nil || d.content != before {
		t.Errorf("Load returned %v and left the content %q, want %q", err, d.content, before)
	}
	if want := backup.GetSizeBytes(); progress.done != want || progress.total != want {
		t.Errorf("the last report of progress is %v, want all %d bytes", progress, want)
	}
	for range 2 {
		if err := a.Remove(t.Context(), "ws_1", backup); err != nil {
			t.Error(err)
		}
	}
	if err := a.Load(t.Context(), "ws_1", "tsk_1", backup, ignore); code(err) != entity.NotFound {
		t.Errorf("Load of a removed backup returned %v, want %s", err, entity.NotFound)
	}
}

// code returns the code of an error, or "" if it has none.
func code(err error) entity.Code {
	if refusal, is := errors.AsType[*entity.Error](err); is {
		return refusal.Code
	}
	return ""
}

// TestLoadCorruptBackup checks that Load returns Corrupt and leaves the drive unchanged if the object differs from the record.
func TestLoadCorruptBackup(t *testing.T) {
	for name, damage := range map[string]func(stored []byte, b *computerv1.Backup) []byte{
		"truncated":             func(s []byte, _ *computerv1.Backup) []byte { return s[:len(s)-3] },
		"empty":                 func([]byte, *computerv1.Backup) []byte { return nil },
		"changed_byte":          func(s []byte, _ *computerv1.Backup) []byte { s[len(s)/2] ^= 1; return s },
		"trailing_bytes":        func(s []byte, _ *computerv1.Backup) []byte { return append(s, 0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0) },
		"other_hash_in_record":  func(s []byte, b *computerv1.Backup) []byte { b.Sha256[0] ^= 1; return s },
		"other_count_in_record": func(s []byte, b *computerv1.Backup) []byte { b.Entries++; return s },
	} {
		bucket, d, a, backup := saveBackup(t)
		bucket.objects[backup.GetObject()] = damage(bucket.objects[backup.GetObject()], backup)
		if failure, err := a.Verify(t.Context(), backup, ignore); err != nil || failure == "" {
			t.Errorf("%s: Verify returned %q and %v, want the reason", name, failure, err)
		}
		if err := a.Load(t.Context(), "ws_1", "tsk_1", backup, ignore); code(err) != archive.Corrupt || d.replaced > 0 || d.content != after {
			t.Errorf("%s: Load returned %v, and the content is %q; want %s and no change", name, err, d.content, archive.Corrupt)
		}
	}
}

// TestVerify verifies backups that are as they were saved, that are missing, and that cannot be read now.
func TestVerify(t *testing.T) {
	bucket, d, a, backup := saveBackup(t)
	var progress lastReport
	if failure, err := a.Verify(t.Context(), backup, progress.set); err != nil || failure != "" || d.content != after || d.replaced > 0 {
		t.Errorf("Verify returned %q, %v", failure, err)
	}
	if want := backup.GetSizeBytes(); progress.done != want || progress.total != want {
		t.Errorf("the last report of progress is %v, want all %d bytes", progress, want)
	}
	bucket.readable = backup.GetSizeBytes() - 2
	if failure, err := a.Verify(t.Context(), backup, ignore); failure != "" || !errors.Is(err, errDisconnected) {
		t.Errorf("after a lost connection Verify returned %q, %v", failure, err)
	}
	delete(bucket.objects, backup.GetObject())
	if failure, err := a.Verify(t.Context(), backup, ignore); err != nil || !strings.Contains(failure, "no object") {
		t.Errorf("without the object Verify returned %q, %v", failure, err)
	}
}

// TestFailedSaveLeavesNoObject checks that a Save that fails stores nothing, and that Save then succeeds with the same id.
func TestFailedSaveLeavesNoObject(t *testing.T) {
	dir := t.TempDir()
	folder, err := bucket.OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	d := &fakeDrives{content: before, exportErr: errors.New("the disk cannot be read")}
	a := archive.New(folder, d)
	var ofDrive *archive.DriveError
	if _, err := a.Save(t.Context(), "ws_1", "bkp_1", ignore); !errors.Is(err, d.exportErr) || !errors.As(err, &ofDrive) {
		t.Errorf("Save returned %v, want %v of the drive", err, d.exportErr)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*", "*")); err != nil || len(left) > 0 {
		t.Errorf("Save left the files %v (%v), want none", left, err)
	}
	d.exportErr = nil
	backup, err := a.Save(t.Context(), "ws_1", "bkp_1", ignore)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(dir, "ws_1", "bkp_1.tar.zst")); err != nil || info.Size() != backup.GetSizeBytes() || info.Mode() != 0o600 {
		t.Errorf("the object is %v (%v), want a file of %d bytes with mode 0600", info, err, backup.GetSizeBytes())
	}
}

// TestLoadAfterLostConnection checks that Load returns an error without a code, so that it is retried, if the connection to the
// bucket is lost.
func TestLoadAfterLostConnection(t *testing.T) {
	bucket, d, a, backup := saveBackup(t)
	bucket.readable = backup.GetSizeBytes() - 2
	err := a.Load(t.Context(), "ws_1", "tsk_1", backup, ignore)
	if !errors.Is(err, errDisconnected) || entity.IsRefusal(err) || d.replaced > 0 {
		t.Errorf("Load returned %v after %d replacements, want %v without a code", err, d.replaced, errDisconnected)
	}
}

// TestUnusableBucket checks that Save and Load return the code Unusable, so that they are not retried: an operator waits for
// them. Remove returns an error without a code and is retried until the bucket can be used.
func TestUnusableBucket(t *testing.T) {
	m, d, a, backup := saveBackup(t)
	m.err = entity.Errorf(bucket.Unusable, "the server does not answer")
	if err := a.Load(t.Context(), "ws_1", "tsk_1", backup, ignore); code(err) != bucket.Unusable || d.replaced > 0 {
		t.Errorf("Load returned %v, want %s", err, bucket.Unusable)
	}
	if _, err := a.Save(t.Context(), "ws_1", "bkp_2", ignore); code(err) != bucket.Unusable {
		t.Errorf("Save returned %v, want %s", err, bucket.Unusable)
	}
	m.err = nil
	m.writeErr = errDisconnected
	var ofDrive *archive.DriveError
	if _, err := a.Save(t.Context(), "ws_1", "bkp_2", ignore); !errors.Is(err, errDisconnected) || errors.As(err, &ofDrive) {
		t.Errorf("Save returned %v, want %v of the bucket", err, errDisconnected)
	}
	m.err = errors.New("the server does not answer")
	if err := a.Remove(t.Context(), "ws_1", backup); err == nil || entity.IsRefusal(err) {
		t.Errorf("Remove returned %v, want an error without a code", err)
	}
}
