package oauth

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/ory/fosite"

	"github.com/atelier-run/atelier/entity"
	grantv1 "github.com/atelier-run/atelier/messages/grant/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// MaxQuery bounds an authorization request, in bytes.
const MaxQuery = 6 << 10

// Request is an authorization request of a registered client that can be answered at its redirect URI.
type Request struct {
	provider *Provider
	asked    fosite.AuthorizeRequester
	client   *client
	// Query is the request in one spelling, however it was sent.
	Query string
}

// Begin checks an authorization request. Errors are *Error; with a Request beside it, an error is for the client, by
// Refuse, and without one it is for the person alone, as nobody knows where it would lead.
func (p *Provider) Begin(ctx context.Context, requestID, query string) (*Request, error) {
	ctx, _ = begin(ctx, requestID)
	if len(query) > MaxQuery {
		return nil, asError(fosite.ErrInvalidRequest.WithHintf("It has more than %d bytes.", MaxQuery))
	}
	form, err := url.ParseQuery(query)
	if err != nil {
		return nil, asError(fosite.ErrInvalidRequest.WithHint("The query is malformed."))
	}
	if name := repeated(form); name != "" {
		return nil, asError(fosite.ErrInvalidRequest.WithHint("A parameter is there twice."))
	}
	if form.Get("redirect_uri") == "" {
		return nil, asError(fosite.ErrInvalidRequest.WithHint("redirect_uri is required."))
	}
	asked, err := p.fosite.NewAuthorizeRequest(ctx, fositeRequest(form))
	if err == nil {
		err = p.checkAuthorization(form, asked)
	}
	found, known := asked.GetClient().(*client)
	if !known || !asked.IsRedirectURIValid() || !registered(found.RedirectURIs, asked.GetRedirectURI()) {
		return nil, asError(orElse(err, fosite.ErrInvalidRequest))
	}
	r := &Request{p, asked, found, form.Encode()}
	if err != nil {
		return r, asError(err)
	}
	return r, nil
}

// fositeRequest is the form as fosite reads it. Request objects (RFC 9101) are kept from it: it would fetch them.
func fositeRequest(form url.Values) *http.Request {
	plain := url.Values{}
	for name, values := range form {
		if name != "request" && name != "request_uri" {
			plain[name] = values
		}
	}
	return &http.Request{Method: http.MethodGet, Header: http.Header{}, URL: &url.URL{Path: AuthorizePath, RawQuery: plain.Encode()}}
}

// registered tells whether answers may go to a redirect URI: one that is registered, but for the port where it is http on
// a loopback address (RFC 8252, section 7.3). fosite lets more of such a URI differ: its scheme, or the name of a user.
func registered(uris []string, asked *url.URL) bool {
	return slices.ContainsFunc(uris, func(uri string) bool {
		one, err := url.Parse(uri)
		return err == nil && (uri == asked.String() || withoutPort(one) == withoutPort(asked))
	})
}

func withoutPort(u *url.URL) string {
	if address, err := netip.ParseAddr(u.Hostname()); u.Scheme != "http" || err != nil || !address.IsLoopback() {
		return u.String()
	}
	same := *u
	same.Host = u.Hostname()
	return same.String()
}

// checkAuthorization checks what fosite leaves open, or looks at too late for a consent page.
func (p *Provider) checkAuthorization(form url.Values, asked fosite.AuthorizeRequester) error {
	switch {
	case form.Has("request"):
		return fosite.ErrRequestNotSupported
	case form.Has("request_uri"):
		return fosite.ErrRequestURINotSupported
	case len(asked.GetRequestedScopes()) == 0:
		return fosite.ErrInvalidScope.WithHint("scope is required.")
	case form.Get("code_challenge_method") != "S256":
		return fosite.ErrInvalidRequest.WithHint("code_challenge_method must be S256.")
	}
	challenge, err := base64.RawURLEncoding.Strict().DecodeString(form.Get("code_challenge"))
	if err != nil || len(challenge) != sha256.Size {
		return fosite.ErrInvalidRequest.WithHint("code_challenge must be the base64url of a SHA-256.")
	}
	return p.checkResource(form)
}

// ClientName is what the client calls itself.
func (r *Request) ClientName() string { return r.client.name }

// Scopes are the capabilities that are asked for, each once, sorted.
func (r *Request) Scopes() []string {
	asked := slices.Clone([]string(r.asked.GetRequestedScopes()))
	slices.Sort(asked)
	return slices.Compact(asked)
}

// Host is where answers go, for people to recognise.
func (r *Request) Host() string {
	to := r.asked.GetRedirectURI()
	if to.Host == "" {
		return to.Scheme + ":"
	}
	return to.Host
}

// Origin is where answers go as a source of a Content-Security-Policy, which has no form for IPv6 addresses.
func (r *Request) Origin() string {
	to := r.asked.GetRedirectURI()
	if to.Host == "" || strings.Contains(to.Host, "[") {
		return to.Scheme + ":"
	}
	return to.Scheme + "://" + to.Host
}

// Refuse is where an error leads. Errors that are no *Error are told as server_error.
func (r *Request) Refuse(err error) string {
	told := asError(err)
	return r.location(url.Values{"error": {told.Name}, "error_description": {told.Description}})
}

// Denied is the person's refusal.
var Denied error = fosite.ErrAccessDenied.WithHint("The person did not allow it.")

// location adds parameters to the redirect URI, with the state and the issuer (RFC 9207).
func (r *Request) location(parameters url.Values) string {
	to := *r.asked.GetRedirectURI()
	query := to.Query()
	for name := range parameters {
		query.Set(name, parameters.Get(name))
	}
	query.Set("iss", r.provider.issuer)
	if state := r.asked.GetState(); state != "" {
		query.Set("state", state)
	}
	to.RawQuery = query.Encode()
	return to.String()
}

// Consent is what a person allows.
type Consent struct {
	Person    *wirev1.Principal
	Workspace *workspacev1.Workspace
	// Scopes are some of those that were asked for.
	Scopes []string
}

// Allow writes the grant into the person's list, opens it, and returns where its code leads. Errors: those of
// userv1.AllowGrant.
func (r *Request) Allow(ctx context.Context, requestID string, c Consent) (location string, err error) {
	p := r.provider
	ctx, x := begin(ctx, requestID)
	grantID, person := p.NewID(grantPrefix), c.Person.GetUserId()
	r.asked.SetID(grantID)
	for _, scope := range c.Scopes {
		r.asked.GrantScope(scope)
	}
	response, err := p.fosite.NewAuthorizeResponse(ctx, r.asked, &session{person, c.Workspace.GetId()})
	if err != nil {
		return "", err
	}
	if _, err := p.Asker.Ask(ctx, entity.Command{
		Kind: entity.KindUser, Identity: person, Principal: c.Person, RequestID: requestID, ID: p.NewID("cmd_"),
		Message: &userv1.AllowGrant{Grant: &userv1.Grant{
			Id: grantID, ClientId: r.client.GetID(), ClientName: r.ClientName(), RedirectHost: r.Host(),
			WorkspaceId: c.Workspace.GetId(), Scopes: c.Scopes,
			WorkspaceSlug: c.Workspace.GetSlug(), WorkspaceName: c.Workspace.GetName(),
		}},
	}); err != nil {
		return "", err
	}
	if err := p.Asker.Settle(ctx, entity.KindUser, person); err != nil {
		return "", err
	}
	if _, err := p.ask(ctx, entity.KindGrant, grantID, &grantv1.OpenGrant{Grant: x.opening}); err != nil {
		return "", err
	}
	return r.location(url.Values{"code": {response.GetCode()}}), nil
}
