package drive

import (
	"context"
	"strings"
	"sync"
	"time"
)

// pathLocks hold paths for operations. Two paths conflict where they are equal or one is an ancestor of the other.
// Claims are granted in the order of arrival among those that conflict, and all paths of a claim at once, so that
// nobody starves and nothing deadlocks.
type pathLocks struct {
	mu     sync.Mutex
	claims map[*claim]struct{}
}

type claim struct {
	paths []string
	// blockers counts the earlier claims that conflict; followers are the later ones that this one blocks.
	blockers  int
	followers map[*claim]struct{}
	granted   chan struct{}
}

// acquire waits until no earlier claim conflicts. The release may be called once.
func (l *pathLocks) acquire(ctx context.Context, paths ...string) (release func(), err error) {
	c := l.enter(paths)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-c.granted:
		return func() { l.leave(c) }, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = unavailable("another operation holds the path")
	}
	l.leave(c)
	return nil, err
}

func (l *pathLocks) enter(paths []string) *claim {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &claim{paths: paths, followers: map[*claim]struct{}{}, granted: make(chan struct{})}
	for earlier := range l.claims {
		if earlier.conflicts(c) {
			c.blockers++
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

func (l *pathLocks) leave(c *claim) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.claims, c)
	for earlier := range l.claims {
		delete(earlier.followers, c)
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
			if Within(a, b) || Within(b, a) {
				return true
			}
		}
	}
	return false
}

// Within tells whether a path is a folder's or below it; the empty folder is the root.
func Within(path, folder string) bool {
	if folder == "" || path == folder {
		return true
	}
	return len(path) > len(folder) && path[len(folder)] == '/' && strings.HasPrefix(path, folder)
}
