package webdav

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/entity"
)

// lock answers LOCK: with a body it takes a lock, without one it refreshes the lock of the If header.
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
	wanted, err := c.wanted(body)
	if err != nil {
		return err
	}
	held, created, err := c.takeLock(wanted, timeout)
	if path, is := conflictPath(err); is && path != c.path && drive.Within(path, c.path) {
		return c.lockedBelow(path)
	}
	if err != nil {
		return err
	}
	// Whoever takes the access away drops the locks after it: either this lock was there by then, or the access is refused
	// here.
	if err := c.confirm(); err != nil {
		return errors.Join(err, c.locks.release(held.Token, held.Path, held.Creator, false))
	}
	c.w.Header().Set("Lock-Token", "<"+held.Token+">")
	if created {
		return c.discovery(http.StatusCreated, held)
	}
	return c.discovery(http.StatusOK, held)
}

// lockedBelow names what keeps a folder from being locked with all below it (RFC 4918, section 9.10.3).
func (c *call) lockedBelow(path string) error {
	entry, err := c.drive.Stat(path)
	out := c.multistatus()
	out.verdict(c.href(path, err == nil && entry.Folder), http.StatusLocked)
	out.verdict(c.href(c.path, true), http.StatusFailedDependency)
	return c.finish(out.end())
}

func (c *call) refresh(timeout time.Duration) error {
	header, err := c.parseIf(c.r.Header.Values("If"))
	if err != nil {
		return err
	}
	token := header.only()
	if token == "" {
		return entity.Errorf(entity.InvalidRequest, "a refresh names one lock token in the If header")
	}
	if err := c.confirm(); err != nil {
		return err
	}
	held, err := c.locks.refresh(token, c.path, creator(c.author), timeout)
	if err != nil {
		return err
	}
	return c.discovery(http.StatusOK, held)
}

// wanted reads the lock that a request describes.
func (c *call) wanted(body *element) (lock, error) {
	depth := c.r.Header.Get("Depth")
	if depth != "" && depth != "0" && !isInfinity(depth) {
		return lock{}, errDepth
	}
	scope, kind, owner := body.child("lockscope"), body.child("locktype"), body.child("owner")
	if !body.is("lockinfo") || scope == nil || kind == nil || kind.child("write") == nil {
		return lock{}, errXML
	}
	shared := scope.child("shared") != nil
	if !shared && scope.child("exclusive") == nil {
		return lock{}, errXML
	}
	wanted := lock{Path: c.path, Deep: depth != "0", Shared: shared, Creator: creator(c.author)}
	if owner == nil {
		return wanted, nil
	}
	var err error
	if wanted.Owner, err = owner.inner(maxOwner); err != nil {
		return lock{}, entity.Errorf(entity.InvalidRequest, "the lock's owner is longer than %d bytes", maxOwner)
	}
	return wanted, nil
}

// takeLock takes a lock while the drive keeps operations off the path. Where nothing is there an empty file is made.
func (c *call) takeLock(wanted lock, timeout time.Duration) (held *lock, created bool, err error) {
	change, err := c.change(func() []claim { return nil })
	if err != nil {
		return nil, false, err
	}
	if _, err := c.drive.Stat(c.path); code(err) == entity.NotFound {
		return c.lockNew(wanted, timeout)
	} else if err != nil {
		return nil, false, err
	}
	release, err := c.drive.Hold(c.context(), c.path)
	if err != nil {
		return nil, false, err
	}
	defer release()
	if err := change.Guard(); err != nil {
		return nil, false, err
	}
	if _, err := c.drive.Stat(c.path); err != nil {
		return nil, false, err
	}
	held, err = c.locks.take(wanted, timeout)
	return held, false, err
}

func (c *call) lockNew(wanted lock, timeout time.Duration) (held *lock, created bool, err error) {
	if c.slashed {
		return nil, false, entity.Errorf(entity.NotFound, "no such folder")
	}
	change, err := c.change(func() []claim { return []claim{c.creates(c.path)} })
	if err != nil {
		return nil, false, err
	}
	guard := change.Guard
	change.Guard = func() error {
		if err := c.locks.free(wanted); err != nil {
			return err
		}
		if _, err := c.drive.Stat(c.path); err == nil {
			return entity.Errorf(drive.Exists, "the path came to be meanwhile")
		}
		return guard()
	}
	var failed error
	change.Done = func() { held, failed = c.locks.take(wanted, timeout) }
	_, _, err = c.drive.Put(c.context(), c.path, drive.Upload{Body: http.NoBody}, change)
	if err != nil && held != nil {
		// The client gets no token, so nobody could use the lock.
		failed = c.locks.release(held.Token, held.Path, held.Creator, false)
	}
	return held, true, errors.Join(err, failed)
}

// discovery answers with the lock that was taken or refreshed.
func (c *call) discovery(status int, held *lock) error {
	c.w.Header().Set("Content-Type", xmlType)
	c.w.WriteHeader(status)
	fmt.Fprintf(c.w, `%s<D:prop xmlns:D="DAV:"><D:lockdiscovery>%s</D:lockdiscovery></D:prop>`, xmlHead, c.activeLock(held))
	return nil
}

func (c *call) activeLock(held *lock) string {
	scope, depth := "exclusive", "0"
	if held.Shared {
		scope = "shared"
	}
	if held.Deep {
		depth = "infinity"
	}
	entry, err := c.drive.Stat(held.Path)
	left := max(time.Until(time.UnixMilli(held.Expires)), 0)
	return "<D:activelock><D:locktype><D:write/></D:locktype><D:lockscope><D:" + scope + "/></D:lockscope>" +
		"<D:depth>" + depth + "</D:depth><D:owner>" + held.Owner + "</D:owner>" +
		"<D:timeout>Second-" + strconv.Itoa(int((left+time.Second-1)/time.Second)) + "</D:timeout>" +
		"<D:locktoken><D:href>" + held.Token + "</D:href></D:locktoken>" +
		"<D:lockroot><D:href>" + escape(c.href(held.Path, err == nil && entry.Folder)) + "</D:href></D:lockroot></D:activelock>"
}

// unlock answers UNLOCK. An owner of the workspace may remove any lock.
func (c *call) unlock() error {
	header := strings.TrimSpace(c.r.Header.Get("Lock-Token"))
	token, rest, err := enclosed(header, '>')
	if err != nil || rest != "" || header[0] != '<' {
		return entity.Errorf(entity.InvalidRequest, "the Lock-Token header is not <token>")
	}
	if err := c.locks.release(token, c.path, creator(c.author), c.access.BreaksLocks); err != nil {
		return err
	}
	c.done(false)
	return nil
}

// parseTimeout takes the first wish that it understands, within what is granted.
func parseTimeout(header string) (time.Duration, error) {
	for wish := range strings.SplitSeq(header, ",") {
		seconds, ok := strings.CutPrefix(strings.TrimSpace(wish), "Second-")
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(seconds, 10, 32)
		if err != nil {
			return 0, entity.Errorf(entity.InvalidRequest, "the Timeout header cannot be read")
		}
		return min(max(time.Duration(n)*time.Second, time.Second), maxTimeout), nil
	}
	return maxTimeout, nil
}
