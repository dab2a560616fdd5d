package visit_test

import (
	"bytes"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/entitytest"
	"github.com/atelier-run/atelier/entity/visit"
	visitv1 "github.com/atelier-run/atelier/messages/visit/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

const (
	identity = "vis_01j00000000000000000000000"
	host     = "notes--acme.apps.test"
)

var (
	noon          = time.UnixMilli(1_800_000_000_000)
	rules         = entitytest.Rules[*visitv1.Visit, visitv1.Command, visitv1.Event]{Decide: visit.Rules.AuthorizeAndDecide, Evolve: visit.Evolve}
	inAddress     = bytes.Repeat([]byte("address "), 4)
	inCookie      = bytes.Repeat([]byte("cookie! "), 4)
	inOtherCookie = bytes.Repeat([]byte("another "), 4)
)

func alice() *wirev1.Principal {
	return &wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_BROWSER_SESSION, CredentialId: "key_1", UserId: "usr_1"}
}

func callAt(at time.Time) entity.Call {
	return entity.Call{Now: at, Identity: identity, Principal: entity.Platform()}
}

func grant() *visitv1.GrantVisit {
	return &visitv1.GrantVisit{Principal: alice(), WorkspaceId: "ws_1", AppId: "app_1", Host: host, GrantSha256: inAddress}
}

func redeem() *visitv1.RedeemVisit {
	return &visitv1.RedeemVisit{GrantSha256: inAddress, Host: host, CookieSha256: inCookie}
}

// execute decides a command and applies its events. It fails the test if a law of rules is broken, see entitytest.Rules.
func execute(t rapid.TB, call entity.Call, s *visitv1.Visit, c visitv1.Command) (*visitv1.Visit, []visitv1.Event, error) {
	t.Helper()
	s, events, err := rules.Execute(t, call, s, c)
	if err != nil {
		return s, nil, err
	}
	var want proto.Message = &wirev1.Done{}
	switch c.(type) {
	case *visitv1.RedeemVisit, *visitv1.DescribeVisit:
		want = s
	}
	if reply := visit.Reply(call, s, c, events); !proto.Equal(reply, want) {
		t.Fatalf("%T: reply %v, want %v", c, reply, want)
	}
	return s, events, nil
}

// after returns the state after commands at noon, which must succeed.
func after(t *testing.T, commands ...visitv1.Command) *visitv1.Visit {
	t.Helper()
	s := visit.Zero(identity)
	for _, c := range commands {
		var err error
		if s, _, err = execute(t, callAt(noon), s, c); err != nil {
			t.Fatalf("%T: %v", c, err)
		}
	}
	return s
}

func TestGrantIsChecked(t *testing.T) {
	for name, edit := range map[string]func(*visitv1.GrantVisit, *entity.Call){
		"another form of id":     func(_ *visitv1.GrantVisit, c *entity.Call) { c.Identity = "vis_1" },
		"no principal":           func(g *visitv1.GrantVisit, _ *entity.Call) { g.Principal = nil },
		"the platform":           func(g *visitv1.GrantVisit, _ *entity.Call) { g.Principal = entity.Platform() },
		"no person":              func(g *visitv1.GrantVisit, _ *entity.Call) { g.Principal.UserId = "" },
		"no workspace":           func(g *visitv1.GrantVisit, _ *entity.Call) { g.WorkspaceId = "" },
		"no app":                 func(g *visitv1.GrantVisit, _ *entity.Call) { g.AppId = "" },
		"no host":                func(g *visitv1.GrantVisit, _ *entity.Call) { g.Host = "" },
		"a host in capitals":     func(g *visitv1.GrantVisit, _ *entity.Call) { g.Host = "Notes.test" },
		"a host with a port":     func(g *visitv1.GrantVisit, _ *entity.Call) { g.Host += ":8080" },
		"a hash of another size": func(g *visitv1.GrantVisit, _ *entity.Call) { g.GrantSha256 = inAddress[1:] },
	} {
		c, call := grant(), callAt(noon)
		edit(c, &call)
		if _, _, err := execute(t, call, visit.Zero(call.Identity), c); entitytest.Code(err) != entity.InvalidRequest {
			t.Errorf("%s: %v", name, err)
		}
	}
	other := grant()
	other.AppId = "app_2"
	if _, _, err := execute(t, callAt(noon), after(t, grant()), other); entitytest.Code(err) != entity.InvalidRequest {
		t.Errorf("a second grant with the id: %v", err)
	}
}

func TestRedemption(t *testing.T) {
	changed := func(edit func(*visitv1.RedeemVisit)) *visitv1.RedeemVisit { c := redeem(); edit(c); return c }
	another := changed(func(c *visitv1.RedeemVisit) { c.CookieSha256 = inOtherCookie })
	for name, of := range map[string]struct {
		before  []visitv1.Command
		command *visitv1.RedeemVisit
		later   time.Duration
		want    entity.Code
	}{
		"at the last moment":        {[]visitv1.Command{grant()}, redeem(), visit.GrantTime - time.Millisecond, ""},
		"after a minute":            {[]visitv1.Command{grant()}, redeem(), visit.GrantTime, entity.Unauthorized},
		"a repetition":              {[]visitv1.Command{grant(), redeem()}, redeem(), visit.GrantTime, ""},
		"a replay":                  {[]visitv1.Command{grant(), redeem()}, another, 0, entity.Unauthorized},
		"at another host":           {[]visitv1.Command{grant()}, changed(func(c *visitv1.RedeemVisit) { c.Host = "tasks--acme.apps.test" }), 0, entity.Unauthorized},
		"with a wrong secret":       {[]visitv1.Command{grant()}, changed(func(c *visitv1.RedeemVisit) { c.GrantSha256 = inOtherCookie }), 0, entity.Unauthorized},
		"of the cookie itself":      {[]visitv1.Command{grant(), redeem()}, &visitv1.RedeemVisit{GrantSha256: inCookie, Host: host, CookieSha256: inOtherCookie}, 0, entity.Unauthorized},
		"with one secret":           {[]visitv1.Command{grant()}, changed(func(c *visitv1.RedeemVisit) { c.CookieSha256 = inAddress }), 0, entity.InvalidRequest},
		"without a secret":          {nil, &visitv1.RedeemVisit{Host: host}, 0, entity.InvalidRequest},
		"of nothing":                {nil, redeem(), 0, entity.Unauthorized},
		"after the end":             {[]visitv1.Command{grant(), &visitv1.EndVisit{}}, redeem(), 0, entity.Unauthorized},
		"a repetition after an end": {[]visitv1.Command{grant(), redeem(), &visitv1.EndVisit{}}, redeem(), 0, entity.Unauthorized},
	} {
		s, _, err := execute(t, callAt(noon.Add(of.later)), after(t, of.before...), of.command)
		if entitytest.Code(err) != of.want {
			t.Errorf("%s: %v, want %q", name, err, of.want)
		}
		if at := noon.Add(of.later).UnixMilli(); of.want == "" && !visit.IsOpen(s, at) {
			t.Errorf("%s: %v is not open", name, s)
		}
	}
}

func TestCookieOpensForEightHours(t *testing.T) {
	s := after(t, grant(), redeem())
	for later, want := range map[time.Duration]bool{0: true, visit.CookieTime - time.Millisecond: true, visit.CookieTime: false} {
		if got := visit.IsOpen(s, noon.Add(later).UnixMilli()); got != want {
			t.Errorf("after %s: %t", later, got)
		}
	}
	if granted := after(t, grant()); visit.IsOpen(granted, noon.UnixMilli()) {
		t.Error("a grant is open before it is redeemed")
	}
	if ended := after(t, grant(), redeem(), &visitv1.EndVisit{}); visit.IsOpen(ended, noon.UnixMilli()) {
		t.Error("an ended visit is open")
	}
}

func commands() *rapid.Generator[visitv1.Command] {
	return rapid.Custom(func(t *rapid.T) visitv1.Command {
		secret := rapid.SampledFrom([][]byte{inAddress, inCookie, inOtherCookie})
		switch rapid.IntRange(0, 9).Draw(t, "command") {
		case 0, 1, 2:
			c := grant()
			c.Host = rapid.SampledFrom([]string{host, host, host, "HOST", "b.test"}).Draw(t, "host")
			return c
		case 3:
			return &visitv1.EndVisit{}
		case 4:
			return &visitv1.DescribeVisit{}
		default:
			return &visitv1.RedeemVisit{
				GrantSha256: rapid.SampledFrom([][]byte{inAddress, inAddress, inCookie}).Draw(t, "grant"), CookieSha256: secret.Draw(t, "cookie"),
				Host: rapid.SampledFrom([]string{host, host, "b.test"}).Draw(t, "at"),
			}
		}
	})
}

func TestLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, now := visit.Zero(identity), noon
		var log []visitv1.Event
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			// The time may also go back: the clock of the next leader may be late.
			now = now.Add(time.Duration(rapid.IntRange(-10_000, 50_000).Draw(t, "ms later")) * time.Millisecond)
			call := callAt(now)
			call.Principal.Kind = wirev1.CredentialKind(rapid.SampledFrom([]int32{1, 1, 1, 0, 2, 7, 8}).Draw(t, "kind"))
			next, events, err := execute(t, call, s, commands().Draw(t, "command"))
			if !entity.IsPlatform(call.Principal) && entitytest.Code(err) != entity.Forbidden {
				t.Fatalf("%v was authorized: %v", call.Principal, err)
			}
			checkStep(t, s, next, now)
			s, log = next, append(log, events...)
		}
		replayed := visit.Zero(identity)
		for _, e := range log {
			replayed = visit.Evolve(replayed, e)
		}
		if !proto.Equal(replayed, s) {
			t.Fatalf("the replayed state is %v, the live state %v", replayed, s)
		}
	})
}

func checkStep(t *rapid.T, s, next *visitv1.Visit, now time.Time) {
	switch {
	case len(s.GetCookieSha256()) > 0 && !bytes.Equal(s.GetCookieSha256(), next.GetCookieSha256()):
		t.Fatalf("a second cookie: %v became %v", s, next)
	case len(s.GetGrantSha256()) > 0 && (s.GetHost() != next.GetHost() || !proto.Equal(s.GetPrincipal(), next.GetPrincipal())):
		t.Fatalf("the visit moved: %v became %v", s, next)
	case s.GetEndedAt() != 0 && visit.IsOpen(next, now.UnixMilli()):
		t.Fatalf("an ended visit was opened: %v became %v", s, next)
	case s.GetRedeemedAt() == 0 && next.GetRedeemedAt() != 0 && now.UnixMilli() >= s.GetGrantExpiresAt():
		t.Fatalf("an expired grant was redeemed: %v became %v", s, next)
	}
}
