// Package client implements the rules of registered OAuth clients (RFC 7591).
//
//	(none) ──RegisterClient──► registered
//
// The identity of the entity is the client id. A registration never changes: to change it, a client registers again and
// gets another client id. Only the platform sends commands to it.
package client

import (
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	clientv1 "github.com/atelier-run/atelier/messages/client/v1"
)

const (
	// MaxNameLength is the greatest length of a client's name, in characters.
	MaxNameLength = 100
	// MaxRedirects is the greatest number of redirect URIs of a client.
	MaxRedirects = 10
	// MaxURILength is the greatest length of a URI of a client, in bytes.
	MaxURILength = 2048
	// maxHost is the greatest length of the host of a redirect URI, with its port, in bytes; a grant has the same limit.
	maxHost = 255
)

var (
	errNotFound     = entity.Errorf(entity.NotFound, "no such client")
	errID           = entity.Errorf(entity.InvalidRequest, "client id is malformed or not the id of this entity")
	errRegistered   = entity.Errorf(entity.InvalidRequest, "client id is already registered with other values")
	errName         = entity.Errorf(entity.InvalidRequest, "client_name must not be blank, have a control character or have more than %d characters", MaxNameLength)
	errRedirects    = entity.Errorf(entity.InvalidRequest, "redirect_uris must have 1 to %d elements", MaxRedirects)
	errRedirect     = entity.Errorf(entity.InvalidRequest, "redirect_uris must be https, http on a loopback address, or a private-use scheme with a dot, without a fragment and of at most %d bytes", MaxURILength)
	errRedirectHost = entity.Errorf(entity.InvalidRequest, "the host or scheme of redirect_uris must have at most %d bytes", maxHost)
	errClientURI    = entity.Errorf(entity.InvalidRequest, "client_uri must be https or http and have at most %d bytes", MaxURILength)
)

// Zero returns the state before the first event.
func Zero(identity string) *clientv1.Client {
	return &clientv1.Client{Id: identity}
}

// Kind describes OAuth clients to the runtime.
var Kind = Rules.Kind()

// Rules are the rules of OAuth clients.
var Rules = entity.Rules[*clientv1.Client, clientv1.Command, clientv1.Event]{
	Name: entity.KindClient, Zero: Zero, Decide: Decide, Evolve: Evolve, Reply: Reply,
}

// Decide turns an authorized command into events. It returns no events and no error if the state is already as the
// command requires, or if the command is a query. Errors: not_found, invalid_request.
func Decide(call entity.Call, s *clientv1.Client, c clientv1.Command) ([]clientv1.Event, error) {
	switch c := c.(type) {
	case *clientv1.RegisterClient:
		return register(call, s, c.GetClient())
	case *clientv1.DescribeClient:
		if !isRegistered(s) {
			return nil, errNotFound
		}
		return nil, nil
	}
	return nil, entity.UnknownCommand(entity.KindClient, c)
}

// Evolve returns the state after an event.
func Evolve(s *clientv1.Client, e clientv1.Event) *clientv1.Client {
	switch e := e.(type) {
	case *clientv1.ClientRegistered:
		return e.GetClient()
	}
	return s
}

// Reply returns the state for every command.
func Reply(_ entity.Call, s *clientv1.Client, c clientv1.Command, _ []clientv1.Event) proto.Message {
	switch c.(type) {
	case *clientv1.RegisterClient, *clientv1.DescribeClient:
	}
	return s
}

// register decides a registration. A repetition with the same values has no effect. Errors: invalid_request.
func register(call entity.Call, s, c *clientv1.Client) ([]clientv1.Event, error) {
	if !entity.IsID(c.GetId()) || c.GetId() != call.Identity {
		return nil, errID
	}
	if err := Check(c); err != nil {
		return nil, err
	}
	if isRegistered(s) {
		if s.GetName() != c.GetName() || s.GetClientUri() != c.GetClientUri() || !slices.Equal(s.GetRedirectUris(), c.GetRedirectUris()) {
			return nil, errRegistered
		}
		return nil, nil
	}
	return []clientv1.Event{&clientv1.ClientRegistered{Client: &clientv1.Client{
		Id: c.GetId(), Name: c.GetName(), RedirectUris: c.GetRedirectUris(), ClientUri: c.GetClientUri(), CreatedAt: call.At(),
	}}}, nil
}

// Check returns an error unless a client with these values may be registered. The name and the client_uri are optional (RFC 7591,
// section 2). Errors: invalid_request.
func Check(c *clientv1.Client) *entity.Error {
	switch {
	case c.GetName() != "" && (utf8.RuneCountInString(c.GetName()) > MaxNameLength || entity.CheckLabel(c.GetName()) != nil):
		return errName
	case len(c.GetRedirectUris()) < 1, len(c.GetRedirectUris()) > MaxRedirects:
		return errRedirects
	case c.GetClientUri() != "" && !IsWebPage(c.GetClientUri()):
		return errClientURI
	}
	for _, uri := range c.GetRedirectUris() {
		if err := CheckRedirect(uri); err != nil {
			return err
		}
	}
	return nil
}

// CheckRedirect returns an error unless a client may register a text as a redirect URI (RFC 6749, section 3.1.2; RFC 8252,
// section 7). Errors: invalid_request.
func CheckRedirect(uri string) *entity.Error {
	parsed, ok := parseURI(uri)
	if !ok || strings.Contains(uri, "#") {
		return errRedirect
	}
	if len(parsed.Host) > maxHost || len(parsed.Scheme) >= maxHost {
		return errRedirectHost
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

// IsWebPage reports whether a text is the address of a web page.
func IsWebPage(uri string) bool {
	parsed, ok := parseURI(uri)
	return ok && (parsed.Scheme == "https" || parsed.Scheme == "http") && parsed.Hostname() != ""
}

// parseURI parses a URI of printable ASCII (RFC 3986) without user information. ok is false if the text is not such a URI.
func parseURI(uri string) (_ *url.URL, ok bool) {
	if len(uri) > MaxURILength || strings.ContainsFunc(uri, func(r rune) bool { return r <= ' ' || r > '~' || r == '\\' }) {
		return nil, false
	}
	parsed, err := url.Parse(uri)
	return parsed, err == nil && parsed.User == nil
}

func isRegistered(s *clientv1.Client) bool { return s.GetCreatedAt() != 0 }
