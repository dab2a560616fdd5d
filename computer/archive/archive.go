// Package archive keeps backups of drives in a bucket: a tar archive, compressed with Zstandard, for each.
//
//	<bucket>/<workspace>/<backup>.tar.zst
//
// A backup's size, SHA-256 and number of entries are in its record, which is the platform's own: a bucket that returns
// something else is found out, and before anything of it is shown. Reading and writing stream; memory use does not
// depend on the size of a drive.
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

// Drives are what an archive needs of them.
type Drives interface {
	// Export writes a workspace's drive as a tar archive and tells its entries.
	Export(ctx context.Context, workspaceID string, to io.Writer) (entries int64, err error)
	// ArchiveSize estimates how many bytes Export writes.
	ArchiveSize(ctx context.Context, workspaceID string) (int64, error)
	// Restore puts the content of a tar archive in the place of a drive, once for a mark. It asks verify when it has read
	// all of it and before it replaces anything.
	Restore(ctx context.Context, workspaceID, mark string, from io.Reader, verify func(entries int64) error) error
}

// Corrupt is the code of a refusal of a backup that is not what was saved.
const Corrupt entity.Code = "corrupt_archive"

// maxWindow bounds the memory that an archive may ask of whoever unpacks it, in bytes.
const maxWindow = 32 << 20

// Archive keeps backups; it is a computer.Archive.
type Archive struct {
	bucket bucket.Bucket
	drives Drives
}

// New makes an archive of an open bucket, which stays the caller's to close.
func New(b bucket.Bucket, drives Drives) *Archive { return &Archive{b, drives} }

// object names a backup in the bucket.
func object(workspaceID, backupID string) string { return workspaceID + "/" + backupID + ".tar.zst" }

// Save is of computer.Archive. It reports the bytes of the uncompressed archive. When Save returns, the backup is durable.
func (a *Archive) Save(ctx context.Context, workspaceID, backupID string, report func(done, total int64)) (*computerv1.Backup, error) {
	backup := &computerv1.Backup{Id: backupID, Object: object(workspaceID, backupID)}
	err := a.bucket.Put(ctx, backup.Object, func(to io.Writer) (err error) {
		sums := newSums(to)
		backup.Entries, err = a.write(ctx, workspaceID, sums, report)
		backup.SizeBytes, backup.Sha256 = sums.size, sums.hash.Sum(nil)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("backup %s: %w", backupID, err)
	}
	return backup, nil
}

// write writes the compressed archive of a drive and returns the number of its entries.
func (a *Archive) write(ctx context.Context, workspaceID string, to io.Writer, report func(done, total int64)) (int64, error) {
	total, err := a.drives.ArchiveSize(ctx, workspaceID)
	if err != nil {
		return 0, err
	}
	compressor, err := zstd.NewWriter(to, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return 0, err
	}
	entries, err := a.drives.Export(ctx, workspaceID, &progress{to: compressor, total: total, report: report})
	return entries, errors.Join(err, compressor.Close())
}

// Load is of computer.Archive. It reports the bytes of the compressed archive.
func (a *Archive) Load(ctx context.Context, workspaceID, taskID string, backup *computerv1.Backup, report func(done, total int64)) error {
	object, err := a.bucket.Get(ctx, backup.GetObject())
	if errors.Is(err, fs.ErrNotExist) {
		return entity.Errorf(entity.NotFound, "the backup is not in the bucket any more")
	}
	if err != nil {
		return fmt.Errorf("backup %s: %w", backup.GetId(), err)
	}
	defer object.Close()
	// More than was saved is not read.
	source := &source{from: io.LimitReader(object, backup.GetSizeBytes()+1)}
	sums := newSums(&progress{to: io.Discard, total: backup.GetSizeBytes(), report: report})
	summed := io.TeeReader(source, sums)
	tarred, err := zstd.NewReader(summed, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return err
	}
	defer tarred.Close()
	err = a.drives.Restore(ctx, workspaceID, taskID, tarred, func(entries int64) error {
		if _, err := io.Copy(io.Discard, summed); err != nil {
			return err
		}
		return check(backup, sums, entries)
	})
	if source.err != nil {
		// What cannot be fetched now may be later, whatever the archive looked like because of it.
		return fmt.Errorf("backup %s: %w", backup.GetId(), source.err)
	}
	return err
}

func check(backup *computerv1.Backup, read *sums, entries int64) error {
	switch {
	case read.size != backup.GetSizeBytes():
		return entity.Errorf(Corrupt, "the backup has another size than was saved")
	case string(read.hash.Sum(nil)) != string(backup.GetSha256()):
		return entity.Errorf(Corrupt, "the backup has another SHA-256 than was saved")
	case entries != backup.GetEntries():
		return entity.Errorf(Corrupt, "the backup has %d entries, of %d", entries, backup.GetEntries())
	}
	return nil
}

// Remove is of computer.Archive.
func (a *Archive) Remove(ctx context.Context, workspaceID string, backup *computerv1.Backup) error {
	name := backup.GetObject()
	if name == "" {
		name = object(workspaceID, backup.GetId())
	}
	if err := a.bucket.Delete(ctx, name); err != nil {
		return fmt.Errorf("backup %s: %w", backup.GetId(), err)
	}
	return nil
}

// progress passes bytes on and reports how many there were, of a total that may be an estimate.
type progress struct {
	to          io.Writer
	done, total int64
	report      func(done, total int64)
}

func (p *progress) Write(b []byte) (int, error) {
	n, err := p.to.Write(b)
	p.done += int64(n)
	p.report(min(p.done, p.total), p.total)
	return n, err
}

// sums passes bytes on and keeps account of them.
type sums struct {
	to   io.Writer
	hash hash.Hash
	size int64
}

func newSums(to io.Writer) *sums { return &sums{to: to, hash: sha256.New()} }

func (s *sums) Write(p []byte) (int, error) {
	n, err := s.to.Write(p)
	s.hash.Write(p[:n])
	s.size += int64(n)
	return n, err
}

// source remembers that fetching failed.
type source struct {
	from io.Reader
	err  error
}

func (s *source) Read(into []byte) (int, error) {
	n, err := s.from.Read(into)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}
