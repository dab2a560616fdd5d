package oauth

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/atelier-run/atelier/entity"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

func with(form url.Values, name, value string) url.Values {
	form.Set(name, value)
	return form
}

func without(form url.Values, name string) url.Values {
	form.Del(name)
	return form
}

// TestRefusedRequests has a case for each error of an authorization request. An error that must not be sent to the client
// is shown to the person.
func TestRefusedRequests(t *testing.T) {
	w := newWorld(t)
	alice := w.person("alice")
	w.workspace(alice, "acme")
	client := w.register(callback)
	good := func() url.Values { return asking(client, "files:read") }
	twice := good()
	twice.Add("state", "another state")
	for name, test := range map[string]struct {
		query url.Values
		want  string // empty: a page
	}{
		"no client":           {without(good(), "client_id"), ""},
		"unknown client":      {with(good(), "client_id", "oc_01j00000000000000000000zzz"), ""},
		"another kind's id":   {with(good(), "client_id", alice.id), ""},
		"another redirect":    {with(good(), "redirect_uri", callback+"/more"), ""},
		"a redirect's query":  {with(good(), "redirect_uri", callback+"?x=1"), ""},
		"a parameter twice":   {twice, ""},
		"too long":            {with(good(), "state", strings.Repeat("s", 7000)), ""},
		"no challenge":        {without(without(good(), "code_challenge"), "code_challenge_method"), "invalid_request"},
		"plain":               {with(good(), "code_challenge_method", "plain"), "invalid_request"},
		"no method":           {without(good(), "code_challenge_method"), "invalid_request"},
		"a short challenge":   {with(good(), "code_challenge", "abc"), "invalid_request"},
		"implicit":            {with(good(), "response_type", "token"), "unsupported_response_type"},
		"no response type":    {without(good(), "response_type"), "unsupported_response_type"},
		"fragment":            {with(good(), "response_mode", "fragment"), "unsupported_response_mode"},
		"a posted answer":     {with(good(), "response_mode", "form_post"), "unsupported_response_mode"},
		"unknown scope":       {with(good(), "scope", "files:read everything"), "invalid_scope"},
		"another resource":    {with(good(), "resource", "https://elsewhere.example"), "invalid_target"},
		"below this resource": {with(good(), "resource", w.url+"/v1"), "invalid_target"},
		"another audience":    {with(good(), "audience", "https://elsewhere.example"), "invalid_target"},
		"request object":      {with(good(), "request", "x.y.z"), "request_not_supported"},
		"request by address":  {with(good(), "request_uri", "https://client.example/r"), "request_uri_not_supported"},
		"pushed request":      {with(good(), "request_uri", "urn:ietf:params:oauth:request_uri:x"), "request_uri_not_supported"},
	} {
		response, page := w.open(alice, test.query)
		to := w.led(response)
		switch {
		case test.want == "" && (response.StatusCode != 400 || !strings.Contains(page, "request is invalid")):
			t.Errorf("%s: %d %v %s", name, response.StatusCode, to, page)
		case test.want != "" && (to == nil || to.Query().Get("error") != test.want || to.Query().Get("iss") != w.url ||
			to.Query().Get("state") != test.query.Get("state") || !strings.HasPrefix(to.String(), callback+"?")):
			t.Errorf("%s: %d %v %s", name, response.StatusCode, to, page)
		}
	}
	for _, resource := range []string{w.url, w.url + "/"} {
		w.exchange(with(redeeming(client, w.code(alice, with(good(), "resource", resource))), "resource", resource))
	}
}

// TestLoopback verifies that a loopback redirect URI may differ from the registered one only in its port (RFC 8252,
// section 7.3).
func TestLoopback(t *testing.T) {
	w := newWorld(t)
	alice := w.person("alice")
	w.workspace(alice, "acme")
	client := w.register("http://127.0.0.1/callback", "http://[::1]:5000/callback", "com.example.app:/callback", "http://localhost:7777/callback")
	for redirect, good := range map[string]bool{
		"http://127.0.0.1:9999/callback": true, "http://[::1]:9999/callback": true, "com.example.app:/callback": true,
		"http://localhost:7777/callback": true, "http://localhost:7778/callback": false,
		"http://127.0.0.1:9999/elsewhere": false, "https://127.0.0.1:9999/callback": false,
		"http://127.0.0.2:9999/callback": false, "com.example.app:/elsewhere": false, "http://me@127.0.0.1:1/callback": false,
	} {
		response, page := w.open(alice, with(asking(client, "files:read"), "redirect_uri", redirect))
		if (response.StatusCode == 200) != good {
			t.Errorf("%s: %d %s", redirect, response.StatusCode, page)
		}
		if response.StatusCode == 200 {
			code := w.code(alice, with(asking(client, "files:read"), "redirect_uri", redirect))
			w.exchange(with(redeeming(client, code), "redirect_uri", redirect))
		}
	}
}

// TestAnswers submits invalid forms of the consent page.
func TestAnswers(t *testing.T) {
	w := newWorld(t)
	alice, bob := w.person("alice"), w.person("bob")
	w.workspace(alice, "acme")
	foreign := w.workspace(bob, "bobs")
	client := w.register(callback)
	query := asking(client, "files:read")

	response, _ := w.open(person{}, query)
	if to := w.led(response); to == nil || to.Path != "/sign-in" || to.Query().Get("next") != "/oauth/authorize?"+query.Encode() {
		t.Errorf("nobody is led to %v", to)
	}
	response, _ = w.send("GET", "/oauth/authorize?"+query.Encode(), "", "Authorization", "Bearer "+alice.key)
	if to := w.led(response); to == nil || to.Path != "/sign-in" {
		t.Errorf("a key is let in: %v", response)
	}
	to, _ := w.answer(alice, query, func(form url.Values) { form.Set("decision", "deny") })
	if to.Query().Get("error") != "access_denied" || to.Query().Get("state") != state || to.Query().Get("iss") != w.url {
		t.Errorf("denied: %v", to)
	}
	for name, edit := range map[string]func(url.Values){
		"no ticket":           func(form url.Values) { form.Del("ticket") },
		"a forged ticket":     func(form url.Values) { form.Set("ticket", strings.ToUpper(form.Get("ticket"))) },
		"a late answer":       func(url.Values) { w.advance(10 * time.Minute) },
		"no workspace":        func(form url.Values) { form.Del("workspace") },
		"a foreign workspace": func(form url.Values) { form.Set("workspace", foreign) },
		"nothing ticked":      func(form url.Values) { form.Del("scope") },
		"more than was asked": func(form url.Values) { form["scope"] = []string{"admin"} },
	} {
		if to, page := w.answer(alice, query, edit); to != nil || !strings.Contains(page, `role="alert"`) {
			t.Errorf("%s: %v %s", name, to, page)
		}
	}
	if to, page := w.answer(alice, query, func(form url.Values) { form.Set("decision", "perhaps") }); to != nil || strings.Contains(page, "<form") {
		t.Errorf("no decision: %v %s", to, page)
	}

	_, page := w.open(alice, query)
	action, form := w.form(page)
	wider, _, _ := strings.Cut(action, "?")
	wider += "?" + asking(client, "files:read", "admin").Encode()
	for name, got := range map[string]func() (*http.Response, string){
		"another session's page": func() (*http.Response, string) {
			return w.submit(person{cookie: w.session(alice.id)}, action, form)
		},
		"another person's page":  func() (*http.Response, string) { return w.submit(bob, action, form) },
		"another request's page": func() (*http.Response, string) { return w.submit(alice, wider, form) },
		"another site's form": func() (*http.Response, string) {
			return w.send("POST", action, form.Encode(), "Cookie", alice.cookie, "Content-Type", "application/x-www-form-urlencoded",
				"Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site")
		},
	} {
		if response, page := got(); w.led(response) != nil {
			t.Errorf("%s was taken: %v %s", name, w.led(response), page)
		}
	}
	w.audited(alice, "acme", "oauth_grant.created", 0)
}

// TestRoles verifies that a grant has at most the capabilities of the person's role, and loses them with the role.
func TestRoles(t *testing.T) {
	w := newWorld(t)
	owner, viewer := w.person("owner"), w.person("viewer")
	id := w.workspace(owner, "acme")
	client := w.register(callback)
	if _, page := w.open(viewer, asking(client, "files:read")); !strings.Contains(page, "no workspace in which your role") {
		t.Errorf("without a workspace: %s", page)
	}
	w.join(id, owner, viewer)
	response, page := w.open(viewer, asking(client, "files:read", "files:write"))
	if !strings.Contains(page, "ACME (acme), without files:write") {
		t.Errorf("%d %s", response.StatusCode, page)
	}
	granted := w.exchange(redeeming(client, w.code(viewer, asking(client, "files:read", "files:write"))))
	if status, text := w.api("GET", "/v1/ws/acme/file-activity/feed", granted.access, ""); status != 200 {
		t.Errorf("%d %s", status, text)
	}
	rename := func(from, to, name string) {
		t.Helper()
		body := `{"slug":"` + to + `","name":"` + name + `","publicUrlBreakAcknowledged":true}`
		if status, text := w.api("PATCH", "/v1/workspaces/"+from, owner.key, body); status != 200 {
			t.Errorf("%d %s", status, text)
		}
	}
	grants := func(want string) {
		t.Helper()
		if status, text := w.api("GET", "/v1/user/oauth-grants", viewer.key, ""); status != 200 || !strings.Contains(text, want) {
			t.Errorf("%d %s, want %s", status, text, want)
		}
	}
	rename("acme", "apex", "A better name")
	grants(`"workspace":{"slug":"apex","name":"A better name"}`)
	w.ask(entity.KindWorkspace, id, &workspacev1.RemoveMember{UserId: viewer.id})
	w.ask(entity.KindUser, viewer.id, &userv1.DescribeUser{})
	rename("apex", "acre", "A secret name")
	grants(`"workspace":{"slug":"acme","name":"ACME"}`) // as it was when they allowed it
	w.join(id, owner, viewer)                           // a member that comes back has not consented anew
	w.advance(time.Second)
	if status, text := w.api("GET", "/v1/whoami", granted.access, ""); status != 401 {
		t.Errorf("removed: %d %s", status, text)
	}
	w.audited(owner, "acre", "oauth_grant.revoked", 1)
}

// join makes a person a viewer of a workspace.
func (w *world) join(workspaceID string, owner, who person) {
	w.Helper()
	invitation := w.newID("inv_")
	w.ask(entity.KindWorkspace, workspaceID, &workspacev1.Invite{
		InvitationId: invitation, Email: who.email, Role: workspacev1.Role_ROLE_VIEWER, SecretSha256: make([]byte, 32),
		Inviter: &workspacev1.Person{UserId: owner.id, Email: owner.email},
	})
	status, text := w.api("POST", "/v1/user/invitations/"+invitation+"/accept", who.key, "")
	if status != 200 {
		w.Fatalf("%d %s", status, text)
	}
}
