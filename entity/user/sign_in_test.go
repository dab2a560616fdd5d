package user_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/entitytest"
	"github.com/atelier-run/atelier/entity/user"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

func TestOneTimeLink(t *testing.T) {
	call, at := callBy(entity.Platform()), noon.UnixMilli()
	week := (7 * 24 * time.Hour).Milliseconds()
	s := must(t, call, created(t), link(at+week))
	for name, c := range map[string]*userv1.OfferOneTimeLink{
		"no link": {}, "short": {Link: &userv1.OneTimeLink{SecretSha256: secret[1:], ExpiresAt: at + 1}},
		"past": link(at), "late": link(at + week + 1),
	} {
		if _, _, err := execute(t, call, created(t), c); entitytest.Code(err) != entity.InvalidRequest {
			t.Errorf("%s: %v", name, err)
		}
	}
	other := bytes.ToUpper(secret)
	replaced := must(t, call, s, &userv1.OfferOneTimeLink{Link: &userv1.OneTimeLink{SecretSha256: other, ExpiresAt: at + 1}})
	late := call
	late.Now = call.Now.Add(7 * 24 * time.Hour)
	for name, test := range map[string]struct {
		call   entity.Call
		s      *userv1.User
		secret []byte
		want   entity.Code
	}{
		"good":       {call, s, secret, ""},
		"none open":  {call, created(t), secret, entity.LinkInvalid},
		"none given": {call, created(t), nil, entity.LinkInvalid},
		"other":      {call, s, other, entity.LinkInvalid},
		"replaced":   {call, replaced, secret, entity.LinkInvalid},
		"expired":    {late, s, secret, entity.LinkInvalid},
	} {
		_, _, err := execute(t, test.call, test.s, &userv1.SetPassword{LinkSecretSha256: test.secret, PasswordHash: argon})
		if entitytest.Code(err) != test.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSetPassword(t *testing.T) {
	call := callBy(entity.Platform())
	s := must(t, call, must(t, call, must(t, call, created(t), session(1)), session(2)), link(noon.UnixMilli()+1))
	for name, hash := range map[string]string{
		"none": "", "another function": strings.Replace(argon, "argon2id", "argon2i", 1), "text": "hunter2", "line": argon + "\n",
		"no salt": "$argon2id$v=19$m=65536,t=3,p=4$$aGFzaGhhc2hoYXNoaGFzaA", "long": argon + strings.Repeat("a", 512),
	} {
		_, _, err := execute(t, call, s, &userv1.SetPassword{LinkSecretSha256: secret, PasswordHash: hash})
		if entitytest.Code(err) != entity.InvalidRequest {
			t.Errorf("%s: %v", name, err)
		}
	}
	s, events, err := execute(t, call, s, &userv1.SetPassword{LinkSecretSha256: secret, PasswordHash: argon})
	if err != nil || fmt.Sprint(events[0].(*userv1.PasswordSet).GetEndedSessionIds()) != "[bse_1 bse_2]" {
		t.Fatalf("%v, %v", events, err)
	}
	password := user.Reply(call, s, &userv1.DescribePassword{}, nil).(*userv1.Password)
	if password.GetHash() != argon || password.GetLink() != nil || len(s.GetBrowserSessions()) != 0 {
		t.Errorf("%v, sessions %v", password, s.GetBrowserSessions())
	}
	again := &userv1.SetPassword{LinkSecretSha256: secret, PasswordHash: argon + "YQ"}
	if _, _, err := execute(t, call, s, again); entitytest.Code(err) != entity.LinkInvalid {
		t.Errorf("a link served twice: %v", err)
	}
	byPassword := func(hash string) error {
		c := session(3)
		c.PasswordHash = hash
		_, _, err := execute(t, call, s, c)
		return err
	}
	if err := byPassword(argon); err != nil {
		t.Errorf("the password: %v", err)
	}
	if err := byPassword(argon + "YQ"); entitytest.Code(err) != entity.Unauthorized {
		t.Errorf("a password that was replaced meanwhile: %v", err)
	}
}

func TestBrowserSessionValidation(t *testing.T) {
	call := callBy(entity.Platform())
	for name, change := range map[string]func(*userv1.BrowserSession){
		"no id":     func(b *userv1.BrowserSession) { b.Id = "" },
		"odd id":    func(b *userv1.BrowserSession) { b.Id = "a b" },
		"long id":   func(b *userv1.BrowserSession) { b.Id = strings.Repeat("a", 129) },
		"no secret": func(b *userv1.BrowserSession) { b.SecretSha256 = nil },
		"past":      func(b *userv1.BrowserSession) { b.ExpiresAt = call.At() },
		"late":      func(b *userv1.BrowserSession) { b.ExpiresAt = entity.MaxTime + 1 },
	} {
		c := session(1)
		change(c.Session)
		if _, _, err := execute(t, call, created(t), c); entitytest.Code(err) != entity.InvalidRequest {
			t.Errorf("%s: %v", name, err)
		}
	}
	long := session(1)
	long.Session.UserAgent, long.Session.Address = strings.Repeat("é", 101)+"\xff", strings.Repeat("1", 65)
	long.Session.UserAgent = "x" + long.Session.UserAgent
	kept := must(t, call, created(t), long).GetBrowserSessions()["bse_1"]
	if kept.GetUserAgent() != "x"+strings.Repeat("é", 99) || len(kept.GetAddress()) != 64 || kept.GetCreatedAt() != call.At() {
		t.Errorf("kept %v", kept)
	}
	if _, _, err := execute(t, callBy(human(alice)), created(t), &userv1.EndBrowserSession{SessionId: "bse_1"}); entitytest.Code(err) != entity.NotFound {
		t.Errorf("ending none: %v", err)
	}
}

func TestBrowserSessions(t *testing.T) {
	s, call := created(t), callBy(entity.Platform())
	for n := range user.MaxSessions {
		call.Now = noon.Add(time.Duration(n) * time.Millisecond)
		s = must(t, call, s, session(n))
	}
	call.Now = call.Now.Add(time.Millisecond)
	s, events, _ := execute(t, call, s, session(100))
	if ended := events[0].(*userv1.BrowserSessionStarted).GetEndedSessionIds(); fmt.Sprint(ended) != "[bse_0]" {
		t.Fatalf("ended %v", ended)
	}
	shown := user.Reply(call, s, &userv1.ListBrowserSessions{}, nil).(*userv1.BrowserSessions).GetSessions()
	if len(shown) != user.MaxSessions || shown[0].GetId() != "bse_100" || shown[49].GetId() != "bse_1" || shown[0].GetSecretSha256() != nil {
		t.Fatalf("shown %v", shown)
	}
	call.Now = noon.Add(time.Minute)
	if shown := user.Reply(call, s, &userv1.ListBrowserSessions{}, nil).(*userv1.BrowserSessions); len(shown.GetSessions()) != 0 {
		t.Fatalf("expired ones are shown: %v", shown)
	}
	later := session(101)
	later.Session.ExpiresAt = call.At() + 1
	s, events, err := execute(t, call, s, later)
	if err != nil || len(s.GetBrowserSessions()) != 1 || len(events[0].(*userv1.BrowserSessionStarted).GetEndedSessionIds()) != user.MaxSessions {
		t.Fatalf("after all expired: %v, %v, %v", s.GetBrowserSessions(), events, err)
	}
}
