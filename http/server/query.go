package server

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/atelier-run/atelier/entity"
)

// Query has the query parameters of a request. Err is the first error of any method, so that a decoder reads like a list.
type Query struct {
	pairs []pair
	Err   error
}

type pair struct{ name, value string }

// ParseQuery parses a query. known are the operation's parameters; a name that ends in * may be repeated. Errors:
// invalid_request.
func ParseQuery(raw string, known ...string) (*Query, error) {
	q := &Query{}
	for raw != "" {
		var part string
		part, raw, _ = strings.Cut(raw, "&")
		if part == "" {
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		name, err := unescape(name)
		if err != nil {
			return q, err
		}
		value, err = unescape(value)
		switch {
		case err != nil:
			return q, err
		case slices.Contains(known, name+"*"):
		case strings.HasSuffix(name, "*"), !slices.Contains(known, name):
			return q, Invalid("unknown query parameter %q", clip(name))
		case q.Has(name):
			return q, Invalid("query parameter %q is repeated", name)
		}
		q.pairs = append(q.pairs, pair{name, value})
	}
	return q, nil
}

func unescape(text string) (string, error) {
	text, err := url.QueryUnescape(text)
	if err != nil || !utf8.ValidString(text) {
		return "", Invalid("the query is malformed: it must be percent-encoded UTF-8")
	}
	return text, nil
}

// clip returns a name that the client chose, bounded for an error message.
func clip(name string) string {
	if len(name) > 64 {
		return strings.ToValidUTF8(name[:64], "") + "…"
	}
	return name
}

// Has reports whether the query has a parameter.
func (q *Query) Has(name string) bool {
	return slices.ContainsFunc(q.pairs, func(p pair) bool { return p.name == name })
}

// Text returns a parameter; "" if it is absent.
func (q *Query) Text(name string) string {
	for _, p := range q.pairs {
		if p.name == name {
			return p.value
		}
	}
	return ""
}

// All returns the values of a repeated parameter.
func (q *Query) All(name string) []string {
	var values []string
	for _, p := range q.pairs {
		if p.name == name {
			values = append(values, p.value)
		}
	}
	return values
}

// Fail sets Err, unless it is set already.
func (q *Query) Fail(err error) {
	if q.Err == nil {
		q.Err = err
	}
}

// Limit returns the parameter limit, the number of items of a page: 1 to 100, by default 50.
func (q *Query) Limit() int32 {
	if !q.Has("limit") {
		return 50
	}
	text := q.Text("limit")
	n, err := strconv.ParseUint(text, 10, 7)
	if err != nil || n < 1 || n > 100 || text[0] == '0' {
		q.Fail(Invalid("limit must be an integer from 1 to 100"))
	}
	return int32(n)
}

// Flag returns a parameter that is 0 or 1; absent is its default.
func (q *Query) Flag(name string, absent bool) bool {
	if !q.Has(name) {
		return absent
	}
	value := q.Text(name)
	if value != "0" && value != "1" {
		q.Fail(Invalid("%s must be 0 or 1", name))
	}
	return value == "1"
}

// Choice returns a parameter that has one of the given values. The first value is the default.
func (q *Query) Choice(name string, values ...string) string {
	if !q.Has(name) {
		return values[0]
	}
	value := q.Text(name)
	if !slices.Contains(values, value) {
		q.Fail(Invalid("%s must be one of %s", name, strings.Join(values, ", ")))
	}
	return value
}

// Path returns a required parameter that is a path on the drive.
func (q *Query) Path(name string) string {
	path := q.Text(name)
	if !q.Has(name) {
		q.Fail(Invalid("%s is required", name))
	} else if err := CheckPath(name, path); err != nil {
		q.Fail(err)
	}
	return path
}

// Cursor calls decode with the cursor, if there is one and no parameter before it was invalid.
func (q *Query) Cursor(decode func(string) error) {
	if !q.Has("cursor") || q.Err != nil {
		return
	}
	if err := decode(q.Text("cursor")); err != nil {
		q.Fail(err)
	}
}

// CheckPath checks a path on the drive; its error names the parameter. Errors: invalid_request.
func CheckPath(name, path string) error {
	if err := entity.CheckPath(path); err != nil {
		return Invalid("%s%s", name, strings.TrimPrefix(err.Message, "path"))
	}
	return nil
}

// IsEntryName reports whether a valid path has exactly one segment.
func IsEntryName(path string) bool { return path != "" && !strings.Contains(path, "/") }
