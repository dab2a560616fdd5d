package drive

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// ReadState reads a small file beside the drive; nil where it is missing.
func (d *Drive) ReadState(name string) ([]byte, error) {
	content, err := d.drives.root.ReadFile(d.beside(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return content, fromOS(err)
}

// WriteState replaces a small file beside the drive, whole and durably. Calls for one name must not overlap.
func (d *Drive) WriteState(name string, content []byte) error {
	name = d.beside(name)
	next := name + ".next"
	file, err := d.drives.root.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fromOS(err)
	}
	_, err = file.Write(content)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return fromOS(err)
	}
	if err := d.drives.root.Rename(next, name); err != nil {
		return fromOS(err)
	}
	return fromOS(syncFolder(filepath.Join(d.drives.dir, d.workspaceID)))
}

// beside is the name of a small file beside the drive, in the folder of all drives.
func (d *Drive) beside(name string) string { return d.workspaceID + "/" + name }
