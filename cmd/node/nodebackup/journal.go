package nodebackup

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"

	"github.com/atelier-run/atelier/computer/bucket"
)

// treeSize returns the bytes of the files below a folder.
func treeSize(dir string) (size int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		at, err := entry.Info()
		if err == nil {
			size += at.Size()
		}
		return err
	})
	return size, err
}

// packTree stores the files below a folder, which do not change, as an archive. It reports the bytes of the files. If mayVanish is set,
// files and folders that are removed meanwhile are left out.
func packTree(ctx context.Context, b bucket.Bucket, name, dir string, mayVanish bool, report func(done, total int64)) (Object, error) {
	o := Object{Name: name}
	err := b.Put(ctx, name, func(to io.Writer) error {
		summing := &sum{hash: sha256.New()}
		compressor, err := zstd.NewWriter(io.MultiWriter(to, summing), zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true))
		if err != nil {
			return err
		}
		p := &packer{ctx: ctx, out: tar.NewWriter(compressor), mayVanish: mayVanish, report: report}
		if err := errors.Join(p.addTree(os.DirFS(dir)), p.out.Close(), compressor.Close()); err != nil {
			return err
		}
		o.Entries, o.SizeBytes, o.SHA256 = p.entries, summing.size, summing.hash.Sum(nil)
		return nil
	})
	return o, err
}

// sum computes the size and the SHA-256 of the bytes written to it.
type sum struct {
	hash hash.Hash
	size int64
}

func (s *sum) Write(p []byte) (int, error) {
	s.size += int64(len(p))
	return s.hash.Write(p)
}

type packer struct {
	ctx       context.Context
	out       *tar.Writer
	mayVanish bool
	report    func(done, total int64)
	entries   int64
	done      int64
}

func (p *packer) addTree(files fs.FS) error {
	return fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if p.mayVanish && errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || entry.IsDir() {
			return err
		}
		if !entry.Type().IsRegular() {
			return fmt.Errorf("%s is not a file", name)
		}
		return p.addFile(files, name)
	})
}

func (p *packer) addFile(files fs.FS, name string) error {
	file, err := files.Open(name)
	if p.mayVanish && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	at, err := file.Stat()
	if err != nil {
		return err
	}
	if err := p.out.WriteHeader(&tar.Header{Format: tar.FormatPAX, Typeflag: tar.TypeReg, Name: name, Mode: 0o600, Size: at.Size()}); err != nil {
		return err
	}
	p.entries++
	_, err = io.Copy(p.out, progressReader{p, file})
	return err
}

// A progressReader reports the bytes that it has read, and fails when the context has ended.
type progressReader struct {
	*packer
	from io.Reader
}

func (r progressReader) Read(into []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := r.from.Read(into)
	r.done += int64(n)
	r.report(r.done, 0)
	return n, err
}

// maxWindow limits the memory that the decompressor allocates, in bytes.
const maxWindow = 32 << 20

// unpackTree reads an archive that packTree has stored, and compares it with its record. It creates the files below dir, durably; if
// dir is empty it only verifies the archive. It reports the bytes of the archive.
func unpackTree(ctx context.Context, b bucket.Bucket, o Object, dir string, report func(done, total int64)) error {
	object, err := b.Get(ctx, o.Name)
	if err != nil {
		return fmt.Errorf("%s: %w", o.Name, err)
	}
	defer object.Close()
	summing := &sum{hash: sha256.New()}
	p := &packer{ctx: ctx, report: report}
	compressed := io.TeeReader(io.LimitReader(progressReader{p, object}, o.SizeBytes+1), summing)
	decompressed, err := zstd.NewReader(compressed, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return err
	}
	defer decompressed.Close()
	entries, err := unpackFiles(decompressed, dir)
	if err != nil {
		return fmt.Errorf("%s: %w", o.Name, err)
	}
	if _, err := io.Copy(io.Discard, decompressed); err != nil {
		return fmt.Errorf("%s: %w", o.Name, err)
	}
	if _, err := io.Copy(io.Discard, compressed); err != nil {
		return fmt.Errorf("%s: %w", o.Name, err)
	}
	if summing.size != o.SizeBytes || string(summing.hash.Sum(nil)) != string(o.SHA256) || entries != o.Entries {
		return fmt.Errorf("%s is not what was saved: it has other bytes than the manifest says", o.Name)
	}
	return nil
}

// unpackFiles creates the files of an archive below dir, unless dir is empty, and returns their number.
func unpackFiles(from io.Reader, dir string) (entries int64, err error) {
	in := tar.NewReader(from)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return entries, nil
		}
		if err != nil {
			return entries, err
		}
		if h.Typeflag != tar.TypeReg || !filepath.IsLocal(h.Name) {
			return entries, fmt.Errorf("the archive has the invalid entry %q", h.Name)
		}
		entries++
		if dir == "" {
			_, err = io.Copy(io.Discard, in)
		} else {
			err = unpackFile(filepath.Join(dir, h.Name), in)
		}
		if err != nil {
			return entries, err
		}
	}
}

// unpackFile creates a file and the folders above it, durably.
func unpackFile(path string, content io.Reader) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
