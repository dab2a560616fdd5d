package http_test

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

var (
	shownKey = regexp.MustCompile(`value="(atl_[0-9a-z]{26}_[a-z2-7]{40})"`)
	revokes  = regexp.MustCompile(`action="(/account/keys/key_[0-9a-z]{26}/revoke)"`)
)

func TestNewcomerCreatesAKey(t *testing.T) {
	s := newSite(t)
	owner, _ := s.signUp("alice")
	s.workspace(owner, "acme")
	link, b := s.invite(owner, "acme", "bob@example.com"), s.browser()
	_, token, _ := strings.Cut(b.post(link, "name", "Bob").to, "token=")
	b.post("/set-password", "token", token, "password", goodPassword, "again", goodPassword)
	if found := revokes.FindString(b.get("/account").expectPage(200, "Create an API key").text); found != "" {
		t.Errorf("a newcomer has a key: %s", found)
	}

	made := b.post("/account/keys", "name", "Laptop & co", "lasts", "90").expectPage(200, "Laptop &amp; co", "15 April 2027", "not shown again", " readonly ")
	if len(made.Cookies()) != 0 {
		t.Errorf("cookies: %v", made.Cookies())
	}
	key := shownKey.FindStringSubmatch(made.text)
	if key == nil {
		t.Fatalf("no key: %s", made.body())
	}
	expect(t, request(t, s.node.Server, "GET", "/v1/ws/acme/file-activity/feed", key[1], ""), 200, "")
	page := b.get("/account").expectPage(200, "Laptop &amp; co", key[1][:12]+"…", "until 15 April 2027", "last used <time").expectNot(t, key[1][40:])

	_, stranger := s.signUp("carol")
	revoke := revokes.FindStringSubmatch(page.text)[1]
	stranger.post(revoke).expectPage(404)
	expect(t, request(t, s.node.Server, "GET", "/v1/whoami", key[1], ""), 200, "")
	b.post(revoke).expectRedirect("/account?done=key")
	expect(t, request(t, s.node.Server, "GET", "/v1/whoami", key[1], ""), 401, "")
	b.get("/account?done=key").expectPage(200, "The key was revoked.").expectNot(t, "Laptop")
	b.post(revoke).expectRedirect("/account?done=key")
	b.post("/account/keys/nonsense/revoke").expectPage(404)
}

func TestKeysAreListedNewestFirst(t *testing.T) {
	s := newSite(t)
	key, b := s.signUp("alice")
	for i := range 120 { // more than entities list at once
		s.clock.advance(time.Second)
		body := fmt.Sprintf(`{"name":"k%03d","expiresAt":%d}`, i, s.clock.Now().Add(time.Hour).UnixMilli())
		expect(t, request(t, s.node.Server, "POST", "/v1/user/api-keys", key, body), 201, "")
	}
	page := b.get("/account").expectPage(200, "Only the newest keys are shown")
	names := regexp.MustCompile(`>(k\d{3})<`).FindAllStringSubmatch(page.text, -1)
	if len(names) != 50 || names[0][1] != "k119" || names[49][1] != "k070" || strings.Contains(page.text, "expired") {
		t.Fatalf("%d keys: %v", len(names), names)
	}
	b.post(revokes.FindStringSubmatch(page.text)[1])
	s.clock.advance(time.Hour)
	b.get("/account").expectPage(200, ">k118", ">k069", ">expired<").expectNot(t, ">k119")
}

func TestCreateKeyRefusesInvalidInput(t *testing.T) {
	s := newSite(t)
	_, b := s.signUp("alice")
	before := len(revokes.FindAllString(b.get("/account").text, -1))
	for name, problem := range map[string]string{
		"": "Name is required.", "  ": "Name is blank.", "a\x07": "control character", strings.Repeat("ä", 201): "at most 200 characters",
	} {
		b.post("/account/keys", "name", name, "lasts", "never").
			expectPage(400, problem, `aria-invalid="true"`, `value="never" selected`, "Key not created").expectNot(t, "atl_01j0000")
	}
	b.post("/account/keys", "name", "x").expectPage(400)
	b.post("/account/keys", "name", "x", "lasts", "31").expectPage(400)
	b.post("/account/keys", "name", strings.Repeat("x", 70<<10), "lasts", "30").expectPage(413)
	if now := len(revokes.FindAllString(b.get("/account").text, -1)); now != before {
		t.Errorf("%d keys, there were %d", now, before)
	}
	b.post("/account/keys", "name", "x", "lasts", "never").expectPage(200, "until you revoke it")
	s.browser().post("/account/keys", "name", "x", "lasts", "never").expectRedirect("/sign-in?next=%2Faccount")
}

func TestTooManyKeys(t *testing.T) {
	w := newFakeEntities()
	stub(w, func(entity.Command, *userv1.IssueApiKey) (proto.Message, error) {
		return nil, entity.Errorf(entity.LimitReached, "at most 1000 API keys can be valid at a time")
	})
	stub(w, func(entity.Command, *userv1.DescribePassword) (proto.Message, error) { return &userv1.Password{}, nil })
	stub(w, func(entity.Command, *userv1.ListBrowserSessions) (proto.Message, error) {
		return &userv1.BrowserSessions{}, nil
	})
	stub(w, func(entity.Command, *userv1.ListGrants) (proto.Message, error) { return &userv1.GrantPage{}, nil })
	expect(t, request(t, w.server(t), "POST", "/account/keys", w.key(alice), url.Values{"name": {"x"}, "lasts": {"30"}}.Encode(),
		"Content-Type", "application/x-www-form-urlencoded"), 409, "At most 1000 API keys can be valid at a time.")
}

func TestChangePassword(t *testing.T) {
	s := newSite(t)
	_, b := s.signUp("alice")
	other := s.browser()
	other.post("/sign-in", "email", "alice@example.com", "password", goodPassword).expectRedirect("/account")
	for _, wrong := range []string{"", "no such thing", goodPassword + " ", strings.Repeat("x", 5000)} {
		b.post("/account/password", "current", wrong).expectPage(403, "The password is wrong.", "Password not changed", `role="alert"`).expectNot(t, strings.TrimSpace(wrong))
	}
	to := b.post("/account/password", "current", goodPassword)
	path, token, _ := strings.Cut(to.to, "token=")
	if to.StatusCode != 303 || path != "/set-password?" {
		t.Fatalf("%d to %q: %s", to.StatusCode, to.to, to.body())
	}
	other.get("/account").expectPage(200) // nothing has changed yet
	const better = "another way to the sea"
	b.get(to.to).expectPage(200, "alice@example.com")
	b.post("/set-password", "token", token, "password", better, "again", better).expectRedirect("/account?done=password")
	b.get("/account").expectPage(200)
	other.get("/account").expectRedirect("/sign-in?next=%2Faccount")
	s.browser().post("/sign-in", "email", "alice@example.com", "password", goodPassword).expectPage(403)
	s.browser().post("/sign-in", "email", "alice@example.com", "password", better).expectRedirect("/account")
}

func TestChangePasswordNeedsAPassword(t *testing.T) {
	s := newSite(t)
	key := s.person("alice")
	expect(t, request(t, s.node.Server, "GET", "/account", key, ""), 200, "API keys")
	if text := request(t, s.node.Server, "GET", "/account", key, "").Body.String(); strings.Contains(text, "/account/password") {
		t.Errorf("there is a form: %s", text)
	}
	expect(t, request(t, s.node.Server, "POST", "/account/password", key, "current=", "Content-Type", "application/x-www-form-urlencoded"),
		403, "The password is wrong.")
}

// Attempts to change the password share the limit of attempts to sign in, so that a stolen session cannot be used to guess
// faster.
func TestChangingThePasswordIsThrottled(t *testing.T) {
	s := newSite(t)
	_, b := s.signUp("alice")
	for i := range 10 {
		if i%2 == 0 {
			s.browser().post("/sign-in", "email", "alice@example.com", "password", "wrong").expectPage(403)
		} else {
			b.post("/account/password", "current", "wrong").expectPage(403)
		}
	}
	b.post("/account/password", "current", goodPassword).expectPage(429, "Too many attempts", "Try again in 10 seconds.")
	s.clock.advance(10 * time.Second)
	if to := b.post("/account/password", "current", goodPassword).to; !strings.HasPrefix(to, "/set-password?token=") {
		t.Errorf("leads to %q", to)
	}
}

// An impersonation can neither create a key nor change the password.
func TestImpersonationCannotCreateKeys(t *testing.T) {
	s := newSite(t)
	s.signUp("alice")
	s.person("root")
	s.change("root", &userv1.SetInternalAdmin{InternalAdmin: true})
	var made struct{ Key string }
	s.operator("/admin/impersonations", `{"email":"alice@example.com","admin":"root@example.com","reason":"a look","seconds":60}`, &made)
	for path, form := range map[string]string{"/account/keys": "name=x&lasts=30", "/account/password": url.Values{"current": {goodPassword}}.Encode()} {
		expect(t, request(t, s.node.Server, "POST", path, made.Key, form, "Content-Type", "application/x-www-form-urlencoded"), 403, "Not allowed")
	}
	expect(t, request(t, s.node.Server, "GET", "/account", made.Key, ""), 200, "alice@example.com")
}

// The account page shows the live grants although more revoked grants than fit on the page are older.
func TestLiveGrantsAreShownBehindRevokedOnes(t *testing.T) {
	s := newSite(t)
	_, b := s.signUp("alice")
	allow := func(i int) {
		id := fmt.Sprintf("ogr_01j%023d", i)
		s.change("alice", &userv1.AllowGrant{Grant: &userv1.Grant{
			Id: id, ClientId: "client-1", ClientName: fmt.Sprintf("Editor %03d", i), RedirectHost: "127.0.0.1", WorkspaceId: "ws_1",
			WorkspaceSlug: "acme", WorkspaceName: "Acme", Scopes: []string{"files:read"},
		}})
		if i < 120 { // more than entities list at once
			s.change("alice", &userv1.RevokeGrant{GrantId: id})
		}
	}
	for i := range 122 {
		allow(i)
	}
	b.get("/account").expectPage(200, "Editor 120", "Editor 121").expectNot(t, "Editor 119").expectNot(t, "Only some applications")
	for i := 122; i < 171; i++ {
		allow(i)
	}
	b.get("/account").expectPage(200, "Editor 170", "Editor 121", "Only some applications").expectNot(t, "Editor 120")
}

// TestAccountLimitsAKeyToSeveralWorkspaces selects two of three workspaces and two permissions in the form for a new key.
func TestAccountLimitsAKeyToSeveralWorkspaces(t *testing.T) {
	s := newSite(t)
	owner, b := s.signUp("alice")
	for _, slug := range []string{"acme", "beta", "other"} {
		s.workspace(owner, slug)
	}
	page := b.post("/account/keys", "name", "x", "lasts", "30", "access", "limited", "scope", "files:read", "scope", "files:write",
		"workspace", "acme", "workspace", "beta").expectPage(200, "x")
	_, key, _ := strings.Cut(page.text, ` value="`)
	key, _, _ = strings.Cut(key, `"`)
	for slug, status := range map[string]int{"acme": 200, "beta": 200, "other": 404} {
		expect(t, request(t, s.node.Server, "GET", "/v1/ws/"+slug+"/file-activity/feed", key, ""), status, "")
	}
	b.post("/account/keys", "name", "x", "name", "y", "lasts", "30").expectPage(400, "occurs twice")
}
