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

// An unpacker makes the entries of an archive below a folder that nobody else sees yet. No name and no link leads out.
type unpacker struct {
	ctx     context.Context
	root    *os.Root
	entries int64
	// room is asked before an entry is made and the bytes of a file are written.
	room func(size int64) error
	// made is the folder that was last seen to be there.
	made string
}

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
	segments := 0
	for segment := range strings.SplitSeq(at, "/") {
		segments++
		if segment == "" || segment == "." || segment == ".." || len(segment) > entity.MaxSegmentBytes || strings.Contains(segment, "\x00") {
			return "", corrupt("the archive has an entry %q", name)
		}
	}
	if segments > maxDepth+1 {
		return "", errTooDeep
	}
	return at, nil
}

func (u *unpacker) entry(h *tar.Header, name string, content io.Reader) error {
	if err := u.room(h.Size); err != nil {
		return err
	}
	if err := u.parent(name); err != nil {
		return u.refused(name, err)
	}
	var err error
	switch h.Typeflag {
	case tar.TypeReg:
		err = u.file(h, name, content)
	case tar.TypeDir:
		err = u.folder(h, name)
	case tar.TypeSymlink:
		err = u.root.Symlink(h.Linkname, name)
		if err == nil {
			err = ownerOf(h).giveName(u.root, name)
		}
	default:
		err = corrupt("the archive has an entry of type %q", h.Typeflag)
	}
	return u.refused(name, err)
}

// refused tells that what cannot be made was not made by Export.
func (u *unpacker) refused(name string, err error) error {
	if errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) || escapes(err) {
		return corrupt("the archive has an entry %q that does not fit: %v", name, err)
	}
	return err
}

func (u *unpacker) parent(name string) error {
	dir := path.Dir(name)
	if dir == "." || dir == u.made {
		return nil
	}
	if err := u.root.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	u.made = dir
	return nil
}

func (u *unpacker) file(h *tar.Header, name string, content io.Reader) error {
	file, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
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
	return u.root.Chtimes(name, h.ModTime, h.ModTime)
}

func (u *unpacker) folder(h *tar.Header, name string) error {
	if name != "." {
		if err := u.root.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	folder, err := u.root.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer folder.Close()
	if err := wear(folder, h); err != nil {
		return err
	}
	return u.root.Chtimes(name, h.ModTime, h.ModTime)
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
