package drive

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A walk visits a folder of the drive and all entries below it, depth first. It holds one descriptor, for moments two, and
// does not recurse, so that the depth of the tree does not matter. Memory grows with the names of the folders that are still
// to be visited, not with the number of files.
//
// Entries that are created or removed during the walk may be visited or not. Each function may be nil; its error ends the
// walk. Paths are relative to the top folder, which is ""; the entries in the top folder are at depth 1. A handle is
// valid until the function returns.
type walk struct {
	ctx context.Context
	// enter is called for a folder before its entries. The walk skips the folder if visit is false.
	enter func(path string, depth int) (visit bool, err error)
	// opened is called after enter for a folder that was opened.
	opened func(folder handle, path string) error
	// file is called for each entry that is not a folder.
	file func(parent handle, name, path string, st *unix.Stat_t, depth int) error
	// vanished is called for an entry that was listed and does not exist any more.
	vanished func()
	// unreadable is called for an entry that this process has no permission to read: a folder, which the walk skips, an entry for
	// which file returned such an error, or an entry of a folder that may not be searched; then st is nil. Without unreadable, the
	// walk ends with the error.
	unreadable func(path string, st *unix.Stat_t) error
	// leave is called for a folder after its entries.
	leave func(folder handle, path string) error
}

// A level is a folder between the top folder and the walk's current folder, both included.
type level struct {
	dev, inode uint64
	// parent is the length of the path of the level above.
	parent int
	// folders holds the names of the folders in it that are still to be visited, each after a slash.
	folders []byte
}

// next removes and returns the name of a folder that is still to be visited.
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

// run visits the folder at the path top below root. It returns the first error of the walk's functions, ctx's error or an
// error of the file system. An entry that vanishes during the walk is no error.
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
	if w.opened != nil {
		if err := w.opened(at, ""); err != nil {
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
			below, err := w.openChild(at, join(path, name), name, len(levels))
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
		above, count, err := w.openParent(root, top, at, path, levels)
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

// list calls file for the entries of a folder and records the names of the folders in l.
func (w *walk) list(at handle, path string, l *level, depth int) error {
	st, err := statFile(at.File) // a folder that may not be searched has no entry "."
	if err != nil {
		return err
	}
	l.dev, l.inode = st.Dev, st.Ino
	return at.eachName(func(name string) error {
		if err := w.ctx.Err(); err != nil {
			return err
		}
		st, err := at.stat(name)
		if err == nil && st == nil && w.vanished != nil {
			w.vanished()
		}
		if err != nil || st == nil {
			return w.skipDenied(err, join(path, name), nil)
		}
		if isFolder(st) {
			l.folders = append(append(l.folders, '/'), name...)
			return nil
		}
		if w.file == nil {
			return nil
		}
		if err := w.file(at, name, join(path, name), st, depth); !isVanished(err) {
			return w.skipDenied(err, join(path, name), st)
		}
		return nil
	})
}

// skipDenied calls unreadable, if there is such a function, for an entry that could not be read because of err, its lack of
// permission. It returns every other error, and the error of unreadable.
func (w *walk) skipDenied(err error, path string, st *unix.Stat_t) error {
	if w.unreadable == nil || !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return w.unreadable(path, st)
}

// openChild calls enter for a listed folder and opens it. It returns the zero handle and no error if the folder has vanished
// or enter skips it.
func (w *walk) openChild(at handle, path, name string, depth int) (handle, error) {
	if err := w.ctx.Err(); err != nil {
		return handle{}, err
	}
	if w.enter != nil {
		if visit, err := w.enter(path, depth); err != nil || !visit {
			return handle{}, err
		}
	}
	below, err := at.openFolder(name)
	if isVanished(err) {
		return handle{}, nil
	}
	if errors.Is(err, fs.ErrPermission) {
		st, failed := at.stat(name)
		if failed == nil && st == nil {
			return handle{}, nil
		}
		return handle{}, w.skipDenied(err, path, st)
	}
	if err == nil && w.opened != nil {
		if err := w.opened(below, path); err != nil {
			below.Close()
			return handle{}, err
		}
	}
	return below, err
}

// openParent opens the folder of the level above and returns the number of levels that remain. If folders were moved or
// removed during the walk, it opens the deepest level that still is where it was, and returns 0 and no error if none is.
func (w *walk) openParent(root handle, top string, at handle, path string, levels []level) (above handle, count int, err error) {
	count = len(levels) - 1
	above, err = at.openFolder("..")
	if err == nil && levels[count-1].matches(above) {
		return above, count, nil
	}
	for ; count > 0; count-- {
		if above.File != nil {
			above.Close()
		}
		path = path[:levels[count].parent]
		above, err = root.descend(strings.Trim(top+"/"+path, "/"))
		switch {
		case err == nil && levels[count-1].matches(above):
			return above, count, nil
		case err != nil && !isVanished(err) && !errors.Is(err, errLinked):
			return handle{}, 0, err
		}
	}
	if above.File != nil {
		above.Close()
	}
	return handle{}, 0, nil
}

// matches reports whether an open folder is the level's.
func (l *level) matches(folder handle) bool {
	st, err := statFile(folder.File)
	return err == nil && st.Dev == l.dev && st.Ino == l.inode
}

// isVanished reports whether an error means that an entry was removed or replaced since it was listed.
func isVanished(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotFound) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR)
}

// Walk calls visit for each entry of the drive, with its attributes without following a link: a folder after the files in the
// folder above it and before its own entries. It holds one descriptor, for moments two, at any depth. Entries that are created
// or removed during the walk may be visited or not. Walk returns visit's first error, ctx's error, or an error of the disk.
func (d *Drive) Walk(ctx context.Context, visit func(path string, st *unix.Stat_t) error) error {
	release, err := d.drives.copySlots.acquire(ctx)
	if err != nil {
		return err
	}
	defer release()
	tree, done := d.useTree()
	defer done()
	w := &walk{
		ctx: ctx,
		// Not enter: processes make paths that are too long for a system call, and replace folders of a path by files.
		opened: func(folder handle, path string) error {
			st, err := statFile(folder.File)
			if err != nil {
				return err
			}
			return visit(path, st)
		},
		file: func(_ handle, _, path string, st *unix.Stat_t, _ int) error { return visit(path, st) },
		unreadable: func(path string, st *unix.Stat_t) error {
			if st == nil {
				return nil
			}
			return visit(path, st)
		},
	}
	return fromOS(w.run(tree.files, ""))
}

// skipUnreadable is the function unreadable of walks that need not read everything.
func skipUnreadable(string, *unix.Stat_t) error { return nil }

// maxWalks limits the concurrent walks of one kind, so that they do not saturate the disk.
const maxWalks = 16

// walkSlots is a semaphore for the walks of one kind.
type walkSlots chan struct{}

// acquire waits for a slot. It returns ctx's error, or Unavailable after waitTimeout.
func (s walkSlots) acquire(ctx context.Context) (release func(), err error) {
	select {
	case s <- struct{}{}:
		return func() { <-s }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(waitTimeout):
		return nil, unavailable("too many folders are being copied, moved or deleted; try again")
	}
}
