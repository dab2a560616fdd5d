// Package oauth is the authorization server: how a program comes to act for a person in one workspace.
//
//	Register        a client makes itself known (RFC 7591); clients are public, none has a secret
//	Begin           an authorization request is checked, before anybody is asked (RFC 6749, 7636, 8252, 8707)
//	Request.Allow   the person's answer becomes a grant and its code; Refuse is every other answer (RFC 9207)
//	Token           a code or a refresh token is exchanged for an access token and the next refresh token
//	Revoke          a token's whole family ends (RFC 7009)
//
// What a request must be like is checked by github.com/ory/fosite: its flows run over the storage of store.go and the
// tokens of token.go. What it has stored in several calls is collected and becomes one command to the grant, which
// settles races alone; nothing is remembered between requests. See docs/adr/0006-oauth.md.
//
// Tokens name their grant: <start><ulid of the grant>_<secret>. Only the SHA-256 of the secret is kept.
package oauth

import (
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/ory/fosite"
	"github.com/ory/fosite/compose"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/user"
)

// How long codes and tokens are good.
const (
	CodeLife    = time.Minute
	AccessLife  = 15 * time.Minute
	RefreshLife = 30 * 24 * time.Hour
)

// How tokens begin: whoever finds one knows what it is, and so do scanners for secrets.
const (
	CodeStart    = "atlac_"
	AccessStart  = "atlat_"
	RefreshStart = "atlrt_"
)

// Where the server's endpoints are.
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

// Asker sends commands to entities and waits for what follows from them.
type Asker interface {
	Ask(ctx context.Context, c entity.Command) (proto.Message, error)
	Settle(ctx context.Context, kind, identity string) error
}

// Options is what a Provider is made of. All of it is required.
type Options struct {
	Asker Asker
	// URL is where clients reach the server, without a path: the issuer, and the resource that tokens are for.
	URL *url.URL
	Now func() time.Time
	// NewID makes an id of a kind; the prefix has its underscore.
	NewID func(prefix string) string
	// Mint makes a token for a grant, and the SHA-256 of its secret.
	Mint func(start, grantID string) (text string, hash []byte)
	// Split takes a token apart: the ulid of its grant, and the SHA-256 of its secret.
	Split func(start, text string) (id string, hash []byte, ok bool)
	// Ended is told of each family that ended here, so that its tokens open nothing from now on.
	Ended func(grantID string)
}

// Provider is an authorization server.
type Provider struct {
	Options
	issuer string
	fosite *fosite.Fosite
}

// New makes a Provider.
func New(o Options) *Provider {
	p := &Provider{Options: o, issuer: o.URL.Scheme + "://" + o.URL.Host}
	config := &fosite.Config{
		AccessTokenLifespan:          AccessLife,
		RefreshTokenLifespan:         RefreshLife,
		AuthorizeCodeLifespan:        CodeLife,
		RefreshTokenScopes:           []string{}, // every grant has refresh tokens, whatever its scopes
		ScopeStrategy:                fosite.ExactScopeStrategy,
		AudienceMatchingStrategy:     p.checkAudience,
		EnforcePKCE:                  true,
		ClientAuthenticationStrategy: p.identifyClient,
		SanitationWhiteList:          []string{"redirect_uri", "code_challenge"},
		OmitRedirectScopeParam:       true,
	}
	p.fosite = compose.Compose(config, &store{p}, &tokens{p},
		compose.OAuth2AuthorizeExplicitFactory,
		compose.OAuth2PKCEFactory, // behind the one above, whose code it binds
		compose.OAuth2RefreshTokenGrantFactory,
		compose.OAuth2TokenRevocationFactory,
	).(*fosite.Fosite)
	return p
}

// isResource tells whether a resource indicator (RFC 8707) means this server.
func (p *Provider) isResource(text string) bool { return strings.TrimSuffix(text, "/") == p.issuer }

func (p *Provider) checkAudience(_, asked []string) error {
	for _, one := range asked {
		if !p.isResource(one) {
			return errTarget
		}
	}
	return nil
}

// checkResource holds the indicators of a request against the one resource that there is.
func (p *Provider) checkResource(form url.Values) error {
	return p.checkAudience(nil, form["resource"])
}

// repeated names a parameter that is there twice, of those that may not be (RFC 6749, section 3.1); empty: none.
func repeated(form url.Values) string {
	for name, values := range form {
		if name != "resource" && len(values) > 1 {
			return name
		}
	}
	return ""
}
