package webdav

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/drive/locks"
	"github.com/atelier-run/atelier/entity"
)

// change returns the drive.Change for the request: step 2 of "The life of a change" in the package comment of drive. It submits the lock
// tokens of the If header, and its guard checks the conditions of the request. change returns InvalidRequest if the If header is malformed.
func (c *call) change() (drive.Change, error) {
	header, err := c.parseIf(c.r.Header.Values("If"))
	if err != nil {
		return drive.Change{}, err
	}
	change := drive.NewChange(c.access)
	change.Authenticate, change.Authorize, change.Submits = c.authenticate, c.authorize, header.hasToken
	change.Guard = func() error {
		if err := c.checkPreconditions(); err != nil {
			return err
		}
		if !header.isTrue(c) {
			return errPreconditionFailed
		}
		return nil
	}
	return change, nil
}

// checkPreconditions evaluates the conditional headers of RFC 9110, section 13, for methods that change the drive.
// http.ServeContent does so for GET.
func (c *call) checkPreconditions() error {
	header := c.r.Header
	match, none := strings.Join(header.Values("If-Match"), ","), strings.Join(header.Values("If-None-Match"), ",")
	since := header.Get("If-Unmodified-Since")
	if match == "" && none == "" && since == "" {
		return nil
	}
	entry, err := c.drive.Stat(c.path)
	if err != nil && !entity.HasCode(err, entity.NotFound) {
		return err
	}
	exists := err == nil
	if match != "" && !(exists && matchesETag(match, entry.ETag())) {
		return errPreconditionFailed
	}
	if match == "" && since != "" {
		if at, err := http.ParseTime(since); err == nil && exists && entry.Modified.Truncate(time.Second).After(at) {
			return errPreconditionFailed
		}
	}
	if none != "" && exists && matchesETag(strings.ReplaceAll(none, `W/"`, `"`), entry.ETag()) {
		return errPreconditionFailed
	}
	return nil
}

// matchesETag reports whether a list of entity tags has the given tag, or is "*".
func matchesETag(list, etag string) bool {
	for candidate := range strings.SplitSeq(list, ",") {
		candidate = strings.TrimSpace(candidate)
		if candidate == "*" || etag != "" && candidate == etag {
			return true
		}
	}
	return false
}

// maxConditions limits the conditions of an If header.
const maxConditions = 256

// An ifHeader is the If header of RFC 4918, section 10.4. It is true if it has no lists or any list is true.
type ifHeader struct {
	lists []ifList
}

// An ifList has conditions on one resource. It is true if all of them are.
type ifList struct {
	// isOutside is set if the resource is not on the drive.
	isOutside  bool
	path       string
	conditions []condition
}

// A condition has either a lock token or an entity tag.
type condition struct {
	not   bool
	token string
	etag  string
}

var errIf = entity.Errorf(entity.InvalidRequest, "the If header is malformed")

// parseIf parses the values of an If header. Lists without a resource are conditions on the request's own. It returns errIf
// if the header is malformed or has more than maxConditions conditions.
func (c *call) parseIf(values []string) (h ifHeader, err error) {
	rest := strings.TrimSpace(strings.Join(values, " "))
	tagged := strings.HasPrefix(rest, "<")
	list, total := ifList{path: c.path}, 0
	for rest != "" {
		switch {
		case rest[0] == '<' && tagged:
			var tag string
			if tag, rest, err = cutEnclosed(rest, '>'); err != nil {
				return ifHeader{}, err
			}
			path, _, err := c.parseReference(tag)
			list = ifList{path: path, isOutside: err != nil}
			if !strings.HasPrefix(rest, "(") {
				return ifHeader{}, errIf
			}
		case rest[0] == '(':
			if list.conditions, rest, err = parseList(rest[1:]); err != nil {
				return ifHeader{}, err
			}
			if total += len(list.conditions); total > maxConditions {
				return ifHeader{}, errIf
			}
			h.lists = append(h.lists, list)
		default:
			return ifHeader{}, errIf
		}
	}
	return h, nil
}

// parseList parses conditions up to the closing parenthesis.
func parseList(s string) (conditions []condition, rest string, err error) {
	rest = strings.TrimLeft(s, " \t")
	for !strings.HasPrefix(rest, ")") {
		var next condition
		if next, rest, err = parseCondition(rest); err != nil {
			return nil, "", err
		}
		conditions = append(conditions, next)
	}
	if len(conditions) == 0 {
		return nil, "", errIf
	}
	return conditions, strings.TrimLeft(rest[1:], " \t"), nil
}

func parseCondition(s string) (c condition, rest string, err error) {
	if rest, c.not = strings.CutPrefix(s, "Not"); c.not {
		s = strings.TrimLeft(rest, " \t")
	}
	switch {
	case strings.HasPrefix(s, "<"):
		c.token, rest, err = cutEnclosed(s, '>')
	case strings.HasPrefix(s, "["):
		c.etag, rest, err = cutEnclosed(s, ']')
	default:
		err = errIf
	}
	return c, rest, err
}

// cutEnclosed returns the text between the first byte of s and the closing byte, and the rest behind it.
func cutEnclosed(s string, closing byte) (content, rest string, err error) {
	end := strings.IndexByte(s, closing)
	if end < 2 {
		return "", "", errIf
	}
	return s[1:end], strings.TrimLeft(s[end+1:], " \t"), nil
}

// isTrue evaluates the header against the current state of the drive and its locks.
func (h ifHeader) isTrue(c *call) bool {
	return len(h.lists) == 0 || slices.ContainsFunc(h.lists, func(l ifList) bool { return l.isTrue(c) })
}

func (l ifList) isTrue(c *call) bool {
	for _, condition := range l.conditions {
		if l.matches(c, condition) == condition.not {
			return false
		}
	}
	return true
}

// matches evaluates a condition without regard to its Not.
func (l ifList) matches(c *call, condition condition) bool {
	if l.isOutside {
		return false
	}
	if condition.token != "" {
		return slices.ContainsFunc(c.locks.Covering(l.path), func(held *locks.Lock) bool { return held.Token == condition.token })
	}
	entry, err := c.drive.Stat(l.path)
	return err == nil && entry.ETag() == condition.etag
}

// hasToken reports whether a lock token is anywhere in the header, which submits it (RFC 4918, section 10.4.1).
func (h ifHeader) hasToken(token string) bool {
	return slices.ContainsFunc(h.lists, func(l ifList) bool {
		return slices.ContainsFunc(l.conditions, func(c condition) bool { return c.token == token })
	})
}

// singleToken returns the token of a header that has nothing else, as the request to refresh a lock does. It returns ""
// for any other header.
func (h ifHeader) singleToken() string {
	if len(h.lists) != 1 || len(h.lists[0].conditions) != 1 {
		return ""
	}
	return h.lists[0].conditions[0].token
}
