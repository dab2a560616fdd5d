package drive

import (
	"io/fs"
	"path"
	"strings"

	"github.com/atelier-run/atelier/entity"
)

// Codes of errors of ResolveFolder.
const (
	// NotFolder means that the path is not a folder.
	NotFolder entity.Code = "not_folder"
	// Outside means that a link of the path leads out of the drive.
	Outside entity.Code = "outside_drive"
)

var (
	errNotFolder = entity.Errorf(NotFolder, "the path is not a folder")
	errOutside   = entity.Errorf(Outside, "the path leads out of the drive")
)

// maxLinks bounds the links that ResolveFolder follows, as the kernel does.
const maxLinks = 40

// ResolveFolder returns the path of the folder that a path names, without links; the empty path is the root. It returns
// NotFound, NotFolder, or Outside if a link leads out of the drive, whether its target exists or not.
func (d *Drive) ResolveFolder(name string) (string, error) {
	tree, done := d.useTree()
	defer done()
	var real []string
	rest := splitNonEmpty(name)
	for links := 0; len(rest) > 0; {
		segment := rest[0]
		rest = rest[1:]
		switch segment {
		case ".":
			continue
		case "..":
			if len(real) == 0 {
				return "", errOutside
			}
			real = real[:len(real)-1]
			continue
		}
		at := path.Join(append(real, segment)...)
		info, err := tree.inside.Lstat(at)
		if err != nil {
			return "", fromOS(err)
		}
		switch {
		case info.IsDir():
			real = append(real, segment)
		case info.Mode()&fs.ModeSymlink == 0:
			return "", errNotFolder
		default:
			target, err := tree.inside.Readlink(at)
			if err != nil {
				return "", fromOS(err)
			}
			if links++; links > maxLinks {
				return "", errNotFound
			}
			if path.IsAbs(target) {
				return "", errOutside
			}
			rest = append(splitNonEmpty(target), rest...)
		}
	}
	return path.Join(real...), nil
}

// splitNonEmpty returns the segments of a path without empty ones.
func splitNonEmpty(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
}
