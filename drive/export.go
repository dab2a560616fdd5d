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
const propsRecord = attributeRecord + propsAttribute

// Exported describes an archive that Export has written.
type Exported struct {
	// Entries is the number of entries, repeated ones included.
	Entries int64
	// Changed is the number of files that were changed during each attempt to copy them. ChangedPaths has the first of their
	// paths, quoted as in Go, because names may have any bytes.
	Changed      int64
	ChangedPaths []string
	// Vanished is the number of entries that were removed after they were listed and before they were copied. They are not in the archive.
	Vanished int64
	// Unreadable is the number of files and folders that this process has no permission to read. UnreadablePaths has the first of
	// their paths, quoted. The archive has such a folder without its entries, and nothing of such a file.
	Unreadable      int64
	UnreadablePaths []string
}

// maxNamedPaths limits Exported.ChangedPaths and Exported.UnreadablePaths.
const maxNamedPaths = 5

// Export writes the drive as a tar archive in PAX format: files, folders and links with their modes, ownership, times and dead
// properties. Names may have any bytes. A folder follows its entries, so that the unpacker can set the folder's time
// after it has created them; the last entry is the root.
//
// Each file is consistent in the archive, although processes may write during the export: a file that is changed while it is
// copied is copied again (see writeFile). If it changes during each of a few attempts, its last copy remains, and the result
// and the records of the root's entry name it. Entries that are created or removed during the export may be in the archive or
// not. Holes of files are not read. Memory does not grow with the content, and for hard links to maxLinkMemory at the most.
//
// The first name of a file or symbolic link is an entry with its content. Each further name is a hard link to the first.
//
// The holes of sparse files are zeros in the archive. The holes of all files together may be as large as the drive may be.
// Further sparse files are left out; the log and the result name them, as if they had changed.
//
// Files and folders that this process may not read do not end the export: the log, the result and the records of the root's entry
// name them. Export changes no mode to read them. Processes would see the change, a crash would leave it, and a user of a user
// namespace may own the files.
//
// Export returns ctx's error, the errors of to, and errors of the disk.
func (d *Drive) Export(ctx context.Context, to io.Writer) (_ Exported, err error) {
	defer func() { d.drives.metrics.countOperation("export", err) }()
	holes, err := d.holeBudget()
	if err != nil {
		return Exported{}, err
	}
	e := &exporter{
		ctx: ctx, drive: d, out: tar.NewWriter(to), holes: holes, buffer: make([]byte, exportBuffer), props: make([]byte, maxProps),
	}
	w := &walk{
		ctx: ctx, enter: e.checkPathLength, file: e.writeEntry, vanished: e.countVanished, unreadable: e.leaveOut, leave: e.leaveFolder,
	}
	if err := d.walk("", w); err != nil {
		return Exported{}, fromOS(err)
	}
	if err := e.out.Close(); err != nil {
		return Exported{}, err
	}
	return e.done, nil
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
				bytes += 3 * archiveBlock
				// Each name of a file counts for its part of the file. The archive has the content once.
				names := max(int64(st.Nlink), 1)
				if holes.admits(st.Size/names, st.Blocks/names) {
					bytes += (st.Size/names + archiveBlock - 1) / archiveBlock * archiveBlock
				}
			case unix.S_IFLNK:
				bytes += 3 * archiveBlock
			}
			return nil
		},
		unreadable: skipUnreadable,
		leave:      func(handle, string) error { bytes += 3 * archiveBlock; return nil },
	})
	return bytes, fromOS(err)
}

// maxArchivePath limits the paths in an archive, in bytes. Only processes create longer ones, by nesting folders; Export
// leaves the entries of such folders out and logs a warning.
const maxArchivePath = 32 << 10

type exporter struct {
	ctx   context.Context
	drive *Drive
	out   *tar.Writer
	holes *holeBudget
	links hardLinks
	// hasTooManyLinks is set when links had no memory for a file.
	hasTooManyLinks bool
	done            Exported
	// buffer holds a whole small file, or a part of a larger one.
	buffer []byte
	// props is a buffer for the dead properties or an attribute of a file.
	props []byte
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

func (e *exporter) countVanished() { e.done.Vanished++ }

func (e *exporter) leaveFolder(folder handle, path string) error {
	if path == "" {
		path = "."
	}
	return e.writeFolder(folder, path+"/")
}

// writeEntry writes a file or link. It skips pipes, sockets and devices, which are not content of a drive.
func (e *exporter) writeEntry(parent handle, name, path string, st *unix.Stat_t, _ int) error {
	kind := st.Mode & unix.S_IFMT
	if kind != unix.S_IFREG && kind != unix.S_IFLNK {
		return nil
	}
	if st.Nlink > 1 {
		if isWritten, err := e.writeHardLink(parent, name, path, st); isWritten || err != nil {
			return err
		}
	}
	if kind == unix.S_IFLNK {
		return e.writeLink(parent, name, path, st)
	}
	return e.writeFile(parent, name, path)
}

// asExportError wraps an error of the archive in an exportError, unless ctx has ended. Without it the walk would take
// some errors for the error of a vanished entry.
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
	header, err := fileHeader(folder.File, path, e.props)
	if err != nil {
		return err
	}
	isWhole, err := addAttributes(header, folder.File, e.props, maxAttributes)
	if err != nil {
		return err
	}
	if !isWhole {
		e.noteAttributes(path)
	}
	header.Typeflag, header.Size = tar.TypeDir, 0
	if path == "./" {
		recordPaths(header, changedFilesRecord, changedPathsRecord, e.done.Changed, e.done.ChangedPaths)
		recordPaths(header, unreadableFilesRecord, unreadablePathsRecord, e.done.Unreadable, e.done.UnreadablePaths)
		if left := e.done.Unreadable; left > 0 {
			e.drive.drives.log.Warn("an archive lacks files and folders that the node may not read", "workspace", e.drive.workspaceID,
				"number", left, "paths", e.done.UnreadablePaths)
		}
	}
	return e.writeHeader(header)
}

// leaveOut names an entry that this process may not read. It writes the header of a folder, but not the entries of the folder.
func (e *exporter) leaveOut(path string, st *unix.Stat_t) error {
	e.done.Unreadable++
	e.done.UnreadablePaths = namePath(e.done.UnreadablePaths, path)
	if st == nil || !isFolder(st) {
		return nil
	}
	header := newHeader(st, path+"/")
	header.Typeflag, header.Size = tar.TypeDir, 0
	return e.writeHeader(header)
}

func (e *exporter) writeLink(parent handle, name, path string, st *unix.Stat_t) error {
	id, names, err := identify(parent.fd(), name)
	if err != nil {
		return err
	}
	target := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(parent.fd(), name, target)
	if err != nil {
		return err
	}
	header := newHeader(st, path)
	header.Typeflag, header.Linkname, header.Size = tar.TypeSymlink, string(target[:n]), 0
	if err := e.writeHeader(header); err != nil {
		return err
	}
	// The target of a link does not change, but another link may have replaced it before it was read.
	if now, _, err := identify(parent.fd(), name); err == nil && now == id {
		e.addLink(id, names, path)
	}
	return nil
}

func (e *exporter) writeHeader(h *tar.Header) error {
	if err := e.out.WriteHeader(h); err != nil {
		return asExportError(err)
	}
	e.done.Entries++
	return nil
}

// fileHeader returns the header for an open file or folder, with its dead properties. value is a buffer of maxProps bytes.
func fileHeader(file *os.File, path string, value []byte) (*tar.Header, error) {
	st, err := statFile(file)
	if err != nil {
		return nil, err
	}
	h := newHeader(st, path)
	return h, addProps(h, file, value)
}

func statFile(file *os.File) (*unix.Stat_t, error) {
	var st unix.Stat_t
	return &st, retryEINTR(func() error { return unix.Fstat(int(file.Fd()), &st) })
}

// addProps adds the dead properties of an open file or folder to its header. value is a buffer of maxProps bytes.
func addProps(h *tar.Header, file *os.File, value []byte) error {
	n, err := unix.Fgetxattr(int(file.Fd()), propsAttribute, value)
	if err != nil && !isAbsent(err) {
		return err
	}
	if err == nil && n > 0 {
		h.PAXRecords = map[string]string{propsRecord: string(value[:n])}
	}
	return nil
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
