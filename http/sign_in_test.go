package http_test

import (
	nethttp "net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/http"
	pages "github.com/atelier-run/atelier/http/browser"
	emailv1 "github.com/atelier-run/atelier/messages/email/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

func TestSignIn(t *testing.T) {
	s := newSite(t)
	_, first := s.enter("alice")
	first.get("/account").page(200, "alice@example.com", "Firefox on Linux", "this browser")
	b := s.browser()
	b.get("/").leads("/account")
	b.get("/account?done=session").leads("/sign-in?next=%2Faccount%3Fdone%3Dsession")
	b.get("/sign-in?next=/account").page(200, `name="next" value="/account"`, `<label for="password">`).lacks(t, `role="alert"`)
	b.post("/sign-in", "email", "alice@example.com", "password", "wrong").
		page(403, "The email or the password is wrong.", `role="alert"`, `value="alice@example.com"`).lacks(t, `value="wrong"`)
	in := b.post("/sign-in", "email", "Alice@Example.com", "password", goodPassword, "next", "/account?done=joined").leads("/account?done=joined")
	cookie := in.cookie("atelier")
	if cookie == nil || !cookie.HttpOnly || cookie.SameSite != nethttp.SameSiteLaxMode || cookie.Path != "/" || cookie.MaxAge != 30*24*3600 ||
		cookie.Domain != "" || cookie.Secure {
		t.Errorf("cookie: %+v", cookie)
	}
	b.get("/sign-in?next=/account").leads("/account")
	b.get("/account").page(200, "alice@example.com")
	first.get("/account").page(200)
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

// Whatever was wrong, the answer has the same bytes.
func TestSignInTellsNothing(t *testing.T) {
	s := newSite(t)
	s.enter("alice")
	s.person("none") // has no password
	_, gone := s.enter("gone")
	s.change("gone", &userv1.Disable{})
	var first string
	for _, try := range [][2]string{
		{"alice@example.com", "wrong wrong wrong"}, {"nobody@example.com", goodPassword}, {"none@example.com", ""},
		{"none@example.com", goodPassword}, {"gone@example.com", goodPassword}, {"no address", goodPassword}, {"", ""},
		{"alice@example.com", goodPassword + " "}, {"alice@example.com", goodPassword + "\xff"}, {"alice@example.com", strings.Repeat(goodPassword, 1000)},
	} {
		text := strings.Replace(s.browser().post("/sign-in", "email", try[0], "password", try[1]).page(403).text, `value="`+try[0]+`"`, "", 1)
		if first == "" {
			first = text
		}
		if text != first {
			t.Errorf("%q is answered otherwise: %s", try, text)
		}
	}
	s.clock.advance(2 * time.Second)
	gone.get("/account").leads("/sign-in?next=%2Faccount")
}

func TestNextIsAPathHere(t *testing.T) {
	s := newSite(t)
	_, b := s.enter("alice")
	for next, to := range map[string]string{
		"/account?x=1":           "/account?x=1",
		"/oauth/x?a=%2F%2Fb&c=d": "/oauth/x?a=%2F%2Fb&c=d",
		"":                       "/account", "account": "/account", "//evil.example": "/account", "/\\evil.example": "/account",
		"\\\\evil.example": "/account", "https://evil.example/": "/account", "javascript:alert(1)": "/account",
		"/\t/evil.example": "/account", "/a\r\nSet-Cookie: x=y": "/account", " //evil.example": "/account", "/\xff": "/account",
		"///evil.example": "/account", "/" + strings.Repeat("a", 9000): "/account",
	} {
		b.get("/sign-in?" + url.Values{"next": {next}}.Encode()).leads(to)
	}
}

func TestFormsFromElsewhereAreRefused(t *testing.T) {
	s := newSite(t)
	key, b := s.enter("alice")
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
	b.get("/account").page(200)
	s.browser().get(link).page(200)
	s.browser().get(invitation).page(200)
}

// A proxy that asks for a host of its own makes no form another site's.
func TestFormsComeFromThePublicAddress(t *testing.T) {
	s := newSite(t, func(o *http.Options) { o.PublicURL = &url.URL{Scheme: "https", Host: "atelier.example.com"} })
	s.person("alice")
	b := s.browser()
	for origin, text := range map[string]string{
		"https://atelier.example.com": "The email or the password is wrong",
		"http://atelier.example.com":  "Not allowed",
		"https://evil.example.com":    "Not allowed",
	} {
		from := &browser{b.site, b.client, map[string]string{"Origin": origin}}
		from.post("/sign-in", "email", "alice@example.com", "password", "not hers").page(403, text)
	}
}

func TestFormsAreBounded(t *testing.T) {
	s := newSite(t)
	b := s.browser()
	b.post("/sign-in", "email", strings.Repeat("x", 70<<10)).page(413)
	b.post("/sign-in", "email", "a@example.com", "email", "b@example.com", "password", "x").page(400)
	b.headers["Content-Type"] = "application/json"
	b.post("/sign-in", "email", "a@example.com").page(415)
	b.headers["Content-Type"] = "application/x-www-form-urlencoded; charset=\xff"
	b.post("/sign-in", "email", "a@example.com").page(415)
	b.headers["Content-Type"] = "application/x-www-form-urlencoded"
	b.send("POST", "/sign-in", url.Values{}).page(403)
}

func TestSetPassword(t *testing.T) {
	s := newSite(t)
	key, old := s.enter("alice")
	link := s.link("alice")
	_, token, _ := strings.Cut(link, "token=")
	b := s.browser()
	b.get(link).page(200, "alice@example.com", `name="token" value="`+token+`"`, "10 to 200 characters")
	for password, problem := range map[string]string{
		"nine runs":              "at least 10 characters",
		"äöüßäöüßä":              "at least 10 characters",
		strings.Repeat("ä", 201): "it may have 200",
		"ten or more\x00":        "cannot be typed",
		"ten or more\xff":        "cannot be typed",
	} {
		b.post("/set-password", "token", token, "password", password, "again", password).page(400, problem, `aria-invalid="true"`).lacks(t, password)
	}
	b.post("/set-password", "token", token, "password", goodPassword, "again", goodPassword+"!").page(400, "The two passwords differ.")
	const better = "äöüß 10 Zeichen"
	b.post("/set-password", "token", token, "password", better, "again", better).leads("/account?done=password")
	b.get("/account?done=password").page(200, "Your password is set.", `role="status"`)
	old.get("/account").leads("/sign-in?next=%2Faccount")
	wants(t, request(t, s.node.Server, "GET", "/v1/whoami", key, ""), 200, "")
	s.browser().post("/sign-in", "email", "alice@example.com", "password", goodPassword).page(403)
	s.browser().post("/sign-in", "email", "alice@example.com", "password", better).leads("/account")

	expired, replaced := s.link("alice"), ""
	s.clock.advance(72*time.Hour - time.Millisecond)
	b.get(expired).page(200)
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
		page := b.get(bad).page(403, "This link is no longer valid")
		_, bad, _ = strings.Cut(bad, "token=")
		posted := b.post("/set-password", "token", bad, "password", goodPassword, "again", goodPassword).page(403)
		if first == "" {
			first = page.text
		}
		if page.text != first || posted.text != first {
			t.Errorf("%s is answered otherwise: %s", name, page.body())
		}
	}
	b.get(latest).page(200)
}

func (s *sight) lacks(t *testing.T, text string) *sight {
	t.Helper()
	if text != "" && strings.Contains(s.text, text) {
		t.Errorf("%s %s has %q: %s", s.Request.Method, s.Request.URL, text, s.body())
	}
	return s
}

// change has an operator's command carried out on a person.
func (s *site) change(name string, m interface {
	userv1.Command
}) {
	s.Helper()
	id := s.idOf(name)
	if _, err := s.node.Router.Ask(s.Context(), entity.Command{Kind: entity.KindUser, Identity: id, Principal: entity.Platform(), Message: m}); err != nil {
		s.Fatal(err)
	}
}

// A password that is replaced while it is being checked lets nobody in: a session starts by the one that was checked.
func TestPasswordsReplacedMeanwhile(t *testing.T) {
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
			return nil, entity.Errorf(entity.Unauthorized, "another password was set meanwhile")
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

// A session starts when nothing about its browser can refuse it any more: none is left behind that nobody has the key of.
func TestRefusedSignInStartsNoSession(t *testing.T) {
	s := newSite(t, func(o *http.Options) { o.Limits.Rate, o.Limits.Burst = 1, 5 })
	_, b := s.enter("alice")
	for b.get("/account").StatusCode == 200 {
	}
	b.post("/sign-in", "email", "alice@example.com", "password", goodPassword).page(429)
	other := s.browser()
	other.post("/sign-in", "email", "alice@example.com", "password", goodPassword).leads("/account")
	if n := strings.Count(other.get("/account").page(200).text, `action="/account/sessions/`); n != 2 {
		t.Errorf("%d sessions, want those of the two browsers", n)
	}
}
