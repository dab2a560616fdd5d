package oauth

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	grantv1 "github.com/atelier-run/atelier/messages/grant/v1"
)

// Revoke ends the grant of an access or refresh token of the client that sends it. A token that is unknown or another
// client's is no error (RFC 7009, section 2.2). Errors are *Error.
func (p *Provider) Revoke(r *http.Request, requestID string) error {
	if err := p.revoke(r.WithContext(withRequestID(r.Context(), requestID))); err != nil {
		return asError(err)
	}
	return nil
}

func (p *Provider) revoke(r *http.Request) error {
	ctx, token := r.Context(), r.PostForm.Get("token")
	if err := checkForm(r.PostForm); err != nil {
		return err
	}
	if token == "" {
		return refusal("invalid_request", "token is required.")
	}
	client, err := p.identifyClient(r)
	if err != nil {
		return err
	}
	start := RefreshStart // token_type_hint is not needed: the start of a token shows its kind
	if strings.HasPrefix(token, AccessStart) {
		start = AccessStart
	}
	g, hash, err := p.findGrant(ctx, start, token)
	switch {
	case errors.Is(err, errUnknownToken):
		return nil
	case err != nil:
		return err
	case g.GetClientId() != client.GetId() || !isTokenOf(g, hash):
		return nil
	}
	if _, err := ask[proto.Message](ctx, p, entity.KindGrant, g.GetId(), &grantv1.Revoke{}); err != nil {
		return err
	}
	return p.finishRevocation(ctx, g)
}

// finishRevocation makes the end of a grant take effect in this process, and waits until it is in the person's list and in
// the audit log.
func (p *Provider) finishRevocation(ctx context.Context, g *grantv1.Grant) error {
	p.Ended(g.GetId())
	if err := p.Asker.Settle(ctx, entity.KindGrant, g.GetId()); err != nil {
		return err
	}
	return p.Asker.Settle(ctx, entity.KindUser, g.GetUserId())
}

// isTokenOf reports whether a hash is the hash of an access or refresh token of a grant.
func isTokenOf(g *grantv1.Grant, hash []byte) bool {
	isAccess := slices.ContainsFunc(g.GetAccess(), func(t *grantv1.Token) bool { return isSecretOf(t, hash) })
	return isAccess || isSecretOf(g.GetRefresh(), hash) || isSpent(g, hash)
}
