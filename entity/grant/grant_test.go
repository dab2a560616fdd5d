package grant_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/entitytest"
	"github.com/atelier-run/atelier/entity/grant"
	grantv1 "github.com/atelier-run/atelier/messages/grant/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

const identity = "ogr_01j00000000000000000000000"

var (
	noon  = time.UnixMilli(1_800_000_000_000)
	rules = entitytest.Rules[*grantv1.Grant, grantv1.Command, grantv1.Event]{Decide: grant.Rules.AuthorizeAndDecide, Evolve: grant.Evolve}
)

func at(now time.Time) entity.Call {
	return entity.Call{Now: now, Identity: identity, Principal: entity.Platform()}
}

func hash(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}

func token(secret string, expires time.Time) *grantv1.Token {
	return &grantv1.Token{SecretSha256: hash(secret), ExpiresAt: expires.UnixMilli()}
}

func good() *grantv1.Grant {
	return &grantv1.Grant{
		Id: identity, UserId: "usr_1", ClientId: "cli_1", WorkspaceId: "ws_1", Scopes: []string{"files:read"},
		Audience: "https://example.com", RedirectUri: "https://example.com/back", CodeChallenge: hash("verifier"),
		Code: token("code", noon.Add(time.Minute)),
	}
}

func redeem(code string, n int) *grantv1.RedeemCode {
	return &grantv1.RedeemCode{
		CodeSha256: hash(code), Access: token(access(n), noon.Add(time.Hour)), Refresh: token(refreshed(n), noon.Add(24*time.Hour)),
	}
}

func refresh(from, n int) *grantv1.Refresh {
	return &grantv1.Refresh{
		RefreshSha256: hash(refreshed(from)), Access: token(access(n), noon.Add(time.Hour)), Refresh: token(refreshed(n), noon.Add(24*time.Hour)),
	}
}

func access(n int) string    { return fmt.Sprintf("access %d", n) }
func refreshed(n int) string { return fmt.Sprintf("refresh %d", n) }

// execute decides a command and applies its events. The second use of a secret is a replay, so for RedeemCode and Refresh
// it checks that a repetition revokes the family, once, and not that it has no events.
func execute(t rapid.TB, call entity.Call, s *grantv1.Grant, c grantv1.Command) (*grantv1.Grant, []grantv1.Event, error) {
	t.Helper()
	switch c.(type) {
	case *grantv1.RedeemCode, *grantv1.Refresh:
	default:
		return rules.Execute(t, call, s, c)
	}
	events, err := grant.Rules.AuthorizeAndDecide(call, s, c)
	if err != nil {
		if entitytest.Code(err) == "" || len(events) > 0 {
			t.Fatalf("%T: refused with %v and %d events", c, err, len(events))
		}
		return s, nil, err
	}
	if len(events) != 1 {
		t.Fatalf("%T: %d events", c, len(events))
	}
	before := proto.Clone(s)
	next := grant.Evolve(s, events[0])
	if !proto.Equal(before, s) {
		t.Fatalf("%T changed the state before it", events[0])
	}
	again, err := grant.Rules.AuthorizeAndDecide(call, next, c)
	if next.GetRevokedAt() != 0 {
		if entitytest.Code(err) != entity.NotFound {
			t.Fatalf("%T of a revoked grant: %v", c, err)
		}
	} else if revoked, ok := again[0].(*grantv1.Revoked); !ok || revoked.GetReason() == "" {
		t.Fatalf("%T a second time: %v, %v", c, again, err)
	}
	return next, events, nil
}

func must(t rapid.TB, call entity.Call, s *grantv1.Grant, c grantv1.Command) *grantv1.Grant {
	t.Helper()
	s, _, err := execute(t, call, s, c)
	if err != nil {
		t.Fatalf("%T: %v", c, err)
	}
	return s
}

func opened(t rapid.TB) *grantv1.Grant {
	t.Helper()
	return must(t, at(noon), grant.Zero(identity), &grantv1.OpenGrant{Grant: good()})
}

func commands() *rapid.Generator[grantv1.Command] {
	return rapid.Custom(func(t *rapid.T) grantv1.Command {
		n, from := rapid.IntRange(0, 100).Draw(t, "n"), rapid.IntRange(0, 100).Draw(t, "from")
		switch rapid.IntRange(0, 11).Draw(t, "command") {
		case 0, 1:
			return &grantv1.OpenGrant{Grant: good()}
		case 2, 3:
			return redeem(rapid.SampledFrom([]string{"code", "code", "guess"}).Draw(t, "code"), n)
		case 4:
			return &grantv1.Use{}
		case 5:
			return &grantv1.DescribeGrant{}
		case 6:
			if rapid.IntRange(0, 9).Draw(t, "revoke") == 0 {
				return &grantv1.Revoke{}
			}
			return &grantv1.Use{}
		default:
			return refresh(from, n)
		}
	})
}

func TestLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, now := grant.Zero(identity), noon
		var log []grantv1.Event
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 20_000).Draw(t, "ms later")) * time.Millisecond)
			call := at(now)
			call.Principal.Kind = wirev1.CredentialKind(rapid.SampledFrom([]int32{1, 1, 1, 1, 0, 2, 8}).Draw(t, "kind"))
			c := commands().Draw(t, "command")
			if r, ok := c.(*grantv1.Refresh); ok && s.GetRefresh() != nil && rapid.Bool().Draw(t, "the good one") {
				r.RefreshSha256 = s.GetRefresh().GetSecretSha256()
			}
			next, events, err := execute(t, call, s, c)
			if !entity.IsPlatform(call.Principal) && entitytest.Code(err) != entity.Forbidden {
				t.Fatalf("%v was authorized: %v", call.Principal, err)
			}
			if s.GetRevokedAt() != 0 && !proto.Equal(s, next) {
				t.Fatalf("revoked %v became %v", s, next)
			}
			if len(next.GetAccess()) > grant.MaxAccessTokens || len(next.GetSpent()) > grant.MaxSpentTokens {
				t.Fatalf("%d access tokens, %d spent", len(next.GetAccess()), len(next.GetSpent()))
			}
			s, log = next, append(log, events...)
		}
		replayed := grant.Zero(identity)
		for _, e := range log {
			replayed = grant.Evolve(replayed, e)
		}
		if !proto.Equal(replayed, s) {
			t.Fatalf("the replayed state is %v, the live state %v", replayed, s)
		}
	})
}

func TestEvolveKeepsOtherFields(t *testing.T) {
	s := good()
	s.CodeUsedAt, s.CreatedAt, s.RevokedAt, s.LastUsedAt = 1, 2, 3, 4
	s.Access, s.Refresh = []*grantv1.Token{token("a", noon)}, token("r", noon)
	s.Spent = [][]byte{hash("s")}
	fields := s.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		if !s.ProtoReflect().Has(fields.Get(i)) {
			t.Fatalf("the sample lacks %s", fields.Get(i).FullName())
		}
	}
	for _, e := range []grantv1.Event{
		&grantv1.GrantOpened{Grant: s}, &grantv1.Revoked{At: 3}, &grantv1.Used{At: 4},
		&grantv1.CodeRedeemed{Access: s.GetAccess()[0], Refresh: s.GetRefresh(), At: 1},
	} {
		if next := grant.Evolve(s, e); !proto.Equal(next, s) {
			t.Errorf("%T repeated: %v", e, next)
		}
	}
	next := grant.Evolve(s, &grantv1.Refreshed{Access: s.GetAccess()[0], Refresh: s.GetRefresh(), At: noon.UnixMilli()})
	next.Spent = s.GetSpent()
	if !proto.Equal(next, s) {
		t.Errorf("refreshed: %v", next)
	}
}

func TestOpenGrantValidation(t *testing.T) {
	for name, change := range map[string]func(*grantv1.Grant){
		"id":        func(g *grantv1.Grant) { g.Id = "ogr_2" },
		"person":    func(g *grantv1.Grant) { g.UserId = "" },
		"client":    func(g *grantv1.Grant) { g.ClientId = "" },
		"workspace": func(g *grantv1.Grant) { g.WorkspaceId = "" },
		"scopes":    func(g *grantv1.Grant) { g.Scopes = nil },
		"audience":  func(g *grantv1.Grant) { g.Audience = "" },
		"redirect":  func(g *grantv1.Grant) { g.RedirectUri = string(bytes.Repeat([]byte("a"), 2049)) },
		"challenge": func(g *grantv1.Grant) { g.CodeChallenge = nil },
		"no code":   func(g *grantv1.Grant) { g.Code = nil },
		"old code":  func(g *grantv1.Grant) { g.Code = token("code", noon) },
		"late code": func(g *grantv1.Grant) { g.Code = token("code", noon.Add(10*time.Minute+time.Millisecond)) },
	} {
		c := good()
		change(c)
		if _, _, err := execute(t, at(noon), grant.Zero(identity), &grantv1.OpenGrant{Grant: c}); entitytest.Code(err) != entity.InvalidRequest {
			t.Errorf("%s: %v", name, err)
		}
	}
	other := good()
	other.Code = token("other", noon.Add(time.Minute))
	if _, _, err := execute(t, at(noon), opened(t), &grantv1.OpenGrant{Grant: other}); entitytest.Code(err) != entity.InvalidRequest {
		t.Errorf("another code: %v", err)
	}
	early := must(t, at(noon), grant.Zero(identity), &grantv1.Revoke{At: 7})
	if _, _, err := execute(t, at(noon), early, &grantv1.OpenGrant{Grant: good()}); entitytest.Code(err) != entity.NotFound || early.GetRevokedAt() != 7 {
		t.Errorf("revoked before it was opened: %v, %v", early, err)
	}
}

func TestReact(t *testing.T) {
	for name, test := range map[string]struct {
		identity string
		event    proto.Message
		want     []entity.Reaction
	}{
		"family revoked": {"g", &grantv1.Revoked{UserId: "usr_1", Reason: "refresh_replayed"}, []entity.Reaction{
			entity.Send(entity.KindUser, "usr_1", &userv1.RevokeGrant{GrantId: "g"}),
		}},
		"family revoked before it was opened": {"g", &grantv1.Revoked{Reason: "refresh_replayed"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			entitytest.EqualReactions(t, grant.Kind.React(test.identity, test.event), test.want)
		})
	}
}

func TestEndedAt(t *testing.T) {
	fresh, redeemed := opened(t), must(t, at(noon), opened(t), redeem("code", 1))
	rotated := must(t, at(noon.Add(time.Minute)), redeemed, refresh(1, 2))
	code := fresh.GetCode().GetExpiresAt()
	first, last := redeemed.GetRefresh().GetExpiresAt(), rotated.GetRefresh().GetExpiresAt()
	consent := noon.UnixMilli()
	unopened := consent + grant.MaxCodeAge.Milliseconds()
	for name, test := range map[string]struct {
		s        *grantv1.Grant
		at, want int64
	}{
		"before the code expires": {fresh, code - 1, 0},
		"code expired":            {fresh, code, code},
		"redeemed":                {redeemed, code, 0},
		"last token expired":      {redeemed, first, first},
		"tokens replaced":         {rotated, last - 1, 0},
		"last of several expired": {rotated, last, last},
		"revoked":                 {must(t, at(noon), redeemed, &grantv1.Revoke{}), consent, consent},
		"not opened yet":          {nil, unopened - 1, 0},
		"never opened":            {nil, unopened, unopened},
	} {
		if got := grant.EndedAt(test.s, consent, test.at); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}
