package drive

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strconv"

	"golang.org/x/sys/unix"
)

// clear removes what lies in tmp. Processes may have left folders that not even their owner may empty.
func (d *Drive) clear(name string) error {
	err := d.tmp.RemoveAll(name)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	dir, base := path.Split(name)
	parent, err := d.aside.descend(path.Clean(dir))
	if err != nil {
		return err
	}
	defer parent.Close()
	if err := openUp(parent, base, 1); err != nil {
		return err
	}
	return d.tmp.RemoveAll(name)
}

// openUp makes the folders of a tree fit to be emptied.
func openUp(parent handle, name string, depth int) error {
	if depth > maxDepth {
		return errTooDeep
	}
	st, err := parent.stat(name)
	if err != nil || st == nil || !isFolder(st) {
		return err
	}
	if err := parent.allow(name); err != nil {
		return err
	}
	folder, err := parent.folder(name)
	if err != nil {
		return err
	}
	defer folder.Close()
	return folder.names(func(child string) error { return openUp(folder, child, depth+1) })
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
