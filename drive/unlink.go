package drive

import (
	"errors"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// unlink removes an entry of a folder; flags are those of unlinkat(2).
func (h handle) unlink(name string, flags int) error {
	err := eintr(func() error { return unix.Unlinkat(h.fd(), name, flags) })
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return &fs.PathError{Op: "unlink", Path: name, Err: err}
	}
	return nil
}

// allow lets the owner do all in a folder. It goes by a descriptor: a name could come to be a link.
func (h handle) allow(name string) error {
	folder, err := h.open(name, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer folder.Close()
	return os.Chmod("/proc/self/fd/"+strconv.Itoa(folder.fd()), 0o700)
}
