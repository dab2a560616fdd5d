package http

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/atelier-run/atelier/entity/activity"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// Route is a row of the table, for tests of what it says.
type Route struct {
	Method, Path, Scope, Summary string
	Idempotent                   bool
}

func (s *Server) Routes() []Route {
	var table []Route
	for _, r := range s.routes() {
		table = append(table, Route{r.method, r.path, string(r.scope), r.summary, r.idempotent})
	}
	return table
}

func (s *Server) Document() []byte { return s.document }

// HeadMemory is what the unfinished heads of as many connections as are let in can be charged, in bytes.
func (s *Server) HeadMemory() int { return s.options.Limits.Connections*freeHead + maxHeads }

// ChargedHeads is what unfinished heads are charged now, in bytes.
func (s *Server) ChargedHeads() int64 { return s.heads.Load() }

func (s *Server) Limits() Limits { return s.options.Limits }

// Flush waits until the uses of credentials are reported.
func (s *Server) Flush() { s.authenticator.reports.Wait() }

// Authenticate is what a request with that header costs first.
func (s *Server) Authenticate(r *http.Request) error {
	c := &call{ctx: r.Context(), server: s, operation: &operation{}, w: &response{}, r: r}
	k, err := c.presented()
	if err == nil {
		_, err = s.authenticator.authenticate(c.ctx, k, c.stranger)
	}
	return err
}

func (s *Server) Remembered() int64 { return s.authenticator.known.size.Load() }

func (s *Server) CursorText(place string, parts ...string) string {
	return s.cursors.text(place, walk(parts...))
}

func (s *Server) CursorPlace(text string, parts ...string) (string, error) {
	return s.cursors.place(text, walk(parts...))
}

var (
	NewID       = newID
	RequestLike = requestIDLike
)

// DecodeName decodes a body with one string field.
func DecodeName(text []byte) (string, error) {
	var in struct {
		Name string `json:"name"`
	}
	err := decodeJSON(text, &in)
	return in.Name, err
}

// DecodeFeed decodes a feed's query, without a cursor, to text.
func DecodeFeed(raw string) (string, error) {
	r := &http.Request{URL: &url.URL{RawQuery: raw}, Header: http.Header{}}
	in, err := decodeFeed(&call{r: r, workspace: &workspace{cursor: activity.NewCursor(make([]byte, 32), "ws")}})
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(in.String()), nil
}

// NewKey makes a personal key; ParseKey splits one.
func NewKey(id string) (string, []byte) { return newKey(keyStart, id) }

func ParseKey(text string) (id, secret string, ok bool) {
	k, ok := parseKey(text)
	return k.id, k.secret, ok
}

// Retold is a key that says to be of another kind.
func Retold(text string, kind wirev1.CredentialKind) string {
	for _, s := range starts {
		if s.kind == kind {
			return s.start + strings.TrimPrefix(text, keyStart)
		}
	}
	panic("no keys of the kind " + kind.String())
}

// NewKeyOf makes a key of a kind for the id of a credential or grant.
func NewKeyOf(kind wirev1.CredentialKind, id string) (string, []byte) {
	for _, s := range starts {
		if s.kind == kind {
			return newKey(s.start, id)
		}
	}
	panic("no keys of the kind " + kind.String())
}
