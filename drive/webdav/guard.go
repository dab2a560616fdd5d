package webdav

import (
	"net/http"
	"strings"
	"time"

	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/entity"
)

// A claim is what a method does to a path, as far as locks matter.
type claim struct {
	path string
	// member: the path appears in its folder or goes from it, which a lock on the folder protects.
	member bool
	// deep: all below it is touched as well.
	deep bool
}

// change is what the drive needs of a request that changes it. Its guard checks the request's conditions and locks; the
// drive asks it early, and again while it holds the paths, where nothing can come between the check and the change.
func (c *call) change(claims func() []claim) (drive.Change, error) {
	header, err := c.parseIf(c.r.Header.Values("If"))
	if err != nil {
		return drive.Change{}, err
	}
	return drive.Change{
		Author: c.author, Principal: c.access.Principal,
		Guard: func() error { return c.check(header, claims()) }, Confirm: c.confirm,
	}, nil
}

func (c *call) check(header ifHeader, claims []claim) error {
	if err := c.preconditions(); err != nil {
		return err
	}
	if !header.holds(c) {
		return errPrecondition
	}
	for _, claim := range claims {
		if err := c.permitted(claim, header); err != nil {
			return err
		}
	}
	return nil
}

// creates completes a claim on a path that may be new: if it is, its folder changes as well.
func (c *call) creates(path string) claim {
	_, err := c.drive.Stat(path)
	return claim{path: path, member: err != nil}
}

// permitted tells why locks forbid a claim: on each resource that it touches, either no lock lies or the request submits
// the token of one, by whom it was made.
func (c *call) permitted(claim claim, header ifHeader) error {
	l := c.locks
	l.mu.Lock()
	defer l.mu.Unlock()
	current := l.current()
	if err := c.open(current, claim.path, header); err != nil {
		return err
	}
	if claim.member && claim.path != "" {
		if err := c.open(current, parentOf(claim.path), header); err != nil {
			return err
		}
	}
	for _, held := range current {
		if claim.deep && drive.Within(held.Path, claim.path) {
			if err := c.open(current, held.Path, header); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *call) open(current []*lock, path string, header ifHeader) error {
	var closed *lock
	for _, held := range current {
		if !held.covers(path) {
			continue
		}
		if held.Creator == creator(c.author) && header.submits(held.Token) {
			return nil
		}
		closed = held
	}
	if closed == nil {
		return nil
	}
	return &conflict{path: closed.Path, code: locked}
}

func parentOf(path string) string {
	return path[:max(strings.LastIndexByte(path, '/'), 0)]
}

// preconditions are those of RFC 9110, section 13, for methods that change; http.ServeContent has them for GET.
func (c *call) preconditions() error {
	header := c.r.Header
	match, none := strings.Join(header.Values("If-Match"), ","), strings.Join(header.Values("If-None-Match"), ",")
	since := header.Get("If-Unmodified-Since")
	if match == "" && none == "" && since == "" {
		return nil
	}
	entry, err := c.drive.Stat(c.path)
	if err != nil && code(err) != entity.NotFound {
		return err
	}
	exists := err == nil
	if match != "" && !(exists && matches(match, entry.ETag())) {
		return errPrecondition
	}
	if match == "" && since != "" {
		if at, err := http.ParseTime(since); err == nil && exists && entry.Modified.Truncate(time.Second).After(at) {
			return errPrecondition
		}
	}
	if none != "" && exists && matches(strings.ReplaceAll(none, `W/"`, `"`), entry.ETag()) {
		return errPrecondition
	}
	return nil
}

// matches looks for an entity tag in a list; * is any that exists.
func matches(list, etag string) bool {
	for candidate := range strings.SplitSeq(list, ",") {
		candidate = strings.TrimSpace(candidate)
		if candidate == "*" || etag != "" && candidate == etag {
			return true
		}
	}
	return false
}
