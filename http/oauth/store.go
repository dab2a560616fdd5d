package oauth

import (
	"context"
	"crypto/subtle"
	"encoding/base64"
	"time"

	"github.com/ory/fosite"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	grantv1 "github.com/atelier-run/atelier/messages/grant/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

// store is fosite's storage over grants. Calls that change something are collected in the exchange; Commit sends what
// they amount to, in one command, or Request.Allow does.
type store struct{ *Provider }

func (s *store) CreateAuthorizeCodeSession(ctx context.Context, sign string, r fosite.Requester) error {
	_, hash, _ := unsign(sign)
	of := r.GetSession().(*session)
	exchangeOf(ctx).opening = &grantv1.Grant{
		Id: r.GetID(), UserId: of.userID, ClientId: r.GetClient().GetID(), WorkspaceId: of.workspaceID,
		Scopes: r.GetGrantedScopes(), Audience: s.issuer, RedirectUri: r.GetRequestForm().Get("redirect_uri"),
		Code: s.token(hash, CodeLife),
	}
	return nil
}

// CreatePKCERequestSession comes after the code, to which it binds the challenge.
func (s *store) CreatePKCERequestSession(ctx context.Context, _ string, r fosite.Requester) (err error) {
	x := exchangeOf(ctx)
	x.opening.CodeChallenge, err = base64.RawURLEncoding.DecodeString(r.GetRequestForm().Get("code_challenge"))
	return err
}

func (s *store) GetAuthorizeCodeSession(ctx context.Context, sign string, _ fosite.Session) (fosite.Requester, error) {
	g, hash, err := s.find(ctx, sign)
	switch {
	case err != nil:
		return nil, err
	case !same(g.GetCode(), hash):
		return nil, fosite.ErrNotFound
	case g.GetCodeUsedAt() != 0:
		exchangeOf(ctx).replay = &grantv1.RedeemCode{CodeSha256: hash}
		return s.requestOf(g), fosite.ErrInvalidatedAuthorizeCode
	}
	return s.requestOf(g), nil
}

func (s *store) InvalidateAuthorizeCodeSession(ctx context.Context, sign string) error {
	_, exchangeOf(ctx).code, _ = unsign(sign)
	return nil
}

func (s *store) GetPKCERequestSession(ctx context.Context, sign string, _ fosite.Session) (fosite.Requester, error) {
	g, _, err := s.find(ctx, sign)
	if err != nil {
		return nil, err
	}
	return s.requestOf(g), nil
}

// DeletePKCERequestSession has nothing to do: a challenge ends with its code.
func (s *store) DeletePKCERequestSession(context.Context, string) error { return nil }

func (s *store) CreateAccessTokenSession(ctx context.Context, sign string, _ fosite.Requester) error {
	_, hash, _ := unsign(sign)
	exchangeOf(ctx).newAccess = s.token(hash, AccessLife)
	return nil
}

func (s *store) GetAccessTokenSession(ctx context.Context, sign string, _ fosite.Session) (fosite.Requester, error) {
	g, hash, err := s.find(ctx, sign)
	if err != nil {
		return nil, err
	}
	for _, one := range g.GetAccess() {
		if same(one, hash) {
			return s.requestOf(g), nil
		}
	}
	return nil, fosite.ErrNotFound
}

// DeleteAccessTokenSession has nothing to do: access tokens end by their time, or with their family.
func (s *store) DeleteAccessTokenSession(context.Context, string) error { return nil }

func (s *store) CreateRefreshTokenSession(ctx context.Context, sign, _ string, _ fosite.Requester) error {
	_, hash, _ := unsign(sign)
	exchangeOf(ctx).newNext = s.token(hash, RefreshLife)
	return nil
}

func (s *store) GetRefreshTokenSession(ctx context.Context, sign string, _ fosite.Session) (fosite.Requester, error) {
	g, hash, err := s.find(ctx, sign)
	if err != nil {
		return nil, err
	}
	for _, spent := range g.GetSpent() {
		if subtle.ConstantTimeCompare(spent, hash) == 1 {
			exchangeOf(ctx).replay = &grantv1.Refresh{RefreshSha256: hash}
			return s.requestOf(g), fosite.ErrInactiveToken
		}
	}
	if !same(g.GetRefresh(), hash) {
		return nil, fosite.ErrNotFound
	}
	return s.requestOf(g), nil
}

func (s *store) RotateRefreshToken(ctx context.Context, _ string, sign string) error {
	_, exchangeOf(ctx).refresh, _ = unsign(sign)
	return nil
}

// DeleteRefreshTokenSession has nothing to do: what follows it ends the family.
func (s *store) DeleteRefreshTokenSession(context.Context, string) error { return nil }

// RevokeRefreshToken ends a family, for the reason that the exchange found, or because its client asks.
func (s *store) RevokeRefreshToken(ctx context.Context, grantID string) error {
	x := exchangeOf(ctx)
	var end proto.Message = &grantv1.Revoke{}
	if x.replay != nil {
		end = x.replay
	}
	if _, err := s.ask(ctx, entity.KindGrant, grantID, end); err != nil && !missing(err) {
		return err
	}
	return s.ended(ctx, grantID, x.grant.GetUserId())
}

// RevokeAccessToken has nothing to do: a family ends as a whole.
func (s *store) RevokeAccessToken(context.Context, string) error { return nil }

func (s *store) BeginTX(ctx context.Context) (context.Context, error) { return ctx, nil }
func (s *store) Rollback(context.Context) error                       { return nil }

// Commit sends what was collected. The grant may know by now that somebody else was faster: then the family has ended.
func (s *store) Commit(ctx context.Context) error {
	x := exchangeOf(ctx)
	command := x.command()
	if command == nil {
		return nil
	}
	reply, err := s.ask(ctx, entity.KindGrant, x.grant.GetId(), command)
	switch {
	case refused(err):
		return errStale
	case err != nil:
		return err
	}
	if g, _ := reply.(*grantv1.Grant); g.GetRevokedAt() != 0 {
		if err := s.ended(ctx, g.GetId(), g.GetUserId()); err != nil {
			return err
		}
		return errStale
	}
	return nil
}

// find is the grant that a signature names, and the secret's hash. One exchange asks once, so that what it decides is
// decided on one state; of a disabled person there is none.
func (s *store) find(ctx context.Context, sign string) (*grantv1.Grant, []byte, error) {
	x := exchangeOf(ctx)
	id, hash, ok := unsign(sign)
	if !ok {
		return nil, nil, fosite.ErrNotFound
	}
	if x.grant.GetId() == id {
		return x.grant, hash, nil
	}
	reply, err := s.ask(ctx, entity.KindGrant, id, &grantv1.DescribeGrant{})
	found, _ := reply.(*grantv1.Grant)
	switch {
	case missing(err):
		return nil, nil, fosite.ErrNotFound
	case err != nil:
		return nil, nil, err
	case found.GetId() != id || found.GetRevokedAt() != 0:
		return nil, nil, fosite.ErrNotFound
	}
	standing, err := s.ask(ctx, entity.KindUser, found.GetUserId(), &userv1.DescribeStanding{})
	if person, _ := standing.(*userv1.Standing); err != nil || person.GetDisabled() {
		return nil, nil, orElse(err, fosite.ErrNotFound)
	}
	x.grant = found
	return found, hash, nil
}

func (s *store) token(hash []byte, life time.Duration) *grantv1.Token {
	return &grantv1.Token{SecretSha256: hash, ExpiresAt: s.Now().Add(life).UnixMilli()}
}

func same(t *grantv1.Token, hash []byte) bool {
	return len(hash) > 0 && subtle.ConstantTimeCompare(t.GetSecretSha256(), hash) == 1
}
