package oauth

import (
	"context"
	"encoding/base64"
	"strings"

	"github.com/ory/fosite"
)

// tokens is fosite's token strategy. What fosite calls a signature is the grant's id and the secret's hash: enough to
// find the family and to recognise the token, and not the token.
type tokens struct{ *Provider }

func signature(id string, hash []byte) string {
	return id + ":" + base64.RawURLEncoding.EncodeToString(hash)
}

// unsign takes a signature apart; ok is false for that of no token of ours.
func unsign(signature string) (id string, hash []byte, ok bool) {
	id, text, ok := strings.Cut(signature, ":")
	hash, err := base64.RawURLEncoding.DecodeString(text)
	return id, hash, ok && err == nil
}

func (t *tokens) sign(start, text string) string {
	id, hash, ok := t.Split(start, text)
	if !ok {
		return ""
	}
	return signature(grantPrefix+id, hash)
}

func (t *tokens) mint(start string, r fosite.Requester) (token, sign string, err error) {
	token, hash := t.Mint(start, r.GetID())
	return token, signature(r.GetID(), hash), nil
}

// good refuses a token of the exchange's grant that has expired. Whether it is the grant's was seen when it was found.
func (t *tokens) good(expiresAt int64) error {
	if t.Now().UnixMilli() >= expiresAt {
		return fosite.ErrTokenExpired
	}
	return nil
}

func (t *tokens) AuthorizeCodeSignature(_ context.Context, token string) string {
	return t.sign(CodeStart, token)
}

func (t *tokens) GenerateAuthorizeCode(_ context.Context, r fosite.Requester) (string, string, error) {
	return t.mint(CodeStart, r)
}

func (t *tokens) ValidateAuthorizeCode(ctx context.Context, _ fosite.Requester, _ string) error {
	return t.good(exchangeOf(ctx).grant.GetCode().GetExpiresAt())
}

func (t *tokens) AccessTokenSignature(_ context.Context, token string) string {
	return t.sign(AccessStart, token)
}

func (t *tokens) GenerateAccessToken(_ context.Context, r fosite.Requester) (string, string, error) {
	return t.mint(AccessStart, r)
}

// ValidateAccessToken is for introspection, which there is none of: the API itself knows access tokens.
func (t *tokens) ValidateAccessToken(context.Context, fosite.Requester, string) error {
	return fosite.ErrInactiveToken
}

func (t *tokens) RefreshTokenSignature(_ context.Context, token string) string {
	return t.sign(RefreshStart, token)
}

func (t *tokens) GenerateRefreshToken(_ context.Context, r fosite.Requester) (string, string, error) {
	return t.mint(RefreshStart, r)
}

func (t *tokens) ValidateRefreshToken(ctx context.Context, _ fosite.Requester, _ string) error {
	return t.good(exchangeOf(ctx).grant.GetRefresh().GetExpiresAt())
}
