// Package files has the operations on the files of drives by path, for doors without a protocol of files: uploads and working directories
// of the API (http/api), the tools for agents (runner/tools). Each operation opens the drive of the workspace, is bounded by its locks and
// limits, and is recorded with its author, as each operation of package drive. The caller is authorized. Package webdav is the door of
// clients of files.
//
// Errors that the caller may know are *entity.Error.
package files

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path"
	"time"

	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/entity"
)

// Files has the operations. It is safe for concurrent use.
type Files struct{ Drives *drive.Drives }

// Entry is an entry of a folder. Size is the number of bytes of a file.
type Entry struct {
	Name     string
	Folder   bool
	Size     int64
	Modified time.Time
}

// Read returns at most limit bytes of a file from an offset, and the size of the file. The read is recorded for the principal of the
// access. Errors: not_found, invalid_request if the path is a folder.
func (f Files) Read(
	ctx context.Context, access entity.DriveAccess, path string, offset, limit int64,
) (content []byte, size int64, err error) {
	d, release, err := f.Drives.Open(ctx, access.WorkspaceID)
	if err != nil {
		return nil, 0, err
	}
	defer release()
	file, entry, err := d.OpenToRead(path)
	if err != nil {
		return nil, 0, err
	}
	defer file.Close()
	content = make([]byte, max(0, min(limit, entry.Size-offset)))
	read, err := file.ReadAt(content, offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, 0, err
	}
	d.CountSent(int64(read))
	if read > 0 {
		if err := d.RecordRead(path, drive.AuthorOf(access.Principal)); err != nil {
			return nil, 0, err
		}
	}
	return content[:read], entry.Size, nil
}

// List calls visit for each entry of a folder, until visit returns false. Errors: not_found.
func (f Files) List(ctx context.Context, access entity.DriveAccess, folder string, visit func(Entry) bool) error {
	d, release, err := f.Drives.Open(ctx, access.WorkspaceID)
	if err != nil {
		return err
	}
	defer release()
	opened, err := d.OpenFolder(folder)
	if err != nil {
		return err
	}
	defer opened.Close()
	err = opened.Each(ctx, func(e drive.Entry) error {
		if !visit(Entry{Name: e.Name, Folder: e.Folder, Size: e.Size, Modified: e.Modified.UTC()}) {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// errEnough ends a listing.
var errEnough = errors.New("enough entries")

// Write replaces a file, or creates the file and the folders above it. It reports whether the file is new. Errors: the errors of the access
// and of the drive, locked.
func (f Files) Write(ctx context.Context, access entity.DriveAccess, file string, content []byte) (created bool, err error) {
	d, release, err := f.Drives.Open(ctx, access.WorkspaceID)
	if err != nil {
		return false, err
	}
	defer release()
	defer func() {
		if cause, is := errors.AsType[*entity.Error](context.Cause(ctx)); err != nil && is { // why the caller lost the access
			err = cause
		}
	}()
	change := drive.NewChange(access)
	put := func() (created bool, err error) {
		_, created, err = d.Put(ctx, file, drive.Upload{Body: bytes.NewReader(content), Size: int64(len(content))}, change)
		return created, err
	}
	if created, err = put(); !entity.HasCode(err, drive.NoParent) {
		return created, err
	}
	if _, err := makeFolders(ctx, d, path.Dir(file), change); err != nil && !entity.HasCode(err, drive.Exists) {
		return false, err
	}
	return put() // refused if one of the folders is a file
}
