// Package grant implements the rules of OAuth grants. A grant is one consent of a person to an OAuth client, together with
// its authorization code and all tokens that are issued for it: the token family.
//
//	(none) ──OpenGrant──► opened ──RedeemCode──► redeemed ──Refresh──► redeemed, with new tokens
//	any state ──Revoke, or replay of a code or refresh token──► revoked
//
// Each code and token contains the identity of its grant, so the authorization server finds the grant from any of them.
// Secrets arrive as SHA-256 hashes. The second use of a code or refresh token revokes the family (RFC 9700, section
// 4.14.2) and is answered with the revoked grant, with revoked_at set. A wrong secret has no effect, so a client that
// guesses identities cannot revoke grants. Later commands to a revoked grant return not_found. Only the platform, the
// authorization server, sends commands to it.
package grant

import (
	"bytes"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/client"
	grantv1 "github.com/atelier-run/atelier/messages/grant/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

const (
	// MaxCodeAge is the longest lifetime of an authorization code (RFC 6749, section 4.1.2).
	MaxCodeAge = 10 * time.Minute
	// MaxAccessTokens is the greatest number of valid access tokens in a family.
	MaxAccessTokens = 5
	// MaxSpentTokens is the number of exchanged refresh tokens that are remembered to detect replays.
	MaxSpentTokens = 64
)

// The reasons of revocations without a request.
const (
	CodeReplayed    = "code_replayed"
	RefreshReplayed = "refresh_replayed"
)

var (
	errNotFound    = entity.Errorf(entity.NotFound, "no such grant, code or token")
	errID          = entity.Errorf(entity.InvalidRequest, "grant id is not the id of this entity")
	errParties     = entity.Errorf(entity.InvalidRequest, "userId, clientId or workspaceId is empty")
	errAudience    = entity.Errorf(entity.InvalidRequest, "resource must have 1 to %d bytes", client.MaxURILength)
	errRedirect    = entity.Errorf(entity.InvalidRequest, "redirect_uri must have 1 to %d bytes", client.MaxURILength)
	errChallenge   = entity.Errorf(entity.InvalidRequest, "code_challenge is not a SHA-256 hash")
	errCode        = entity.Errorf(entity.InvalidRequest, "code must be a SHA-256 hash that expires within %s", MaxCodeAge)
	errOpened      = entity.Errorf(entity.InvalidRequest, "grant id is already in use with another code or person")
	errCodeExpired = entity.Errorf(entity.InvalidRequest, "the code has expired")
	errToken       = entity.Errorf(entity.InvalidRequest, "token must be a SHA-256 hash that expires in the future")
)

// Zero returns the state before the first event.
func Zero(identity string) *grantv1.Grant {
	return &grantv1.Grant{Id: identity}
}

// IsUsable reports whether an access token of the grant authenticates requests at a time, in milliseconds since the Unix epoch. A
// connection that lasts longer than a request, such as a stream or a visit, depends on the grant and not on the token that began it: a
// client that refreshes its token in time loses nothing.
func IsUsable(s *grantv1.Grant, at int64) bool {
	return s.GetRevokedAt() == 0 && slices.ContainsFunc(s.GetAccess(), func(t *grantv1.Token) bool { return at < t.GetExpiresAt() })
}

// EndedAt returns the time at which the consent of a time ended, at the latest at a time; 0 if it is live. A consent ends with its
// revocation, with its code if that was not redeemed, and else with its last token. s is nil if the grant was not opened, which
// happens directly after the consent or never. All times are in milliseconds since the Unix epoch.
func EndedAt(s *grantv1.Grant, consentedAt, at int64) int64 {
	var end int64
	switch {
	case s.GetRevokedAt() != 0:
		return s.GetRevokedAt()
	case !isOpened(s):
		end = consentedAt + MaxCodeAge.Milliseconds()
	case s.GetCodeUsedAt() == 0:
		end = s.GetCode().GetExpiresAt()
	default:
		end = s.GetRefresh().GetExpiresAt()
		for _, token := range s.GetAccess() {
			end = max(end, token.GetExpiresAt())
		}
	}
	if at < end {
		return 0
	}
	return end
}

// Kind describes OAuth grants to the runtime.
var Kind = Rules.Kind()

// Rules are the rules of OAuth grants.
var Rules = entity.Rules[*grantv1.Grant, grantv1.Command, grantv1.Event]{
	Name: entity.KindGrant, Zero: Zero, Decide: Decide, Evolve: Evolve, Reply: Reply, React: React,
	Exposed:   []grantv1.Event{&grantv1.Revoked{}},
	Unexposed: []grantv1.Event{&grantv1.GrantOpened{}, &grantv1.CodeRedeemed{}, &grantv1.Refreshed{}, &grantv1.Used{}},
}

// Decide turns an authorized command into events. It returns no events and no error if the state is already as the
// command requires, or if the command is a query. Errors: not_found, invalid_request.
func Decide(call entity.Call, s *grantv1.Grant, c grantv1.Command) ([]grantv1.Event, error) {
	if revoke, ok := c.(*grantv1.Revoke); ok {
		return revokeGrant(call, s, revoke)
	}
	if open, ok := c.(*grantv1.OpenGrant); ok && s.GetRevokedAt() == 0 {
		return openGrant(call, s, open.GetGrant())
	}
	if _, describes := c.(*grantv1.DescribeGrant); !isOpened(s) || s.GetRevokedAt() != 0 && !describes {
		return nil, errNotFound
	}
	switch c := c.(type) {
	case *grantv1.RedeemCode:
		return redeem(call, s, c)
	case *grantv1.Refresh:
		return refresh(call, s, c)
	case *grantv1.Use:
		return use(call, s)
	case *grantv1.DescribeGrant:
		return nil, nil
	case *grantv1.OpenGrant, *grantv1.Revoke:
	}
	return nil, entity.UnknownCommand(entity.KindGrant, c)
}

// Evolve returns the state after an event. It shares unchanged values with s.
func Evolve(s *grantv1.Grant, e grantv1.Event) *grantv1.Grant {
	next := entity.ShallowCopy(s)
	switch e := e.(type) {
	case *grantv1.GrantOpened:
		next = entity.ShallowCopy(e.GetGrant())
	case *grantv1.CodeRedeemed:
		next.Access, next.Refresh, next.CodeUsedAt = []*grantv1.Token{e.GetAccess()}, e.GetRefresh(), e.GetAt()
	case *grantv1.Refreshed:
		next.Access, next.Refresh = accessTokensAfter(s, e), e.GetRefresh()
		next.Spent = spentTokensAfter(s)
	case *grantv1.Revoked:
		next.RevokedAt = e.GetAt()
	case *grantv1.Used:
		next.LastUsedAt = e.GetAt()
	}
	return next
}

// React returns the commands that follow from an event: a revoked grant is revoked in the list of the user who allowed it.
// A grant that was revoked before it was opened is in no list.
func React(identity string, event grantv1.Event) []entity.Reaction {
	switch e := event.(type) {
	case *grantv1.Revoked:
		if e.GetUserId() == "" {
			return nil
		}
		return []entity.Reaction{entity.Send(entity.KindUser, e.GetUserId(), &userv1.RevokeGrant{GrantId: identity})}
	default:
		return nil
	}
}

// Reply returns the state, with its hashes, for OpenGrant, RedeemCode, Refresh and DescribeGrant, and Done for the others.
func Reply(_ entity.Call, s *grantv1.Grant, c grantv1.Command, _ []grantv1.Event) proto.Message {
	switch c.(type) {
	case *grantv1.OpenGrant, *grantv1.RedeemCode, *grantv1.Refresh, *grantv1.DescribeGrant:
		return s
	case *grantv1.Revoke, *grantv1.Use:
	}
	return &wirev1.Done{}
}

// revokeGrant decides a revocation at the time of the command, or now if it has none.
func revokeGrant(call entity.Call, s *grantv1.Grant, c *grantv1.Revoke) ([]grantv1.Event, error) {
	if s.GetRevokedAt() != 0 {
		return nil, nil
	}
	at := c.GetAt()
	if at <= 0 {
		at = call.At()
	}
	// A grant that is revoked before it is opened can no longer be opened.
	return []grantv1.Event{&grantv1.Revoked{At: at, UserId: s.GetUserId()}}, nil
}

// use updates last_used_at, at most once in entity.UsePrecision.
func use(call entity.Call, s *grantv1.Grant) ([]grantv1.Event, error) {
	if entity.IsUseRecorded(s.GetLastUsedAt(), call.At()) {
		return nil, nil
	}
	return []grantv1.Event{&grantv1.Used{At: call.At()}}, nil
}

func isOpened(s *grantv1.Grant) bool { return s.GetUserId() != "" }

// openGrant opens a grant. A repetition with the same code and person has no effect. Errors: invalid_request.
func openGrant(call entity.Call, s, c *grantv1.Grant) ([]grantv1.Event, error) {
	if isOpened(s) {
		if s.GetUserId() != c.GetUserId() || !bytes.Equal(s.GetCode().GetSecretSha256(), c.GetCode().GetSecretSha256()) {
			return nil, errOpened
		}
		return nil, nil
	}
	if err := check(call, c); err != nil {
		return nil, err
	}
	return []grantv1.Event{&grantv1.GrantOpened{Grant: &grantv1.Grant{
		Id: c.GetId(), UserId: c.GetUserId(), ClientId: c.GetClientId(), WorkspaceId: c.GetWorkspaceId(),
		Scopes: c.GetScopes(), Audience: c.GetAudience(), RedirectUri: c.GetRedirectUri(),
		CodeChallenge: c.GetCodeChallenge(), Code: c.GetCode(), CreatedAt: call.At(),
	}}}, nil
}

func check(call entity.Call, c *grantv1.Grant) error {
	switch {
	case c.GetId() != call.Identity:
		return errID
	case c.GetUserId() == "", c.GetClientId() == "", c.GetWorkspaceId() == "":
		return errParties
	case !isURI(c.GetAudience()):
		return errAudience
	case c.GetRedirectUri() != "" && !isURI(c.GetRedirectUri()):
		return errRedirect
	case !entity.IsSHA256(c.GetCodeChallenge()):
		return errChallenge
	case !isToken(call, c.GetCode()), c.GetCode().GetExpiresAt() > call.At()+MaxCodeAge.Milliseconds():
		return errCode
	}
	return entity.CheckScopes(c.GetScopes())
}

func isURI(text string) bool { return text != "" && len(text) <= client.MaxURILength }

// redeem exchanges the code for tokens. The second use of the code revokes the grant. Errors: not_found for another code,
// invalid_request.
func redeem(call entity.Call, s *grantv1.Grant, c *grantv1.RedeemCode) ([]grantv1.Event, error) {
	switch {
	case !matches(s.GetCode(), c.GetCodeSha256()):
		return nil, errNotFound
	case s.GetCodeUsedAt() != 0:
		return []grantv1.Event{&grantv1.Revoked{At: call.At(), UserId: s.GetUserId(), Reason: CodeReplayed}}, nil
	case call.At() >= s.GetCode().GetExpiresAt():
		return nil, errCodeExpired
	case !isToken(call, c.GetAccess()), !isToken(call, c.GetRefresh()):
		return nil, errToken
	}
	return []grantv1.Event{&grantv1.CodeRedeemed{Access: c.GetAccess(), Refresh: c.GetRefresh(), At: call.At()}}, nil
}

// refresh exchanges the refresh token for new tokens. The second use of a refresh token revokes the grant. Errors:
// not_found for an unknown or expired token, invalid_request.
func refresh(call entity.Call, s *grantv1.Grant, c *grantv1.Refresh) ([]grantv1.Event, error) {
	switch {
	case isSpent(s, c.GetRefreshSha256()):
		return []grantv1.Event{&grantv1.Revoked{At: call.At(), UserId: s.GetUserId(), Reason: RefreshReplayed}}, nil
	case !matches(s.GetRefresh(), c.GetRefreshSha256()), call.At() >= s.GetRefresh().GetExpiresAt():
		return nil, errNotFound
	case !isToken(call, c.GetAccess()), !isToken(call, c.GetRefresh()), matches(c.GetRefresh(), c.GetRefreshSha256()):
		return nil, errToken
	}
	return []grantv1.Event{&grantv1.Refreshed{Access: c.GetAccess(), Refresh: c.GetRefresh(), At: call.At()}}, nil
}

// matches reports whether hash is the hash of the token's secret.
func matches(token *grantv1.Token, hash []byte) bool {
	return entity.HashesEqual(token.GetSecretSha256(), hash)
}

// isSpent reports whether hash is the hash of a refresh token that was exchanged before.
func isSpent(s *grantv1.Grant, hash []byte) bool {
	spent := false
	for _, one := range s.GetSpent() {
		if entity.HashesEqual(one, hash) {
			spent = true
		}
	}
	return spent
}

// isToken reports whether a token is a hash that expires after the call.
func isToken(call entity.Call, token *grantv1.Token) bool {
	return entity.IsSHA256(token.GetSecretSha256()) && token.GetExpiresAt() > call.At()
}

// accessTokensAfter returns the new access token and the earlier ones that have not expired, newest first.
func accessTokensAfter(s *grantv1.Grant, e *grantv1.Refreshed) []*grantv1.Token {
	next := []*grantv1.Token{e.GetAccess()}
	for _, token := range s.GetAccess() {
		if token.GetExpiresAt() > e.GetAt() && len(next) < MaxAccessTokens {
			next = append(next, token)
		}
	}
	return next
}

// spentTokensAfter returns the hashes of exchanged refresh tokens after the current one has been exchanged.
func spentTokensAfter(s *grantv1.Grant) [][]byte {
	earlier := s.GetSpent()
	if len(earlier) >= MaxSpentTokens {
		earlier = earlier[len(earlier)-MaxSpentTokens+1:]
	}
	return append(append(make([][]byte, 0, len(earlier)+1), earlier...), s.GetRefresh().GetSecretSha256())
}
