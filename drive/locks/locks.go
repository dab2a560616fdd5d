// Package locks keeps the locks of drives (RFC 4918, section 6). Locks are on paths and are stored in one small file beside each
// drive. They are shared or exclusive and last at most an hour. Only the creator of a lock can use its token.
//
// Package drive checks each change against the locks of the drive, whichever door it comes through. Package webdav acquires, refreshes
// and releases locks for its clients.
package locks

import (
	"regexp"

	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// Codes of errors.
const (
	// Locked means that a change is of a locked path, and that the caller has not submitted a token of its own for the path.
	Locked entity.Code = "locked"
	// Excluded means that a lock cannot be acquired, because another lock excludes it.
	Excluded entity.Code = "lock_conflict"
	// TokenMismatch means that the caller has not created the lock with the token.
	TokenMismatch entity.Code = "lock_token_mismatch"
	// NoSuchLock means that no lock with the token covers the path.
	NoSuchLock entity.Code = "no_such_lock"
)

var (
	errTokenMismatch = entity.Errorf(TokenMismatch, "the lock was made by someone else")
	errNoSuchLock    = entity.Errorf(NoSuchLock, "no lock with this token covers the path")
)

// A Conflict is the error of a request that a lock forbids. It unwraps to an *entity.Error.
type Conflict struct {
	// Path is the path of the lock.
	Path string
	// Code is Locked or Excluded.
	Code entity.Code
}

func (c *Conflict) Error() string { return string(c.Code) + ": " + c.Path }

// Unwrap returns the error with its code and message for the client.
func (c *Conflict) Unwrap() error { return entity.Errorf(c.Code, "another client has locked the path") }

// A Lock covers a path and, if it is deep, all entries below it. Shared locks may overlap each other; an exclusive lock
// overlaps no other.
type Lock struct {
	Token  string `json:"token"`
	Path   string `json:"path"`
	Deep   bool   `json:"deep,omitempty"`
	Shared bool   `json:"shared,omitempty"`
	// Owner is the content of the owner element that the client sent, as XML. It is not validated after it was read from the disk.
	Owner string `json:"owner,omitempty"`
	// Creator identifies the caller that may use the token; see CreatorOf.
	Creator string `json:"creator"`
	Term
}

func (l *Lock) covers(path string) bool {
	return l.Path == path || l.Deep && entity.Within(path, l.Path)
}

// overlaps reports whether two locks cover a path in common.
func (l *Lock) overlaps(other *Lock) bool { return l.covers(other.Path) || other.covers(l.Path) }

// CreatorOf returns the id under which a caller owns locks: the person's, or the credential's if it does not belong to a person.
func CreatorOf(author *activityv1.Author) string {
	if user := author.GetUserId(); user != "" {
		return user
	}
	return author.GetActor()
}

// An Effect describes which locks a change has to respect at a path.
type Effect struct {
	Path string
	// ChangesParent is set if the path is added to its folder or removed from it. A lock on the folder forbids that.
	ChangesParent bool
	// IsDeep is set if entries below the path are changed as well. Their locks end with the change.
	IsDeep bool
	// Removes is set if a deep change leaves nothing at the path. Locks are on paths and do not move with an entry (RFC 4918, section
	// 7.6), so that the locks on the path end as well.
	Removes bool
}

var tokenForm = regexp.MustCompile(`^urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// validLocks returns the stored locks that Acquire could have stored, within its limits, with terms by the clock. None of them lasts longer
// than MaxTimeout from now. The XML of their owners is not parsed.
func validLocks(stored []*Lock, c clock) []*Lock {
	var valid []*Lock
	for _, held := range stored {
		if len(valid) == maxLocks {
			break
		}
		if held == nil || held.Creator == "" || !tokenForm.MatchString(held.Token) || held.Path != "" && entity.CheckPath(held.Path) != nil {
			continue
		}
		if len(held.Owner) > MaxOwner || sizeOf(valid)+held.size() > maxLockBytes || !fitsPaths(valid, held) {
			continue
		}
		held.Term = c.adopt(held.Term)
		valid = append(valid, held)
	}
	return valid
}
