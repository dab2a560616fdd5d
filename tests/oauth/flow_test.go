package oauth

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/atelier-run/atelier/entity"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

func TestGrant(t *testing.T) {
	w := newWorld(t)
	alice := w.person("alice")
	w.workspace(alice, "acme")
	other := w.workspace(alice, "other")
	client := w.register(callback)

	response, page := w.open(alice, asking(client, "files:read", "members"))
	for _, want := range []string{"Tester", "client.example", "alice@example.com", "ACME (acme)", "OTHER (other)", "Read files", "Invite people, to roles with no more than these permissions"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if policy := response.Header.Get("Content-Security-Policy"); strings.Contains(policy, "form-action") {
		t.Error(policy)
	}
	to, _ := w.answer(alice, asking(client, "files:read", "members", "files:write"), func(form url.Values) {
		form.Set("workspace", other)
		form["scope"] = slices.DeleteFunc(form["scope"], func(s string) bool { return s == "members" })
	})
	granted := w.exchange(redeeming(client, to.Query().Get("code")))

	status, text := w.api("GET", "/v1/whoami", granted.access, "")
	var who struct {
		User       struct{ ID string }
		Workspaces []struct{ Slug string }
		Scopes     []string
		Credential struct{ Kind, Audience string }
	}
	if err := json.Unmarshal([]byte(text), &who); err != nil || status != 200 {
		t.Fatal(status, text)
	}
	if who.User.ID != alice.id || len(who.Workspaces) != 1 || who.Workspaces[0].Slug != "other" ||
		strings.Join(who.Scopes, " ") != "api_key ws:other:files:read ws:other:files:write" ||
		who.Credential.Kind != "oauth" || who.Credential.Audience != w.url {
		t.Errorf("whoami: %s", text)
	}
	for target, want := range map[string]int{
		"/v1/ws/other/file-activity/feed": 200, "/v1/ws/acme/file-activity/feed": 404, "/v1/ws/other/admin/suspension": 403,
		"/v1/user/api-keys": 403,
	} {
		if status, text := w.api("GET", target, granted.access, ""); status != want {
			t.Errorf("%s: %d %s", target, status, text)
		}
	}
	if status, text := w.api("GET", "/v1/user/oauth-grants", alice.key, ""); status != 200 || !strings.Contains(text, `"Tester"`) {
		t.Errorf("grants: %d %s", status, text)
	}
	if _, page := w.send("GET", "/account", "", "Cookie", alice.cookie); !strings.Contains(page, "Tester in OTHER (other)") {
		t.Errorf("the account page does not name the workspace: %s", page)
	}
	w.audited(alice, "other", "oauth_grant.created", 1)
	w.audited(alice, "acme", "oauth_grant.created", 0)
}

// TestScopes has requests that name no scope, some that no operation requires, or one more than once.
func TestScopes(t *testing.T) {
	w := newWorld(t)
	alice := w.person("alice")
	w.workspace(alice, "acme")
	client := w.register(callback)
	for scope, want := range map[string]string{
		"":                               "files:read",
		" ":                              "files:read",
		"files:write":                    "files:write",
		"sessions files:read  sessions":  "files:read sessions",
		"memory files:read integrations": "files:read",
		"admin":                          "admin",
		"offline_access":                 "files:read",
		"offline_access sessions":        "sessions",
	} {
		query := with(asking(client), "scope", scope)
		_, page := w.open(alice, query)
		_, form := w.form(page)
		if ticked := strings.Join(form["scope"], " "); ticked != want || strings.Count(page, `type="checkbox"`) != len(form["scope"]) {
			t.Errorf("scope %q: ticked %q, want %q: %s", scope, ticked, want, page)
		}
		status, answer := w.post("/oauth/token", redeeming(client, w.code(alice, query)))
		if status != 200 || answer["scope"] != want {
			t.Errorf("scope %q: granted %v, want %q", scope, answer, want)
			continue
		}
		// A client may send the scope of its authorization request again, if nothing of it was left out.
		again := with(refreshing(client, answer["refresh_token"].(string)), "scope", scope)
		if status, answer := w.post("/oauth/token", again); !strings.Contains(scope, "memory") && (status != 200 || answer["scope"] != want) {
			t.Errorf("scope %q: refreshed %d %v, want %q", scope, status, answer, want)
		}
	}
	if status, answer := w.post("/oauth/token", redeeming(client, w.code(alice, without(asking(client), "scope")))); status != 200 || answer["scope"] != "files:read" {
		t.Errorf("no scope: %v", answer)
	}
	response, _ := w.open(alice, asking(client, "memory"))
	if to := w.led(response); to == nil || to.Query().Get("error") != "invalid_scope" {
		t.Errorf("a scope of which nothing is left: %v", to)
	}
}

// audited verifies how often an event is in a workspace's audit log.
func (w *world) audited(p person, slug, event string, want int) {
	w.Helper()
	status, text := w.api("GET", "/v1/ws/"+slug+"/audit", p.key, "")
	if got := strings.Count(text, `"`+event+`"`); status != 200 || got != want {
		w.Errorf("audit of %s: %d %s: %d of %s, want %d", slug, status, text, got, event, want)
	}
}

// TestCrashesBetweenSteps crashes the node between all steps of the flow.
func TestCrashesBetweenSteps(t *testing.T) {
	w := newWorld(t)
	alice := w.person("alice")
	w.workspace(alice, "acme")
	client := w.register(callback)
	w.crash()
	code := w.code(alice, asking(client, "files:read"))
	w.crash()
	first := w.exchange(redeeming(client, code))
	w.crash()
	if !w.opens(first.access) {
		t.Error("the access token is refused after a crash")
	}
	second := w.exchange(refreshing(client, first.refresh))
	w.crash()
	w.refused(refreshing(client, first.refresh), 400, "invalid_grant")
	w.crash()
	if w.opens(first.access) || w.opens(second.access) {
		t.Error("tokens of a replayed family are accepted after a crash")
	}
	w.refused(refreshing(client, second.refresh), 400, "invalid_grant")
}

// TestConsentSurvivesCrash submits the form of a consent page to a node that was started after the page was shown.
func TestConsentSurvivesCrash(t *testing.T) {
	w := newWorld(t)
	alice := w.person("alice")
	w.workspace(alice, "acme")
	client := w.register(callback)
	_, page := w.open(alice, asking(client, "files:read"))
	w.crash()
	action, form := w.form(page)
	response, _ := w.submit(alice, action, form)
	w.exchange(redeeming(client, w.led(response).Query().Get("code")))
}

func TestTokensExpire(t *testing.T) {
	w := newWorld(t)
	alice := w.person("alice")
	w.workspace(alice, "acme")
	client := w.register(callback)
	first := w.exchange(redeeming(client, w.code(alice, asking(client, "files:read"))))
	w.advance(14 * time.Minute)
	second := w.exchange(refreshing(client, first.refresh))
	if !w.opens(first.access) || !w.opens(second.access) {
		t.Error("a refresh has ended the previous access token before its expiry")
	}
	w.advance(time.Minute)
	if w.opens(first.access) || !w.opens(second.access) {
		t.Error("an access token does not expire after 15 minutes")
	}
	w.advance(14 * time.Minute)
	if w.opens(second.access) {
		t.Error("an access token does not expire after 15 minutes")
	}
	w.advance(30*24*time.Hour - 29*time.Minute)
	third := w.exchange(refreshing(client, second.refresh))
	w.advance(30 * 24 * time.Hour)
	w.refused(refreshing(client, third.refresh), 400, "invalid_grant")
	late := w.code(alice, asking(client, "files:read"))
	w.advance(time.Minute)
	w.refused(redeeming(client, late), 400, "invalid_grant")
}

// TestTokensOfDisabledPerson disables the person of a grant and enables them again.
func TestTokensOfDisabledPerson(t *testing.T) {
	w := newWorld(t)
	alice := w.person("alice")
	w.workspace(alice, "acme")
	client := w.register(callback)
	granted := w.exchange(redeeming(client, w.code(alice, asking(client, "files:read"))))
	unused := w.code(alice, asking(client, "files:read"))
	w.ask(entity.KindUser, alice.id, &userv1.Disable{})
	w.advance(time.Second)
	if w.opens(granted.access) {
		t.Error("the token of a disabled person is accepted")
	}
	w.refused(refreshing(client, granted.refresh), 400, "invalid_grant")
	w.refused(redeeming(client, unused), 400, "invalid_grant")
	w.ask(entity.KindUser, alice.id, &userv1.Enable{})
	w.advance(time.Second)
	w.exchange(refreshing(client, granted.refresh))
}
