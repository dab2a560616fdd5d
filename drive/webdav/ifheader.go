package webdav

import (
	"slices"
	"strings"

	"github.com/atelier-run/atelier/entity"
)

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
