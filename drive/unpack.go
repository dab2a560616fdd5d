package drive

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/entity"
)

// Corrupt is the code of a refusal to restore an archive that is not what was saved.
const Corrupt entity.Code = "corrupt_archive"

func corrupt(format string, args ...any) *entity.Error {
	return entity.Errorf(Corrupt, format, args...)
}

// An unpacker makes the entries of an archive below a folder that nobody else changes yet. No name and no link leads out:
// it goes from folder to folder by descriptors, holds that of one folder, and follows no link. Archives of Export keep a
// folder's entries together, so that the depth of a tree costs nothing.
type unpacker struct {
	ctx     context.Context
	entries int64
	// room is asked before an entry is made and the bytes of a file are written.
	room func(size int64) error
	// at is the open folder at path, "." at the beginning.
	at   handle
	path string
}

// newUnpacker makes an unpacker that begins in a folder.
func newUnpacker(ctx context.Context, root handle, room func(size int64) error) (*unpacker, error) {
	at, err := root.folder(".")
	return &unpacker{ctx: ctx, room: room, at: at, path: "."}, err
}

func (u *unpacker) close() { u.at.Close() }

func (u *unpacker) unpack(from io.Reader) error {
	in := tar.NewReader(whileRunning{u.ctx, from})
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return u.unreadable(err)
		}
		name, err := entryName(h.Name)
		if err != nil {
			return err
		}
		if err := u.entry(h, name, in); err != nil {
			return err
		}
		u.entries++
	}
}

func (u *unpacker) unreadable(err error) error {
	if u.ctx.Err() != nil {
		return u.ctx.Err()
	}
	return corrupt("the archive cannot be read: %v", err)
}

// entryName is the path of an entry's name; "." is the root.
func entryName(name string) (string, error) {
	if name == "./" {
		return ".", nil
	}
	at := strings.TrimSuffix(name, "/")
	if len(at) > maxArchivePath {
		return "", corrupt("the archive has an entry whose path is of %d bytes", len(at))
	}
	for segment := range strings.SplitSeq(at, "/") {
		if segment == "" || segment == "." || segment == ".." || len(segment) > entity.MaxSegmentBytes || strings.Contains(segment, "\x00") {
			return "", corrupt("the archive has an entry %q", name)
		}
	}
	return at, nil
}

func (u *unpacker) entry(h *tar.Header, name string, content io.Reader) error {
	if err := u.room(h.Size); err != nil {
		return err
	}
	if err := u.enter(path.Dir(name)); err != nil {
		return u.refused(name, err)
	}
	base := path.Base(name)
	var err error
	switch h.Typeflag {
	case tar.TypeReg:
		err = u.file(h, base, content)
	case tar.TypeDir:
		err = u.folder(h, base)
	case tar.TypeSymlink:
		err = u.link(h, base)
	default:
		err = corrupt("the archive has an entry of type %q", h.Typeflag)
	}
	return u.refused(name, err)
}

// refused tells that what cannot be made was not made by Export.
func (u *unpacker) refused(name string, err error) error {
	if errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return corrupt("the archive has an entry %q that does not fit: %v", name, err)
	}
	return err
}

// enter goes to a folder, up and then down, and makes what is missing on the way.
func (u *unpacker) enter(dir string) error {
	if u.path == dir {
		return nil
	}
	for u.path != "." && dir != u.path && !strings.HasPrefix(dir, u.path+"/") {
		if err := u.step("..", path.Dir(u.path)); err != nil {
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
		if err := u.step(segment, path.Join(u.path, segment)); err != nil {
			return err
		}
	}
	return nil
}

// step goes to a folder beside or above, at a path.
func (u *unpacker) step(name, path string) error {
	next, err := u.at.folder(name)
	if err != nil {
		return err
	}
	u.at.Close()
	u.at, u.path = next, path
	return nil
}

// makeFolder makes a folder, unless something is there.
func (u *unpacker) makeFolder(name string) error {
	err := eintr(func() error { return unix.Mkdirat(u.at.fd(), name, 0o700) })
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}

func (u *unpacker) file(h *tar.Header, name string, content io.Reader) error {
	file, err := u.at.create(name)
	if err != nil {
		return err
	}
	defer file.Close()
	in := &noted{Reader: content}
	if _, err := io.Copy(file, in); in.err != nil {
		return u.unreadable(in.err)
	} else if err != nil {
		return err
	}
	if err := wear(file, h); err != nil {
		return err
	}
	return u.setTime(h, name)
}

func (u *unpacker) folder(h *tar.Header, name string) error {
	if name != "." {
		if err := u.makeFolder(name); err != nil {
			return err
		}
	}
	folder, err := u.at.folder(name)
	if err != nil {
		return err
	}
	defer folder.Close()
	if err := wear(folder.File, h); err != nil {
		return err
	}
	return u.setTime(h, name)
}

func (u *unpacker) link(h *tar.Header, name string) error {
	if err := eintr(func() error { return unix.Symlinkat(h.Linkname, u.at.fd(), name) }); err != nil {
		return err
	}
	return ownerOf(h).giveLink(u.at, name)
}

func (u *unpacker) setTime(h *tar.Header, name string) error {
	at := unix.NsecToTimespec(h.ModTime.UnixNano())
	return eintr(func() error {
		return unix.UtimesNanoAt(u.at.fd(), name, []unix.Timespec{at, at}, unix.AT_SYMLINK_NOFOLLOW)
	})
}

// wear gives an entry the properties, owner and mode that the archive says.
func wear(file *os.File, h *tar.Header) error {
	if value := h.PAXRecords[propsRecord]; value != "" {
		if len(value) > maxProps {
			return corrupt("the archive has properties of %d bytes", len(value))
		}
		if err := unix.Fsetxattr(int(file.Fd()), propsAttribute, []byte(value), 0); err != nil {
			return fmt.Errorf("properties: %w", err)
		}
	}
	if err := ownerOf(h).give(file); err != nil {
		return err
	}
	return unix.Fchmod(int(file.Fd()), uint32(h.Mode)&0o777)
}

func ownerOf(h *tar.Header) owner { return owner{uint32(h.Uid), uint32(h.Gid)} }

// noted remembers what ended reading early.
type noted struct {
	io.Reader
	err error
}

func (n *noted) Read(into []byte) (int, error) {
	count, err := n.Reader.Read(into)
	if err != nil && !errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		n.err = err
	}
	return count, err
}
