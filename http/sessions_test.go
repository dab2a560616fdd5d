package http_test

import (
	"bufio"
	nethttp "net/http"
	"regexp"
	"strings"
	"testing"
	"time"
)

var ends = regexp.MustCompile(`action="(/account/sessions/key_[0-9a-z]{26}/end)"`)

func TestSessions(t *testing.T) {
	s := newSite(t)
	_, first := s.signUp("alice")
	second := s.browser()
	second.headers["User-Agent"] = strings.Repeat("ä", 150) + "<b>"
	second.post("/sign-in", "email", "alice@example.com", "password", goodPassword).expectRedirect("/account")
	page := first.get("/account").expectPage(200, "Firefox on Linux", strings.Repeat("ä", 100)+"</p>", "127.0.0.1")
	paths := ends.FindAllStringSubmatch(page.text, -1)
	if len(paths) != 2 || strings.Count(page.text, "this browser") != 1 {
		t.Fatalf("sessions: %v: %s", paths, page.body())
	}
	other := paths[0][1] // the newest is first
	if strings.Index(page.text, "this browser") < strings.Index(page.text, other) {
		t.Errorf("the own session is another's: %s", page.body())
	}
	_, stranger := s.signUp("bob")
	stranger.post(other).expectRedirect("/account?done=session") // like a session that has ended, so that the response does not show that it is another person's
	second.get("/account").expectPage(200)

	first.post(other).expectRedirect("/account?done=session")
	first.get("/account?done=session").expectPage(200, "The session has ended.").expectNot(t, other)
	second.get("/account").expectRedirect("/sign-in?next=%2Faccount")
	first.post(other).expectRedirect("/account?done=session")
	first.post("/account/sessions/nonsense/end").expectPage(404, "Page not found")

	left := first.post(paths[1][1]).expectRedirect("/sign-in")
	if cookie := left.cookie("atelier"); cookie == nil || cookie.Value != "" || cookie.MaxAge >= 0 {
		t.Errorf("the cookie stays: %+v", cookie)
	}
	first.get("/account").expectRedirect("/sign-in?next=%2Faccount")
}

// The form that ends a session has no effect on the credentials of others. The activity of a shared workspace shows the ids of these
// credentials.
func TestEndingASessionLeavesStreamsOfOthers(t *testing.T) {
	s := newSite(t)
	bob := s.person("bob")
	s.workspace(bob, "acme")
	r, err := nethttp.NewRequestWithContext(t.Context(), "GET", s.live.URL+events, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+bob)
	stream, err := s.live.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	lines := bufio.NewScanner(stream.Body)
	if !lines.Scan() || !strings.HasPrefix(lines.Text(), "retry:") {
		t.Fatalf("the stream begins with %q: %v", lines.Text(), lines.Err())
	}
	_, alice := s.signUp("alice")
	id, _, _ := parseKey(bob)
	alice.post("/account/sessions/" + id + "/end").expectRedirect("/account?done=session")
	expect(t, request(t, s.node.Server, "PUT", "/v1/ws/acme/drive/notes.txt", bob, "text"), 201, "")
	for lines.Scan() {
		if strings.Contains(lines.Text(), "notes.txt") {
			return
		}
	}
	t.Errorf("another person has ended the stream: %v", lines.Err())
}

func TestSignOut(t *testing.T) {
	s := newSite(t)
	_, b := s.signUp("alice")
	stolen := s.browser()
	for _, cookie := range b.client.Jar.Cookies(b.get("/account").Request.URL) {
		stolen.headers["Cookie"] = cookie.String()
	}
	stolen.get("/account").expectPage(200)
	if cookie := b.post("/sign-out").expectRedirect("/sign-in").cookie("atelier"); cookie == nil || cookie.MaxAge >= 0 {
		t.Errorf("the cookie stays: %+v", cookie)
	}
	stolen.get("/account").expectRedirect("/sign-in?next=%2Faccount")
	b.post("/sign-out", "next", "//evil.example").expectRedirect("/account")
	b.post("/sign-out", "next", "/sign-in?next=%2F").expectRedirect("/sign-in?next=%2F")
}

func TestSignInEndsThePreviousSession(t *testing.T) {
	s := newSite(t)
	_, b := s.signUp("alice")
	b.post("/sign-in", "email", "alice@example.com", "password", goodPassword).expectRedirect("/account")
	if n := len(ends.FindAllString(b.get("/account").expectPage(200).text, -1)); n != 1 {
		t.Errorf("%d sessions of one browser", n)
	}
}

func TestSessionsExpire(t *testing.T) {
	s := newSite(t)
	_, b := s.signUp("alice")
	s.clock.advance(30*24*time.Hour - time.Minute)
	b.get("/account").expectPage(200)
	s.clock.advance(time.Minute)
	b.get("/account").expectRedirect("/sign-in?next=%2Faccount")
}

// A session's key is not accepted as a bearer token, and the account page refuses credentials that are not a person's own.
func TestSessionKeyIsACookie(t *testing.T) {
	s := newSite(t)
	_, b := s.signUp("alice")
	key := b.client.Jar.Cookies(b.get("/account").Request.URL)[0].Value
	expect(t, request(t, s.node.Server, "GET", "/v1/whoami", key, ""), 401, "")
	expect(t, request(t, s.node.Server, "GET", "/v1/whoami", "", "", "Cookie", "atelier="+key), 200, `"browser_session"`)
	expect(t, request(t, s.node.Server, "POST", "/v1/workspaces", "", `{"slug":"acme","name":"Acme"}`, "Cookie", "atelier="+key, "Sec-Fetch-Site", "cross-site"), 403, "")
}
