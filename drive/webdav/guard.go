package webdav

import (
	"net/http"
	"slices"
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

// maxConditions bounds an If header.
const maxConditions = 256

// An ifHeader is the If header of RFC 4918, section 10.4: it holds where any of its lists does.
type ifHeader struct {
	lists []ifList
}

// An ifList holds where all of its conditions do, of one resource.
type ifList struct {
	// outside is set where the resource is on no path of the drive.
	outside    bool
	path       string
	conditions []condition
}

type condition struct {
	not   bool
	token string
	etag  string
}

var errIf = entity.Errorf(entity.InvalidRequest, "the If header cannot be read")

// parseIf reads the header; the lists without a resource are about the request's own.
func (c *call) parseIf(values []string) (h ifHeader, err error) {
	rest := strings.TrimSpace(strings.Join(values, " "))
	tagged := strings.HasPrefix(rest, "<")
	list, total := ifList{path: c.path}, 0
	for rest != "" {
		switch {
		case rest[0] == '<' && tagged:
			var tag string
			if tag, rest, err = enclosed(rest, '>'); err != nil {
				return ifHeader{}, err
			}
			path, _, err := c.reference(tag)
			list = ifList{path: path, outside: err != nil}
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

// parseList reads conditions up to the closing parenthesis.
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
		c.token, rest, err = enclosed(s, '>')
	case strings.HasPrefix(s, "["):
		c.etag, rest, err = enclosed(s, ']')
	default:
		err = errIf
	}
	return c, rest, err
}

// enclosed takes what stands between the first byte and a closing one.
func enclosed(s string, closing byte) (inside, rest string, err error) {
	end := strings.IndexByte(s, closing)
	if end < 2 {
		return "", "", errIf
	}
	return s[1:end], strings.TrimLeft(s[end+1:], " \t"), nil
}

// holds evaluates the header; none holds.
func (h ifHeader) holds(c *call) bool {
	return len(h.lists) == 0 || slices.ContainsFunc(h.lists, func(l ifList) bool { return l.holds(c) })
}

func (l ifList) holds(c *call) bool {
	for _, condition := range l.conditions {
		if l.true(c, condition) == condition.not {
			return false
		}
	}
	return true
}

func (l ifList) true(c *call, condition condition) bool {
	if l.outside {
		return false
	}
	if condition.token != "" {
		return slices.ContainsFunc(c.locks.on(l.path), func(held *lock) bool { return held.Token == condition.token })
	}
	entry, err := c.drive.Stat(l.path)
	return err == nil && entry.ETag() == condition.etag
}

// submits tells whether a token appears, wherever.
func (h ifHeader) submits(token string) bool {
	return slices.ContainsFunc(h.lists, func(l ifList) bool {
		return slices.ContainsFunc(l.conditions, func(c condition) bool { return c.token == token })
	})
}

// only gives the token of a header that is nothing but one, as a refresh has it.
func (h ifHeader) only() string {
	if len(h.lists) != 1 || len(h.lists[0].conditions) != 1 {
		return ""
	}
	return h.lists[0].conditions[0].token
}
