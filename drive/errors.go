package drive

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"time"

	"github.com/atelier-run/atelier/drive/quota"
	"github.com/atelier-run/atelier/entity"
)

// Codes of errors, in addition to the codes of package entity.
const (
	// Exists means that the path exists already.
	Exists entity.Code = "already_exists"
	// NoParent means that the parent of the path does not exist or is not a folder.
	NoParent entity.Code = "no_parent"
	// IsFolder means that the path is a folder, but the operation needs a file.
	IsFolder entity.Code = "is_folder"
	// Linked means that the path goes through a symbolic link.
	Linked entity.Code = "linked_path"
	// Overlap means that source and destination are equal or one contains the other.
	Overlap entity.Code = "paths_overlap"
	// Full means that the disk, a quota or the space for properties is exhausted, or that the file system does not support
	// properties.
	Full = quota.Full
	// TimeOutOfRange means that the file system has no such modification time.
	TimeOutOfRange entity.Code = "time_out_of_range"
	// Broken means that an upload was interrupted or did not have the announced size.
	Broken entity.Code = "broken_upload"
)

var (
	errNotFound   = entity.Errorf(entity.NotFound, "no such file or folder")
	errExists     = entity.Errorf(Exists, "the path already exists")
	errNoParent   = entity.Errorf(NoParent, "the parent folder does not exist")
	errIsFolder   = entity.Errorf(IsFolder, "the path is a folder")
	errLinked     = entity.Errorf(Linked, "the path goes through a symbolic link")
	errOverlap    = entity.Errorf(Overlap, "source and destination overlap")
	errRoot       = entity.Errorf(entity.Forbidden, "the drive's root cannot be changed")
	errPermission = entity.Errorf(entity.Forbidden, "the server lacks the file permission for this operation")

	errUnprovisioned = unavailable("the drive is not provisioned yet")
	errInUse         = unavailable("too many drives are in use; try again")
	errClosing       = unavailable("the server is shutting down")
)

// unavailable returns an Unavailable error that asks the client to retry.
func unavailable(format string, args ...any) *entity.Error {
	e := entity.Errorf(entity.Unavailable, format, args...)
	e.RetryAfter = 2 * time.Second
	return e
}

// fromOS converts an error of the operating system to an *entity.Error with a code that a client can act on. It returns errors
// with a code unchanged, and wraps unknown errors.
func fromOS(err error) error {
	var known *entity.Error
	switch {
	case err == nil, errors.As(err, &known):
		return err
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ELOOP), isEscape(err):
		return errNotFound
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return entity.Errorf(Full, "no space is left on the disk, or the quota is exhausted")
	case errors.Is(err, syscall.EFBIG):
		return entity.Errorf(entity.PayloadTooLarge, "the file is larger than the file system allows")
	case errors.Is(err, syscall.ENAMETOOLONG):
		return entity.Errorf(entity.InvalidRequest, "path is too long")
	case errors.Is(err, fs.ErrExist), errors.Is(err, syscall.ENOTEMPTY):
		return errExists
	case errors.Is(err, fs.ErrPermission):
		return errPermission
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return unavailable("the server has too many files open; try again")
	}
	return fmt.Errorf("drive: %w", err)
}

// asOpenError converts the errors that only opening a file has, and returns other errors unchanged.
func asOpenError(err error) error {
	switch {
	case errors.Is(err, syscall.ENXIO), errors.Is(err, syscall.ENODEV):
		return errNotFound // a socket, or a device without a driver: drives have neither
	case errors.Is(err, syscall.EWOULDBLOCK):
		return unavailable("a process holds a lease on the file; try again")
	}
	return err
}

// isEscape reports whether an error is os.Root's error for a path or link that leads out of the root. Package os does not
// export that error, so isEscape compares its text.
func isEscape(err error) bool {
	var p *fs.PathError
	return errors.As(err, &p) && strings.HasSuffix(p.Err.Error(), "path escapes from parent")
}
