package webdav

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

const (
	// maxLocks limits the locks of one drive, and maxLockBytes the sum of their sizes.
	maxLocks     = 512
	maxLockBytes = 1 << 20
	// maxPathBytes limits the sum of the sizes of the locks that cover one path, because PROPFIND returns all of them for each entry.
	maxPathBytes = 32 << 10
	// maxOwner limits the owner element of a lock, in bytes.
	maxOwner   = 2 << 10
	maxTimeout = time.Hour
)

// A lock covers a path and, if it is deep, all entries below it. Shared locks may overlap each other; an exclusive lock
// overlaps no other.
type lock struct {
	Token  string `json:"token"`
	Path   string `json:"path"`
	Deep   bool   `json:"deep,omitempty"`
	Shared bool   `json:"shared,omitempty"`
	// Owner is the content of the owner element that the client sent, as XML.
	Owner string `json:"owner,omitempty"`
	// Creator identifies the caller that may use the token; see creator.
	Creator string `json:"creator"`
	// Expires is in milliseconds since the Unix epoch.
	Expires int64 `json:"expires"`
}

func (l *lock) covers(path string) bool {
	return l.Path == path || l.Deep && drive.Within(path, l.Path)
}

// overlaps reports whether two locks cover a path in common.
func (l *lock) overlaps(other *lock) bool { return l.covers(other.Path) || other.covers(l.Path) }

// size returns the greatest number of bytes of the lock's activelock element: its path is part of a URL.
func (l *lock) size() int { return 400 + len(l.Owner) + 3*len(l.Path) }

// sizeOf returns the sum of the sizes of locks.
func sizeOf(locks []*lock) (size int) {
	for _, held := range locks {
		size += held.size()
	}
	return size
}

// sizeOn returns the sum of the sizes of the locks that cover a path.
func sizeOn(locks []*lock, path string) (size int) {
	for _, held := range locks {
		if held.covers(path) {
			size += held.size()
		}
	}
	return size
}

// A lockTable holds the locks of one drive. Every change is durable before its method returns.
type lockTable struct {
	file lockFile
	mu   sync.Mutex
	held []*lock
}

// loadLockTable reads the locks of a drive from disk. It ignores a file that it cannot parse, and locks that are not valid, because
// locks are short-lived.
func loadLockTable(d *drive.Drive, log *slog.Logger) (*lockTable, error) {
	l := &lockTable{file: lockFile{drive: d}}
	stored, err := l.file.load(log)
	if err != nil {
		return nil, err
	}
	if l.held = validLocks(stored); len(l.held) < len(stored) {
		log.Error("the lock table of a drive has locks that are not valid; they are lost", "count", len(stored)-len(l.held))
	}
	return l, nil
}

// current returns the locks that have not expired. The caller holds mu.
func (l *lockTable) current() []*lock {
	at := time.Now().UnixMilli()
	var current []*lock
	for _, held := range l.held {
		if held.Expires > at {
			current = append(current, held)
		}
	}
	return current
}

// isHeld reports whether the drive has any lock that has not expired.
func (l *lockTable) isHeld() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.current()) > 0
}

// replace replaces the locks, first on disk and then in memory; changes are the locks in which next differs, and those that end with
// Expires 0. The caller holds mu.
func (l *lockTable) replace(next []*lock, changes ...*lock) error {
	if err := l.file.save(next, changes); err != nil {
		return err
	}
	l.held = next
	return nil
}

// remove deletes the locks for which a function returns true, if there are any. The caller holds mu.
func (l *lockTable) remove(isRemoved func(*lock) bool) error {
	var remaining, ended []*lock
	for _, held := range l.held {
		if isRemoved(held) {
			ended = append(ended, &lock{Token: held.Token})
		} else {
			remaining = append(remaining, held)
		}
	}
	if len(ended) == 0 {
		return nil
	}
	return l.replace(remaining, ended...)
}

// covering returns the locks that cover a path.
func (l *lockTable) covering(path string) []*lock {
	l.mu.Lock()
	defer l.mu.Unlock()
	var covering []*lock
	for _, held := range l.current() {
		if held.covers(path) {
			covering = append(covering, held)
		}
	}
	return covering
}

// acquire adds a lock with a new token. It returns a conflict if another lock excludes it, and LimitReached if the table
// is full.
func (l *lockTable) acquire(wanted lock, timeout time.Duration) (*lock, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	current := l.current()
	if err := checkAcquirable(current, &wanted); err != nil {
		return nil, err
	}
	wanted.Token, wanted.Expires = newToken(), expiry(timeout)
	return &wanted, l.replace(append(current, &wanted), &wanted)
}

// checkFree returns the error with which acquire would refuse the lock now.
func (l *lockTable) checkFree(wanted *lock) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return checkAcquirable(l.current(), wanted)
}

func checkAcquirable(current []*lock, wanted *lock) error {
	for _, held := range current {
		if held.overlaps(wanted) && !(held.Shared && wanted.Shared) {
			return &conflict{path: held.Path, code: codeLockConflict}
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
func fitsPaths(current []*lock, wanted *lock) bool {
	most := maxPathBytes - wanted.size()
	if sizeOn(current, wanted.Path) > most {
		return false
	}
	return !slices.ContainsFunc(current, func(held *lock) bool { return wanted.covers(held.Path) && sizeOn(current, held.Path) > most })
}

// refresh sets the expiry of the lock that has the token and covers the path. It returns errLockTokenMismatch if another
// caller created it, and errPreconditionFailed if there is none.
func (l *lockTable) refresh(token, path, creator string, timeout time.Duration) (*lock, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	current := l.current()
	for i, held := range current {
		if held.Token != token || !held.covers(path) {
			continue
		}
		if held.Creator != creator {
			return nil, errLockTokenMismatch
		}
		renewed := *held
		renewed.Expires = expiry(timeout)
		current[i] = &renewed
		return &renewed, l.replace(current, &lock{Token: token, Expires: renewed.Expires})
	}
	return nil, errPreconditionFailed
}

// release deletes the lock that has the token and covers the path. It returns errLockTokenMismatch if another caller
// created the lock and anyCreator is false, and no_such_lock if there is none.
func (l *lockTable) release(token, path, creator string, anyCreator bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	current := l.current()
	for i, held := range current {
		if held.Token != token || !held.covers(path) {
			continue
		}
		if held.Creator != creator && !anyCreator {
			return errLockTokenMismatch
		}
		return l.replace(append(current[:i:i], current[i+1:]...), &lock{Token: token})
	}
	return entity.Errorf(codeNoSuchLock, "no lock with this token covers the path")
}

// deleteBelow deletes the locks on paths below a path, and with inclusive those on the path itself.
func (l *lockTable) deleteBelow(path string, inclusive bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.remove(func(held *lock) bool { return drive.Within(held.Path, path) && (held.Path != path || inclusive) })
}

// deleteByCreator deletes the locks of a creator.
func (l *lockTable) deleteByCreator(creator string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.remove(func(held *lock) bool { return held.Creator == creator })
}

// expiry returns the time of expiry in milliseconds since the Unix epoch.
func expiry(timeout time.Duration) int64 { return time.Now().Add(timeout).UnixMilli() }

// newToken returns a lock token: the URN of a random UUID (RFC 9562, version 4).
func newToken() string {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// creator returns the id under which a caller owns locks: the person's, or the credential's if it does not belong to a person.
func creator(author *activityv1.Author) string {
	if user := author.GetUserId(); user != "" {
		return user
	}
	return author.GetActor()
}

// A conflict is the error of a request that a lock forbids. It has the path of that lock.
type conflict struct {
	path string
	code entity.Code
}

func (c *conflict) Error() string { return string(c.code) + ": " + c.path }

// Unwrap returns the error with its code and message for the client.
func (c *conflict) Unwrap() error { return entity.Errorf(c.code, "the path is locked") }

// conflictPath returns the locked path if the error is a conflict.
func conflictPath(err error) (string, bool) {
	c, ok := errors.AsType[*conflict](err)
	if !ok {
		return "", false
	}
	return c.path, true
}
