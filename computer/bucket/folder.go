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

// Folder is a Bucket of files, each below the folder at the path that is its name. A file is written beside its place,
// under its name with ".<random>.tmp" behind it, and renamed when all of it is on disk. Files and folders are readable by
// their owner alone.
//
// The folder is opened anew for each operation, and never created by one: where a disk is not mounted, operations fail
// and nothing is taken for removed.
type Folder struct{ dir string }

var _ Bucket = (*Folder)(nil)

// OpenFolder returns the bucket of a folder, which it creates where it does not exist.
func OpenFolder(dir string) (*Folder, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("the folder of backups cannot be created: %w", err)
	}
	return &Folder{dir}, syncFolder(os.Open, filepath.Dir(dir))
}

// Put is of Bucket.
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
		if err != nil {
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
	if err := root.Rename(temporary, name); err != nil {
		return err
	}
	temporary = name // if its name cannot be made durable, it is removed as well
	return syncFolder(root.Open, path.Dir(name))
}

// removeUnfinished removes what an earlier attempt to put the same object has left. If that attempt is still running, in
// a process that has lost the task, its rename fails.
func removeUnfinished(root *os.Root, name string) error {
	unfinished, err := fs.Glob(root.FS(), name+".*.tmp")
	for _, name := range unfinished {
		err = errors.Join(err, root.Remove(name))
	}
	return err
}

// makeFolder creates a folder of the bucket, durably.
func makeFolder(root *os.Root, dir string) error {
	if dir == "." {
		return nil
	}
	if err := root.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return syncFolder(root.Open, path.Dir(dir))
}

// syncFolder makes the names in a folder durable.
func syncFolder(open func(name string) (*os.File, error), dir string) error {
	folder, err := open(dir)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// Get is of Bucket.
func (f *Folder) Get(_ context.Context, name string) (io.ReadCloser, error) {
	root, err := f.open()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return root.Open(name)
}

// Delete is of Bucket.
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

// Close is of Bucket.
func (f *Folder) Close() error { return nil }

// open opens the folder. Its error is never fs.ErrNotExist, which would say that an object is absent.
func (f *Folder) open() (*os.Root, error) {
	root, err := os.OpenRoot(f.dir)
	if err != nil {
		return nil, fmt.Errorf("the folder of backups: %v", err)
	}
	return root, nil
}
