package drive

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/drive/quota"
	"github.com/atelier-run/atelier/entity"
)

// Corrupt is the code of Restore's error for an archive that Export cannot have written.
const Corrupt entity.Code = "corrupt_archive"

func corrupt(format string, args ...any) *entity.Error {
	return entity.Errorf(Corrupt, format, args...)
}

// An unpacker creates the entries of an archive below a folder that is empty and not in use yet. No name and no link can lead it
// out of that folder: it changes from folder to folder by descriptors and follows no link. It holds the descriptor of one
// folder at any depth of the tree, and for moments two more. Archives of Export have the entries of a folder next to each other, so
// that it changes folders rarely.
type unpacker struct {
	ctx context.Context
	// entries is the number of entries of the archive that were created, repeated ones included.
	entries int64
	// used is the number of entries in the tree and the bytes of their content that are not holes, which is less than the tree uses on the
	// disk. links is the number of hard links in the tree.
	used  quota.Usage
	links uint64
	// requireLimit is called when used has grown; its error ends unpacking.
	requireLimit func(used quota.Usage, links uint64) error
	// requireSpace is called for each entry before it is created, and for each part of a larger file before it is written, with
	// the size of the part; its error ends unpacking. Holes need no space, so that a sparse file may be larger than the disk.
	requireSpace func(size int64) error
	// lastFile is the path of the previous entry if that was a file, and lastBytes is its part of used.Bytes. Export repeats the entry of a
	// file that was changed.
	lastFile  string
	lastBytes uint64
	// buffer holds a part of a file.
	buffer []byte
	// root is the folder below which the entries are created. The caller closes it.
	root handle
	// at is the open folder at path, relative to the root; "." is the root.
	at   handle
	path string
}

// newUnpacker returns an unpacker that begins in the folder root, which stays open until the unpacker is closed.
func newUnpacker(
	ctx context.Context, root handle, requireSpace func(size int64) error, requireLimit func(used quota.Usage, links uint64) error,
) (*unpacker, error) {
	at, err := root.openFolder(".")
	return &unpacker{
		ctx: ctx, requireSpace: requireSpace, requireLimit: requireLimit, root: root, at: at, path: ".", buffer: make([]byte, exportBuffer),
	}, err
}

func (u *unpacker) close() { u.at.Close() }

// unpack creates all entries of an archive. It returns Corrupt, the errors of requireSpace and requireLimit, ctx's error or an error of
// the disk.
func (u *unpacker) unpack(from io.Reader) error {
	in := tar.NewReader(contextReader{u.ctx, from})
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return u.readError(err)
		}
		name, err := entryName(h.Name)
		if err != nil {
			return err
		}
		if err := u.createEntry(h, name, in); err != nil {
			return err
		}
		u.entries++
	}
}

// readError returns ctx's error if ctx has ended, and Corrupt otherwise.
func (u *unpacker) readError(err error) error {
	if u.ctx.Err() != nil {
		return u.ctx.Err()
	}
	return corrupt("the archive cannot be read: %v", err)
}

// entryName returns the path for an entry's name, "." for the root. It returns Corrupt for a name that Export does not write.
func entryName(name string) (string, error) {
	if name == "./" {
		return ".", nil
	}
	at := strings.TrimSuffix(name, "/")
	if len(at) > maxArchivePath {
		return "", corrupt("the archive has an entry with a path of %d bytes, which is more than %d", len(at), maxArchivePath)
	}
	for segment := range strings.SplitSeq(at, "/") {
		if segment == "" || segment == "." || segment == ".." || len(segment) > entity.MaxSegmentBytes || strings.Contains(segment, "\x00") {
			return "", corrupt("the archive has an entry with the invalid path %q", name)
		}
	}
	return at, nil
}

func (u *unpacker) createEntry(h *tar.Header, name string, content io.Reader) error {
	_, attributes, err := attributesOf(h)
	if err != nil {
		return err
	}
	if err := u.requireSpace(min(h.Size, int64(len(u.buffer))) + attributes); err != nil {
		return err
	}
	isRepeated := h.Typeflag == tar.TypeReg && name == u.lastFile
	u.lastFile = ""
	if err := u.changeFolder(path.Dir(name)); err != nil {
		return u.conflictAsCorrupt(name, err)
	}
	base := path.Base(name)
	switch h.Typeflag {
	case tar.TypeReg:
		u.lastFile = name
		if isRepeated {
			err = retryEINTR(func() error { return unix.Unlinkat(u.at.fd(), base, 0) })
			u.used = quota.Usage{Bytes: u.used.Bytes - u.lastBytes, Files: u.used.Files - 1}
		}
		u.lastBytes = 0
		if err == nil {
			err = u.createFile(h, base, content)
		}
	case tar.TypeDir:
		err = u.createFolder(h, base)
	case tar.TypeSymlink:
		err = u.createLink(h, base)
	case tar.TypeLink:
		err = u.createHardLink(h, base)
	default:
		err = corrupt("the archive has an entry of the unsupported type %q", h.Typeflag)
	}
	if err != nil {
		return u.conflictAsCorrupt(name, err)
	}
	u.used.Files++
	return u.requireLimit(u.used, u.links)
}

// conflictAsCorrupt returns Corrupt for an entry that conflicts with the entries before it, which Export does not write.
func (u *unpacker) conflictAsCorrupt(name string, err error) error {
	if errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return corrupt("the archive has an entry %q that conflicts with an earlier one: %v", name, err)
	}
	return err
}

// changeFolder changes to a folder, first up and then down, and creates missing folders on the way down.
func (u *unpacker) changeFolder(dir string) error {
	if u.path == dir {
		return nil
	}
	for u.path != "." && dir != u.path && !strings.HasPrefix(dir, u.path+"/") {
		if err := u.openNext("..", path.Dir(u.path)); err != nil {
			return err
		}
	}
	if dir == u.path {
		return nil
	}
	below := dir
	if u.path != "." {
		below = dir[len(u.path)+1:]
	}
	for segment := range strings.SplitSeq(below, "/") {
		if err := u.makeFolder(segment); err != nil {
			return err
		}
		if err := u.openNext(segment, path.Join(u.path, segment)); err != nil {
			return err
		}
	}
	return nil
}

// openNext changes to the parent folder ("..") or to a folder in the current one.
func (u *unpacker) openNext(name, path string) error {
	next, err := u.at.openFolder(name)
	if err != nil {
		return err
	}
	u.at.Close()
	u.at, u.path = next, path
	return nil
}

// makeFolder creates a folder in the current one, unless the name is in use.
func (u *unpacker) makeFolder(name string) error {
	err := retryEINTR(func() error { return unix.Mkdirat(u.at.fd(), name, 0o700) })
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}

func (u *unpacker) createFile(h *tar.Header, name string, content io.Reader) error {
	file, err := u.at.create(name, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	in := &errorRecorder{Reader: content}
	if err := u.writeSparse(file, in); in.err != nil {
		return u.readError(in.err)
	} else if err != nil {
		return err
	}
	if err := u.setTime(h, name); err != nil {
		return err
	}
	return applyHeader(file, h)
}

// holeBlock is the unit of holes, in bytes.
const holeBlock = 4096

// writeSparse writes the content of a file, with holes in place of blocks of zeros.
func (u *unpacker) writeSparse(file *os.File, content io.Reader) error {
	written := int64(0) // the end of the last block that was written
	for at := int64(0); ; {
		n, err := io.ReadFull(content, u.buffer)
		if at > 0 && n > 0 {
			if err := u.requireSpace(int64(n)); err != nil {
				return err
			}
		}
		end, data, failed := writeData(file, u.buffer[:n], at)
		if failed != nil {
			return failed
		}
		u.used.Bytes, u.lastBytes = u.used.Bytes+data, u.lastBytes+data
		if failed := u.requireLimit(u.used, u.links); failed != nil {
			return failed
		}
		at, written = at+int64(n), max(written, end)
		switch {
		case !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
			if err != nil {
				return err
			}
		case written < at:
			return file.Truncate(at)
		default:
			return nil
		}
	}
}

// writeData writes the blocks of part that are not zero at an offset, which is a multiple of holeBlock. It returns the end of the
// last one in the file, or 0 if it has written none, and the number of bytes that it has written.
func writeData(file *os.File, part []byte, at int64) (last int64, written uint64, err error) {
	for begin := 0; begin < len(part); {
		end := begin
		for end < len(part) && !isZero(part[end:min(end+holeBlock, len(part))]) {
			end = min(end+holeBlock, len(part))
		}
		if end == begin {
			begin += holeBlock
			continue
		}
		if _, err := file.WriteAt(part[begin:end], at+int64(begin)); err != nil {
			return last, written, err
		}
		written += uint64(end - begin)
		begin, last = end, at+int64(end)
	}
	return last, written, nil
}

func isZero(block []byte) bool { return bytes.Equal(block, zeroBlock[:len(block)]) }

func (u *unpacker) createFolder(h *tar.Header, name string) error {
	if name != "." {
		if err := u.makeFolder(name); err != nil {
			return err
		}
	}
	folder, err := u.at.openFolder(name)
	if err != nil {
		return err
	}
	defer folder.Close()
	if err := u.setTime(h, name); err != nil { // before the mode: the root may not be searched any more
		return err
	}
	return applyHeader(folder.File, h)
}

func (u *unpacker) createLink(h *tar.Header, name string) error {
	if err := retryEINTR(func() error { return unix.Symlinkat(h.Linkname, u.at.fd(), name) }); err != nil {
		return err
	}
	if err := ownershipOf(h).applyToLink(u.at, name); err != nil {
		return err
	}
	return u.setTime(h, name)
}

// createHardLink gives a file or symbolic link that the archive has before the entry a further name. Everything below the root is of
// entries before, because the root was empty. It returns Corrupt for a path that leads out of the archive or through a link, or to
// nothing or a folder.
func (u *unpacker) createHardLink(h *tar.Header, name string) error {
	target, err := entryName(h.Linkname)
	if err != nil {
		return corrupt("the archive has the entry %q, a hard link to the invalid path %q", h.Name, h.Linkname)
	}
	folder, base := u.at, path.Base(target)
	if dir := path.Dir(target); dir != u.path {
		if dir == "." {
			dir = ""
		}
		folder, err = u.root.descend(dir)
		if errors.Is(err, errLinked) {
			return corrupt("the archive has the entry %q, a hard link to the path %q through a symbolic link", h.Name, h.Linkname)
		}
		if err != nil {
			return err
		}
		defer folder.Close()
	}
	st, err := folder.stat(base)
	if err != nil {
		return err
	}
	if st == nil || isFolder(st) {
		return corrupt("the archive has the entry %q, a hard link to %q, which is no file of an earlier entry", h.Name, h.Linkname)
	}
	u.links++
	return retryEINTR(func() error { return unix.Linkat(folder.fd(), base, u.at.fd(), name, 0) })
}

func (u *unpacker) setTime(h *tar.Header, name string) error {
	// Not the method setModified: the zero time is a time of a file as well.
	return setModifiedAt(u.at.fd(), name, h.ModTime, unix.AT_SYMLINK_NOFOLLOW)
}

// applyHeader gives a file or folder the dead properties, attributes, ownership and mode of its entry in the archive.
func applyHeader(file *os.File, h *tar.Header) error {
	if value := h.PAXRecords[propsRecord]; value != "" {
		if len(value) > maxProps {
			return corrupt("the archive has an entry with properties of %d bytes, which is more than %d", len(value), maxProps)
		}
		if err := unix.Fsetxattr(int(file.Fd()), propsAttribute, []byte(value), 0); err != nil {
			return fmt.Errorf("properties: %w", err)
		}
	}
	if err := setAttributes(file, h); err != nil {
		return err
	}
	if err := ownershipOf(h).applyTo(file); err != nil {
		return err
	}
	return unix.Fchmod(int(file.Fd()), uint32(h.Mode)&0o777)
}

func ownershipOf(h *tar.Header) ownership {
	return ownership{uid: uint32(h.Uid), gid: uint32(h.Gid)}
}

// An errorRecorder records the error that ended reading early, which distinguishes a failed archive from a failed disk.
type errorRecorder struct {
	io.Reader
	err error
}

func (r *errorRecorder) Read(into []byte) (int, error) {
	count, err := r.Reader.Read(into)
	if err != nil && !errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		r.err = err
	}
	return count, err
}
