package grant_test

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/entitytest"
	"github.com/atelier-run/atelier/entity/grant"
	grantv1 "github.com/atelier-run/atelier/messages/grant/v1"
)

func TestRefusals(t *testing.T) {
	redeemed := must(t, at(noon), opened(t), redeem("code", 1))
	revoked := must(t, at(noon), redeemed, &grantv1.Revoke{})
	stale := refresh(1, 2)
	stale.Access = token("a", noon)
	same := refresh(1, 1)
	for name, test := range map[string]struct {
		call entity.Call
		s    *grantv1.Grant
		c    grantv1.Command
		want entity.Code
	}{
		"not opened":          {at(noon), grant.Zero(identity), &grantv1.DescribeGrant{}, entity.NotFound},
		"another code":        {at(noon), opened(t), redeem("guess", 1), entity.NotFound},
		"no code":             {at(noon), opened(t), &grantv1.RedeemCode{}, entity.NotFound},
		"expired code":        {at(noon.Add(time.Minute)), opened(t), redeem("code", 1), entity.InvalidRequest},
		"no tokens":           {at(noon), opened(t), &grantv1.RedeemCode{CodeSha256: hash("code")}, entity.InvalidRequest},
		"refresh before code": {at(noon), opened(t), refresh(1, 2), entity.NotFound},
		"a guess":             {at(noon), redeemed, refresh(7, 8), entity.NotFound},
		"no refresh token":    {at(noon), redeemed, &grantv1.Refresh{}, entity.NotFound},
		"expired refresh":     {at(noon.Add(24 * time.Hour)), redeemed, refresh(1, 2), entity.NotFound},
		"stale access":        {at(noon), redeemed, stale, entity.InvalidRequest},
		"no rotation":         {at(noon), redeemed, same, entity.InvalidRequest},
		"revoked, code":       {at(noon), revoked, redeem("code", 1), entity.NotFound},
		"revoked, refresh":    {at(noon), revoked, refresh(1, 2), entity.NotFound},
		"revoked, use":        {at(noon), revoked, &grantv1.Use{}, entity.NotFound},
		"revoked, open":       {at(noon), revoked, &grantv1.OpenGrant{Grant: good()}, entity.NotFound},
		"revoked, describe":   {at(noon), revoked, &grantv1.DescribeGrant{}, ""},
		"revoked, revoke":     {at(noon), revoked, &grantv1.Revoke{}, ""},
	} {
		if _, _, err := execute(t, test.call, test.s, test.c); entitytest.Code(err) != test.want {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

func TestReplays(t *testing.T) {
	redeemed := must(t, at(noon), opened(t), redeem("code", 1))
	rotated := must(t, at(noon), redeemed, refresh(1, 2))
	late := at(noon.Add(2 * time.Minute))
	for name, test := range map[string]struct {
		s      *grantv1.Grant
		c      grantv1.Command
		reason string
	}{
		// A replay revokes the family even if the code has expired.
		"code":    {redeemed, redeem("code", 3), grant.CodeReplayed},
		"refresh": {rotated, refresh(1, 3), grant.RefreshReplayed},
	} {
		s, events, err := execute(t, late, test.s, test.c)
		want := &grantv1.Revoked{At: late.At(), UserId: "usr_1", Reason: test.reason}
		if err != nil || !proto.Equal(events[0], want) {
			t.Errorf("%s: %v, %v", name, events, err)
		}
		if reply := grant.Reply(late, s, test.c, events).(*grantv1.Grant); reply.GetRevokedAt() != late.At() {
			t.Errorf("%s: the reply hides it: %v", name, reply)
		}
		for n := range 4 {
			if isValidAccess(s, access(n), late.At()) {
				t.Errorf("%s: access token %d still opens", name, n)
			}
		}
	}
}

func TestSpentTokensAreBounded(t *testing.T) {
	s := must(t, at(noon), opened(t), redeem("code", 0))
	for n := range grant.MaxSpentTokens + 1 {
		s = must(t, at(noon), s, refresh(n, n+1))
	}
	if _, _, err := execute(t, at(noon), s, refresh(0, 99)); entitytest.Code(err) != entity.NotFound {
		t.Errorf("the oldest: %v", err)
	}
	if s = must(t, at(noon), s, refresh(1, 99)); s.GetRevokedAt() == 0 {
		t.Error("the next one revoked nothing")
	}
}

// isValidAccess reports whether a secret belongs to an access token that has not expired at a time.
func isValidAccess(s *grantv1.Grant, secret string, at int64) bool {
	return s.GetRevokedAt() == 0 && slices.ContainsFunc(s.GetAccess(), func(one *grantv1.Token) bool {
		return bytes.Equal(one.GetSecretSha256(), hash(secret)) && at < one.GetExpiresAt()
	})
}

func TestAccessTokens(t *testing.T) {
	s := must(t, at(noon), opened(t), redeem("code", 0))
	short := refresh(0, 1)
	short.Access = token(access(1), noon.Add(time.Second))
	s = must(t, at(noon), s, short)
	for _, test := range []struct {
		secret string
		at     time.Time
		want   bool
	}{
		{access(0), noon, true}, {access(1), noon, true}, {access(1), noon.Add(time.Second), false},
		{access(0), noon.Add(time.Hour), false}, {access(2), noon, false}, {refreshed(1), noon, false},
	} {
		if isValidAccess(s, test.secret, test.at.UnixMilli()) != test.want {
			t.Errorf("%s at %v: not %v", test.secret, test.at, test.want)
		}
	}
	revoked := must(t, at(noon), s, &grantv1.Revoke{})
	for _, test := range []struct {
		s    *grantv1.Grant
		at   time.Time
		want bool
	}{
		{opened(t), noon, false}, {s, noon.Add(time.Second), true}, {s, noon.Add(time.Hour - time.Millisecond), true}, {s, noon.Add(time.Hour), false},
		{revoked, noon, false},
	} {
		if grant.IsUsable(test.s, test.at.UnixMilli()) != test.want {
			t.Errorf("the grant at %v: not %v", test.at, test.want)
		}
	}
	later := at(noon.Add(time.Second))
	for n := 1; n < 6; n++ {
		s = must(t, later, s, refresh(n, n+1))
	}
	if len(s.GetAccess()) != grant.MaxAccessTokens || isValidAccess(s, access(0), later.At()) || !isValidAccess(s, access(2), later.At()) {
		t.Errorf("%d access tokens", len(s.GetAccess()))
	}
}

func TestUse(t *testing.T) {
	s := must(t, at(noon), opened(t), &grantv1.Use{})
	s, events, _ := execute(t, at(noon.Add(59*time.Second)), s, &grantv1.Use{})
	if len(events) > 0 || s.GetLastUsedAt() != noon.UnixMilli() {
		t.Errorf("within a minute: %v", events)
	}
	if s = must(t, at(noon.Add(time.Minute)), s, &grantv1.Use{}); s.GetLastUsedAt() != noon.Add(time.Minute).UnixMilli() {
		t.Errorf("after a minute: %v", s)
	}
}
