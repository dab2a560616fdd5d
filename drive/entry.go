package drive

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/entity"
)

// An Entry describes a file or folder as of the moment when it was read.
type Entry struct {
	Name     string
	Folder   bool
	Size     int64
	Modified time.Time
	inode    uint64
}

// ETag returns a strong validator of a file's content (RFC 9110, section 8.8.1), or "" for a folder. An upload always changes
// the inode; a process that writes in place changes the modification time.
func (e Entry) ETag() string {
	if e.Folder {
		return ""
	}
	return fmt.Sprintf(`"%x-%x-%x"`, e.inode, e.Size, e.Modified.UnixNano())
}

func newEntry(name string, info fs.FileInfo) Entry {
	e := Entry{Name: name, Folder: info.IsDir(), Size: info.Size(), Modified: info.ModTime()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		e.inode = st.Ino
	}
	return e
}

// isListed reports whether a file of the file system is an entry of the drive: folders and regular files are.
func isListed(info fs.FileInfo) bool { return info.IsDir() || info.Mode().IsRegular() }

// Stat returns the entry at a path, for a link the entry that it points to. It returns NotFound if there is none.
func (d *Drive) Stat(path string) (Entry, error) {
	tree, done := d.useTree()
	defer done()
	info, err := tree.inside.Stat(orDot(path))
	if err != nil {
		return Entry{}, fromOS(err)
	}
	if !isListed(info) {
		return Entry{}, errNotFound
	}
	return newEntry(info.Name(), info), nil
}

// Open opens a file for reading. The open file keeps its content if an upload replaces the file. Open returns NotFound or
// IsFolder. The caller closes the file.
func (d *Drive) Open(path string) (*os.File, Entry, error) {
	tree, done := d.useTree()
	defer done()
	file, err := tree.inside.OpenFile(orDot(path), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, Entry{}, fromOS(asOpenError(err))
	}
	info, err := file.Stat()
	switch {
	case err == nil && info.IsDir():
		err = errIsFolder
	case err == nil && !isListed(info):
		err = errNotFound
	}
	if err != nil {
		return nil, Entry{}, errors.Join(fromOS(err), file.Close())
	}
	return file, newEntry(info.Name(), info), nil
}

// OpenToRead is Open for a read that RecordRead records. It also returns the error of Options.Room, because a read is recorded even if the
// workspace has no room in the journal.
func (d *Drive) OpenToRead(path string) (*os.File, Entry, error) {
	file, entry, err := d.Open(path)
	if err != nil {
		return nil, Entry{}, err
	}
	if err := d.drives.room(d.workspaceID); err != nil {
		return nil, Entry{}, errors.Join(err, file.Close())
	}
	return file, entry, nil
}

// A Folder is an open folder of the drive, for listing.
type Folder struct {
	drive *Drive
	path  string
	handle
}

// OpenFolder opens a folder for listing. It returns NotFound if the path is not a folder. The caller closes it.
func (d *Drive) OpenFolder(path string) (*Folder, error) {
	tree, done := d.useTree()
	defer done()
	file, err := tree.inside.OpenFile(orDot(path), os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fromOS(err)
	}
	return &Folder{drive: d, path: path, handle: handle{file}}, nil
}

// Each calls visit with each entry, in no order and in constant memory. It returns visit's first error, ctx's error, or an
// error of the disk. It skips broken links, entries that vanish during the call, and entries that processes have given
// names which entity.CheckPath refuses.
func (f *Folder) Each(ctx context.Context, visit func(Entry) error) error {
	return f.eachName(func(name string) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		entry, ok, err := f.entry(name)
		if err != nil || !ok {
			return err
		}
		return visit(entry)
	})
}

func (f *Folder) entry(name string) (Entry, bool, error) {
	if entity.CheckPath(name) != nil {
		return Entry{}, false, nil
	}
	st, err := f.stat(name)
	if err != nil || st == nil {
		return Entry{}, false, fromOS(err)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG, unix.S_IFDIR:
		return Entry{
			Name: name, Folder: st.Mode&unix.S_IFMT == unix.S_IFDIR, Size: st.Size,
			Modified: time.Unix(st.Mtim.Unix()), inode: st.Ino,
		}, true, nil
	case unix.S_IFLNK:
		entry, err := f.drive.Stat(join(f.path, name))
		entry.Name = name
		return entry, err == nil, nil
	}
	return Entry{}, false, nil
}

// Properties returns the dead properties of an entry in the folder. It opens no file.
func (f *Folder) Properties(name string) ([]Property, error) {
	props, err := readProps(f.handle, name)
	return props, ignoreForbidden(err)
}

func orDot(path string) string {
	if path == "" {
		return "."
	}
	return path
}

func join(folder, name string) string {
	if folder == "" {
		return name
	}
	return folder + "/" + name
}
