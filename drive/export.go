package drive

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/entity"
)

// propsRecord is the PAX record with an entry's dead properties, in the form that other archivers use for extended attributes.
const propsRecord = "SCHILY.xattr." + propsAttribute

// Export writes the drive as a tar archive in PAX format: files, folders and links with their modes, ownership, times and dead
// properties. Names may have any bytes. A folder follows its entries, so that the unpacker can set the folder's time
// after it has created them. Export returns the number of entries that it wrote; the last one is the root.
//
// Uploaded files are complete in the archive, because they appear by a rename. Entries that are created or removed during
// the export may be in the archive or not; a file that a process truncates while it is read is padded with zeros. Memory
// does not grow with the content.
//
// The holes of sparse files are zeros in the archive. Files whose holes together are larger than the drive may be are left out,
// and logged.
//
// Export returns ctx's error, the errors of to, and errors of the disk.
func (d *Drive) Export(ctx context.Context, to io.Writer) (entries int64, err error) {
	defer func() { d.drives.metrics.countOperation("export", err) }()
	holes, err := d.holeBudget()
	if err != nil {
		return 0, err
	}
	e := &exporter{ctx: ctx, drive: d, out: tar.NewWriter(to), holes: holes}
	if err := d.walk("", &walk{ctx: ctx, enter: e.checkPathLength, file: e.writeEntry, leave: e.leaveFolder}); err != nil {
		return 0, fromOS(err)
	}
	if err := e.out.Close(); err != nil {
		return 0, err
	}
	return e.entries, nil
}

// archiveBlock is the unit of archives, in bytes. Each entry has a header of one, and two more for the records of its time.
const archiveBlock = 512

// ArchiveSize returns about how many bytes Export writes when the drive does not change. It reads no content.
func (d *Drive) ArchiveSize(ctx context.Context) (bytes int64, err error) {
	holes, err := d.holeBudget()
	if err != nil {
		return 0, err
	}
	err = d.walk("", &walk{
		ctx: ctx,
		file: func(_ handle, _, _ string, st *unix.Stat_t, _ int) error {
			switch st.Mode & unix.S_IFMT {
			case unix.S_IFREG:
				if !holes.admits(st.Size, st.Blocks) {
					return nil
				}
				bytes += 3*archiveBlock + (st.Size+archiveBlock-1)/archiveBlock*archiveBlock
			case unix.S_IFLNK:
				bytes += 3 * archiveBlock
			}
			return nil
		},
		leave: func(handle, string) error { bytes += 3 * archiveBlock; return nil },
	})
	return bytes, fromOS(err)
}

// maxArchivePath limits the paths in an archive, in bytes. Only processes create longer ones, by nesting folders; Export
// leaves the entries of such folders out and logs a warning.
const maxArchivePath = 32 << 10

type exporter struct {
	ctx     context.Context
	drive   *Drive
	out     *tar.Writer
	holes   *holeBudget
	entries int64
}

// A holeBudget has the bytes that the holes of sparse files may have together. An archive has them as zeros: a process can make
// files without cost that take years to read.
type holeBudget struct{ left uint64 }

// holeBudget returns a budget of as many bytes as the drive may use.
func (d *Drive) holeBudget() (*holeBudget, error) {
	total, err := d.drives.quota.Total()
	return &holeBudget{total}, err
}

// admits reports whether the holes of a file with a size in bytes and a number of blocks are within the budget, and takes them from
// it.
func (b *holeBudget) admits(size, blocks int64) bool {
	holes := max(size-blocks*512, 0)
	if uint64(holes) > b.left {
		return false
	}
	b.left -= uint64(holes)
	return true
}

func (e *exporter) checkPathLength(path string, _ int) (visit bool, err error) {
	if len(path)+entity.MaxSegmentBytes < maxArchivePath {
		return true, nil
	}
	e.drive.drives.log.Warn("a folder is left out of the archive because its path is too long", "workspace", e.drive.workspaceID,
		"bytes", len(path), "limit", maxArchivePath)
	return false, nil
}

func (e *exporter) leaveFolder(folder handle, path string) error {
	if path == "" {
		path = "."
	}
	return e.writeFolder(folder, path+"/")
}

// writeEntry writes a file or link. It skips pipes, sockets and devices, which are not content of a drive.
func (e *exporter) writeEntry(parent handle, name, path string, st *unix.Stat_t, _ int) error {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return e.writeFile(parent, name, path)
	case unix.S_IFLNK:
		return e.writeLink(parent, name, path, st)
	}
	return nil
}

func (e *exporter) writeFile(parent handle, name, path string) error {
	file, err := parent.openFile(name)
	if err != nil {
		return err
	}
	defer file.Close()
	header, err := fileHeader(file, path)
	if err != nil {
		return err
	}
	header.Typeflag = tar.TypeReg
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		return err
	}
	if !e.holes.admits(header.Size, st.Blocks) { // header.Size bytes are read, also if the file has grown
		e.drive.drives.log.Warn("a sparse file is left out of the archive because its holes are larger than the drive may be",
			"workspace", e.drive.workspaceID, "path", path, "bytes", header.Size)
		return nil
	}
	if err := e.writeHeader(header); err != nil {
		return err
	}
	n, err := io.Copy(e.out, io.LimitReader(contextReader{e.ctx, file}, header.Size))
	if err != nil || n == header.Size {
		return asExportError(err)
	}
	e.drive.drives.log.Warn("a file was truncated while it was exported; the archive has zeros instead", "workspace", e.drive.workspaceID, "path", path)
	_, err = io.CopyN(e.out, zeros{}, header.Size-n)
	return asExportError(err)
}

// asExportError wraps an error of the archive in an exportError, unless ctx has ended. Without it the walk would take
// some errors for those of an entry that has vanished.
func asExportError(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &exportError{err}
}

// An exportError means that the archive cannot be written, or that a file cannot be read to its end. It does not unwrap.
type exportError struct{ cause error }

func (e *exportError) Error() string { return "drive: export: " + e.cause.Error() }

func (e *exporter) writeFolder(folder handle, path string) error {
	header, err := fileHeader(folder.File, path)
	if err != nil {
		return err
	}
	header.Typeflag, header.Size = tar.TypeDir, 0
	return e.writeHeader(header)
}

func (e *exporter) writeLink(parent handle, name, path string, st *unix.Stat_t) error {
	target := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(parent.fd(), name, target)
	if err != nil {
		return err
	}
	header := newHeader(st, path)
	header.Typeflag, header.Linkname, header.Size = tar.TypeSymlink, string(target[:n]), 0
	return e.writeHeader(header)
}

func (e *exporter) writeHeader(h *tar.Header) error {
	if err := e.out.WriteHeader(h); err != nil {
		return asExportError(err)
	}
	e.entries++
	return nil
}

// fileHeader returns the header for an open file or folder, with its dead properties.
func fileHeader(file *os.File, path string) (*tar.Header, error) {
	var st unix.Stat_t
	if err := retryEINTR(func() error { return unix.Fstat(int(file.Fd()), &st) }); err != nil {
		return nil, err
	}
	h := newHeader(&st, path)
	value := make([]byte, maxProps)
	n, err := unix.Fgetxattr(int(file.Fd()), propsAttribute, value)
	if err != nil && !isAbsent(err) {
		return nil, err
	}
	if err == nil && n > 0 {
		h.PAXRecords = map[string]string{propsRecord: string(value[:n])}
	}
	return h, nil
}

func newHeader(st *unix.Stat_t, path string) *tar.Header {
	return &tar.Header{
		Format: tar.FormatPAX, Name: path, Mode: int64(st.Mode & 0o777), Uid: int(st.Uid), Gid: int(st.Gid), Size: st.Size,
		ModTime: time.Unix(st.Mtim.Unix()),
	}
}

// A contextReader fails with its context's error once the context has ended.
type contextReader struct {
	ctx context.Context
	io.Reader
}

func (r contextReader) Read(into []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(into)
}

type zeros struct{}

func (zeros) Read(into []byte) (int, error) {
	clear(into)
	return len(into), nil
}
