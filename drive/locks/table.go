package locks

import (
	"crypto/rand"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/atelier-run/atelier/entity"
)

const (
	// maxLocks limits the locks of one drive, and maxLockBytes the sum of their sizes.
	maxLocks     = 512
	maxLockBytes = 1 << 20
	// maxPathBytes limits the sum of the sizes of the locks that cover one path, because PROPFIND returns all of them for each entry.
	maxPathBytes = 32 << 10
	// MaxOwner limits the owner of a lock, in bytes.
	MaxOwner = 2 << 10
	// MaxTimeout limits the time that a lock lasts after it was acquired or refreshed.
	MaxTimeout = time.Hour
)

// size returns the greatest number of bytes of the lock's activelock element: its path is part of a URL.
func (l *Lock) size() int { return 400 + len(l.Owner) + 3*len(l.Path) }

// sizeOf returns the sum of the sizes of locks.
func sizeOf(locks []*Lock) (size int) {
	for _, held := range locks {
		size += held.size()
	}
	return size
}

// sizeOn returns the sum of the sizes of the locks that cover a path.
func sizeOn(locks []*Lock, path string) (size int) {
	for _, held := range locks {
		if held.covers(path) {
			size += held.size()
		}
	}
	return size
}

// A Table holds the locks of one drive. Every change is durable before its method returns.
type Table struct {
	file  lockFile
	clock clock
	// exists reports whether something is at a path of the drive. A lock on a path with nothing has no effect: processes and restores remove
	// what is locked.
	exists func(path string) bool
	mu     sync.Mutex
	held   []*Lock
}

// Load reads the locks of a drive from disk. It ignores a file that it cannot parse, and locks that are not valid, because
// locks are short-lived. exists reports whether something is at a path of the drive.
func Load(store Store, log *slog.Logger, exists func(path string) bool) (*Table, error) {
	return load(store, log, exists, system)
}

func load(store Store, log *slog.Logger, exists func(path string) bool, by clock) (*Table, error) {
	l := &Table{file: lockFile{Store: store}, clock: by, exists: exists}
	stored, err := l.file.load(log, by)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(stored, func(held *Lock) bool { return held != nil && held.Clock != by.id }) {
		l.file.isWhole = false // the next change also stores the terms by the clock of this process
	}
	if l.held = validLocks(stored, by); len(l.held) < len(stored) {
		log.Error("the lock table of a drive has locks that are not valid; they are lost", "count", len(stored)-len(l.held))
	}
	return l, nil
}

// current returns the locks that have not expired. The caller holds mu.
func (l *Table) current() []*Lock {
	_, passed := l.clock.read()
	var current []*Lock
	for _, held := range l.held {
		if held.Ends > passed.Milliseconds() {
			current = append(current, held)
		}
	}
	return current
}

// Remaining returns the time until the end of a lock of the table. Steps of the wall clock do not change it.
func (l *Table) Remaining(held *Lock) time.Duration { return l.clock.remaining(held.Term) }

// replace replaces the locks, first on disk and then in memory; changes are the locks of next that are new or different, and the
// ended locks with an empty term. The caller holds mu.
func (l *Table) replace(next []*Lock, changes ...*Lock) error {
	if err := l.file.save(next, changes); err != nil {
		return err
	}
	l.held = next
	return nil
}

// remove deletes the locks that isRemoved selects, if there are any. The caller holds mu.
func (l *Table) remove(isRemoved func(*Lock) bool) error {
	var remaining, ended []*Lock
	for _, held := range l.held {
		if isRemoved(held) {
			ended = append(ended, &Lock{Token: held.Token})
		} else {
			remaining = append(remaining, held)
		}
	}
	if len(ended) == 0 {
		return nil
	}
	return l.replace(remaining, ended...)
}

// Covering returns the locks that cover a path.
func (l *Table) Covering(path string) []*Lock {
	l.mu.Lock()
	defer l.mu.Unlock()
	var covering []*Lock
	for _, held := range l.current() {
		if held.covers(path) {
			covering = append(covering, held)
		}
	}
	return covering
}

// Acquire adds a lock with a new token. It returns a Conflict if another lock excludes it, and LimitReached if the table
// is full.
func (l *Table) Acquire(wanted Lock, timeout time.Duration) (*Lock, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	current := l.current()
	if err := l.checkAcquirable(current, &wanted); err != nil {
		return nil, err
	}
	wanted.Token, wanted.Term = newToken(), l.clock.term(timeout)
	changes := []*Lock{&wanted}
	current = slices.DeleteFunc(current, func(held *Lock) bool {
		if !conflicts(held, &wanted) {
			return false
		}
		// checkAcquirable has found nothing at the path of the lock.
		changes = append(changes, &Lock{Token: held.Token})
		return true
	})
	return &wanted, l.replace(append(current, &wanted), changes...)
}

// conflicts reports whether a lock excludes another lock.
func conflicts(held, wanted *Lock) bool {
	return held.overlaps(wanted) && !(held.Shared && wanted.Shared)
}

// CheckFree returns the error with which Acquire would refuse the lock now.
func (l *Table) CheckFree(wanted *Lock) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.checkAcquirable(l.current(), wanted)
}

func (l *Table) checkAcquirable(current []*Lock, wanted *Lock) error {
	for _, held := range current {
		if conflicts(held, wanted) && l.exists(held.Path) {
			return &Conflict{Path: held.Path, Code: Excluded}
		}
	}
	if len(current) >= maxLocks || sizeOf(current)+wanted.size() > maxLockBytes {
		return entity.Errorf(entity.LimitReached, "the drive can have at most %d locks, with at most %d bytes for their paths and owners", maxLocks, maxLockBytes)
	}
	if !fitsPaths(current, wanted) {
		return entity.Errorf(entity.LimitReached, "the locks on one path can have at most %d bytes for their paths and owners", maxPathBytes)
	}
	return nil
}

// fitsPaths reports whether the locks that cover any path still have at most maxPathBytes with a further one. The locks that cover a
// path all cover the path of the deepest of them.
func fitsPaths(current []*Lock, wanted *Lock) bool {
	most := maxPathBytes - wanted.size()
	if sizeOn(current, wanted.Path) > most {
		return false
	}
	return !slices.ContainsFunc(current, func(held *Lock) bool { return wanted.covers(held.Path) && sizeOn(current, held.Path) > most })
}

// Refresh begins the term anew of the lock that has the token and covers the path. It returns errTokenMismatch if another
// caller created it, and errNoSuchLock if there is none.
func (l *Table) Refresh(token, path, creator string, timeout time.Duration) (*Lock, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	current := l.current()
	for i, held := range current {
		if held.Token != token || !held.covers(path) {
			continue
		}
		if held.Creator != creator {
			return nil, errTokenMismatch
		}
		renewed := *held
		renewed.Term = l.clock.term(timeout)
		current[i] = &renewed
		return &renewed, l.replace(current, &Lock{Token: token, Term: renewed.Term})
	}
	return nil, errNoSuchLock
}

// Release deletes the lock that has the token and covers the path. It returns errTokenMismatch if another caller
// created the lock and anyCreator is false, and errNoSuchLock if there is none.
func (l *Table) Release(token, path, creator string, anyCreator bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	current := l.current()
	for i, held := range current {
		if held.Token != token || !held.covers(path) {
			continue
		}
		if held.Creator != creator && !anyCreator {
			return errTokenMismatch
		}
		return l.replace(append(current[:i:i], current[i+1:]...), &Lock{Token: token})
	}
	return errNoSuchLock
}

// End deletes the locks that end with the effects of a change. Locks on a path where nothing was end when something is created there, so
// that they do not lock it, except for the caller's own locks with a token that the caller submits.
func (l *Table) End(creator string, submits func(token string) bool, effects ...Effect) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.remove(func(held *Lock) bool {
		return slices.ContainsFunc(effects, func(e Effect) bool {
			switch {
			case !entity.Within(held.Path, e.Path):
				return false
			case e.ChangesParent && !e.Removes:
				return !held.isSubmitted(creator, submits)
			}
			return e.IsDeep && (e.Removes || held.Path != e.Path)
		})
	})
}

// isSubmitted reports whether a caller created the lock and submits its token.
func (l *Lock) isSubmitted(creator string, submits func(token string) bool) bool {
	return l.Creator == creator && submits != nil && submits(l.Token)
}

// DeleteByCreator deletes the locks of a creator.
func (l *Table) DeleteByCreator(creator string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.remove(func(held *Lock) bool { return held.Creator == creator })
}

// newToken returns a lock token: the URN of a random UUID (RFC 9562, version 4).
func newToken() string {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// Check returns a Conflict if locks forbid an effect. Each resource that an effect changes must have no lock, or one of its locks must
// have been created by the caller, which submits its token (RFC 4918, section 7.5). A nil function submits none.
func (l *Table) Check(creator string, submits func(token string) bool, effects ...Effect) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	current := l.current()
	if len(current) == 0 {
		return nil
	}
	check := func(path string) error { return l.checkOn(current, path, creator, submits) }
	for _, effect := range effects {
		if err := check(effect.Path); err != nil {
			return err
		}
		if effect.ChangesParent && effect.Path != "" {
			if err := check(parentOf(effect.Path)); err != nil {
				return err
			}
		}
		for _, held := range current {
			if !effect.IsDeep || !entity.Within(held.Path, effect.Path) {
				continue
			}
			if err := check(held.Path); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkOn is Check for one resource.
func (l *Table) checkOn(current []*Lock, path, creator string, submits func(token string) bool) error {
	var blocking *Lock
	for _, held := range current {
		if !held.covers(path) {
			continue
		}
		if held.isSubmitted(creator, submits) {
			return nil
		}
		if blocking == nil && l.exists(held.Path) {
			blocking = held
		}
	}
	if blocking == nil {
		return nil
	}
	return &Conflict{Path: blocking.Path, Code: Locked}
}

func parentOf(path string) string {
	return path[:max(strings.LastIndexByte(path, '/'), 0)]
}
