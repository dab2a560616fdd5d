package http

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/atelier-run/atelier/entity"
)

// query is a request's parameters. The first thing wrong with one stays in err, so that a decoder reads as a list.
type query struct {
	pairs []pair
	err   error
}

type pair struct{ name, value string }

// parseQuery reads the parameters that an operation knows; a name that ends in * may be repeated.
func parseQuery(raw string, known ...string) (*query, error) {
	q := &query{}
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
			return q, invalid("unknown query parameter %q", clip(name))
		case q.has(name):
			return q, invalid("query parameter %q is repeated", name)
		}
		q.pairs = append(q.pairs, pair{name, value})
	}
	return q, nil
}

func unescape(text string) (string, error) {
	text, err := url.QueryUnescape(text)
	if err != nil || !utf8.ValidString(text) {
		return "", invalid("the query is malformed")
	}
	return text, nil
}

func clip(name string) string {
	if len(name) > 64 {
		return strings.ToValidUTF8(name[:64], "") + "…"
	}
	return name
}

func (q *query) has(name string) bool {
	return slices.ContainsFunc(q.pairs, func(p pair) bool { return p.name == name })
}

func (q *query) text(name string) string {
	for _, p := range q.pairs {
		if p.name == name {
			return p.value
		}
	}
	return ""
}

func (q *query) all(name string) []string {
	var values []string
	for _, p := range q.pairs {
		if p.name == name {
			values = append(values, p.value)
		}
	}
	return values
}

func (q *query) fail(err error) {
	if q.err == nil {
		q.err = err
	}
}

// limit is the length of a page.
func (q *query) limit() int32 {
	if !q.has("limit") {
		return 50
	}
	text := q.text("limit")
	n, err := strconv.ParseUint(text, 10, 7)
	if err != nil || n < 1 || n > 100 || text[0] == '0' {
		q.fail(invalid("limit must be an integer from 1 to 100"))
	}
	return int32(n)
}

// flag is a parameter that is 0 or 1.
func (q *query) flag(name string, absent bool) bool {
	if !q.has(name) {
		return absent
	}
	value := q.text(name)
	if value != "0" && value != "1" {
		q.fail(invalid("%s must be 0 or 1", name))
	}
	return value == "1"
}

// choice is a parameter with listed values, of which the first is the default.
func (q *query) choice(name string, values ...string) string {
	if !q.has(name) {
		return values[0]
	}
	value := q.text(name)
	if !slices.Contains(values, value) {
		q.fail(invalid("%s must be one of %s", name, strings.Join(values, ", ")))
	}
	return value
}

// path is a parameter that names a place on the drive.
func (q *query) path(name string) string {
	path := q.text(name)
	if !q.has(name) {
		q.fail(invalid("%s is required", name))
	} else if err := checkPath(name, path); err != nil {
		q.fail(err)
	}
	return path
}

// cursor applies a decoder to the cursor, where there is one.
func (q *query) cursor(decode func(string) error) {
	if !q.has("cursor") || q.err != nil {
		return
	}
	if err := decode(q.text("cursor")); err != nil {
		q.fail(err)
	}
}

// checkPath holds a value against the rules of drive paths and names the parameter that broke them.
func checkPath(name, path string) error {
	if err := entity.CheckPath(path); err != nil {
		return invalid("%s%s", name, strings.TrimPrefix(err.Message, "path"))
	}
	return nil
}

// entryName tells whether a valid path has one segment.
func entryName(path string) bool { return path != "" && !strings.Contains(path, "/") }
