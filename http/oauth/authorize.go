package oauth

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/atelier-run/atelier/entity"
	clients "github.com/atelier-run/atelier/entity/client"
	clientv1 "github.com/atelier-run/atelier/messages/client/v1"
	grantv1 "github.com/atelier-run/atelier/messages/grant/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

const (
	// MaxQuery bounds an authorization request, in bytes.
	MaxQuery = 6 << 10
	// DefaultScope is the scope of a request without one: reading, which every role may do.
	DefaultScope = entity.FilesRead
)

// Denied is the error for Request.Refuse when the person does not consent.
var Denied error = refusal("access_denied", "The person did not allow it.")

// Request is an authorization request of a registered client, with a registered redirect URI.
type Request struct {
	provider *Provider
	// origin is the origin where the person's browser, and so the client, finds the server.
	origin string
	client *clientv1.Client
	// redirectURI is the redirect URI in the request, which may be omitted. redirect is the redirect URI of the response.
	redirectURI string
	redirect    *url.URL
	state       string
	scopes      []string
	challenge   []byte
	// audience is the resource that the tokens are for.
	audience string
	// Query is the request in a canonical form: equal requests have equal texts.
	Query string
}

// Begin validates an authorization request. Errors are *Error. If Begin returns an error and a Request, the error is for
// the client and Request.Refuse says where to send it. Without a Request it must only be shown to the person, because there is
// no redirect URI that the client is known to own (RFC 6749, section 4.1.2.1).
func (p *Provider) Begin(ctx context.Context, requestID, origin, query string) (*Request, error) {
	ctx = withRequestID(ctx, requestID)
	form, err := parseQuery(query)
	if err != nil {
		return nil, err
	}
	client, err := p.findClient(ctx, form.Get("client_id"))
	if err != nil {
		return nil, asError(err)
	}
	r := &Request{
		provider: p, origin: origin, client: client, redirectURI: form.Get("redirect_uri"), state: form.Get("state"), Query: form.Encode(),
	}
	to, err := chooseRedirect(client.GetRedirectUris(), r.redirectURI)
	if err != nil {
		return nil, err
	}
	r.redirect, err = url.Parse(to)
	if err != nil || !isRegistered(client.GetRedirectUris(), to, r.redirect) {
		return nil, refusal("invalid_request", "The redirect address is not registered for this application.")
	}
	return r, r.validate(form)
}

// chooseRedirect returns the redirect URI of a request, which may omit it if the client has registered exactly one (RFC 6749, section
// 3.1.2.3). Errors: invalid_request.
func chooseRedirect(registered []string, asked string) (string, error) {
	switch {
	case asked != "":
		return asked, nil
	case len(registered) != 1:
		return "", refusal("invalid_request", "The request has no redirect address, and the application has registered several.")
	}
	return registered[0], nil
}

// errLongQuery refuses a query by its length, also by the length of its canonical form, which escapes more characters: the answer to the
// consent page is sent with the canonical form.
var errLongQuery error = refusal("invalid_request", fmt.Sprintf("The request has more than %d bytes.", MaxQuery))

func parseQuery(query string) (url.Values, error) {
	if len(query) > MaxQuery {
		return nil, errLongQuery
	}
	form, err := url.ParseQuery(query)
	switch {
	case err != nil:
		return nil, refusal("invalid_request", "The query of the request is malformed.")
	case len(form.Encode()) > MaxQuery:
		return nil, errLongQuery
	}
	return form, checkRepeated(form)
}

// isRegistered reports whether a redirect URI is equal to one that the client has registered. Only the port of a URI that is
// http on a loopback address may differ, because native applications take any free one (RFC 8252, section 7.3).
func isRegistered(registered []string, text string, parsed *url.URL) bool {
	return slices.ContainsFunc(registered, func(uri string) bool {
		if uri == text {
			return true
		}
		other, err := url.Parse(uri)
		return err == nil && isLoopback(other) && parsed.String() == text && withoutPort(other) == withoutPort(parsed)
	})
}

// isLoopback reports whether u is http on a loopback address. The name localhost is none: it may resolve to any address.
func isLoopback(u *url.URL) bool {
	address, err := netip.ParseAddr(u.Hostname())
	return err == nil && address.IsLoopback() && u.Scheme == "http"
}

func withoutPort(u *url.URL) string {
	same := *u
	same.Host = u.Hostname()
	return same.String()
}

// validate checks all parameters but the client and the redirect URI, and keeps the parameters that Allow needs.
func (r *Request) validate(form url.Values) error {
	switch {
	case form.Get("request") != "":
		return refusal("request_not_supported", "Request objects are not supported.")
	case form.Get("request_uri") != "":
		return refusal("request_uri_not_supported", "request_uri is not supported.")
	case form.Get("response_type") != "code":
		return refusal("unsupported_response_type", "response_type must be code.")
	case form.Get("response_mode") != "" && form.Get("response_mode") != "query":
		return refusal("unsupported_response_mode", "response_mode must be query.")
	case form.Get("code_challenge_method") != "S256":
		return refusal("invalid_request", "PKCE is required: code_challenge_method must be S256.")
	}
	var err error
	r.challenge, err = base64.RawURLEncoding.Strict().DecodeString(form.Get("code_challenge"))
	if err != nil || len(r.challenge) != sha256.Size {
		return refusal("invalid_request", "code_challenge must be the base64url encoding of a SHA-256.")
	}
	if r.scopes, err = r.provider.scopesOf(form.Get("scope")); err != nil {
		return err
	}
	// Some clients call the resource audience.
	r.audience, err = r.provider.audienceOf(r.origin, append(form["resource"], strings.Fields(form.Get("audience"))...))
	return err
}

// offlineAccess is the scope value that asks for a refresh token (OpenID Connect Core 1.0, section 11). Every grant has one.
const offlineAccess = "offline_access"

// splitScope returns the values of a scope parameter, without offlineAccess.
func splitScope(scope string) []string {
	return slices.DeleteFunc(strings.Fields(scope), func(one string) bool { return one == offlineAccess })
}

// scopesOf returns the capabilities that a scope parameter asks for, each once, sorted; DefaultScope if it names none.
// Capabilities without an operation are left out (RFC 6749, section 3.3), because the person could not know their meaning.
// Errors: invalid_scope.
func (p *Provider) scopesOf(scope string) ([]string, error) {
	asked := splitScope(scope)
	if len(asked) == 0 {
		return []string{DefaultScope}, nil
	}
	var scopes []string
	for _, one := range asked {
		if DescribeScope(one) == "" {
			return nil, refusal("invalid_scope", "scope contains an unknown value; see scopes_supported in the metadata.")
		}
		if slices.Contains(p.Scopes, one) {
			scopes = append(scopes, one)
		}
	}
	if len(scopes) == 0 {
		return nil, refusal("invalid_scope", "scope contains nothing of scopes_supported in the metadata.")
	}
	slices.Sort(scopes)
	return slices.Compact(scopes), nil
}

// ClientName returns the name that the client chose for itself. A client that chose none is named by the end of Host, as much of it as a
// name may have: the end of a host is the part that cannot be made up.
func (r *Request) ClientName() string {
	host := r.Host()
	return cmp.Or(r.client.GetName(), host[max(0, len(host)-clients.MaxNameLength):])
}

// Scopes returns the capabilities that the client asks for, each once, sorted.
func (r *Request) Scopes() []string { return slices.Clone(r.scopes) }

// Host returns the host of the redirect URI, because people recognize an application by its host; its scheme if it has no host.
func (r *Request) Host() string {
	if r.redirect.Host == "" {
		return r.redirect.Scheme + ":"
	}
	return r.redirect.Host
}

// Refuse returns the redirect that tells the client an error. An error that is no *Error becomes server_error or
// temporarily_unavailable.
func (r *Request) Refuse(err error) string {
	refused := asError(err)
	return r.location(url.Values{"error": {refused.Name}, "error_description": {refused.Description}})
}

// responseNames are the parameters of a response (RFC 6749, section 4.1.2; RFC 9207).
var responseNames = []string{"code", "error", "error_description", "error_uri", "state", "iss"}

// location returns the redirect URI with response parameters, the state and the issuer. The query of the registered URI is retained as
// it was registered (RFC 6749, section 3.1.2), except for parameters with the names of a response: the client would take them for the
// server's.
func (r *Request) location(response url.Values) string {
	response.Set("iss", r.origin)
	if r.state != "" {
		response.Set("state", r.state)
	}
	parts := slices.DeleteFunc(strings.Split(r.redirect.RawQuery, "&"), isResponse)
	to := *r.redirect
	to.RawQuery = strings.Join(append(parts, response.Encode()), "&")
	return to.String()
}

// isResponse reports whether a part of a query is empty or has the name of a response parameter. Clients may end a parameter at a
// semicolon too.
func isResponse(part string) bool {
	return part == "" || slices.ContainsFunc(strings.Split(part, ";"), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(name)
		return err == nil && slices.Contains(responseNames, name)
	})
}

// Consent is the answer of a person who allows a request.
type Consent struct {
	Person    *wirev1.Principal
	Workspace *workspacev1.Workspace
	// Scopes are some of Request.Scopes.
	Scopes []string
}

// Allow adds a grant to the person's list, opens it, and returns the redirect that carries its code. The list comes first, so
// that there is no grant which the person cannot see and revoke. If the list is full, the grants that have ended are revoked.
// Errors: the errors of userv1.AllowGrant.
func (r *Request) Allow(ctx context.Context, requestID string, c Consent) (location string, err error) {
	ctx = withRequestID(ctx, requestID)
	p, grantID, person := r.provider, r.provider.NewID(grantPrefix), c.Person.GetUserId()
	code, hash := p.Mint(CodeStart, grantID)
	allow := func() error {
		_, err := p.Asker.Ask(ctx, entity.Command{
			Kind: entity.KindUser, Identity: person, Principal: c.Person, RequestID: requestID, ID: p.NewID("cmd_"),
			Message: &userv1.AllowGrant{Grant: &userv1.Grant{
				Id: grantID, ClientId: r.client.GetId(), ClientName: r.ClientName(), RedirectHost: r.Host(), Scopes: c.Scopes,
				WorkspaceId: c.Workspace.GetId(), WorkspaceSlug: c.Workspace.GetSlug(), WorkspaceName: c.Workspace.GetName(),
			}},
		})
		return err
	}
	err = allow()
	if entity.HasCode(err, entity.LimitReached) {
		if err := p.revokeEnded(ctx, c.Person); err != nil {
			return "", err
		}
		err = allow()
	}
	if err != nil {
		return "", err
	}
	if err := p.Asker.Settle(ctx, entity.KindUser, person); err != nil {
		return "", err
	}
	if _, err := askOnce(ctx, p, grantID, &grantv1.OpenGrant{Grant: &grantv1.Grant{
		Id: grantID, UserId: person, ClientId: r.client.GetId(), WorkspaceId: c.Workspace.GetId(), Scopes: c.Scopes,
		Audience: r.audience, RedirectUri: r.redirectURI, CodeChallenge: r.challenge, Code: p.newToken(hash, CodeLife),
	}}); err != nil {
		return "", err
	}
	return r.location(url.Values{"code": {code}}), nil
}
