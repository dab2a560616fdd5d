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

// propsRecord carries an entry's dead properties in an archive, as other archivers do extended attributes.
const propsRecord = "SCHILY.xattr." + propsAttribute

// Export writes the drive as a tar archive in POSIX's extended format: files, folders and links with their modes, owners,
// times and properties, under names of any bytes. A folder comes behind what is in it, so that whoever unpacks can give
// it its time when nothing is put into it any more. It tells the entries that it wrote, of which the last is the root.
//
// Each uploaded file is whole, since it appears by a rename. Entries that come or go meanwhile are in the archive or are
// not; a file that a process shortens while it is read is filled up with zeros. Memory does not grow with the content.
func (d *Drive) Export(ctx context.Context, to io.Writer) (entries int64, err error) {
	defer func() { d.drives.metrics.ended("export", err) }()
	e := &exporter{ctx: ctx, drive: d, out: tar.NewWriter(to)}
	if err := d.walk("", &walk{ctx: ctx, enter: e.enter, file: e.entry, leave: e.leave}); err != nil {
		return 0, fromOS(err)
	}
	if err := e.out.Close(); err != nil {
		return 0, err
	}
	return e.entries, nil
}

// maxArchivePath bounds the paths in an archive, in bytes. Only processes make longer ones, by folders in folders in
// folders; what they hold is left out.
const maxArchivePath = 32 << 10

type exporter struct {
	ctx     context.Context
	drive   *Drive
	out     *tar.Writer
	entries int64
}

func (e *exporter) enter(path string, _ int) (visit bool, err error) {
	if len(path)+entity.MaxSegmentBytes < maxArchivePath {
		return true, nil
	}
	e.drive.drives.log.Warn("a folder is left out of the backup: its path is too long", "workspace", e.drive.workspaceID,
		"bytes", len(path), "most", maxArchivePath)
	return false, nil
}

func (e *exporter) leave(folder handle, path string) error {
	if path == "" {
		path = "."
	}
	return e.folderEntry(folder, path+"/")
}

// entry writes what is no folder. Pipes, sockets and devices are no content of a drive.
func (e *exporter) entry(parent handle, name, path string, st *unix.Stat_t, _ int) error {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return e.file(parent, name, path)
	case unix.S_IFLNK:
		return e.link(parent, name, path, st)
	}
	return nil
}

func (e *exporter) file(parent handle, name, path string) error {
	file, err := parent.file(name)
	if err != nil {
		return err
	}
	defer file.Close()
	header, err := headerOf(file, path)
	if err != nil {
		return err
	}
	header.Typeflag = tar.TypeReg
	if err := e.header(header); err != nil {
		return err
	}
	n, err := io.Copy(e.out, io.LimitReader(whileRunning{e.ctx, file}, header.Size))
	if err != nil || n == header.Size {
		return written(err)
	}
	e.drive.drives.log.Warn("a file was shortened while it was backed up", "workspace", e.drive.workspaceID, "path", path)
	_, err = io.CopyN(e.out, zeros{}, header.Size-n)
	return written(err)
}

// written keeps an error of the archive from being taken for one of an entry that went.
func written(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &exportError{err}
}

// exportError says that the archive cannot be written or a file not read to its end. It hides what it is made of.
type exportError struct{ cause error }

func (e *exportError) Error() string { return "drive: export: " + e.cause.Error() }

func (e *exporter) folderEntry(folder handle, path string) error {
	header, err := headerOf(folder.File, path)
	if err != nil {
		return err
	}
	header.Typeflag, header.Size = tar.TypeDir, 0
	return e.header(header)
}

func (e *exporter) link(parent handle, name, path string, st *unix.Stat_t) error {
	target := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(parent.fd(), name, target)
	if err != nil {
		return err
	}
	header := header(st, path)
	header.Typeflag, header.Linkname, header.Size = tar.TypeSymlink, string(target[:n]), 0
	return e.header(header)
}

func (e *exporter) header(h *tar.Header) error {
	if err := e.out.WriteHeader(h); err != nil {
		return written(err)
	}
	e.entries++
	return nil
}

// headerOf describes an open file or folder with its properties.
func headerOf(file *os.File, path string) (*tar.Header, error) {
	var st unix.Stat_t
	if err := eintr(func() error { return unix.Fstat(int(file.Fd()), &st) }); err != nil {
		return nil, err
	}
	h := header(&st, path)
	value := make([]byte, maxProps)
	n, err := unix.Fgetxattr(int(file.Fd()), propsAttribute, value)
	if err != nil && !absent(err) {
		return nil, err
	}
	if err == nil && n > 0 {
		h.PAXRecords = map[string]string{propsRecord: string(value[:n])}
	}
	return h, nil
}

func header(st *unix.Stat_t, path string) *tar.Header {
	return &tar.Header{
		Format: tar.FormatPAX, Name: path, Mode: int64(st.Mode & 0o777), Uid: int(st.Uid), Gid: int(st.Gid), Size: st.Size,
		ModTime: time.Unix(st.Mtim.Unix()),
	}
}

// whileRunning ends reading when its context does.
type whileRunning struct {
	ctx context.Context
	io.Reader
}

func (r whileRunning) Read(into []byte) (int, error) {
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
