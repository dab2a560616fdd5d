// Package visit implements the rules of visits: the access of a browser to one host of an app, on behalf of the principal that has
// launched the app. The identity of the entity is the id of the visit.
//
//	(none) ──GrantVisit──► granted ──RedeemVisit──► redeemed ──8 h──► expired
//	                         │  └──60 s──► expired      │
//	                         └────────EndVisit──────────┴──► ended
//
// A grant is in the address that a launch leads to, where others may see it later: in the history, in a log, in a referrer.
// Therefore it serves once, for one host and for a minute, and is exchanged for a cookie with another secret. Secrets arrive as
// SHA-256 hashes. A grant is refused with the same error for all reasons.
//
// A visit names only the principal, the app and its host. Whether the principal still has access is not part of it: the edge
// verifies that for each request. Only the platform sends commands to it.
package visit

import (
	"crypto/subtle"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	visitv1 "github.com/atelier-run/atelier/messages/visit/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

const (
	// IDPrefix begins the id of a visit; a lower-case ULID follows.
	IDPrefix = "vis_"
	// GrantTime is the time in which a grant can be redeemed, and CookieTime is how long its cookie opens the app (decisions,
	// section 7).
	GrantTime  = time.Minute
	CookieTime = 8 * time.Hour

	// maxHost is the greatest length of a host name, in bytes.
	maxHost = 253
)

var (
	errID        = entity.Errorf(entity.InvalidRequest, "visit id must be %s and a ULID", IDPrefix)
	errParties   = entity.Errorf(entity.InvalidRequest, "principal, workspaceId or appId is empty, or the principal is the platform")
	errHost      = entity.Errorf(entity.InvalidRequest, "host must be a host name in lower case, without a port")
	errSecret    = entity.Errorf(entity.InvalidRequest, "a secret is not a SHA-256 hash")
	errGranted   = entity.Errorf(entity.InvalidRequest, "visit id is already in use with another grant")
	errUnusable  = entity.Errorf(entity.Unauthorized, "the grant is not valid")
	errSameAgain = entity.Errorf(entity.InvalidRequest, "the secret of the cookie must not be that of the grant")
)

// Zero returns the state before the first event, which no secret opens.
func Zero(identity string) *visitv1.Visit { return &visitv1.Visit{Id: identity} }

// IsOpen reports whether the cookie of a visit opens the app at a time, in milliseconds since the Unix epoch.
func IsOpen(s *visitv1.Visit, at int64) bool {
	return s.GetRedeemedAt() != 0 && s.GetEndedAt() == 0 && at < s.GetExpiresAt()
}

// Kind describes visits to the runtime.
var Kind = Rules.Kind()

// Rules are the rules of visits. The outcome of a command is of no use after the cookie has expired.
var Rules = entity.Rules[*visitv1.Visit, visitv1.Command, visitv1.Event]{
	Name: entity.KindVisit, Zero: Zero, Decide: Decide, Evolve: Evolve, Reply: Reply, Retention: CookieTime,
}

// Decide turns an authorized command into events. It returns no events and no error if the state is already as the command requires,
// or if the command is a query. Errors: invalid_request, unauthorized.
func Decide(call entity.Call, s *visitv1.Visit, c visitv1.Command) ([]visitv1.Event, error) {
	switch c := c.(type) {
	case *visitv1.GrantVisit:
		return grant(call, s, c)
	case *visitv1.RedeemVisit:
		return redeem(call, s, c)
	case *visitv1.EndVisit:
		if !isGranted(s) || s.GetEndedAt() != 0 {
			return nil, nil
		}
		return []visitv1.Event{&visitv1.VisitEnded{At: call.At()}}, nil
	case *visitv1.DescribeVisit:
		return nil, nil
	}
	return nil, entity.UnknownCommand(entity.KindVisit, c)
}

// Evolve returns the state after an event.
func Evolve(s *visitv1.Visit, e visitv1.Event) *visitv1.Visit {
	next := entity.ShallowCopy(s)
	switch e := e.(type) {
	case *visitv1.VisitGranted:
		return e.GetVisit()
	case *visitv1.VisitRedeemed:
		next.CookieSha256, next.RedeemedAt, next.ExpiresAt = e.GetCookieSha256(), e.GetAt(), e.GetExpiresAt()
	case *visitv1.VisitEnded:
		next.EndedAt = e.GetAt()
	}
	return next
}

// Reply returns the state, with the hashes of the secrets, for RedeemVisit and DescribeVisit, and Done for every other command.
func Reply(_ entity.Call, s *visitv1.Visit, c visitv1.Command, _ []visitv1.Event) proto.Message {
	switch c.(type) {
	case *visitv1.RedeemVisit, *visitv1.DescribeVisit:
		return s
	case *visitv1.GrantVisit, *visitv1.EndVisit:
	}
	return &wirev1.Done{}
}

// grant decides a grant. It has no effect if it is a repetition. Errors: invalid_request.
func grant(call entity.Call, s *visitv1.Visit, c *visitv1.GrantVisit) ([]visitv1.Event, error) {
	switch {
	case !isID(call.Identity):
		return nil, errID
	case entity.IsPlatform(c.GetPrincipal()), c.GetPrincipal().GetUserId() == "", c.GetWorkspaceId() == "", c.GetAppId() == "":
		return nil, errParties
	case !isHost(c.GetHost()):
		return nil, errHost
	case !entity.IsSHA256(c.GetGrantSha256()):
		return nil, errSecret
	case isGranted(s) && !sameGrant(s, c):
		return nil, errGranted
	case isGranted(s):
		return nil, nil
	}
	return []visitv1.Event{&visitv1.VisitGranted{Visit: &visitv1.Visit{
		Id: call.Identity, Principal: c.GetPrincipal(), WorkspaceId: c.GetWorkspaceId(), AppId: c.GetAppId(), Host: c.GetHost(),
		GrantSha256: c.GetGrantSha256(), CreatedAt: call.At(), GrantExpiresAt: call.At() + GrantTime.Milliseconds(),
	}}}, nil
}

// redeem decides an exchange of the grant for a cookie. It has no effect if it is a repetition, which has the same cookie. Errors:
// invalid_request; unauthorized, also for a second cookie.
func redeem(call entity.Call, s *visitv1.Visit, c *visitv1.RedeemVisit) ([]visitv1.Event, error) {
	switch {
	case !entity.IsSHA256(c.GetGrantSha256()), !entity.IsSHA256(c.GetCookieSha256()):
		return nil, errSecret
	case equal(c.GetGrantSha256(), c.GetCookieSha256()):
		return nil, errSameAgain
	case !isGranted(s), s.GetEndedAt() != 0, !equal(s.GetGrantSha256(), c.GetGrantSha256()), s.GetHost() != c.GetHost():
		return nil, errUnusable
	case s.GetRedeemedAt() != 0:
		if !equal(s.GetCookieSha256(), c.GetCookieSha256()) {
			return nil, errUnusable
		}
		return nil, nil
	case call.At() >= s.GetGrantExpiresAt():
		return nil, errUnusable
	}
	return []visitv1.Event{&visitv1.VisitRedeemed{
		CookieSha256: c.GetCookieSha256(), At: call.At(), ExpiresAt: call.At() + CookieTime.Milliseconds(),
	}}, nil
}

func isGranted(s *visitv1.Visit) bool { return len(s.GetGrantSha256()) > 0 }

func sameGrant(s *visitv1.Visit, c *visitv1.GrantVisit) bool {
	return equal(s.GetGrantSha256(), c.GetGrantSha256()) && proto.Equal(s.GetPrincipal(), c.GetPrincipal()) &&
		s.GetWorkspaceId() == c.GetWorkspaceId() && s.GetAppId() == c.GetAppId() && s.GetHost() == c.GetHost()
}

// equal compares hashes in constant time.
func equal(a, b []byte) bool { return subtle.ConstantTimeCompare(a, b) == 1 }

func isID(text string) bool {
	ulid, ok := strings.CutPrefix(text, IDPrefix)
	return ok && entity.IsULID(ulid)
}

// isHost reports whether a text may be a host name: the edge has resolved it to the app.
func isHost(host string) bool {
	return host != "" && len(host) <= maxHost && !strings.ContainsFunc(host, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '.'
	})
}
