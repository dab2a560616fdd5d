package drive

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/retry"
)

const (
	// exportBuffer is the greatest size in bytes of a file that is read whole before it is written to the archive.
	exportBuffer = 1 << 20
	// maxSmallCopies and maxLargeCopies limit the attempts to copy a file of up to exportBuffer bytes and a larger one.
	maxSmallCopies = 8
	maxLargeCopies = 3
)

// The PAX records of the root's entry that name the files that changed during each attempt to copy them, and the entries that
// could not be read. Other archivers ignore them.
const (
	changedFilesRecord    = "ATELIER.changed.files"
	changedPathsRecord    = "ATELIER.changed.paths"
	unreadableFilesRecord = "ATELIER.unreadable.files"
	unreadablePathsRecord = "ATELIER.unreadable.paths"
)

// writeFile writes a file to the archive. If the file is changed while it is copied, it is copied again: a small file is read
// again before anything is written, and the entry of a larger one is repeated, as in every tar archive the last entry of a name
// counts. A file that vanishes is left out. After a few attempts the file is recorded as changed.
func (e *exporter) writeFile(parent handle, name, path string) error {
	var last fileCopy // the attempt that has written the last entry
	budget := *e.holes
	for attempt := 1; ; attempt++ {
		*e.holes = budget // the holes of the attempt before do not count twice
		c, err := e.copyFile(parent, name, path, attempt)
		switch {
		case isVanished(err) && !last.hasEntry:
			e.done.Vanished++
			return nil
		case last.hasEntry && (isVanished(err) || errors.Is(err, fs.ErrPermission)):
			c = fileCopy{isLast: true}
		case err != nil:
			return err
		}
		if c.hasEntry {
			last = c
		}
		switch {
		case !c.isConsistent && !c.isLast:
			continue
		case !c.isConsistent:
			e.noteChanged(path)
		case last.lacksAttributes:
			e.noteAttributes(path)
		}
		e.addLink(last.id, last.names, path)
		return nil
	}
}

// fileCopy is the outcome of an attempt to copy a file.
type fileCopy struct {
	// isConsistent reports that the file was not changed while it was read.
	isConsistent bool
	// hasEntry reports that the attempt has written an entry.
	hasEntry bool
	// isLast reports that no attempt follows.
	isLast bool
	// lacksAttributes reports that the entry lacks attributes that are too large.
	lacksAttributes bool
	// id and names identify the file and say how many names it has, if it has more than one.
	id    fileID
	names uint32
}

// copyFile opens a file and copies it once. It writes no entry if the file is small, was changed while it was read, and will
// be copied again.
func (e *exporter) copyFile(parent handle, name, path string, attempt int) (fileCopy, error) {
	file, err := parent.openFile(name)
	if err != nil {
		return fileCopy{}, err
	}
	defer file.Close()
	before, err := statFile(file)
	if err != nil {
		return fileCopy{}, err
	}
	if !e.holes.admits(before.Size, before.Blocks) {
		e.drive.drives.log.Warn("a sparse file is not copied to the archive because its holes are larger than the drive may be",
			"workspace", e.drive.workspaceID, "path", path, "bytes", before.Size)
		return fileCopy{isLast: true}, nil
	}
	header := newHeader(before, path)
	header.Typeflag = tar.TypeReg
	if err := addProps(header, file, e.props); err != nil {
		return fileCopy{}, err
	}
	hasAttributes, err := addAttributes(header, file, e.props, maxAttributes)
	if err != nil {
		return fileCopy{}, err
	}
	if err := e.awaitTick(before); err != nil {
		return fileCopy{}, err
	}
	var c fileCopy
	if before.Size <= int64(len(e.buffer)) {
		c, err = e.copySmall(file, before, header, attempt == maxSmallCopies)
	} else {
		c, err = e.copyLarge(file, before, header, attempt >= maxLargeCopies)
	}
	c.lacksAttributes = !hasAttributes
	if err == nil && c.hasEntry && before.Nlink > 1 {
		c.id, c.names, err = identify(int(file.Fd()), "")
	}
	return c, err
}

// copySmall copies a file that fits in the buffer.
func (e *exporter) copySmall(file *os.File, before *unix.Stat_t, header *tar.Header, isLast bool) (fileCopy, error) {
	n, err := io.ReadFull(contextReader{e.ctx, file}, e.buffer[:before.Size])
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return fileCopy{}, asExportError(err)
	}
	isConsistent, err := isUnchanged(file, before)
	if err != nil || !isConsistent && !isLast {
		return fileCopy{}, err
	}
	header.Size = int64(n)
	if err := e.writeHeader(header); err != nil {
		return fileCopy{}, err
	}
	_, err = e.out.Write(e.buffer[:n])
	return fileCopy{isConsistent: isConsistent, hasEntry: true, isLast: isLast}, asExportError(err)
}

// copyLarge copies a file that does not fit in the buffer.
func (e *exporter) copyLarge(file *os.File, before *unix.Stat_t, header *tar.Header, isLast bool) (fileCopy, error) {
	if err := e.writeHeader(header); err != nil {
		return fileCopy{}, err
	}
	if err := e.writeContent(file, header.Size); err != nil {
		return fileCopy{}, asExportError(err)
	}
	isConsistent, err := isUnchanged(file, before)
	return fileCopy{isConsistent: isConsistent, hasEntry: true, isLast: isLast}, err
}

// writeContent writes size bytes of a file. It does not read holes. It writes zeros for bytes that a process has truncated meanwhile.
func (e *exporter) writeContent(file *os.File, size int64) error {
	for at := int64(0); at < size; {
		data, end := nextData(file, at, size)
		if err := e.writeZeros(data - at); err != nil {
			return err
		}
		n, err := io.CopyBuffer(e.out, contextReader{e.ctx, io.NewSectionReader(file, data, end-data)}, e.buffer)
		if err != nil {
			return err
		}
		if at = data + n; at < end {
			return e.writeZeros(size - at)
		}
	}
	return nil
}

// nextData returns the begin and the end of the next part of a file, from an offset, that is not a hole. Both are size if there
// is none. On a file system without holes it returns the whole rest.
func nextData(file *os.File, from, size int64) (begin, end int64) {
	begin, err := file.Seek(from, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO):
		return size, size
	case err != nil:
		return from, size
	}
	end, err = file.Seek(begin, unix.SEEK_HOLE)
	if err != nil || end <= begin {
		end = size
	}
	return min(begin, size), min(end, size)
}

// zeroBlock is written in place of holes.
var zeroBlock [128 << 10]byte

func (e *exporter) writeZeros(n int64) error {
	for n > 0 {
		if err := e.ctx.Err(); err != nil {
			return err
		}
		written, err := e.out.Write(zeroBlock[:min(n, int64(len(zeroBlock)))])
		if err != nil {
			return err
		}
		n -= int64(written)
	}
	return nil
}

// isUnchanged reports whether the content of a file has not changed since before. If a newer file replaces the file, only its
// number of links changes, and not its content.
func isUnchanged(file *os.File, before *unix.Stat_t) (bool, error) {
	after, err := statFile(file)
	if err != nil {
		return false, err
	}
	return after.Size == before.Size && after.Mtim == before.Mtim && (after.Ctim == before.Ctim || after.Nlink != before.Nlink), nil
}

// The kernel takes the times of files from a clock that advances with each tick, of at most 10 ms.
const (
	tickPause    = 4 * time.Millisecond
	maxTickWaits = 6
)

// awaitTick waits until the kernel's clock is later than the last change of a file, so that each later change gets another
// time. Only files that are being changed need to wait. It returns ctx's error.
func (e *exporter) awaitTick(st *unix.Stat_t) error {
	for range maxTickWaits {
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now); err != nil || now.Nano() > st.Ctim.Nano() {
			return nil
		}
		if !retry.Pause(e.ctx, tickPause) {
			return e.ctx.Err()
		}
	}
	return nil
}

// noteChanged records a file that was changed during each attempt to copy it.
func (e *exporter) noteChanged(path string) {
	e.nameChanged(path)
	e.drive.drives.log.Warn("a file was changed during each attempt to export it", "workspace", e.drive.workspaceID, "path", path)
}

// nameChanged counts a file that the archive does not have as it is on the drive, and names it in the result.
func (e *exporter) nameChanged(path string) {
	e.done.Changed++
	e.done.ChangedPaths = namePath(e.done.ChangedPaths, path)
}

// namePath adds a path, quoted, to the first ones of its kind.
func namePath(first []string, path string) []string {
	if len(first) == maxNamedPaths {
		return first
	}
	return append(first, strconv.Quote(path))
}

// recordPaths adds the number of files of a kind, and the first of their paths, to the header of the root.
func recordPaths(root *tar.Header, filesRecord, pathsRecord string, files int64, paths []string) {
	if files == 0 {
		return
	}
	if root.PAXRecords == nil {
		root.PAXRecords = map[string]string{}
	}
	root.PAXRecords[filesRecord] = strconv.FormatInt(files, 10)
	root.PAXRecords[pathsRecord] = strings.Join(paths, " ")
}
