package drive

import (
	"errors"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// A handle is an open folder. Names below it are single segments, and no link is ever followed.
type handle struct{ *os.File }

func syncFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

func (h handle) fd() int { return int(h.Fd()) }

// stat tells about an entry; nil and no error where it is missing.
func (h handle) stat(name string) (*unix.Stat_t, error) {
	var st unix.Stat_t
	err := eintr(func() error { return unix.Fstatat(h.fd(), name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	return &st, nil
}

// folder opens a folder in it.
func (h handle) folder(name string) (handle, error) {
	return h.open(name, unix.O_RDONLY|unix.O_DIRECTORY)
}

// file opens a regular file in it to read. Whatever else is there does not block and is refused.
func (h handle) file(name string) (*os.File, error) {
	f, err := h.open(name, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(errNotFound, err, f.Close())
	}
	return f.File, nil
}

// create makes a file in it to write; nothing may be there.
func (h handle) create(name string) (*os.File, error) {
	f, err := h.openMode(name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	return f.File, err
}

func (h handle) open(name string, flags int) (handle, error) { return h.openMode(name, flags, 0) }

func (h handle) openMode(name string, flags int, mode uint32) (handle, error) {
	var fd int
	err := eintr(func() (err error) {
		fd, err = unix.Openat(h.fd(), name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
		return err
	})
	if err != nil {
		return handle{}, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return handle{os.NewFile(uintptr(fd), name)}, nil
}

// rename moves an entry to another folder; replace lets it take the place of a file.
func (h handle) rename(name string, to handle, newName string, replace bool) error {
	flags := uint(unix.RENAME_NOREPLACE)
	if replace {
		flags = 0
	}
	err := eintr(func() error { return unix.Renameat2(h.fd(), name, to.fd(), newName, flags) })
	if err != nil {
		return &os.LinkError{Op: "rename", Old: name, New: newName, Err: err}
	}
	return nil
}

// names hands the names in it to visit, in batches, so that memory does not grow with the folder.
func (h handle) names(visit func(name string) error) error {
	for {
		names, err := h.Readdirnames(256)
		for _, name := range names {
			if err := visit(name); err != nil {
				return err
			}
		}
		if len(names) == 0 {
			if err != nil && !isEOF(err) {
				return err
			}
			return nil
		}
	}
}

// descend opens a folder below it, segment by segment, following no link.
func (h handle) descend(path string) (handle, error) {
	at, err := h.folder(".")
	if err != nil || path == "" {
		return at, err
	}
	for segment := range strings.SplitSeq(path, "/") {
		next, err := at.folder(segment)
		if err != nil {
			st, _ := at.stat(segment)
			at.Close()
			if st != nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
				return handle{}, errLinked
			}
			return handle{}, err
		}
		at.Close()
		at = next
	}
	return at, nil
}

func eintr(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
