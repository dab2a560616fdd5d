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
	"github.com/atelier-run/atelier/entity/subject"
	subjectv1 "github.com/atelier-run/atelier/messages/subject/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

// asserts makes the provider assert that each visitor owns an email address.
func (p *idp) asserts(name, subject string) {
	p.claims = map[string]any{"email": name + "@example.com", "email_verified": true, "sub": subject}
}

// signInAtProvider goes to the provider and returns the URL that brings the browser back.
func (b *browser) signInAtProvider(p *idp) (back string) {
	b.Helper()
	return p.visit(b.get("/sign-in/oidc").to)
}

const otherAccount = "Another account of the identity provider has signed in with this address before; ask an operator to unlink it."

func TestProviderCannotChangeTheSubject(t *testing.T) {
	p, s := newProvided(t)
	s.person("alice")
	first := s.browser()
	p.asserts("alice", "one")
	first.get(first.signInAtProvider(p)).expectRedirect("/account")
	again := s.browser()
	again.get(again.signInAtProvider(p)).expectRedirect("/account")

	heir := s.browser()
	p.asserts("alice", "two")
	if refused := heir.get(heir.signInAtProvider(p)).expectPage(403, "Not allowed", otherAccount); refused.cookie("atelier") != nil {
		t.Error("the refused visitor is signed in")
	}
	heir.get("/account").expectRedirect("/sign-in?next=%2Faccount")
	if said := s.said.String(); !strings.Contains(said, "refused a sign-in") || !strings.Contains(said, p.live.URL) || !strings.Contains(said, "subject=two") {
		t.Errorf("the log says %q", said)
	}
	p.asserts("alice", "one")
	third := s.browser()
	third.get(third.signInAtProvider(p)).expectRedirect("/account")
	third.get("/account").expectPage(200, "alice@example.com")
	first.get("/account").expectPage(200, "alice@example.com")
}

// A refused sign-in leaves the browser's session of another account as it is; a successful one replaces it.
func TestProviderReplacesTheBrowsersSession(t *testing.T) {
	p, s := newProvided(t)
	s.person("alice")
	elsewhere := s.browser()
	p.asserts("alice", "one")
	elsewhere.get(elsewhere.signInAtProvider(p)).expectRedirect("/account")
	_, b := s.signUp("bob")
	p.asserts("alice", "two")
	b.get(b.signInAtProvider(p)).expectPage(403, otherAccount)
	b.get("/account").expectPage(200, "bob@example.com")
	before := b.headerOf("atelier")
	p.asserts("alice", "one")
	b.get(b.signInAtProvider(p)).expectRedirect("/account")
	b.get("/account").expectPage(200, "alice@example.com")
	stale := s.browser()
	stale.client.Jar = nil
	stale.headers["Cookie"] = before
	stale.get("/account").expectRedirect("/sign-in?next=%2Faccount")
}

// headerOf returns a cookie of the browser as it is sent.
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

// Unlinking ends the sessions, and the next subject that signs in is linked.
func TestUnlink(t *testing.T) {
	p, s := newProvided(t)
	key := s.person("alice")
	s.workspace(key, "acme")
	first := s.browser()
	p.asserts("alice", "one")
	first.get(first.signInAtProvider(p)).expectRedirect("/account")
	stream, err := first.client.Get(s.live.URL + "/v1/ws/acme/file-activity/events")
	if err != nil || stream.StatusCode != 200 {
		t.Fatalf("%v, %v", stream, err)
	}
	defer stream.Body.Close()
	for range 2 {
		s.unlink("alice")
	}
	if _, err := io.Copy(io.Discard, stream.Body); err != nil { // the stream must end
		t.Error(err)
	}
	first.get("/account").expectRedirect("/sign-in?next=%2Faccount")
	expect(t, request(t, s.node.Server, "GET", "/v1/whoami", key, ""), 200, "alice@example.com")

	second := s.browser()
	p.asserts("alice", "two")
	second.get(second.signInAtProvider(p)).expectRedirect("/account")
	second.get("/account").expectPage(200, "alice@example.com")
	p.asserts("alice", "one")
	first.get(first.signInAtProvider(p)).expectPage(403, otherAccount)
	log := request(t, s.node.Server.Admin(), "GET", "/admin/audit", "", "").Body.String()
	if strings.Count(log, `"user.identity_linked"`) != 2 || strings.Count(log, `"user.identities_unlinked"`) != 1 || !strings.Contains(log, p.live.URL) {
		t.Errorf("the log has %s", log)
	}
	expect(t, request(t, s.node.Server.Admin(), "PATCH", "/admin/users", "", `{"email":"nobody@example.com","unlinked":true}`), 404, "")
}

// expectAccount signs in at the provider with a new browser, and expects the account with an address.
func (s *site) expectAccount(p *idp, address string) {
	s.Helper()
	b := s.browser()
	b.get(b.signInAtProvider(p)).expectRedirect("/account")
	b.get("/account").expectPage(200, address)
}

func (s *site) unlink(name string) {
	s.Helper()
	answer := request(s, s.node.Server.Admin(), "PATCH", "/admin/users", "", `{"email":"`+name+`@example.com","unlinked":true}`)
	expect(s, answer, 200, `"email":"`+name+`@example.com"`)
}

// A disabled account is not linked; the first sign-in after it is enabled links it.
func TestProviderLinksNoDisabledAccount(t *testing.T) {
	p, s := newProvided(t)
	s.person("alice")
	s.change("alice", &userv1.Disable{})
	b := s.browser()
	p.asserts("alice", "one")
	b.get(b.signInAtProvider(p)).expectPage(403, "ask a member of a workspace")
	s.change("alice", &userv1.Enable{})
	p.asserts("alice", "two")
	b.get(b.signInAtProvider(p)).expectRedirect("/account")
}

// An identity that is linked to an account opens that account and no other, whatever address it has later (OpenID Connect
// Core 1.0, section 5.7).
func TestIdentityOpensOneAccount(t *testing.T) {
	p, s := newProvided(t)
	s.person("kim")
	s.person("lee")
	p.asserts("kim", "s-kim")
	s.expectAccount(p, "kim@example.com")
	p.asserts("lee", "s-kim")
	s.expectAccount(p, "kim@example.com")
	p.claims = map[string]any{"sub": "s-kim", "email": "kim@example.org", "email_verified": false}
	s.expectAccount(p, "kim@example.com")

	p.asserts("lee", "s-lee")
	s.expectAccount(p, "lee@example.com")

	// Unlinked, the subject is linked to the account of its present address, and the next subject to the account that it left.
	s.unlink("kim")
	s.unlink("lee")
	p.asserts("lee", "s-kim")
	s.expectAccount(p, "lee@example.com")
	p.asserts("kim", "s-new")
	s.expectAccount(p, "kim@example.com")
}

// The bound account of a subject that is disabled stays closed, and the subject opens no other account meanwhile.
func TestIdentityOfADisabledAccount(t *testing.T) {
	p, s := newProvided(t)
	s.person("kim")
	s.person("lee")
	p.asserts("kim", "s-kim")
	b := s.browser()
	b.get(b.signInAtProvider(p)).expectRedirect("/account")
	s.change("kim", &userv1.Disable{})
	p.asserts("lee", "s-kim")
	b = s.browser()
	b.get(b.signInAtProvider(p)).expectPage(403, "The account is disabled")
	s.change("kim", &userv1.Enable{})
	b.get(b.signInAtProvider(p)).expectRedirect("/account")
	b.get("/account").expectPage(200, "kim@example.com")
}

// Of the links that were made before subjects were claimed, the earlier one of each subject stays.
func TestEarlierLinksAreClaimed(t *testing.T) {
	p, s := newProvided(t)
	for i, name := range []string{"kim", "lee", "max"} {
		s.person(name)
		if i < 2 {
			s.change(name, &userv1.LinkIdentity{Identity: &userv1.LinkedIdentity{Issuer: p.live.URL, Subject: "s-kim"}})
		}
		s.clock.advance(time.Minute)
	}
	p.asserts("max", "s-kim")
	s.expectAccount(p, "kim@example.com")
	for _, name := range []string{"lee", "max"} {
		p.asserts(name, "s-"+name)
		s.expectAccount(p, name+"@example.com")
	}
}

// One free subject has the addresses of two accounts at the same time: one account is opened and linked.
func TestOneSubjectRace(t *testing.T) {
	p, s := newProvided(t)
	names := []string{"kim", "lee"}
	s.person("kim")
	s.person("lee")
	for range 10 {
		s.unlink("kim")
		s.unlink("lee")
		var browsers [2]*browser
		var backs [2]string
		for i, name := range names {
			p.asserts(name, "s-both")
			browsers[i] = s.browser()
			backs[i] = browsers[i].signInAtProvider(p)
		}
		var both sync.WaitGroup
		for i, b := range browsers {
			both.Go(func() { b.get(backs[i]).expectRedirect("/account") })
		}
		both.Wait()
		kim := strings.Contains(browsers[0].get("/account").body(), "kim@example.com")
		if other := strings.Contains(browsers[1].get("/account").body(), "kim@example.com"); kim != other {
			t.Fatalf("one subject opened two accounts")
		}
	}
}

// Of two concurrent sign-ins by different subjects, one succeeds and stays linked.
func TestProviderRace(t *testing.T) {
	p, s := newProvided(t)
	s.person("alice")
	for range 20 {
		s.unlink("alice")
		var browsers [2]*browser
		var backs [2]string
		for i, subject := range []string{"one", "two"} {
			p.asserts("alice", subject)
			browsers[i] = s.browser()
			backs[i] = browsers[i].signInAtProvider(p)
		}
		var answers [2]*pageResponse
		var both sync.WaitGroup
		for i, b := range browsers {
			both.Go(func() { answers[i] = b.get(backs[i]) })
		}
		both.Wait()
		won := 0
		if answers[0].StatusCode != 303 {
			won = 1
		}
		answers[won].expectRedirect("/account")
		answers[1-won].expectPage(403, otherAccount)
		for i, subject := range []string{"one", "two"} {
			p.asserts("alice", subject)
			if again := browsers[i].get(browsers[i].signInAtProvider(p)).StatusCode; again == 303 != (i == won) {
				t.Errorf("%s won before: %v; now answered %d", subject, i == won, again)
			}
		}
	}
}

// After a crash before any sync of the journal, a session exists only with its link, a subject belongs to the account only with
// the link, and after the response all exist.
func TestLinkAndSessionSurviveACrash(t *testing.T) {
	nth := 1
	for !linkAcrossCrash(t, nth) {
		nth++
	}
	if nth == 1 {
		t.Error("nothing was synced before the answer")
	}
}

// linkAcrossCrash crashes before the nth sync of a sign-in. It returns true if there were fewer syncs, and then crashes
// after the response.
func linkAcrossCrash(t *testing.T, nth int) (over bool) {
	t.Helper()
	c := &crashTest{stage: newStage(t)}
	c.person("ann")
	id := c.idOf("ann")
	survivor := c.armed(nth)
	if err := c.link(id, "one"); err != nil {
		t.Fatal(err)
	}
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
	key := subject.Key(oidcIssuer, "one")
	if err := c.node.Router.Settle(t.Context(), entity.KindSubject, key); err != nil {
		t.Fatal(err)
	}
	if reply, err = c.node.Router.Ask(t.Context(), entity.Command{
		Kind: entity.KindSubject, Identity: key, Principal: entity.Platform(), Message: &subjectv1.ResolveSubject{},
	}); err != nil {
		t.Fatal(err)
	}
	owned := reply.(*subjectv1.Subject).GetUserId() == id
	if reply, err = c.node.Router.Ask(t.Context(), entity.Command{
		Kind: entity.KindUser, Identity: id, Principal: entity.Platform(), Message: &userv1.DescribeIdentities{},
	}); err != nil {
		t.Fatal(err)
	}
	linked := len(reply.(*userv1.LinkedIdentities).GetIdentities()) == 1
	if entitytest.Code(c.startSession(id, "bse_2", "two")) != entity.Forbidden {
		t.Error("another subject is signed in")
	}
	if begun && !linked || owned != linked || over && !begun {
		t.Errorf("crash before sync %d: a session %v, linked %v, owned %v", nth, begun, linked, owned)
	}
	return over
}

const oidcIssuer = "https://id.example.com"

// link claims a subject for an account, as a sign-in with the provider does.
func (c *crashTest) link(userID, name string) error {
	key := subject.Key(oidcIssuer, name)
	_, err := c.node.Router.Ask(c.Context(), entity.Command{
		Kind: entity.KindSubject, Identity: key, Principal: entity.Platform(), ID: "cmd_" + name,
		Message: &subjectv1.ClaimSubject{Issuer: oidcIssuer, Subject: name, UserId: userID},
	})
	if err != nil {
		return err
	}
	return c.node.Router.Settle(c.Context(), entity.KindSubject, key)
}

// startSession signs in with the provider, without a browser.
func (c *crashTest) startSession(userID, sessionID, name string) error {
	_, err := c.node.Router.Ask(c.Context(), entity.Command{
		Kind: entity.KindUser, Identity: userID, Principal: entity.Platform(), ID: "cmd_" + sessionID,
		Message: &userv1.StartBrowserSession{
			Session: &userv1.BrowserSession{
				Id: sessionID, SecretSha256: secret, ExpiresAt: c.clock.Now().Add(time.Hour).UnixMilli(),
			},
			Identity: &userv1.LinkedIdentity{Issuer: oidcIssuer, Subject: name},
		},
	})
	return err
}
