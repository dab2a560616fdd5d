package grant

import (
	"crypto/sha256"
	"crypto/subtle"
	"time"

	"github.com/atelier-run/atelier/entity"
	grantv1 "github.com/atelier-run/atelier/messages/grant/v1"
)

const (
	// MaxCodeAge is how long a code may be good (RFC 6749, section 4.1.2).
	MaxCodeAge = 10 * time.Minute
	// MaxAccess is how many access tokens of a family are good at a time.
	MaxAccess = 5
	// MaxSpent is how many used refresh tokens are remembered, to tell a replay from a guess.
	MaxSpent = 64
)

// Reasons of a revocation that nobody asked for.
const (
	CodeReplayed    = "code_replayed"
	RefreshReplayed = "refresh_replayed"
)

var (
	errCodeExpired = entity.Errorf(entity.InvalidRequest, "the code has expired")
	errToken       = entity.Errorf(entity.InvalidRequest, "a token is no SHA-256 or expires in the past")
)

func redeem(call entity.Call, s *grantv1.Grant, c *grantv1.RedeemCode) ([]grantv1.Event, error) {
	switch {
	case !is(s.GetCode(), c.GetCodeSha256()):
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

func refresh(call entity.Call, s *grantv1.Grant, c *grantv1.Refresh) ([]grantv1.Event, error) {
	switch {
	case isSpent(s, c.GetRefreshSha256()):
		return []grantv1.Event{&grantv1.Revoked{At: call.At(), UserId: s.GetUserId(), Reason: RefreshReplayed}}, nil
	case !is(s.GetRefresh(), c.GetRefreshSha256()), call.At() >= s.GetRefresh().GetExpiresAt():
		return nil, errNotFound
	case !isToken(call, c.GetAccess()), !isToken(call, c.GetRefresh()), is(c.GetRefresh(), c.GetRefreshSha256()):
		return nil, errToken
	}
	return []grantv1.Event{&grantv1.Refreshed{Access: c.GetAccess(), Refresh: c.GetRefresh(), At: call.At()}}, nil
}

// is compares in a time that does not depend on the secret.
func is(token *grantv1.Token, secret []byte) bool {
	return len(secret) == sha256.Size && subtle.ConstantTimeCompare(token.GetSecretSha256(), secret) == 1
}

func isSpent(s *grantv1.Grant, secret []byte) bool {
	spent := false
	for _, one := range s.GetSpent() {
		if len(secret) == sha256.Size && subtle.ConstantTimeCompare(one, secret) == 1 {
			spent = true
		}
	}
	return spent
}

func isToken(call entity.Call, token *grantv1.Token) bool {
	return len(token.GetSecretSha256()) == sha256.Size && token.GetExpiresAt() > call.At()
}

// accessAfter are the newest access token and what has not expired of earlier ones, newest first.
func accessAfter(s *grantv1.Grant, e *grantv1.Refreshed) []*grantv1.Token {
	next := []*grantv1.Token{e.GetAccess()}
	for _, token := range s.GetAccess() {
		if token.GetExpiresAt() > e.GetAt() && len(next) < MaxAccess {
			next = append(next, token)
		}
	}
	return next
}

func spentAfter(s *grantv1.Grant) [][]byte {
	kept := s.GetSpent()
	if len(kept) >= MaxSpent {
		kept = kept[len(kept)-MaxSpent+1:]
	}
	return append(append(make([][]byte, 0, len(kept)+1), kept...), s.GetRefresh().GetSecretSha256())
}
