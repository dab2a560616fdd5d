// Package oauth is the authorization server: it lets an application act for a person in one workspace.
//
// It implements the authorization code flow of OAuth 2.0 for public clients, which have no secret. One flow, from its first
// request to its last:
//
//  1. Server and Resource describe the server and the API to clients (RFC 8414, RFC 9728).
//  2. Register registers a client and returns its id (RFC 7591).
//  3. Begin validates an authorization request of the client (RFC 6749, section 4.1.1; PKCE, RFC 7636; RFC 8707). Its caller
//     signs the person in and asks for consent.
//  4. Request.Allow opens a grant and returns the redirect that carries its code. Request.Refuse returns the redirect that
//     carries an error. Both name the issuer (RFC 9207).
//  5. Token exchanges the code for an access token and a refresh token, and later each refresh token for the next pair.
//  6. Revoke ends a token and all others of its grant (RFC 7009).
//
// http.go serves these steps over HTTP, except for the consent page, which is in http/browser.
//
// The package validates requests and keeps nothing in memory between them. A grant is an entity (entity/grant): it stores
// hashes of its code and tokens, and decides alone, in one command, which of several concurrent exchanges succeeds and that
// the second use of a code or refresh token revokes everything it led to. See docs/adr/0016-authorization-server.md.
//
// A code or token contains the id of its grant, so that no index is needed: <start><ulid of the grant>_<secret>. Only the
// SHA-256 of the secret is stored. Tokens are opaque to clients.
package oauth

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/user"
	grantv1 "github.com/atelier-run/atelier/messages/grant/v1"
)

// Lifetimes of codes and tokens.
const (
	CodeLife    = time.Minute
	AccessLife  = 15 * time.Minute
	RefreshLife = 30 * 24 * time.Hour
)

// Prefixes of codes and tokens. They show people, and scanners for leaked secrets, which kind of secret a text is.
const (
	CodeStart    = "atlac_"
	AccessStart  = "atlat_"
	RefreshStart = "atlrt_"
)

// Paths of the server's endpoints.
const (
	AuthorizePath = "/oauth/authorize"
	TokenPath     = "/oauth/token"
	RevokePath    = "/oauth/revoke"
	RegisterPath  = "/oauth/register"
)

const (
	clientPrefix = "oc_"
	grantPrefix  = user.GrantPrefix
)

// Options configures a Provider. All fields but Resources are required.
type Options struct {
	Asker entity.AskSettler
	// URL is the public address of the server, without a path. It is the issuer, and the identifier of the API as a resource. A client that
	// knows the server by another origin gets that one for both (server.OriginOf); grants have the public one.
	URL *url.URL
	Now func() time.Time
	// Scopes are the capabilities that clients may ask for: the capabilities that an operation requires. They are sorted.
	Scopes []string
	// Resources are the resources of the server besides the API.
	Resources []Resource
	// NewID returns a new id with a prefix; the prefix ends in an underscore.
	NewID func(prefix string) string
	// Mint returns a new token of a grant and the SHA-256 of its secret.
	Mint func(start, grantID string) (text string, hash []byte)
	// Split returns the ulid of the grant that a token names and the SHA-256 of the token's secret. ok is false if the text
	// is no token with this start.
	Split func(start, text string) (ulid string, hash []byte, ok bool)
	// Ended is called with each grant that a request revoked, before the request is answered: it must make this process
	// refuse the grant's access tokens at once.
	Ended func(grantID string)
}

// Resource is a part of the server that clients may ask tokens for, which are then valid for that part alone (RFC 8707).
type Resource struct {
	// Path is the path of the resource; its address is the identifier of the resource.
	Path string
	Name string
	// Scopes are the capabilities that its operations require, for clients that ask for all of them. They are among
	// Options.Scopes.
	Scopes []string
}

// Provider is an authorization server.
type Provider struct {
	Options
	issuer string
}

// New returns a Provider.
func New(o Options) *Provider {
	return &Provider{Options: o, issuer: o.URL.Scheme + "://" + o.URL.Host}
}

// audienceOf returns the audience of the tokens for a request that names resources (RFC 8707, section 2): the named resource, or the whole
// server if the request names none, or several. The client knows the server by an origin. Errors: invalid_target if one is not a resource
// of this server.
func (p *Provider) audienceOf(origin string, resources []string) (string, error) {
	audience := ""
	for _, resource := range resources {
		resource = strings.TrimSuffix(resource, "/")
		if slices.Contains(p.identifiers(origin), resource) {
			resource = p.issuer + strings.TrimPrefix(resource, origin)
		}
		switch {
		case resource == "":
			continue
		case !slices.Contains(p.identifiers(p.issuer), resource):
			return "", refusal("invalid_target", "The resources of this server are "+strings.Join(p.identifiers(origin), " and ")+".")
		case audience == "":
			audience = resource
		case audience != resource:
			audience = p.issuer
		}
	}
	return cmp.Or(audience, p.issuer), nil
}

// checkResource refuses a request for tokens of a grant that names other resources than the grant is for (RFC 8707, section
// 2.2). Errors: invalid_target.
func (p *Provider) checkResource(origin string, g *grantv1.Grant, resources []string) error {
	for _, resource := range resources {
		wanted, err := p.audienceOf(origin, []string{resource})
		switch granted := strings.TrimSuffix(g.GetAudience(), "/"); {
		case err != nil:
			return err
		case resource != "" && granted != p.issuer && granted != wanted:
			return refusal("invalid_target", "The person has allowed access to "+granted+" only.")
		}
	}
	return nil
}

// identifiers returns the identifiers of the API and of the other resources for clients that know the server by an origin.
func (p *Provider) identifiers(origin string) []string {
	all := []string{origin}
	for _, r := range p.Resources {
		all = append(all, origin+r.Path)
	}
	return all
}

// checkRepeated refuses a request that has a parameter more than once, other than resource (RFC 6749, section 3.1; RFC
// 8707, section 2). Errors: invalid_request.
func checkRepeated(form url.Values) error {
	for name, values := range form {
		if name != "resource" && len(values) > 1 {
			return refusal("invalid_request", "The request has a parameter more than once.")
		}
	}
	return nil
}

// ask sends a query, or a command that may be repeated without harm, to an entity as the platform.
func ask[Reply proto.Message](ctx context.Context, p *Provider, kind, identity string, m proto.Message) (Reply, error) {
	return send[Reply](ctx, p, entity.Command{Kind: kind, Identity: identity, Message: m})
}

// askOnce sends a command to a grant, which applies it once even if its node fails and the command is delivered again. An exchange needs
// this: a client that is told to try again repeats its code or token, and a grant that has applied the exchange takes that for a replay
// and revokes itself.
func askOnce(ctx context.Context, p *Provider, grantID string, m proto.Message) (*grantv1.Grant, error) {
	return send[*grantv1.Grant](ctx, p, entity.Command{Kind: entity.KindGrant, Identity: grantID, ID: p.NewID("cmd_"), Message: m})
}

// send sends a command as the platform.
func send[Reply proto.Message](ctx context.Context, p *Provider, c entity.Command) (Reply, error) {
	c.Principal, c.RequestID = entity.Platform(), requestID(ctx)
	return entity.Ask[Reply](ctx, p.Asker, c)
}

type requestIDKey struct{}

// withRequestID returns a context that carries the id of the request, which commands are logged and traced with.
func withRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestIDKey{}, id)
}

func requestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}
