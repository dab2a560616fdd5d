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

// An Entry is a file or a folder as it was when it was looked at.
type Entry struct {
	Name     string
	Folder   bool
	Size     int64
	Modified time.Time
	inode    uint64
}

// ETag is a strong validator of a file's content; empty for a folder. An upload always changes the inode, a process
// that writes in place changes the time.
func (e Entry) ETag() string {
	if e.Folder {
		return ""
	}
	return fmt.Sprintf(`"%x-%x-%x"`, e.inode, e.Size, e.Modified.UnixNano())
}

func entryOf(name string, info fs.FileInfo) Entry {
	e := Entry{Name: name, Folder: info.IsDir(), Size: info.Size(), Modified: info.ModTime()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		e.inode = st.Ino
	}
	return e
}

// shown tells whether a thing of the file system is an entry of the drive.
func shown(info fs.FileInfo) bool { return info.IsDir() || info.Mode().IsRegular() }

// Stat tells about a path; a link counts as what it leads to.
func (d *Drive) Stat(path string) (Entry, error) {
	tree, done := d.useTree()
	defer done()
	info, err := tree.inside.Stat(orDot(path))
	if err != nil {
		return Entry{}, fromOS(err)
	}
	if !shown(info) {
		return Entry{}, errNotFound
	}
	return entryOf(info.Name(), info), nil
}

// Open opens a file to read. What it reads stays the same when an upload replaces the file meanwhile.
func (d *Drive) Open(path string) (*os.File, Entry, error) {
	tree, done := d.useTree()
	defer done()
	file, err := tree.inside.OpenFile(orDot(path), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, Entry{}, fromOS(err)
	}
	info, err := file.Stat()
	switch {
	case err == nil && info.IsDir():
		err = errIsFolder
	case err == nil && !shown(info):
		err = errNotFound
	}
	if err != nil {
		return nil, Entry{}, errors.Join(fromOS(err), file.Close())
	}
	return file, entryOf(info.Name(), info), nil
}

// Space tells the bytes that are used and available where the drive lies.
func (d *Drive) Space() (used, available uint64, err error) {
	tree, done := d.useTree()
	defer done()
	var st unix.Statfs_t
	if err := unix.Fstatfs(tree.files.fd(), &st); err != nil {
		return 0, 0, fromOS(err)
	}
	size := uint64(st.Bsize)
	return (st.Blocks - st.Bfree) * size, st.Bavail * size, nil
}

// A Folder lists the entries of a folder of the drive.
type Folder struct {
	drive *Drive
	path  string
	handle
}

// OpenFolder opens a folder to list.
func (d *Drive) OpenFolder(path string) (*Folder, error) {
	tree, done := d.useTree()
	defer done()
	file, err := tree.inside.OpenFile(orDot(path), os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fromOS(err)
	}
	return &Folder{drive: d, path: path, handle: handle{file}}, nil
}

// Each hands the entries to visit in no order, in constant memory. Left out are links that lead nowhere, names that
// processes gave and that no path of the drive can have, and what vanishes meanwhile.
func (f *Folder) Each(ctx context.Context, visit func(Entry) error) error {
	return f.names(func(name string) error {
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

// Properties are the dead properties of an entry in the folder; nothing is opened for them.
func (f *Folder) Properties(name string) ([]Property, error) {
	props, err := readProps(f.handle, name)
	return props, unlessForbidden(err)
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
