package http_test

import (
	"regexp"
	"strings"
	"testing"
	"time"
)

var ends = regexp.MustCompile(`action="(/account/sessions/key_[0-9a-z]{26}/end)"`)

func TestSessions(t *testing.T) {
	s := newSite(t)
	_, first := s.enter("alice")
	second := s.browser()
	second.headers["User-Agent"] = strings.Repeat("ä", 150) + "<b>"
	second.post("/sign-in", "email", "alice@example.com", "password", goodPassword).leads("/account")
	page := first.get("/account").page(200, "Firefox on Linux", strings.Repeat("ä", 100)+"</p>", "127.0.0.1")
	paths := ends.FindAllStringSubmatch(page.text, -1)
	if len(paths) != 2 || strings.Count(page.text, "this browser") != 1 {
		t.Fatalf("sessions: %v: %s", paths, page.body())
	}
	other := paths[0][1] // the newest comes first
	if strings.Index(page.text, "this browser") < strings.Index(page.text, other) {
		t.Errorf("the own session is another's: %s", page.body())
	}
	_, stranger := s.enter("bob")
	stranger.post(other).leads("/account?done=session") // as if it had ended: whose it is stays hidden
	second.get("/account").page(200)

	first.post(other).leads("/account?done=session")
	first.get("/account?done=session").page(200, "The session has ended.").lacks(t, other)
	second.get("/account").leads("/sign-in?next=%2Faccount")
	first.post(other).leads("/account?done=session")
	first.post("/account/sessions/nonsense/end").page(404, "Page not found")

	left := first.post(paths[1][1]).leads("/sign-in")
	if cookie := left.cookie("atelier"); cookie == nil || cookie.Value != "" || cookie.MaxAge >= 0 {
		t.Errorf("the cookie stays: %+v", cookie)
	}
	first.get("/account").leads("/sign-in?next=%2Faccount")
}

func TestSignOut(t *testing.T) {
	s := newSite(t)
	_, b := s.enter("alice")
	stolen := s.browser()
	for _, cookie := range b.client.Jar.Cookies(b.get("/account").Request.URL) {
		stolen.headers["Cookie"] = cookie.String()
	}
	stolen.get("/account").page(200)
	if cookie := b.post("/sign-out").leads("/sign-in").cookie("atelier"); cookie == nil || cookie.MaxAge >= 0 {
		t.Errorf("the cookie stays: %+v", cookie)
	}
	stolen.get("/account").leads("/sign-in?next=%2Faccount")
	b.post("/sign-out", "next", "//evil.example").leads("/account")
	b.post("/sign-out", "next", "/sign-in?next=%2F").leads("/sign-in?next=%2F")
}

func TestSigningInAgainEndsTheSessionBefore(t *testing.T) {
	s := newSite(t)
	_, b := s.enter("alice")
	b.post("/sign-in", "email", "alice@example.com", "password", goodPassword).leads("/account")
	if n := len(ends.FindAllString(b.get("/account").page(200).text, -1)); n != 1 {
		t.Errorf("%d sessions of one browser", n)
	}
}

func TestSessionsExpire(t *testing.T) {
	s := newSite(t)
	_, b := s.enter("alice")
	s.clock.advance(30*24*time.Hour - time.Minute)
	b.get("/account").page(200)
	s.clock.advance(time.Minute)
	b.get("/account").leads("/sign-in?next=%2Faccount")
}

// A session's key opens nothing as a bearer token, and a page is nobody's who has another credential of no person's own.
func TestSessionKeyIsACookie(t *testing.T) {
	s := newSite(t)
	_, b := s.enter("alice")
	key := b.client.Jar.Cookies(b.get("/account").Request.URL)[0].Value
	wants(t, request(t, s.node.Server, "GET", "/v1/whoami", key, ""), 401, "")
	wants(t, request(t, s.node.Server, "GET", "/v1/whoami", "", "", "Cookie", "atelier="+key), 200, `"browser_session"`)
	wants(t, request(t, s.node.Server, "POST", "/v1/workspaces", "", `{"slug":"acme","name":"Acme"}`, "Cookie", "atelier="+key, "Sec-Fetch-Site", "cross-site"), 403, "")
}
