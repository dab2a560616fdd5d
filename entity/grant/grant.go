// Package grant holds the rules of a grant family: one consent of a person to an OAuth client, its code and every token
// that follows from it.
//
//	(none) ──OpenGrant──► opened ──RedeemCode──► redeemed ──Refresh──► redeemed, with the next tokens
//	any of them ──Revoke, or a code or refresh token used twice──► revoked
//
// A grant's identity is in its tokens, so that whoever has one finds the family; secrets come in as hashes. Somebody
// who merely guesses identities revokes nothing: a replay is a secret that was good once (RFC 9700, section 4.14.2).
// A replay is answered with the grant as it is then, revoked_at set. A revoked grant is not found any more. The platform
// alone asks.
package grant

import (
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	grantv1 "github.com/atelier-run/atelier/messages/grant/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

var (
	errUnknownCommand = entity.Errorf(entity.InvalidRequest, "no command of a grant")
	errNotFound       = entity.Errorf(entity.NotFound, "no such grant, code or token")
)

// Zero is the state before the first event.
func Zero(identity string) *grantv1.Grant {
	return &grantv1.Grant{Id: identity}
}

// Kind describes a grant, to which the platform alone sends commands.
var Kind = rules.Kind()

var rules = entity.Rules[*grantv1.Grant, grantv1.Command, grantv1.Event]{
	Name: entity.KindGrant, Zero: Zero, Decide: decide, Evolve: Evolve, Reply: Reply, React: React,
}

// Decide authorizes a command and turns it into events. No events and no error: already so, or a query.
// Errors: not_found, invalid_request, forbidden.
func Decide(call entity.Call, s *grantv1.Grant, c grantv1.Command) ([]grantv1.Event, error) {
	return rules.AuthorizeAndDecide(call, s, c)
}

func decide(call entity.Call, s *grantv1.Grant, c grantv1.Command) ([]grantv1.Event, error) {
	if revoke, ok := c.(*grantv1.Revoke); ok {
		return revokeGrant(call, s, revoke)
	}
	if open, ok := c.(*grantv1.OpenGrant); ok && s.GetRevokedAt() == 0 {
		return openGrant(call, s, open.GetGrant())
	}
	if _, looks := c.(*grantv1.DescribeGrant); !opened(s) || s.GetRevokedAt() != 0 && !looks {
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
	return nil, errUnknownCommand
}

// Evolve is the state after an event. It shares with s what the event did not change.
func Evolve(s *grantv1.Grant, e grantv1.Event) *grantv1.Grant {
	next := copyOf(s)
	switch e := e.(type) {
	case *grantv1.GrantOpened:
		next = copyOf(e.GetGrant())
	case *grantv1.CodeRedeemed:
		next.Access, next.Refresh, next.CodeUsedAt = []*grantv1.Token{e.GetAccess()}, e.GetRefresh(), e.GetAt()
	case *grantv1.Refreshed:
		next.Access, next.Refresh = accessAfter(s, e), e.GetRefresh()
		next.Spent = spentAfter(s)
	case *grantv1.Revoked:
		next.RevokedAt = e.GetAt()
	case *grantv1.Used:
		next.LastUsedAt = e.GetAt()
	}
	return next
}

// React returns the commands that follow from an event: a revoked grant leaves the list of the person who allowed it. A
// grant that was revoked before it was opened is in nobody's list.
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

// Reply is the state, hashes included, for those that tell of it, and Done for the others.
func Reply(_ entity.Call, s *grantv1.Grant, c grantv1.Command, _ []grantv1.Event) proto.Message {
	switch c.(type) {
	case *grantv1.OpenGrant, *grantv1.RedeemCode, *grantv1.Refresh, *grantv1.DescribeGrant:
		return s
	case *grantv1.Revoke, *grantv1.Use:
	}
	return &wirev1.Done{}
}

func revokeGrant(call entity.Call, s *grantv1.Grant, c *grantv1.Revoke) ([]grantv1.Event, error) {
	if s.GetRevokedAt() != 0 {
		return nil, nil
	}
	at := c.GetAt()
	if at <= 0 {
		at = call.At()
	}
	// Also where it has not been opened: it never will be.
	return []grantv1.Event{&grantv1.Revoked{At: at, UserId: s.GetUserId()}}, nil
}

func use(call entity.Call, s *grantv1.Grant) ([]grantv1.Event, error) {
	if s.GetLastUsedAt() != 0 && call.At()-s.GetLastUsedAt() < entity.UsePrecision.Milliseconds() {
		return nil, nil
	}
	return []grantv1.Event{&grantv1.Used{At: call.At()}}, nil
}

func opened(s *grantv1.Grant) bool { return s.GetUserId() != "" }

func copyOf(s *grantv1.Grant) *grantv1.Grant {
	return &grantv1.Grant{
		Id:            s.GetId(),
		UserId:        s.GetUserId(),
		ClientId:      s.GetClientId(),
		WorkspaceId:   s.GetWorkspaceId(),
		Scopes:        s.GetScopes(),
		Audience:      s.GetAudience(),
		RedirectUri:   s.GetRedirectUri(),
		CodeChallenge: s.GetCodeChallenge(),
		Code:          s.GetCode(),
		CodeUsedAt:    s.GetCodeUsedAt(),
		Access:        s.GetAccess(),
		Refresh:       s.GetRefresh(),
		CreatedAt:     s.GetCreatedAt(),
		RevokedAt:     s.GetRevokedAt(),
		LastUsedAt:    s.GetLastUsedAt(),
		Spent:         s.GetSpent(),
	}
}
