package webdav

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/atelier-run/atelier/drive/locks"
	"github.com/atelier-run/atelier/entity"
)

// lock answers LOCK. A request with a body acquires a lock; one without a body refreshes the lock in the If header.
func (c *call) lock() error {
	timeout, err := parseTimeout(c.r.Header.Get("Timeout"))
	if err != nil {
		return err
	}
	body, err := c.readBody()
	if err != nil {
		return err
	}
	if body == nil {
		return c.refresh(timeout)
	}
	wanted, err := c.parseLockInfo(body)
	if err != nil {
		return err
	}
	held, created, err := c.acquireLock(wanted, timeout)
	if conflict, is := errors.AsType[*locks.Conflict](err); is && conflict.Path != c.path && entity.Within(conflict.Path, c.path) {
		return c.writeLockedBelow(conflict.Path)
	}
	if err != nil {
		return err
	}
	c.w.Header().Set("Lock-Token", "<"+held.Token+">")
	if created {
		return c.writeLockDiscovery(http.StatusCreated, held)
	}
	return c.writeLockDiscovery(http.StatusOK, held)
}

// writeLockedBelow answers that a folder cannot be locked because an entry below it is locked (RFC 4918, section 9.10.3).
func (c *call) writeLockedBelow(path string) error {
	entry, err := c.drive.Stat(path)
	out := c.multistatus()
	out.writeStatus(c.href(path, err == nil && entry.Folder), http.StatusLocked)
	out.writeStatus(c.href(c.path, true), http.StatusFailedDependency)
	return c.endStream(out.end())
}

// refresh renews the lock in the If header.
func (c *call) refresh(timeout time.Duration) error {
	header, err := c.parseIf(c.r.Header.Values("If"))
	if err != nil {
		return err
	}
	token := header.singleToken()
	if token == "" {
		return entity.Errorf(entity.InvalidRequest, "a LOCK request without a body refreshes a lock and needs exactly one lock token in the If header")
	}
	if err := c.confirm(); err != nil {
		return err
	}
	if _, err := c.drive.Stat(c.path); err != nil {
		return err
	}
	held, err := c.locks.Refresh(token, c.path, locks.CreatorOf(c.author), timeout)
	if entity.HasCode(err, locks.NoSuchLock) {
		return errPreconditionFailed
	}
	if err != nil {
		return err
	}
	return c.writeLockDiscovery(http.StatusOK, held)
}

// parseLockInfo returns the lock that a request's headers and lockinfo element describe, without token and expiry.
func (c *call) parseLockInfo(body *element) (locks.Lock, error) {
	depth := c.r.Header.Get("Depth")
	if depth != "" && depth != "0" && !isInfinity(depth) {
		return locks.Lock{}, errDepth
	}
	scope, kind, owner := body.child("lockscope"), body.child("locktype"), body.child("owner")
	if !body.is("lockinfo") || scope == nil || kind == nil || kind.child("write") == nil {
		return locks.Lock{}, errXML
	}
	shared := scope.child("shared") != nil
	if !shared && scope.child("exclusive") == nil {
		return locks.Lock{}, errXML
	}
	wanted := locks.Lock{Path: c.path, Deep: depth != "0", Shared: shared}
	if owner == nil {
		return wanted, nil
	}
	var err error
	if wanted.Owner, err = owner.encodeContent(locks.MaxOwner); err != nil {
		return locks.Lock{}, entity.Errorf(entity.InvalidRequest, "the lock's owner is longer than %d bytes", locks.MaxOwner)
	}
	return wanted, nil
}

// acquireLock acquires a lock. It creates an empty file if the path does not exist, and reports whether it did.
func (c *call) acquireLock(wanted locks.Lock, timeout time.Duration) (held *locks.Lock, created bool, err error) {
	change, err := c.change()
	if err != nil {
		return nil, false, err
	}
	_, err = c.drive.Stat(c.path)
	switch {
	case err == nil:
		held, err = c.drive.Lock(c.context(), wanted, timeout, change)
	case entity.HasCode(err, entity.NotFound) && c.hasTrailingSlash:
		err = entity.Errorf(entity.NotFound, "no such folder")
	case entity.HasCode(err, entity.NotFound):
		created = true
		held, err = c.drive.LockNew(c.context(), wanted, timeout, change)
	}
	return held, created, err
}

// writeLockDiscovery answers with a lock that was acquired or refreshed.
func (c *call) writeLockDiscovery(status int, held *locks.Lock) error {
	c.w.Header().Set("Content-Type", xmlType)
	c.w.WriteHeader(status)
	fmt.Fprintf(c.w, `%s<D:prop xmlns:D="DAV:"><D:lockdiscovery>%s</D:lockdiscovery></D:prop>`, xmlHead, c.activeLockElement(held))
	return nil
}

// activeLockElement returns the activelock element for a lock (RFC 4918, section 14.1). In one response only the first element of a lock
// has the owner, which is optional, because a lock may cover each entry of a large folder.
func (c *call) activeLockElement(held *locks.Lock) string {
	if again := c.activeLocks[held.Token]; again != "" {
		return again
	}
	if c.activeLocks == nil {
		c.activeLocks = map[string]string{}
	}
	begin, end := c.encodeLock(held)
	c.activeLocks[held.Token] = begin + end
	return begin + "<D:owner>" + validOwner(held.Owner) + "</D:owner>" + end
}

// encodeLock returns the parts of the activelock element before and after the owner.
func (c *call) encodeLock(held *locks.Lock) (begin, end string) {
	scope, depth := "exclusive", "0"
	if held.Shared {
		scope = "shared"
	}
	if held.Deep {
		depth = "infinity"
	}
	entry, err := c.drive.Stat(held.Path)
	remaining := max(c.locks.Remaining(held), 0)
	begin = "<D:activelock><D:locktype><D:write/></D:locktype><D:lockscope><D:" + scope + "/></D:lockscope>" +
		"<D:depth>" + depth + "</D:depth>"
	return begin, "<D:timeout>Second-" + strconv.Itoa(int((remaining+time.Second-1)/time.Second)) + "</D:timeout>" +
		"<D:locktoken><D:href>" + held.Token + "</D:href></D:locktoken>" +
		"<D:lockroot><D:href>" + escape(c.href(held.Path, err == nil && entry.Folder)) + "</D:href></D:lockroot></D:activelock>"
}

// unlock answers UNLOCK. A caller with BreaksLocks may release locks of others.
func (c *call) unlock() error {
	header := strings.TrimSpace(c.r.Header.Get("Lock-Token"))
	token, rest, err := cutEnclosed(header, '>')
	if err != nil || rest != "" || header[0] != '<' {
		return entity.Errorf(entity.InvalidRequest, "the Lock-Token header must be a lock token in angle brackets")
	}
	if err := c.confirm(); err != nil {
		return err
	}
	if err := c.locks.Release(token, c.path, locks.CreatorOf(c.author), c.access.BreaksLocks); err != nil {
		return err
	}
	c.writeSuccess(false)
	return nil
}

// parseTimeout returns the first timeout of a Timeout header (RFC 4918, section 10.7) that is a number of seconds, limited to
// locks.MaxTimeout. It returns locks.MaxTimeout if there is none.
func parseTimeout(header string) (time.Duration, error) {
	for value := range strings.SplitSeq(header, ",") {
		seconds, ok := strings.CutPrefix(strings.TrimSpace(value), "Second-")
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(seconds, 10, 32)
		if err != nil {
			return 0, entity.Errorf(entity.InvalidRequest, "the Timeout header is malformed")
		}
		return min(max(time.Duration(n)*time.Second, time.Second), locks.MaxTimeout), nil
	}
	return locks.MaxTimeout, nil
}
