// Package client holds the rules of a registered OAuth client (RFC 7591).
//
//	(none) ──RegisterClient──► registered
//
// A client's identity is its client id. A registration stands as it is: whoever wants another one registers again. The
// platform alone asks.
package client

import (
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/user"
	clientv1 "github.com/atelier-run/atelier/messages/client/v1"
)

const (
	// MaxNameLength is in characters.
	MaxNameLength = 100
	// MaxRedirects is how many redirect URIs a client may have.
	MaxRedirects = 10
	// MaxURILength is in bytes.
	MaxURILength = 2048

	maxIDLength = 128
)

var (
	errUnknownCommand = entity.Errorf(entity.InvalidRequest, "no command of a client")
	errNotFound       = entity.Errorf(entity.NotFound, "no such client")
	errID             = entity.Errorf(entity.InvalidRequest, "client id is another one's, empty or too long")
	errOther          = entity.Errorf(entity.InvalidRequest, "client id is registered already")
	errName           = entity.Errorf(entity.InvalidRequest, "client_name must have 1 to %d characters", MaxNameLength)
	errRedirects      = entity.Errorf(entity.InvalidRequest, "redirect_uris must be 1 to %d", MaxRedirects)
	errRedirect       = entity.Errorf(entity.InvalidRequest, "redirect_uris must be https, http on a loopback address, or a private-use scheme with a dot, without a fragment and of at most %d bytes", MaxURILength)
	errURI            = entity.Errorf(entity.InvalidRequest, "client_uri must be https and have at most %d bytes", MaxURILength)
)

// Zero is the state before the first event.
func Zero(identity string) *clientv1.Client {
	return &clientv1.Client{Id: identity}
}

// Kind describes an OAuth client, to which the platform alone sends commands.
var Kind = rules.Kind()

var rules = entity.Rules[*clientv1.Client, clientv1.Command, clientv1.Event]{
	Name: entity.KindClient, Zero: Zero, Decide: decide, Evolve: Evolve, Reply: Reply,
}

// Decide authorizes a command and turns it into events. No events and no error: already so, or a query.
// Errors: not_found, invalid_request, forbidden.
func Decide(call entity.Call, s *clientv1.Client, c clientv1.Command) ([]clientv1.Event, error) {
	return rules.AuthorizeAndDecide(call, s, c)
}

func decide(call entity.Call, s *clientv1.Client, c clientv1.Command) ([]clientv1.Event, error) {
	switch c := c.(type) {
	case *clientv1.RegisterClient:
		return register(call, s, c.GetClient())
	case *clientv1.DescribeClient:
		if !registered(s) {
			return nil, errNotFound
		}
		return nil, nil
	}
	return nil, errUnknownCommand
}

// Evolve is the state after an event.
func Evolve(s *clientv1.Client, e clientv1.Event) *clientv1.Client {
	switch e := e.(type) {
	case *clientv1.ClientRegistered:
		return e.GetClient()
	}
	return s
}

// Reply is the state for every command.
func Reply(_ entity.Call, s *clientv1.Client, c clientv1.Command, _ []clientv1.Event) proto.Message {
	switch c.(type) {
	case *clientv1.RegisterClient, *clientv1.DescribeClient:
	}
	return s
}

func register(call entity.Call, s, c *clientv1.Client) ([]clientv1.Event, error) {
	if err := check(call, c); err != nil {
		return nil, err
	}
	if registered(s) {
		if s.GetName() != c.GetName() || s.GetClientUri() != c.GetClientUri() || !slices.Equal(s.GetRedirectUris(), c.GetRedirectUris()) {
			return nil, errOther
		}
		return nil, nil
	}
	return []clientv1.Event{&clientv1.ClientRegistered{Client: &clientv1.Client{
		Id: c.GetId(), Name: c.GetName(), RedirectUris: c.GetRedirectUris(), ClientUri: c.GetClientUri(), CreatedAt: call.At(),
	}}}, nil
}

func check(call entity.Call, c *clientv1.Client) error {
	switch {
	case c.GetId() == "", c.GetId() != call.Identity, len(c.GetId()) > maxIDLength:
		return errID
	case utf8.RuneCountInString(c.GetName()) > MaxNameLength, user.CheckLabel(c.GetName()) != nil:
		return errName
	case len(c.GetRedirectUris()) < 1, len(c.GetRedirectUris()) > MaxRedirects:
		return errRedirects
	case c.GetClientUri() != "" && !isPage(c.GetClientUri()):
		return errURI
	}
	for _, uri := range c.GetRedirectUris() {
		if err := CheckRedirect(uri); err != nil {
			return err
		}
	}
	return nil
}

// CheckRedirect tells why a text is no redirect URI that a client may register (RFC 6749, section 3.1.2; RFC 8252,
// section 7); nil where it is one. Errors: invalid_request.
func CheckRedirect(uri string) *entity.Error {
	parsed, ok := parse(uri)
	if !ok || strings.Contains(uri, "#") {
		return errRedirect
	}
	switch parsed.Scheme {
	case "https":
		ok = parsed.Hostname() != ""
	case "http":
		ok = slices.Contains([]string{"127.0.0.1", "::1", "localhost"}, parsed.Hostname())
	default:
		ok = strings.Contains(parsed.Scheme, ".")
	}
	if !ok {
		return errRedirect
	}
	return nil
}

func isPage(uri string) bool {
	parsed, ok := parse(uri)
	return ok && parsed.Scheme == "https" && parsed.Hostname() != ""
}

// parse takes a URI of printable ASCII (RFC 3986) that names nobody's account.
func parse(uri string) (*url.URL, bool) {
	if len(uri) > MaxURILength || strings.ContainsFunc(uri, func(r rune) bool { return r <= ' ' || r > '~' || r == '\\' }) {
		return nil, false
	}
	parsed, err := url.Parse(uri)
	return parsed, err == nil && parsed.User == nil
}

func registered(s *clientv1.Client) bool { return s.GetCreatedAt() != 0 }
