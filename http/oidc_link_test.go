package http_test

import (
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/entitytest"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

// vouches has the provider say of whoever visits that an address is theirs.
func (p *idp) vouches(name, subject string) {
	p.claims = map[string]any{"email": name + "@example.com", "email_verified": true, "sub": subject}
}

// through is a way in at the provider, up to where the browser comes back from it.
func (b *browser) through(p *idp) (back string) {
	b.Helper()
	return p.visit(b.get("/sign-in/oidc").to)
}

const otherAccount = "Another account of the provider signed in with this address before; ask an operator."

func TestProviderIsHeldToTheSubject(t *testing.T) {
	p, s := newProvided(t)
	s.person("alice")
	first := s.browser()
	p.vouches("alice", "one")
	first.get(first.through(p)).leads("/account")
	again := s.browser()
	again.get(again.through(p)).leads("/account")

	heir := s.browser()
	p.vouches("alice", "two")
	if refused := heir.get(heir.through(p)).page(403, "Not allowed", otherAccount); refused.cookie("atelier") != nil {
		t.Error("and is signed in")
	}
	heir.get("/account").leads("/sign-in?next=%2Faccount")
	if said := s.said.String(); !strings.Contains(said, "is not let in") || !strings.Contains(said, p.live.URL) || !strings.Contains(said, "subject=two") {
		t.Errorf("the log says %q", said)
	}
	p.vouches("alice", "one")
	third := s.browser()
	third.get(third.through(p)).leads("/account")
	third.get("/account").page(200, "alice@example.com")
	first.get("/account").page(200, "alice@example.com")
}

// Who is signed in as somebody else stays so when the provider's account is refused, and not when it is let in.
func TestProviderReplacesTheBrowsersSession(t *testing.T) {
	p, s := newProvided(t)
	s.person("alice")
	elsewhere := s.browser()
	p.vouches("alice", "one")
	elsewhere.get(elsewhere.through(p)).leads("/account")
	_, b := s.enter("bob")
	p.vouches("alice", "two")
	b.get(b.through(p)).page(403, otherAccount)
	b.get("/account").page(200, "bob@example.com")
	before := b.headerOf("atelier")
	p.vouches("alice", "one")
	b.get(b.through(p)).leads("/account")
	b.get("/account").page(200, "alice@example.com")
	stale := s.browser()
	stale.client.Jar = nil
	stale.headers["Cookie"] = before
	stale.get("/account").leads("/sign-in?next=%2Faccount")
}

// headerOf is a cookie of the browser as it is sent.
func (b *browser) headerOf(name string) string {
	b.Helper()
	for _, cookie := range b.client.Jar.Cookies(b.get("/sign-in").Request.URL) {
		if cookie.Name == name {
			return cookie.Name + "=" + cookie.Value
		}
	}
	b.Fatalf("there is no cookie %s", name)
	return ""
}

// After unlink the sessions are over, and who signs in next is linked, once and for all again.
func TestUnlink(t *testing.T) {
	p, s := newProvided(t)
	key := s.person("alice")
	s.workspace(key, "acme")
	first := s.browser()
	p.vouches("alice", "one")
	first.get(first.through(p)).leads("/account")
	stream, err := first.client.Get(s.live.URL + "/v1/ws/acme/file-activity/events")
	if err != nil || stream.StatusCode != 200 {
		t.Fatalf("%v, %v", stream, err)
	}
	defer stream.Body.Close()
	for range 2 {
		s.unlink("alice")
	}
	if _, err := io.Copy(io.Discard, stream.Body); err != nil { // its end is the test
		t.Error(err)
	}
	first.get("/account").leads("/sign-in?next=%2Faccount")
	wants(t, request(t, s.node.Server, "GET", "/v1/whoami", key, ""), 200, "alice@example.com")

	second := s.browser()
	p.vouches("alice", "two")
	second.get(second.through(p)).leads("/account")
	second.get("/account").page(200, "alice@example.com")
	p.vouches("alice", "one")
	first.get(first.through(p)).page(403, otherAccount)
	log := request(t, s.node.Server.Admin(), "GET", "/admin/audit", "", "").Body.String()
	if strings.Count(log, `"user.identity_linked"`) != 2 || strings.Count(log, `"user.identities_unlinked"`) != 1 || !strings.Contains(log, p.live.URL) {
		t.Errorf("the log has %s", log)
	}
	wants(t, request(t, s.node.Server.Admin(), "PATCH", "/admin/users", "", `{"email":"nobody@example.com","unlinked":true}`), 404, "")
}

func (s *site) unlink(name string) {
	s.Helper()
	answer := request(s, s.node.Server.Admin(), "PATCH", "/admin/users", "", `{"email":"`+name+`@example.com","unlinked":true}`)
	wants(s, answer, 200, `"email":"`+name+`@example.com"`)
}

// A disabled person is linked to nobody: who is let in after that is the first.
func TestProviderLinksNobodyWhoIsDisabled(t *testing.T) {
	p, s := newProvided(t)
	s.person("alice")
	s.change("alice", &userv1.Disable{})
	b := s.browser()
	p.vouches("alice", "one")
	b.get(b.through(p)).page(403, "ask to be invited")
	s.change("alice", &userv1.Enable{})
	p.vouches("alice", "two")
	b.get(b.through(p)).leads("/account")
}

// Of two accounts of the provider that come at once, one is let in and stays the one.
func TestProviderRace(t *testing.T) {
	p, s := newProvided(t)
	s.person("alice")
	for range 20 {
		s.unlink("alice")
		var browsers [2]*browser
		var backs [2]string
		for i, subject := range []string{"one", "two"} {
			p.vouches("alice", subject)
			browsers[i] = s.browser()
			backs[i] = browsers[i].through(p)
		}
		var answers [2]*sight
		var both sync.WaitGroup
		for i, b := range browsers {
			both.Go(func() { answers[i] = b.get(backs[i]) })
		}
		both.Wait()
		won := 0
		if answers[0].StatusCode != 303 {
			won = 1
		}
		answers[won].leads("/account")
		answers[1-won].page(403, otherAccount)
		for i, subject := range []string{"one", "two"} {
			p.vouches("alice", subject)
			if again := browsers[i].get(browsers[i].through(p)).StatusCode; again == 303 != (i == won) {
				t.Errorf("%s won before: %v; now answered %d", subject, i == won, again)
			}
		}
	}
}

// A crash before any sync of the journal leaves the link and the session, or neither; after the answer, both.
func TestLinkIsThereWithItsSession(t *testing.T) {
	nth := 1
	for !linkAcrossCrash(t, nth) {
		nth++
	}
	if nth == 1 {
		t.Error("nothing was synced before the answer")
	}
}

// linkAcrossCrash crashes before the nth sync of a sign-in; over tells that there were fewer, and it crashes behind the answer.
func linkAcrossCrash(t *testing.T, nth int) (over bool) {
	t.Helper()
	c := &crashTest{stage: newStage(t)}
	c.person("ann")
	id := c.idOf("ann")
	survivor := c.armed(nth)
	if err := c.startSession(id, "bse_1", "one"); err != nil {
		t.Fatal(err)
	}
	left := survivor()
	over = left == nil
	if over {
		left = c.disk.CrashClone(vfs.CrashCloneCfg{})
	}
	c.stop()
	c.disk = left
	c.start()
	reply, err := c.node.Router.Ask(t.Context(), entity.Command{
		Kind: entity.KindUser, Identity: id, Principal: entity.Platform(), Message: &userv1.ListBrowserSessions{},
	})
	if err != nil {
		t.Fatal(err)
	}
	begun := len(reply.(*userv1.BrowserSessions).GetSessions()) == 1
	linked := entitytest.Code(c.startSession(id, "bse_2", "two")) == entity.Forbidden
	if begun != linked || over && !linked {
		t.Errorf("crash before sync %d: a session %v, linked %v", nth, begun, linked)
	}
	return over
}

// startSession is a sign-in by the provider, without the browser.
func (c *crashTest) startSession(userID, sessionID, subject string) error {
	_, err := c.node.Router.Ask(c.Context(), entity.Command{
		Kind: entity.KindUser, Identity: userID, Principal: entity.Platform(), ID: "cmd_" + sessionID,
		Message: &userv1.StartBrowserSession{
			Session: &userv1.BrowserSession{
				Id: sessionID, SecretSha256: secret, ExpiresAt: c.clock.Now().Add(time.Hour).UnixMilli(),
			},
			Identity: &userv1.LinkedIdentity{Issuer: "https://id.example.com", Subject: subject},
		},
	})
	return err
}
