package session

import (
	"path"
	"strings"

	"github.com/atelier-run/atelier/entity"
)

// The reasons of invalid_cwd.
const (
	reasonNotFound     = "not_found"
	reasonNotDirectory = "not_a_directory"
	reasonOutside      = "outside_drive"
	reasonInvalid      = "invalid_path"
)

// Errors for a working directory that no session can have. The drive returns the first three.
var (
	ErrNoFolder     = invalidCwd(reasonNotFound, "the working directory does not exist")
	ErrNotFolder    = invalidCwd(reasonNotDirectory, "the working directory is not a folder")
	ErrOutsideDrive = invalidCwd(reasonOutside, "the working directory is outside the drive")

	errCwdPath = invalidCwd(reasonInvalid, "the working directory must be a path relative to the drive's root")
)

func invalidCwd(reason, message string) *entity.Error {
	return &entity.Error{Code: entity.InvalidCwd, Message: message, Reason: reason}
}

// CleanCwd removes ".", ".." and repeated slashes from a working directory in a request; the root of the drive is empty. It
// refuses a text that is not a path, and a path that leads out of the drive.
func CleanCwd(cwd string) (string, *entity.Error) {
	if strings.HasPrefix(cwd, "/") {
		return "", errCwdPath
	}
	clean := path.Clean(cwd)
	switch {
	case clean == ".":
		return "", nil
	case clean == "..", strings.HasPrefix(clean, "../"):
		return "", ErrOutsideDrive
	case entity.CheckPath(clean) != nil:
		return "", errCwdPath
	}
	return clean, nil
}
