package drive

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"time"

	"github.com/atelier-run/atelier/entity"
)

// Codes of refusals beside those of package entity.
const (
	// Exists: something is at the path already.
	Exists entity.Code = "already_exists"
	// NoParent: the folder that would hold the path is missing, or no folder.
	NoParent entity.Code = "no_parent"
	// IsFolder: the path is a folder where a file is needed.
	IsFolder entity.Code = "is_folder"
	// Linked: the path runs through a symbolic link.
	Linked entity.Code = "linked_path"
	// Overlap: source and destination are the same, or one holds the other.
	Overlap entity.Code = "paths_overlap"
	// Full: the disk, a quota, or the room for properties is used up, or properties cannot be kept there at all.
	Full entity.Code = "insufficient_storage"
	// Broken: the upload ended before its end.
	Broken entity.Code = "broken_upload"
)

var (
	errNotFound = entity.Errorf(entity.NotFound, "no such file or folder")
	errExists   = entity.Errorf(Exists, "something is at this path already")
	errNoParent = entity.Errorf(NoParent, "the parent folder does not exist")
	errIsFolder = entity.Errorf(IsFolder, "the path is a folder")
	errLinked   = entity.Errorf(Linked, "the path runs through a link")
	errOverlap  = entity.Errorf(Overlap, "source and destination overlap")
	errRoot     = entity.Errorf(entity.Forbidden, "the drive's root stays as it is")
	errNoRight  = entity.Errorf(entity.Forbidden, "the server has no right to this on the disk")

	errUnprovisioned = unavailable("the drive is not provisioned yet")
	errInUse         = unavailable("too many drives are in use")
	errClosing       = unavailable("the drives are closing")
)

func unavailable(format string, args ...any) *entity.Error {
	e := entity.Errorf(entity.Unavailable, format, args...)
	e.RetryAfter = 2 * time.Second
	return e
}

// fromOS gives an error of the operating system the code that a client can act on.
func fromOS(err error) error {
	var known *entity.Error
	switch {
	case err == nil, errors.As(err, &known):
		return err
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ELOOP), escapes(err):
		return errNotFound
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return entity.Errorf(Full, "no space is left")
	case errors.Is(err, syscall.EFBIG):
		return entity.Errorf(entity.PayloadTooLarge, "the file is larger than the file system takes")
	case errors.Is(err, syscall.ENAMETOOLONG):
		return entity.Errorf(entity.InvalidRequest, "path is too long")
	case errors.Is(err, fs.ErrExist), errors.Is(err, syscall.ENOTEMPTY):
		return errExists
	case errors.Is(err, fs.ErrPermission):
		return errNoRight
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return unavailable("too many files are open")
	}
	return fmt.Errorf("drive: %w", err)
}

// escapes knows the error of os.Root for a link that leads outside, which has no name and may be inside another.
func escapes(err error) bool {
	var p *fs.PathError
	return errors.As(err, &p) && strings.HasSuffix(p.Err.Error(), "path escapes from parent")
}
