package http_test

import (
	"fmt"
	nethttp "net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/http"
	pages "github.com/atelier-run/atelier/http/browser"
	"github.com/atelier-run/atelier/http/server"
	"github.com/atelier-run/atelier/limit"
	emailv1 "github.com/atelier-run/atelier/messages/email/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

func TestSignIn(t *testing.T) {
	s := newSite(t)
	_, first := s.signUp("alice")
	first.get("/account").expectPage(200, "alice@example.com", "Firefox on Linux", "this browser")
	b := s.browser()
	b.get("/").expectRedirect("/account")
	b.get("/account?done=session").expectRedirect("/sign-in?next=%2Faccount%3Fdone%3Dsession")
	b.get("/sign-in?next=/account").expectPage(200, `name="next" value="/account"`, `<label for="password">`).expectNot(t, `role="alert"`)
	b.post("/sign-in", "email", "alice@example.com", "password", "wrong").
		expectPage(403, "The email or the password is wrong.", `role="alert"`, `value="alice@example.com"`).expectNot(t, `value="wrong"`)
	in := b.post("/sign-in", "email", "Alice@Example.com", "password", goodPassword, "next", "/account?done=joined").expectRedirect("/account?done=joined")
	cookie := in.cookie("atelier")
	if cookie == nil || !cookie.HttpOnly || cookie.SameSite != nethttp.SameSiteLaxMode || cookie.Path != "/" || cookie.MaxAge != 30*24*3600 ||
		cookie.Domain != "" || cookie.Secure {
		t.Errorf("cookie: %+v", cookie)
	}
	b.get("/sign-in?next=/account").expectRedirect("/account")
	b.get("/account").expectPage(200, "alice@example.com")
	first.get("/account").expectPage(200)
}

func TestSecureCookie(t *testing.T) {
	s := newSite(t, func(o *http.Options) { o.PublicURL = &url.URL{Scheme: "https", Host: "atelier.example.com"} })
	s.person("alice")
	var made struct{ PasswordLink string }
	s.operator("/admin/links", `{"email":"alice@example.com"}`, &made)
	token, ok := strings.CutPrefix(made.PasswordLink, "https://atelier.example.com/set-password?token=")
	if !ok {
		t.Fatalf("link %q", made.PasswordLink)
	}
	cookie := s.browser().post("/set-password", "token", token, "password", goodPassword, "again", goodPassword).cookie("__Host-atelier")
	if cookie == nil || !cookie.HttpOnly || !cookie.Secure || cookie.Path != "/" || cookie.Domain != "" {
		t.Errorf("cookie: %+v", cookie)
	}
}

// The response to a failed attempt has the same bytes for every reason.
func TestSignInResponsesAreIdentical(t *testing.T) {
	s := newSite(t)
	s.signUp("alice")
	s.person("none") // has no password
	_, gone := s.signUp("gone")
	s.change("gone", &userv1.Disable{})
	var first string
	for _, try := range [][2]string{
		{"alice@example.com", "wrong wrong wrong"}, {"nobody@example.com", goodPassword}, {"none@example.com", ""},
		{"none@example.com", goodPassword}, {"gone@example.com", goodPassword}, {"no address", goodPassword}, {"", ""},
		{"alice@example.com", goodPassword + " "}, {"alice@example.com", goodPassword + "\xff"}, {"alice@example.com", strings.Repeat(goodPassword, 1000)},
	} {
		text := strings.Replace(s.browser().post("/sign-in", "email", try[0], "password", try[1]).expectPage(403).text, `value="`+try[0]+`"`, "", 1)
		if first == "" {
			first = text
		}
		if text != first {
			t.Errorf("%q is answered otherwise: %s", try, text)
		}
	}
	s.clock.advance(2 * time.Second)
	gone.get("/account").expectRedirect("/sign-in?next=%2Faccount")
}

func TestNextIsALocalPath(t *testing.T) {
	s := newSite(t)
	_, b := s.signUp("alice")
	for next, to := range map[string]string{
		"/account?x=1":           "/account?x=1",
		"/oauth/x?a=%2F%2Fb&c=d": "/oauth/x?a=%2F%2Fb&c=d",
		"":                       "/account", "account": "/account", "//evil.example": "/account", "/\\evil.example": "/account",
		"\\\\evil.example": "/account", "https://evil.example/": "/account", "javascript:alert(1)": "/account",
		"/\t/evil.example": "/account", "/a\r\nSet-Cookie: x=y": "/account", " //evil.example": "/account", "/\xff": "/account",
		"///evil.example": "/account", "/" + strings.Repeat("a", 26<<10): "/account", longestLaunch: longestLaunch,
	} {
		b.get("/sign-in?" + url.Values{"next": {next}}.Encode()).expectRedirect(to)
	}
}

// longestLaunch is the address of a launch with the longest path of an app, which is three times as long when it is escaped.
var longestLaunch = "/v1/ws/acme/apps/notes/launch?host=notes--acme.apps.example.com&path=%2F%3F" + strings.Repeat("%26", 8<<10-2)

// A visitor of an app who signs in with a password goes on with the longest link into the app.
func TestLongestLinkLastsThroughSignIn(t *testing.T) {
	s := newSite(t)
	s.signUp("alice")
	b := s.browser()
	b.get("/sign-in?"+url.Values{"next": {longestLaunch}}.Encode()).expectPage(200, "%26%26")
	b.post("/sign-in", "email", "alice@example.com", "password", "wrong", "next", longestLaunch).expectPage(403, "%26%26")
	in := b.post("/sign-in", "email", "alice@example.com", "password", goodPassword, "next", longestLaunch).expectPage(200)
	if to := in.Header.Get("Refresh"); to != "0; url="+longestLaunch {
		t.Errorf("the person goes on to %.100s", to)
	}
}

func TestFormsOfOtherSitesAreRefused(t *testing.T) {
	s := newSite(t)
	key, b := s.signUp("alice")
	s.workspace(key, "acme")
	invitation := s.invite(key, "acme", "bob@example.com")
	link := s.link("alice")
	_, token, _ := strings.Cut(link, "token=")
	for _, elsewhere := range []map[string]string{
		{"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Origin": "https://evil.example"}, {"Origin": "null"},
	} {
		for path, fields := range map[string][]string{
			"/sign-in":      {"email", "alice@example.com", "password", goodPassword},
			"/sign-out":     {},
			"/set-password": {"token", token, "password", goodPassword, "again", goodPassword},
			invitation:      {"name", "Bob"},
			"/account/sessions/key_01j0000000000000000000000a/end":  {},
			"/account/grants/ogr_01j0000000000000000000000a/revoke": {},
			"/account/keys": {"name", "x", "lasts", "30"},
			"/account/keys/key_01j0000000000000000000000a/revoke": {},
			"/account/password":  {"current", goodPassword},
			"/sign-in/forgotten": {"email", "alice@example.com"},
		} {
			for _, from := range []*browser{b, s.browser()} {
				from = &browser{from.site, from.client, elsewhere}
				answer := from.post(path, fields...)
				if answer.StatusCode != 403 && !strings.HasPrefix(answer.to, "/sign-in?") {
					t.Errorf("%v %s: %d to %q", elsewhere, path, answer.StatusCode, answer.to)
				}
				if len(answer.Cookies()) != 0 {
					t.Errorf("%v %s sets a cookie", elsewhere, path)
				}
			}
		}
	}
	b.get("/account").expectPage(200)
	s.browser().get(link).expectPage(200)
	s.browser().get(invitation).expectPage(200)
}

// Forms are accepted if a proxy sends a host of its own.
func TestFormsFromThePublicAddress(t *testing.T) {
	s := newSite(t, func(o *http.Options) { o.PublicURL = &url.URL{Scheme: "https", Host: "atelier.example.com"} })
	s.person("alice")
	b := s.browser()
	for origin, text := range map[string]string{
		"https://atelier.example.com": "The email or the password is wrong",
		"http://atelier.example.com":  "Not allowed",
		"https://evil.example.com":    "Not allowed",
	} {
		from := &browser{b.site, b.client, map[string]string{"Origin": origin}}
		from.post("/sign-in", "email", "alice@example.com", "password", "not hers").expectPage(403, text)
	}
}

func TestFormsAreBounded(t *testing.T) {
	s := newSite(t)
	b := s.browser()
	b.post("/sign-in", "email", strings.Repeat("x", 70<<10)).expectPage(413)
	b.post("/sign-in", "email", "a@example.com", "email", "b@example.com", "password", "x").expectPage(400)
	b.headers["Content-Type"] = "application/json"
	b.post("/sign-in", "email", "a@example.com").expectPage(415)
	b.headers["Content-Type"] = "application/x-www-form-urlencoded; charset=\xff"
	b.post("/sign-in", "email", "a@example.com").expectPage(415)
	b.headers["Content-Type"] = "application/x-www-form-urlencoded"
	b.send("POST", "/sign-in", url.Values{}).expectPage(403)
}

func TestSetPassword(t *testing.T) {
	s := newSite(t)
	key, old := s.signUp("alice")
	link := s.link("alice")
	_, token, _ := strings.Cut(link, "token=")
	b := s.browser()
	b.get(link).expectPage(200, "alice@example.com", `name="token" value="`+token+`"`, "10 to 200 characters")
	for password, problem := range map[string]string{
		"nine runs":              "at least 10 characters",
		"äöüßäöüßä":              "at least 10 characters",
		strings.Repeat("ä", 201): "at most 200",
		"ten or more\x00":        "control character or invalid text",
		"ten or more\xff":        "control character or invalid text",
	} {
		b.post("/set-password", "token", token, "password", password, "again", password).expectPage(400, problem, `aria-invalid="true"`).expectNot(t, password)
	}
	b.post("/set-password", "token", token, "password", goodPassword, "again", goodPassword+"!").expectPage(400, "The two passwords differ.")
	const better = "äöüß 10 Zeichen"
	b.post("/set-password", "token", token, "password", better, "again", better).expectRedirect("/account?done=password")
	b.get("/account?done=password").expectPage(200, "Your password is set.", `role="status"`)
	old.get("/account").expectRedirect("/sign-in?next=%2Faccount")
	expect(t, request(t, s.node.Server, "GET", "/v1/whoami", key, ""), 200, "")
	s.browser().post("/sign-in", "email", "alice@example.com", "password", goodPassword).expectPage(403)
	s.browser().post("/sign-in", "email", "alice@example.com", "password", better).expectRedirect("/account")

	expired, replaced := s.link("alice"), ""
	s.clock.advance(72*time.Hour - time.Millisecond)
	b.get(expired).expectPage(200)
	s.clock.advance(time.Millisecond)
	replaced = s.link("alice")
	latest := s.link("alice")
	flipped := latest[:len(latest)-1] + "a"
	if flipped == latest {
		flipped = latest[:len(latest)-1] + "b"
	}
	s.person("gone")
	disabled := s.link("gone")
	s.change("gone", &userv1.Disable{})
	first := ""
	for name, bad := range map[string]string{
		"used": link, "expired": expired, "replaced": replaced, "wrong": flipped, "disabled": disabled,
		"nobody's": "/set-password?token=01j0000000000000000000000a." + token[27:], "none": "/set-password", "short": latest[:40],
		"odd": strings.Replace(latest, ".", "_", 1),
	} {
		page := b.get(bad).expectPage(403, "This link is no longer valid")
		_, bad, _ = strings.Cut(bad, "token=")
		posted := b.post("/set-password", "token", bad, "password", goodPassword, "again", goodPassword).expectPage(403)
		if first == "" {
			first = page.text
		}
		if page.text != first || posted.text != first {
			t.Errorf("%s is answered otherwise: %s", name, page.body())
		}
	}
	b.get(latest).expectPage(200)
}

// expectNot expects that the page lacks a text.
func (s *pageResponse) expectNot(t *testing.T, text string) *pageResponse {
	t.Helper()
	if text != "" && strings.Contains(s.text, text) {
		t.Errorf("%s %s has %q: %s", s.Request.Method, s.Request.URL, text, s.body())
	}
	return s
}

// change sends a command to an account, as an operator.
func (s *site) change(name string, m interface {
	userv1.Command
}) {
	s.Helper()
	id := s.idOf(name)
	if _, err := s.node.Router.Ask(s.Context(), entity.Command{Kind: entity.KindUser, Identity: id, Principal: entity.Platform(), Message: m}); err != nil {
		s.Fatal(err)
	}
}

// Signing in fails if the password is replaced while it is being verified: the session's command names the verified
// password.
func TestSignInFailsIfThePasswordIsReplaced(t *testing.T) {
	w := newFakeEntities()
	hash, err := pages.NewPasswordHasher().Hash(t.Context(), goodPassword)
	if err != nil {
		t.Fatal(err)
	}
	stub(w, func(entity.Command, *emailv1.ResolveEmail) (proto.Message, error) {
		return &emailv1.Email{UserId: alice}, nil
	})
	stub(w, func(entity.Command, *userv1.DescribePassword) (proto.Message, error) {
		return &userv1.Password{Hash: hash}, nil
	})
	replaced := false
	stub(w, func(_ entity.Command, m *userv1.StartBrowserSession) (proto.Message, error) {
		if replaced || m.GetPasswordHash() != hash {
			return nil, entity.Errorf(entity.Unauthorized, "the password was changed during the sign-in; sign in again")
		}
		return nil, nil
	})
	s := w.server(t)
	signIn := func() (key string) {
		form := url.Values{"email": {"alice@example.com"}, "password": {goodPassword}}
		answer := request(t, s, "POST", "/sign-in", "", form.Encode(), "Content-Type", "application/x-www-form-urlencoded")
		for _, cookie := range answer.Result().Cookies() {
			if cookie.Name == "atelier" {
				key = cookie.Value
			}
		}
		return key
	}
	if signIn() == "" {
		t.Fatal("not let in")
	}
	replaced = true
	if key := signIn(); key != "" {
		t.Errorf("let in with %q", key)
	}
}

// A session starts only after all checks of the browser have passed, so that none is left without its cookie.
func TestRefusedSignInStartsNoSession(t *testing.T) {
	s := newSite(t, func(o *http.Options) { o.Limits.Rate, o.Limits.Burst = 1, 5 })
	_, b := s.signUp("alice")
	for b.get("/account").StatusCode == 200 {
	}
	b.post("/sign-in", "email", "alice@example.com", "password", goodPassword).expectPage(429)
	other := s.browser()
	other.post("/sign-in", "email", "alice@example.com", "password", goodPassword).expectRedirect("/account")
	if n := strings.Count(other.get("/account").expectPage(200).text, `action="/account/sessions/`); n != 2 {
		t.Errorf("%d sessions, want those of the two browsers", n)
	}
}

func TestSignInIsThrottled(t *testing.T) {
	s := newSite(t)
	s.signUp("alice")
	b := s.browser()
	for range 10 {
		b.post("/sign-in", "email", "alice@example.com", "password", "wrong").expectPage(403)
	}
	for _, email := range []string{"alice@example.com", "ALICE@example.com"} {
		refused := b.post("/sign-in", "email", email, "password", goodPassword).expectPage(429, "Too many attempts", "Try again in 10 seconds.")
		if refused.Header.Get("Retry-After") != "10" || len(refused.Cookies()) != 0 {
			t.Errorf("head: %v", refused.Header)
		}
	}
	s.clock.advance(10 * time.Second)
	b.post("/sign-in", "email", "alice@example.com", "password", goodPassword).expectRedirect("/account")
}

// Attacks from many networks do not lock out a person with a known browser, and only that browser.
func TestKnownBrowserIsNotLockedOut(t *testing.T) {
	s := newSite(t, func(o *http.Options) { o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} })
	s.signUp("alice")
	s.signUp("bob")
	used, other := s.browser(), s.browser()
	used.post("/sign-in", "email", "alice@example.com", "password", goodPassword).expectRedirect("/account")
	other.post("/sign-in", "email", "bob@example.com", "password", goodPassword).expectRedirect("/account")
	for _, b := range []*browser{used, other} {
		b.post("/sign-out").expectRedirect("/sign-in")
	}
	for i := range 400 {
		s.node.Server.CountSignInAttempt(s.clock.Now(), netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), "alice@example.com")
	}
	other.headers["X-Forwarded-For"], used.headers["X-Forwarded-For"] = "192.0.2.1", "192.0.2.2"
	other.post("/sign-in", "email", "alice@example.com", "password", goodPassword).expectPage(429)
	used.post("/sign-in", "email", "Alice@example.com", "password", goodPassword).expectRedirect("/account")
}

// The address of a client is known also behind a proxy that adds the client's port. An entry that is no address is logged once, because
// it makes one client of all clients of the proxy.
func TestForwardedAddresses(t *testing.T) {
	s := newSite(t, func(o *http.Options) { o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")} }) // of httptest
	send := func(forwarded, client string) {
		t.Helper()
		before := len(s.said.String())
		expect(t, request(t, s.node.Server, "GET", "/sign-in", "", "", "X-Forwarded-For", forwarded), 200, "")
		if said := s.said.String()[before:]; !strings.Contains(said, " client="+client+"\n") {
			t.Errorf("%s: %s", forwarded, said)
		}
	}
	send("203.0.113.7", "203.0.113.7")
	send("203.0.113.8:4711", "203.0.113.8")
	send("[2001:db8::1]:443", "2001:db8::1")
	send("[2001:db8::2]", "2001:db8::2")
	send("", "192.0.2.1")
	const warning = "the client's address cannot be read"
	if said := s.said.String(); strings.Contains(said, warning) {
		t.Errorf("%s", said)
	}
	for _, unreadable := range []string{"203.0.113.9, unknown", "203.0.113.9:x:y", strings.Repeat("x", 5000)} {
		send(unreadable, "192.0.2.1")
	}
	if said := s.said.String(); strings.Count(said, warning) != 1 || !strings.Contains(said, "entry=unknown") {
		t.Errorf("%s", said)
	}
}

// The refusal by the limit for an address is shown as a page.
func TestPagesAreLimitedByAddress(t *testing.T) {
	s := newSite(t, func(o *http.Options) { o.Limits = server.Limits{AddressRate: 1, AddressBurst: 2} })
	b := s.browser()
	b.get("/sign-in").expectPage(200)
	b.send("GET", "/sign-in", url.Values(nil)).expectPage(200)
	if refused := b.get("/sign-in").expectPage(429, "Too many attempts"); refused.Header.Get("Retry-After") != "1" {
		t.Errorf("head: %v", refused.Header)
	}
}

// The limit for an address holds for all networks of an IPv6 site together, and leaves other sites theirs.
func TestRequestsOfASiteAreLimited(t *testing.T) {
	s := newSite(t, func(o *http.Options) {
		o.Limits = server.Limits{AddressRate: 1, AddressBurst: 2}
		o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")} // of httptest
	})
	passed := 0
	for n := range 100 {
		w := request(t, s.node.Server, "GET", "/sign-in", "", "", "X-Forwarded-For", fmt.Sprintf("2001:db8:1:%x::1", n))
		if w.Code == 200 {
			passed++
		} else {
			expect(t, w, 429, "Too many attempts")
		}
	}
	if passed == 0 || passed > 2*limit.SiteFactor {
		t.Errorf("%d requests of one site were answered", passed)
	}
	expect(t, request(t, s.node.Server, "GET", "/sign-in", "", "", "X-Forwarded-For", "2001:db8:2::1"), 200, "")
}
