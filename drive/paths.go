package drive

import (
	"context"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/entity"
)

// pathLocks locks paths for operations. Two paths conflict if they are equal or one is an ancestor of the other. Conflicting
// claims are granted in their order of arrival, and all paths of a claim at once, so that no claim starves and no
// deadlock is possible.
type pathLocks struct {
	mu     sync.Mutex
	claims map[*claim]struct{}
}

// A claim is one operation's request for its paths. It is granted when blockers is 0.
type claim struct {
	paths []string
	// blockers counts the earlier claims that conflict; followers are the later claims that this one blocks.
	blockers  int
	followers map[*claim]struct{}
	granted   chan struct{}
}

// acquire waits until no earlier claim conflicts with the paths. It returns ctx's error, or Unavailable after waitTimeout.
// The caller calls release once.
func (l *pathLocks) acquire(ctx context.Context, paths ...string) (release func(), err error) {
	c := l.enqueue(paths)
	release = func() { l.remove(c) }
	select {
	case <-c.granted:
		return release, nil
	default:
	}
	timer := time.NewTimer(waitTimeout)
	defer timer.Stop()
	select {
	case <-c.granted:
		return release, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = unavailable("another operation holds the path; try again")
	}
	release()
	return nil, err
}

func (l *pathLocks) enqueue(paths []string) *claim {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &claim{paths: paths, granted: make(chan struct{})}
	for earlier := range l.claims {
		if earlier.conflicts(c) {
			c.blockers++
			if earlier.followers == nil {
				earlier.followers = map[*claim]struct{}{}
			}
			earlier.followers[c] = struct{}{}
		}
	}
	if l.claims == nil {
		l.claims = map[*claim]struct{}{}
	}
	l.claims[c] = struct{}{}
	if c.blockers == 0 {
		close(c.granted)
	}
	return c
}

// remove withdraws a claim, granted or not, and grants the claims that it was the last to block.
func (l *pathLocks) remove(c *claim) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.claims, c)
	if c.blockers > 0 { // otherwise it follows no claim any more
		for earlier := range l.claims {
			delete(earlier.followers, c)
		}
	}
	for follower := range c.followers {
		if follower.blockers--; follower.blockers == 0 {
			close(follower.granted)
		}
	}
}

func (c *claim) conflicts(other *claim) bool {
	for _, a := range c.paths {
		for _, b := range other.paths {
			if entity.Within(a, b) || entity.Within(b, a) {
				return true
			}
		}
	}
	return false
}

// MaxDepth is the maximum number of segments of a path that the drive's operations create, by an upload, a new folder, a
// copy or a move. For a folder its deepest entry counts. Deeper trees, which processes may create, can be read, moved
// up, removed and backed up.
const MaxDepth = 256

var errTooDeep = entity.Errorf(entity.LimitReached, "a path has at most %d segments; this path, or one below it, would have more", MaxDepth)

// depthOf returns the number of segments of a path, 0 for the root.
func depthOf(path string) int {
	if path == "" {
		return 0
	}
	return strings.Count(path, "/") + 1
}

// validateDepth returns errTooDeep if a new entry at the path would be too deep.
func validateDepth(path string) error {
	if depthOf(path) > MaxDepth {
		return errTooDeep
	}
	return nil
}

// validateMoveDepth returns errTooDeep if an entry of the source would be too deep at the destination. It walks through a
// folder only if the move makes it deeper.
func (d *Drive) validateMoveDepth(ctx context.Context, source *location, from, to string) error {
	if err := validateDepth(to); err != nil {
		return err
	}
	if !source.isFolder() || depthOf(to) <= depthOf(from) {
		return nil
	}
	release, err := d.drives.countSlots.acquire(ctx)
	if err != nil {
		return err
	}
	defer release()
	return d.walk(from, &walk{ctx: ctx, enter: func(_ string, depth int) (bool, error) {
		return true, validateEntryDepth(to, depth)
	}, file: func(_ handle, _, _ string, _ *unix.Stat_t, depth int) error {
		return validateEntryDepth(to, depth)
	}, unreadable: skipUnreadable})
}

// validateEntryDepth returns errTooDeep if an entry that is depth levels below the path would be too deep.
func validateEntryDepth(path string, depth int) error {
	if depthOf(path)+depth > MaxDepth {
		return errTooDeep
	}
	return nil
}

// walk runs w on the folder at a path of the drive's current tree.
func (d *Drive) walk(path string, w *walk) error {
	tree, done := d.useTree()
	defer done()
	return w.run(tree.files, path)
}
