package files

import (
	"context"
	"errors"
	"strings"

	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/drive/locks"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
)

// ResolveFolder returns the path of the real folder that a path names, without links; the empty path is the root of the drive. Errors:
// session.ErrNoFolder, session.ErrNotFolder, session.ErrOutsideDrive, the errors of the drive.
func (f Files) ResolveFolder(ctx context.Context, workspaceID, path string) (string, error) {
	d, release, err := f.Drives.Open(ctx, workspaceID)
	if err != nil {
		return "", err
	}
	defer release()
	real, err := d.ResolveFolder(path)
	refused, is := errors.AsType[*entity.Error](err)
	switch {
	case !is:
		return real, err
	case refused.Code == entity.NotFound:
		return "", session.ErrNoFolder
	case refused.Code == drive.NotFolder:
		return "", session.ErrNotFolder
	case refused.Code == drive.Outside:
		return "", session.ErrOutsideDrive
	}
	return "", err
}

// FileSize returns the size of a file in bytes. Errors: not_found if the path names no file.
func (f Files) FileSize(ctx context.Context, workspaceID, path string) (int64, error) {
	d, release, err := f.Drives.Open(ctx, workspaceID)
	if err != nil {
		return 0, err
	}
	defer release()
	entry, err := d.Stat(path)
	if err == nil && entry.Folder {
		err = entity.Errorf(entity.NotFound, "the path is a folder")
	}
	return entry.Size, err
}

// MakeFolders creates the folders of a path that do not exist, as the principal of the access. Errors: path_in_use if the path has
// something else than folders or is locked, limit_reached if no space is left, the errors of the access and of the drive.
func (f Files) MakeFolders(ctx context.Context, workspaceID, path string, access entity.DriveAccess) error {
	d, release, err := f.Drives.Open(ctx, workspaceID)
	if err != nil {
		return err
	}
	defer release()
	failed, err := makeFolders(ctx, d, path, drive.NewChange(access))
	return folderRefusal(failed, err)
}

// makeFolders creates the folders of a path that do not exist. After an error it returns the folder that cannot be created.
func makeFolders(ctx context.Context, d *drive.Drive, path string, c drive.Change) (failed string, err error) {
	folder := ""
	for segment := range strings.SplitSeq(path, "/") {
		folder = strings.TrimPrefix(folder+"/"+segment, "/")
		if isFolder(d, folder) {
			continue
		}
		err := d.MakeFolder(ctx, folder, c)
		if err != nil && !isFolder(d, folder) { // another request may have created it
			return folder, err
		}
	}
	return "", nil
}

func isFolder(d *drive.Drive, path string) bool {
	entry, err := d.Stat(path)
	return err == nil && entry.Folder
}

// folderRefusal returns the error of creating a folder with a code that the API has, or nil.
func folderRefusal(path string, err error) error {
	refused, is := errors.AsType[*entity.Error](err)
	if !is {
		return err
	}
	switch refused.Code {
	case drive.Exists, drive.NoParent, drive.Linked, locks.Locked:
		return entity.Errorf(entity.PathInUse, "the folder %s cannot be created: %s", path, refused.Message)
	case drive.Full:
		return entity.Errorf(entity.LimitReached, "the folder %s cannot be created: %s", path, refused.Message)
	}
	return err
}
