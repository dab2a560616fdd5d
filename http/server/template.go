package server

import (
	"net/http"
	"strings"

	"github.com/gorilla/mux"
)

// A template is the path of a route, divided at its slashes. mux would make a regular expression of it, which takes longer for
// each request than all other steps of finding its operation.
type template []segment

// A segment is a literal or, with a name, a variable. A variable takes one segment, which is not empty. The variable of a
// drive's entry takes the rest of the path, which may be empty.
type segment struct {
	literal, name string
	takesRest     bool
}

func parseTemplate(path string) template {
	var t template
	for _, text := range strings.Split(strings.TrimPrefix(path, "/"), "/") {
		if name, isVariable := strings.CutPrefix(text, "{"); isVariable {
			t = append(t, segment{name: strings.TrimSuffix(name, "}"), takesRest: path == DrivePath+"/"+text})
		} else {
			t = append(t, segment{literal: text})
		}
	}
	return t
}

// match is a mux.MatcherFunc. It matches the encoded path of the request, and sets the variables in that encoding.
func (t template) match(r *http.Request, found *mux.RouteMatch) bool {
	// The decoded path has the same slashes and literals, unless net/http has kept the path of the request beside it. Encoding
	// the decoded path again takes longer than this comparison, which fails for all templates but one.
	written := r.URL.RawPath
	if written == "" {
		written = r.URL.Path
	}
	if !t.matches(written, nil) {
		return false
	}
	found.Vars = map[string]string{}
	return t.matches(r.URL.EscapedPath(), found.Vars)
}

// matchFolder returns a mux.MatcherFunc for the path of a folder, with and without a slash at its end.
func matchFolder(path string) mux.MatcherFunc {
	bare, withSlash := parseTemplate(path), parseTemplate(strings.TrimSuffix(path, "/")+"/")
	return func(r *http.Request, found *mux.RouteMatch) bool {
		return bare.match(r, found) || withSlash.match(r, found)
	}
}

// matches reports whether a path has the form of the template. It adds the variables to a map, unless that is nil.
func (t template) matches(path string, variables map[string]string) bool {
	for _, s := range t {
		rest, ok := strings.CutPrefix(path, "/")
		if !ok {
			return false
		}
		end := strings.IndexByte(rest, '/')
		if end < 0 || s.takesRest {
			end = len(rest)
		}
		value := rest[:end]
		switch path = rest[end:]; {
		case s.name == "":
			if value != s.literal {
				return false
			}
		case value == "" && !s.takesRest:
			return false
		case variables != nil:
			variables[s.name] = value
		}
	}
	return path == ""
}
