package drive

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"
)

// A walk visits a folder of the drive and all below it. It holds one descriptor, two for moments, and does not recurse,
// however deep the tree is. Memory grows with the names of the folders beside the path to where it is, and not with files.
//
// Entries that come or go meanwhile are visited or are not. The functions may be nil. Paths are relative to the folder
// where the walk begins, which is ""; the entries in it are at depth 1. Handles are good until the function returns.
type walk struct {
	ctx context.Context
	// enter is called for a folder before what is in it; the walk leaves out a folder that it refuses.
	enter func(path string, depth int) (visit bool, err error)
	// file is called for each entry that is no folder.
	file func(parent handle, name, path string, st *unix.Stat_t, depth int) error
	// leave is called for a folder after all that is below it.
	leave func(folder handle, path string) error
}

// A level is a folder on the path to where a walk is.
type level struct {
	dev, inode uint64
	// parent is the length of the path of the folder above.
	parent int
	// folders are the names of the folders in it that are still to be visited, each behind a slash.
	folders []byte
}

// next removes a folder's name from those that are still to be visited.
func (l *level) next() (name string, ok bool) {
	if len(l.folders) == 0 {
		return "", false
	}
	start := len(l.folders) - 1
	for l.folders[start] != '/' {
		start--
	}
	name = string(l.folders[start+1:])
	l.folders = l.folders[:start]
	return name, true
}

// run walks through the folder at a path of a tree.
func (w *walk) run(root handle, top string) error {
	at, err := root.descend(top)
	if err != nil {
		return err
	}
	defer func() { at.Close() }()
	if w.enter != nil {
		if visit, err := w.enter("", 0); err != nil || !visit {
			return err
		}
	}
	path := ""
	levels := make([]level, 1, 16)
	if err := w.list(at, path, &levels[0], 1); err != nil {
		return err
	}
	for {
		deepest := &levels[len(levels)-1]
		if name, ok := deepest.next(); ok {
			below, err := w.down(at, join(path, name), name, len(levels))
			if err != nil {
				return err
			}
			if below.File == nil {
				continue
			}
			at.Close()
			levels = append(levels, level{parent: len(path)})
			at, path = below, join(path, name)
			if err := w.list(at, path, &levels[len(levels)-1], len(levels)); err != nil {
				return err
			}
			continue
		}
		if w.leave != nil {
			if err := w.leave(at, path); err != nil {
				return err
			}
		}
		if len(levels) == 1 {
			return nil
		}
		above, count, err := w.up(root, top, at, path, levels)
		if err != nil || count == 0 {
			return err
		}
		at.Close()
		for len(levels) > count {
			path = path[:levels[len(levels)-1].parent]
			levels = levels[:len(levels)-1]
		}
		at = above
	}
}

// list visits the entries of a folder that are no folders and notes those that are.
func (w *walk) list(at handle, path string, l *level, depth int) error {
	st, err := at.stat(".")
	if err != nil || st == nil {
		return err
	}
	l.dev, l.inode = st.Dev, st.Ino
	return at.names(func(name string) error {
		if err := w.ctx.Err(); err != nil {
			return err
		}
		st, err := at.stat(name)
		if err != nil || st == nil {
			return err
		}
		if isFolder(st) {
			l.folders = append(append(l.folders, '/'), name...)
			return nil
		}
		if w.file == nil {
			return nil
		}
		if err := w.file(at, name, join(path, name), st, depth); !vanished(err) {
			return err
		}
		return nil
	})
}

// down opens a folder that was listed; none where it has vanished or is left out.
func (w *walk) down(at handle, path, name string, depth int) (handle, error) {
	if err := w.ctx.Err(); err != nil {
		return handle{}, err
	}
	if w.enter != nil {
		if visit, err := w.enter(path, depth); err != nil || !visit {
			return handle{}, err
		}
	}
	below, err := at.folder(name)
	if vanished(err) {
		return handle{}, nil
	}
	return below, err
}

// up opens the folder above, and returns how many levels there are then. Where folders were moved or removed meanwhile that
// is the deepest one that is still in its place; none and no error where not even the first one is.
func (w *walk) up(root handle, top string, at handle, path string, levels []level) (above handle, count int, err error) {
	count = len(levels) - 1
	above, err = at.folder("..")
	if err == nil && levels[count-1].is(above) {
		return above, count, nil
	}
	for ; count > 0; count-- {
		if above.File != nil {
			above.Close()
		}
		path = path[:levels[count].parent]
		above, err = root.descend(strings.Trim(top+"/"+path, "/"))
		switch {
		case err == nil && levels[count-1].is(above):
			return above, count, nil
		case err != nil && !vanished(err) && !errors.Is(err, errLinked):
			return handle{}, 0, err
		}
	}
	if above.File != nil {
		above.Close()
	}
	return handle{}, 0, nil
}

// is reports whether an open folder is the level's.
func (l *level) is(folder handle) bool {
	st, err := folder.stat(".")
	return err == nil && st != nil && st.Dev == l.dev && st.Ino == l.inode
}

// vanished reports whether an error says that an entry went, or became something else, since it was listed.
func vanished(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotFound) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR)
}
