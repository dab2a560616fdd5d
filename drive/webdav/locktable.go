package webdav

import (
	"crypto/rand"
	"encoding/json"
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
	locksFile  = "locks.json"
	maxLocks   = 512
	maxOwner   = 2 << 10
	maxTimeout = time.Hour
)

// A lock is on a path, and where it is deep on all below it. Shared ones may overlap one another.
type lock struct {
	Token   string `json:"token"`
	Path    string `json:"path"`
	Deep    bool   `json:"deep,omitempty"`
	Shared  bool   `json:"shared,omitempty"`
	Owner   string `json:"owner,omitempty"`
	Creator string `json:"creator"`
	// Expires is in milliseconds since the Unix epoch.
	Expires int64 `json:"expires"`
}

func (l *lock) covers(path string) bool {
	return l.Path == path || l.Deep && drive.Within(path, l.Path)
}

// overlaps tells whether two locks have a resource in common.
func (l *lock) overlaps(other *lock) bool { return l.covers(other.Path) || other.covers(l.Path) }

// locks are those of one drive. Every change is on disk before it is answered.
type locks struct {
	drive *drive.Drive
	mu    sync.Mutex
	held  []*lock
}

// loadLocks reads what an earlier process left. A file that cannot be understood is as good as none: locks are short.
func loadLocks(d *drive.Drive, log *slog.Logger) (*locks, error) {
	l := &locks{drive: d}
	content, err := d.ReadState(locksFile)
	if err != nil || content == nil {
		return l, err
	}
	if err := json.Unmarshal(content, &l.held); err != nil {
		log.Error("the locks of a drive are lost", "error", err)
		l.held = nil
	}
	return l, nil
}

// current gives the locks that have not expired. The caller holds mu.
func (l *locks) current() []*lock {
	at := time.Now().UnixMilli()
	var current []*lock
	for _, held := range l.held {
		if held.Expires > at {
			current = append(current, held)
		}
	}
	return current
}

// replace makes a set the held one, on disk first. The caller holds mu.
func (l *locks) replace(next []*lock) error {
	content, err := json.Marshal(next)
	if err != nil {
		return err
	}
	if err := l.drive.WriteState(locksFile, content); err != nil {
		return err
	}
	l.held = next
	return nil
}

// on gives the locks that cover a path.
func (l *locks) on(path string) []*lock {
	l.mu.Lock()
	defer l.mu.Unlock()
	var on []*lock
	for _, held := range l.current() {
		if held.covers(path) {
			on = append(on, held)
		}
	}
	return on
}

// take adds a lock, or tells the path of one that is in its way.
func (l *locks) take(wanted lock, timeout time.Duration) (*lock, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	current := l.current()
	if err := inTheWay(current, &wanted); err != nil {
		return nil, err
	}
	if len(current) >= maxLocks {
		return nil, entity.Errorf(entity.LimitReached, "the drive has %d locks", maxLocks)
	}
	wanted.Token, wanted.Expires = newToken(), expiry(timeout)
	return &wanted, l.replace(append(current, &wanted))
}

// free tells what would be in a lock's way.
func (l *locks) free(wanted lock) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return inTheWay(l.current(), &wanted)
}

func inTheWay(current []*lock, wanted *lock) error {
	for _, held := range current {
		if held.overlaps(wanted) && !(held.Shared && wanted.Shared) {
			return &conflict{path: held.Path, code: lockConflict}
		}
	}
	return nil
}

// refresh gives a lock that covers a path another time to live.
func (l *locks) refresh(token, path, creator string, timeout time.Duration) (*lock, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	current := l.current()
	for i, held := range current {
		if held.Token != token || !held.covers(path) {
			continue
		}
		if held.Creator != creator {
			return nil, errForeign
		}
		renewed := *held
		renewed.Expires = expiry(timeout)
		current[i] = &renewed
		return &renewed, l.replace(current)
	}
	return nil, errPrecondition
}

// release removes a lock that covers a path. anyones lets it be another's than the creator's.
func (l *locks) release(token, path, creator string, anyones bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	current := l.current()
	for i, held := range current {
		if held.Token != token || !held.covers(path) {
			continue
		}
		if held.Creator != creator && !anyones {
			return errForeign
		}
		return l.replace(append(current[:i:i], current[i+1:]...))
	}
	return entity.Errorf(noLock, "no such lock on this path")
}

// drop removes the locks of what is gone: below a path, and on it where itself.
func (l *locks) drop(path string, itself bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var stay []*lock
	for _, held := range l.held {
		if !drive.Within(held.Path, path) || held.Path == path && !itself {
			stay = append(stay, held)
		}
	}
	if len(stay) == len(l.held) {
		return nil
	}
	return l.replace(stay)
}

// dropOf removes the locks that a creator holds.
func (l *locks) dropOf(creator string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	stay := slices.DeleteFunc(slices.Clone(l.held), func(held *lock) bool { return held.Creator == creator })
	if len(stay) == len(l.held) {
		return nil
	}
	return l.replace(stay)
}

func expiry(timeout time.Duration) int64 { return time.Now().Add(timeout).UnixMilli() }

func newToken() string {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// creator is who may use a lock's token: the person, or the credential where no person is behind it.
func creator(author *activityv1.Author) string {
	if user := author.GetUserId(); user != "" {
		return user
	}
	return author.GetActor()
}

// A conflict is a refusal that names the locked path.
type conflict struct {
	path string
	code entity.Code
}

func (c *conflict) Error() string { return string(c.code) + ": " + c.path }

// Unwrap makes it one of the errors with a code.
func (c *conflict) Unwrap() error { return entity.Errorf(c.code, "the path is locked") }

func conflictPath(err error) (string, bool) {
	c, ok := errors.AsType[*conflict](err)
	if !ok {
		return "", false
	}
	return c.path, true
}
