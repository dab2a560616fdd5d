package oauth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	grantv1 "github.com/atelier-run/atelier/messages/grant/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

// Answer is the response of the token endpoint (RFC 6749, section 5.1).
type Answer struct {
	AccessToken  string `json:"access_token"`
	TokenType    string `json:"token_type"`
	ExpiresIn    int64  `json:"expires_in"`
	RefreshToken string `json:"refresh_token"`
	Scope        string `json:"scope"`
}

const (
	codeGrant    = "authorization_code"
	refreshGrant = "refresh_token"
)

var grantTypes = []string{codeGrant, refreshGrant}

// errUnknownToken does not say which of its cases holds, so that guesses learn nothing.
var errUnknownToken error = refusal("invalid_grant", "The code or refresh token is unknown, used, expired, revoked or another client's.")

// Token exchanges a code or a refresh token of a client that knows the server by an origin. The caller has read the form of r, within a
// bound. Errors are *Error.
func (p *Provider) Token(r *http.Request, requestID, origin string) (*Answer, error) {
	answer, err := p.exchange(r.WithContext(withRequestID(r.Context(), requestID)), origin)
	if err != nil {
		return nil, asError(err)
	}
	return answer, nil
}

func (p *Provider) exchange(r *http.Request, origin string) (*Answer, error) {
	form := r.PostForm
	if err := checkForm(form); err != nil {
		return nil, err
	}
	grantType := form.Get("grant_type")
	if !slices.Contains(grantTypes, grantType) {
		return nil, refusal("unsupported_grant_type", "grant_type must be authorization_code or refresh_token.")
	}
	client, err := p.identifyClient(r)
	switch {
	case err != nil:
		return nil, err
	case grantType == codeGrant:
		return p.redeemCode(r.Context(), origin, client.GetId(), form)
	}
	return p.refresh(r.Context(), origin, client.GetId(), form)
}

func checkForm(form url.Values) error {
	if len(form) == 0 {
		return refusal("invalid_request", "The body must be application/x-www-form-urlencoded.")
	}
	return checkRepeated(form)
}

// redeemCode exchanges a code (RFC 6749, section 4.1.3; RFC 7636, section 4.6). A refused request leaves the code as it is.
// A code that was used already is not checked further: the grant revokes itself.
func (p *Provider) redeemCode(ctx context.Context, origin, clientID string, form url.Values) (*Answer, error) {
	g, hash, err := p.findLiveGrant(ctx, CodeStart, form.Get("code"))
	switch {
	case err != nil:
		return nil, err
	case !isSecretOf(g.GetCode(), hash):
		return nil, errUnknownToken
	case g.GetCodeUsedAt() == 0:
		err = p.checkRedemption(origin, g, clientID, form)
	}
	if err != nil {
		return nil, err
	}
	return p.issue(ctx, g, func(access, next *grantv1.Token) proto.Message {
		return &grantv1.RedeemCode{CodeSha256: hash, Access: access, Refresh: next}
	})
}

func (p *Provider) checkRedemption(origin string, g *grantv1.Grant, clientID string, form url.Values) error {
	switch {
	case g.GetClientId() != clientID:
		return errUnknownToken
	case g.GetRedirectUri() != form.Get("redirect_uri"): // both are empty if the authorization request had none
		return refusal("invalid_grant", "redirect_uri differs from that of the authorization request.")
	case !verifies(g.GetCodeChallenge(), form.Get("code_verifier")):
		return refusal("invalid_grant", "code_verifier does not match the code_challenge of the authorization request.")
	}
	return p.checkResource(origin, g, form["resource"])
}

var verifierSyntax = regexp.MustCompile(`^[A-Za-z0-9._~-]{43,128}$`)

// verifies reports whether a challenge was made from a PKCE verifier (RFC 7636, sections 4.1 and 4.6).
func verifies(challenge []byte, verifier string) bool {
	sum := sha256.Sum256([]byte(verifier))
	return verifierSyntax.MatchString(verifier) && subtle.ConstantTimeCompare(challenge, sum[:]) == 1
}

// refresh exchanges a refresh token (RFC 6749, section 6). A refused request leaves the token as it is. A token that was
// used already is not checked further: the grant revokes itself.
func (p *Provider) refresh(ctx context.Context, origin, clientID string, form url.Values) (*Answer, error) {
	g, hash, err := p.findLiveGrant(ctx, RefreshStart, form.Get("refresh_token"))
	switch {
	case err != nil:
		return nil, err
	case isSpent(g, hash):
	case !isSecretOf(g.GetRefresh(), hash), g.GetClientId() != clientID:
		return nil, errUnknownToken
	case !containsAll(g.GetScopes(), splitScope(form.Get("scope"))):
		return nil, refusal("invalid_scope", "scope exceeds what was granted.")
	default:
		err = p.checkResource(origin, g, form["resource"])
	}
	if err != nil {
		return nil, err
	}
	return p.issue(ctx, g, func(access, next *grantv1.Token) proto.Message {
		return &grantv1.Refresh{RefreshSha256: hash, Access: access, Refresh: next}
	})
}

// issue mints a pair of tokens and asks the grant to accept them. The grant refuses a code or a token that another request
// has used up in the meantime, and then has revoked itself. The answer names the scopes, which are always all of the grant's.
func (p *Provider) issue(ctx context.Context, g *grantv1.Grant, command func(access, next *grantv1.Token) proto.Message) (*Answer, error) {
	access, accessHash := p.Mint(AccessStart, g.GetId())
	next, nextHash := p.Mint(RefreshStart, g.GetId())
	message := command(p.newToken(accessHash, AccessLife), p.newToken(nextHash, RefreshLife))
	after, err := askOnce(ctx, p, g.GetId(), message)
	switch {
	case entity.HasCode(err, entity.NotFound, entity.InvalidRequest):
		return nil, errUnknownToken
	case err != nil:
		return nil, err
	case after.GetRevokedAt() != 0:
		if err := p.finishRevocation(ctx, g); err != nil {
			return nil, err
		}
		return nil, errUnknownToken
	}
	return &Answer{
		AccessToken: access, TokenType: "Bearer", ExpiresIn: int64(AccessLife.Seconds()), RefreshToken: next,
		Scope: strings.Join(g.GetScopes(), " "),
	}, nil
}

// findGrant returns the grant that a code or token names, and the SHA-256 of the secret in the token. Whether the grant
// knows the secret is for the caller to compare. Errors: errUnknownToken, also for a revoked grant.
func (p *Provider) findGrant(ctx context.Context, start, token string) (*grantv1.Grant, []byte, error) {
	ulid, hash, ok := p.Split(start, token)
	if !ok {
		return nil, nil, errUnknownToken
	}
	g, err := ask[*grantv1.Grant](ctx, p, entity.KindGrant, grantPrefix+ulid, &grantv1.DescribeGrant{})
	switch {
	case entity.HasCode(err, entity.NotFound):
		return nil, nil, errUnknownToken
	case err != nil:
		return nil, nil, err
	case g.GetRevokedAt() != 0:
		return nil, nil, errUnknownToken
	}
	return g, hash, nil
}

// findLiveGrant is findGrant for grants of people who are not disabled. Errors: errUnknownToken.
func (p *Provider) findLiveGrant(ctx context.Context, start, token string) (*grantv1.Grant, []byte, error) {
	g, hash, err := p.findGrant(ctx, start, token)
	if err != nil {
		return nil, nil, err
	}
	person, err := ask[*userv1.Standing](ctx, p, entity.KindUser, g.GetUserId(), &userv1.DescribeStanding{})
	switch {
	case err != nil:
		return nil, nil, err
	case person.GetDisabled():
		return nil, nil, errUnknownToken
	}
	return g, hash, nil
}

func (p *Provider) newToken(hash []byte, life time.Duration) *grantv1.Token {
	return &grantv1.Token{SecretSha256: hash, ExpiresAt: p.Now().Add(life).UnixMilli()}
}

// isSecretOf reports whether a hash is the hash of a token's secret, in constant time.
func isSecretOf(t *grantv1.Token, hash []byte) bool {
	return len(hash) > 0 && subtle.ConstantTimeCompare(t.GetSecretSha256(), hash) == 1
}

// isSpent reports whether a hash is the hash of a refresh token that was exchanged before.
func isSpent(g *grantv1.Grant, hash []byte) bool {
	return slices.ContainsFunc(g.GetSpent(), func(spent []byte) bool { return subtle.ConstantTimeCompare(spent, hash) == 1 })
}

func containsAll(set, some []string) bool {
	return !slices.ContainsFunc(some, func(one string) bool { return !slices.Contains(set, one) })
}
