package drive

import (
	"context"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/entity"
)

// MaxDepth is how many segments a path of the drive has at the most. It is checked where the drive's operations make a path:
// by an upload, a new folder, a copy or a move, whose deepest entry counts. Trees that are deeper, made by processes, can be
// read, moved up, removed and backed up.
const MaxDepth = 256

var errTooDeep = entity.Errorf(entity.LimitReached, "a path has at most %d segments; this one, or one below it, would have more", MaxDepth)

// depthOf counts the segments of a path; the root has none.
func depthOf(path string) int {
	if path == "" {
		return 0
	}
	return strings.Count(path, "/") + 1
}

// checkDepth refuses a path that is to be made.
func checkDepth(path string) error {
	if depthOf(path) > MaxDepth {
		return errTooDeep
	}
	return nil
}

// checkMove refuses a move whose deepest entry would be too deep. Only a folder that comes to lie deeper is measured: what
// is below it is walked through.
func (d *Drive) checkMove(ctx context.Context, source *place, from, to string) error {
	if err := checkDepth(to); err != nil {
		return err
	}
	if !source.isFolder() || depthOf(to) <= depthOf(from) {
		return nil
	}
	leave, err := d.drives.counting.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return d.walk(from, &walk{ctx: ctx, enter: func(_ string, depth int) (bool, error) {
		return true, tooDeep(to, depth)
	}, file: func(_ handle, _, _ string, _ *unix.Stat_t, depth int) error {
		return tooDeep(to, depth)
	}})
}

// tooDeep refuses an entry at a depth below a path.
func tooDeep(path string, depth int) error {
	if depthOf(path)+depth > MaxDepth {
		return errTooDeep
	}
	return nil
}

// walk walks through the folder at a path of the drive as it is now.
func (d *Drive) walk(path string, w *walk) error {
	tree, done := d.useTree()
	defer done()
	return w.run(tree.files, path)
}
