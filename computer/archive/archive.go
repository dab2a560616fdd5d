// Package archive stores backups of drives in a bucket. Each backup is one object, a tar archive compressed with Zstandard:
//
//	<bucket>/<workspace>/<backup>.tar.zst
//
// The journal, not the bucket, has the record of a backup with its size, SHA-256 and number of entries. Load verifies all three
// before it changes a drive, so that a bucket that returns other content is detected. Backups are streamed: memory use does not
// depend on the size of a drive. The package comment of computer describes the whole path of a backup.
package archive

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"

	"github.com/klauspost/compress/zstd"

	"github.com/atelier-run/atelier/computer/bucket"
	"github.com/atelier-run/atelier/entity"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

// Exported describes a tar archive of a drive.
type Exported struct {
	// Entries is the number of entries.
	Entries int64
	// Changed is the number of files that were changed during each attempt to copy them, ChangedPaths has the first of their
	// paths, quoted.
	Changed      int64
	ChangedPaths []string
	// Vanished is the number of entries that were removed before they were copied.
	Vanished int64
	// Unreadable is the number of files and folders that the node may not read, UnreadablePaths has the first of their paths, quoted.
	Unreadable      int64
	UnreadablePaths []string
}

// Drives exports and restores the drives of workspaces.
type Drives interface {
	// Sequence returns the seq of the last row of a workspace's activity. All operations up to it are in the archives that Export writes
	// afterwards.
	Sequence(ctx context.Context, workspaceID string) (uint64, error)
	// Export writes a workspace's drive as a tar archive.
	Export(ctx context.Context, workspaceID string, to io.Writer) (Exported, error)
	// ArchiveSize returns an estimate of the number of bytes that Export writes.
	ArchiveSize(ctx context.Context, workspaceID string) (int64, error)
	// Restore replaces the content of a drive by the content of a tar archive. A second call with the same mark changes
	// nothing. Restore calls verify with the number of entries after it has read the whole archive and before it replaces
	// anything. If verify fails, Restore returns its error and the drive is unchanged.
	Restore(ctx context.Context, workspaceID, mark string, from io.Reader, verify func(entries int64) error) error
	// Verify reads a tar archive to its end and returns the number of entries. It fails with Corrupt for an archive that
	// Export cannot have written.
	Verify(ctx context.Context, from io.Reader) (entries int64, err error)
}

// Corrupt is the error code of Load for an object that differs from the backup that was saved.
const Corrupt entity.Code = "corrupt_archive"

// maxWindow limits the memory that the decompressor allocates for an object, in bytes.
const maxWindow = 32 << 20

// Archive implements computer.Archive.
type Archive struct {
	bucket bucket.Bucket
	drives Drives
}

// New returns an archive that stores its backups in b. The caller must close b after the last call.
func New(b bucket.Bucket, drives Drives) *Archive { return &Archive{b, drives} }

// objectName returns the name of a backup's object in the bucket.
func objectName(workspaceID, backupID string) string {
	return workspaceID + "/" + backupID + ".tar.zst"
}

// Sequence implements computer.Archive.
func (a *Archive) Sequence(ctx context.Context, workspaceID string) (uint64, error) {
	return a.drives.Sequence(ctx, workspaceID)
}

// Save implements computer.Archive. It reports progress in bytes of the uncompressed archive.
func (a *Archive) Save(ctx context.Context, workspaceID, backupID string, report func(done, total int64)) (*computerv1.Backup, error) {
	return a.SaveAs(ctx, workspaceID, backupID, objectName(workspaceID, backupID), report)
}

// A DriveError is an error of reading a drive, unlike an error of the bucket.
type DriveError struct{ Err error }

// Error implements error.
func (e *DriveError) Error() string { return e.Err.Error() }

// Unwrap returns the error of the drive.
func (e *DriveError) Unwrap() error { return e.Err }

// SaveAs is Save with another name of the object. The error is a *DriveError if the drive, and not the bucket, has failed.
func (a *Archive) SaveAs(ctx context.Context, workspaceID, backupID, object string, report func(done, total int64)) (*computerv1.Backup, error) {
	backup := &computerv1.Backup{Id: backupID, Object: object}
	err := a.bucket.Put(ctx, backup.Object, func(to io.Writer) (err error) {
		summing := newSummingWriter(to)
		err = a.write(ctx, workspaceID, summing, backup, report)
		if err != nil && summing.err == nil {
			err = &DriveError{err}
		}
		backup.SizeBytes, backup.Sha256 = summing.size, summing.hash.Sum(nil)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("backup %s: %w", backupID, err)
	}
	return backup, nil
}

// write writes the compressed archive of a drive and describes it in backup.
func (a *Archive) write(ctx context.Context, workspaceID string, to io.Writer, backup *computerv1.Backup, report func(done, total int64)) error {
	total, err := a.drives.ArchiveSize(ctx, workspaceID)
	if err != nil {
		return err
	}
	// Rows follow the change of the disk: every change with a row now is exported.
	seq, err := a.drives.Sequence(ctx, workspaceID)
	if err != nil {
		return err
	}
	backup.Seq = &seq
	compressor, err := zstd.NewWriter(to, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return err
	}
	exported, err := a.drives.Export(ctx, workspaceID, &progressWriter{to: compressor, total: total, report: report})
	backup.Entries, backup.VanishedFiles = exported.Entries, exported.Vanished
	backup.ChangedFiles, backup.ChangedPaths = exported.Changed, exported.ChangedPaths
	backup.UnreadableFiles, backup.UnreadablePaths = exported.Unreadable, exported.UnreadablePaths
	return errors.Join(err, compressor.Close())
}

// Load implements computer.Archive. It reports progress in bytes of the compressed archive. It returns NotFound if the bucket
// does not have the backup, Corrupt if the object differs from the backup that was saved, and the errors of the bucket and of
// Restore.
func (a *Archive) Load(ctx context.Context, workspaceID, taskID string, backup *computerv1.Backup, report func(done, total int64)) error {
	return a.read(ctx, backup, report, func(from io.Reader, verify func(entries int64) error) error {
		return a.drives.Restore(ctx, workspaceID, taskID, from, verify)
	})
}

// Verify implements computer.Archive. It reports progress like Load.
func (a *Archive) Verify(ctx context.Context, backup *computerv1.Backup, report func(done, total int64)) (failure string, err error) {
	err = a.read(ctx, backup, report, func(from io.Reader, verify func(entries int64) error) error {
		entries, err := a.drives.Verify(ctx, from)
		if err != nil {
			return err
		}
		return verify(entries)
	})
	var refusal *entity.Error
	if errors.As(err, &refusal) && (refusal.Code == Corrupt || refusal.Code == entity.NotFound) {
		return refusal.Message, nil
	}
	return "", err
}

// read calls use with the decompressed content of a backup. use must read it to its end and then call verify with the number of
// entries, which compares them, the size and the hash with the record of the backup.
func (a *Archive) read(
	ctx context.Context, backup *computerv1.Backup, report func(done, total int64),
	use func(from io.Reader, verify func(entries int64) error) error,
) error {
	object, err := a.bucket.Get(ctx, backup.GetObject())
	if errors.Is(err, fs.ErrNotExist) {
		return entity.Errorf(entity.NotFound, "backup %s: the bucket has no object %s", backup.GetId(), backup.GetObject())
	}
	if err != nil {
		return fmt.Errorf("backup %s: %w", backup.GetId(), err)
	}
	defer object.Close()
	// One byte more than was saved is enough to detect an object that is too long.
	fetched := &errorReader{from: io.LimitReader(object, backup.GetSizeBytes()+1)}
	summing := newSummingWriter(&progressWriter{to: io.Discard, total: backup.GetSizeBytes(), report: report})
	compressed := io.TeeReader(fetched, summing)
	decompressed, err := zstd.NewReader(compressed, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return err
	}
	defer decompressed.Close()
	err = use(decompressed, func(entries int64) error {
		// The hash covers the bytes that follow the compressed tar archive too.
		if _, err := io.Copy(io.Discard, compressed); err != nil {
			return err
		}
		return verify(backup, summing, entries)
	})
	if fetched.err != nil {
		// The archive looks truncated because the connection failed. That is not Corrupt: a retry may succeed.
		return fmt.Errorf("backup %s: %w", backup.GetId(), fetched.err)
	}
	return err
}

// verify returns Corrupt if the size, the SHA-256 or the number of entries differs from the record of the backup.
func verify(backup *computerv1.Backup, read *summingWriter, entries int64) error {
	switch {
	case read.size != backup.GetSizeBytes():
		return entity.Errorf(Corrupt, "backup %s: the object does not have the %d bytes that were saved", backup.GetId(), backup.GetSizeBytes())
	case string(read.hash.Sum(nil)) != string(backup.GetSha256()):
		return entity.Errorf(Corrupt, "backup %s: the SHA-256 of the object differs from the one that was saved", backup.GetId())
	case entries != backup.GetEntries():
		return entity.Errorf(Corrupt, "backup %s: the archive has %d entries, but %d were saved", backup.GetId(), entries, backup.GetEntries())
	}
	return nil
}

// Remove implements computer.Archive.
func (a *Archive) Remove(ctx context.Context, workspaceID string, backup *computerv1.Backup) error {
	name := backup.GetObject()
	if name == "" {
		name = objectName(workspaceID, backup.GetId()) // the record does not name the object
	}
	if err := a.bucket.Delete(ctx, name); err != nil {
		return fmt.Errorf("backup %s: %w", backup.GetId(), err)
	}
	return nil
}

// progressWriter writes to another writer and reports the number of bytes written. The total may be an estimate: progress
// above it is reported as the total.
type progressWriter struct {
	to          io.Writer
	done, total int64
	report      func(done, total int64)
}

// Write writes b and reports the progress.
func (p *progressWriter) Write(b []byte) (int, error) {
	n, err := p.to.Write(b)
	p.done += int64(n)
	p.report(min(p.done, p.total), p.total)
	return n, err
}

// summingWriter writes to another writer and computes the size and the SHA-256 of the bytes written.
type summingWriter struct {
	to   io.Writer
	hash hash.Hash
	size int64
	// err is the last error of the other writer.
	err error
}

func newSummingWriter(to io.Writer) *summingWriter {
	return &summingWriter{to: to, hash: sha256.New()}
}

// Write writes p and adds the bytes that were written to the size and the hash.
func (s *summingWriter) Write(p []byte) (int, error) {
	n, err := s.to.Write(p)
	s.hash.Write(p[:n])
	s.size += int64(n)
	if err != nil {
		s.err = err
	}
	return n, err
}

// errorReader reads from another reader and stores its error, unless that is io.EOF.
type errorReader struct {
	from io.Reader
	err  error
}

// Read reads from the other reader into b.
func (r *errorReader) Read(b []byte) (int, error) {
	n, err := r.from.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}
