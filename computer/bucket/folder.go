package bucket

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
)

// Folder is a Bucket that stores each object as a file; the object's name is the path of the file below the folder. Put
// writes a temporary file named "<name>.<random>.tmp", syncs it and renames it. If only the sync of the folder fails after that, an
// existing object was replaced by the complete new one. Only the process's user can read the files and folders.
//
// Each operation opens the folder anew, and only OpenFolder creates it: if the folder is on a disk that is not mounted,
// operations fail instead of reporting that objects do not exist.
type Folder struct{ dir string }

var _ Bucket = (*Folder)(nil)

// OpenFolder returns a bucket that stores its objects in a folder. It creates the folder durably if it does not exist, and
// fails if it cannot.
func OpenFolder(dir string) (*Folder, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot create the backup folder: %w", err)
	}
	return &Folder{dir}, syncFolder(os.Open, filepath.Dir(dir))
}

// Dir returns the folder.
func (f *Folder) Dir() string { return f.dir }

// Put implements Bucket.
func (f *Folder) Put(ctx context.Context, name string, write func(to io.Writer) error) (err error) {
	root, err := f.open()
	if err != nil {
		return err
	}
	defer root.Close()
	if err := makeFolder(root, path.Dir(name)); err != nil {
		return err
	}
	if err := removeUnfinished(root, name); err != nil {
		return err
	}
	temporary := name + "." + rand.Text() + ".tmp"
	file, err := root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil && temporary != "" {
			err = errors.Join(err, root.Remove(temporary))
		}
	}()
	if err = write(file); err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	_, existing := root.Lstat(name)
	if err := root.Rename(temporary, name); err != nil {
		return err
	}
	temporary = "" // the object stays if it has replaced another
	if errors.Is(existing, fs.ErrNotExist) {
		temporary = name // remove the object if its name cannot be made durable
	}
	return syncFolder(root.Open, path.Dir(name))
}

// removeUnfinished removes the temporary files of earlier attempts to put the same object. An attempt that is still running,
// in a process that no longer owns the task, then fails when it renames its file.
func removeUnfinished(root *os.Root, name string) error {
	unfinished, err := fs.Glob(root.FS(), name+".*.tmp")
	for _, name := range unfinished {
		err = errors.Join(err, root.Remove(name))
	}
	return err
}

// makeFolder creates a folder inside the bucket, with its parents, and makes its name durable.
func makeFolder(root *os.Root, dir string) error {
	if dir == "." {
		return nil
	}
	if err := root.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return syncFolder(root.Open, path.Dir(dir))
}

// syncFolder syncs a folder, which makes the names in it durable.
func syncFolder(open func(name string) (*os.File, error), dir string) error {
	folder, err := open(dir)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// Get implements Bucket.
func (f *Folder) Get(_ context.Context, name string) (io.ReadCloser, error) {
	root, err := f.open()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return root.Open(name)
}

// Delete implements Bucket.
func (f *Folder) Delete(_ context.Context, name string) error {
	root, err := f.open()
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.Remove(name); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	return syncFolder(root.Open, path.Dir(name))
}

// Close implements Bucket. It does nothing.
func (f *Folder) Close() error { return nil }

// open opens the folder. Its error never wraps fs.ErrNotExist, because callers would conclude that an object does not exist.
func (f *Folder) open() (*os.Root, error) {
	root, err := os.OpenRoot(f.dir)
	if err != nil {
		return nil, fmt.Errorf("cannot open the backup folder: %v", err)
	}
	return root, nil
}
