package oauth

import (
	"encoding/base64"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/atelier-run/atelier/entity"
	clientv1 "github.com/atelier-run/atelier/messages/client/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

// TestRefusedExchanges has a case for each error of the token endpoint. A refused request must not use up the code.
func TestRefusedExchanges(t *testing.T) {
	w := newWorld(t)
	alice := w.person("alice")
	w.workspace(alice, "acme")
	client, other := w.register(callback), w.register(callback)
	code := w.code(alice, asking(client, "files:read"))
	good := func() url.Values { return redeeming(client, code) }
	twice := good()
	twice.Add("code", code)
	for name, test := range map[string]struct {
		form   url.Values
		status int
		want   string
	}{
		"nothing":            {url.Values{}, 400, "invalid_request"},
		"no grant type":      {without(good(), "grant_type"), 400, "unsupported_grant_type"},
		"another grant type": {with(good(), "grant_type", "client_credentials"), 400, "unsupported_grant_type"},
		"no client":          {without(good(), "client_id"), 401, "invalid_client"},
		"unknown client":     {with(good(), "client_id", "oc_01j00000000000000000000zzz"), 401, "invalid_client"},
		"a secret":           {with(good(), "client_secret", "x"), 401, "invalid_client"},
		"another client":     {with(good(), "client_id", other), 400, "invalid_grant"},
		"no code":            {without(good(), "code"), 400, "invalid_grant"},
		"a code twice":       {twice, 400, "invalid_request"},
		"a guessed code":     {with(good(), "code", code[:len(code)-4]+"aaaa"), 400, "invalid_grant"},
		"no code at all":     {with(good(), "code", "atlac_zzz"), 400, "invalid_grant"},
		"an unknown grant":   {with(good(), "code", strings.Replace(code, "_01j", "_02j", 1)), 400, "invalid_grant"},
		"no redirect":        {without(good(), "redirect_uri"), 400, "invalid_grant"},
		"another redirect":   {with(good(), "redirect_uri", callback+"/"), 400, "invalid_grant"},
		"no verifier":        {without(good(), "code_verifier"), 400, "invalid_grant"},
		"another verifier":   {with(good(), "code_verifier", verifier+"x"), 400, "invalid_grant"},
		"a short verifier":   {with(good(), "code_verifier", "short"), 400, "invalid_grant"},
		"another resource":   {with(good(), "resource", "https://elsewhere.example"), 400, "invalid_target"},
		"the code refreshed": {refreshing(client, code), 400, "invalid_grant"},
	} {
		status, answer := w.post("/oauth/token", test.form)
		if status != test.status || answer["error"] != test.want {
			t.Errorf("%s: %d %v, want %d %s", name, status, answer, test.status, test.want)
		}
	}
	granted := w.exchange(good())
	w.refused(with(refreshing(client, granted.refresh), "scope", "files:read admin"), 400, "invalid_scope")
	w.refused(with(refreshing(client, granted.refresh), "client_id", other), 400, "invalid_grant")
	w.refused(with(refreshing(client, granted.refresh), "resource", "https://elsewhere.example"), 400, "invalid_target")
	w.refused(refreshing(client, granted.access), 400, "invalid_grant")
	granted = w.exchange(with(refreshing(client, granted.refresh), "scope", "files:read"))
	if !w.opens(granted.access) {
		t.Error("a refused exchange ended the family")
	}
	// Some libraries send the id of a public client with HTTP Basic and an empty secret.
	for _, secret := range []string{"x", ""} {
		for _, request := range []struct {
			target string
			form   url.Values
		}{{"/oauth/token", refreshing(client, granted.refresh)}, {"/oauth/revoke", url.Values{"token": {granted.access}}}} {
			basic := "Basic " + base64.StdEncoding.EncodeToString([]byte(client+":"+secret))
			response, text := w.send("POST", request.target, without(request.form, "client_id").Encode(),
				"Content-Type", "application/x-www-form-urlencoded", "Authorization", basic)
			if (response.StatusCode == 200) != (secret == "") || response.StatusCode != 200 && response.StatusCode != 401 {
				t.Errorf("%s with Basic and the secret %q: %d %s", request.target, secret, response.StatusCode, text)
			}
		}
	}
}

func TestCodeReplay(t *testing.T) {
	w := newWorld(t)
	alice := w.person("alice")
	w.workspace(alice, "acme")
	client := w.register(callback)
	code := w.code(alice, asking(client, "files:read"))
	first := w.exchange(redeeming(client, code))
	second := w.exchange(refreshing(client, first.refresh))
	if !w.opens(second.access) { // which is remembered for a second
		t.Fatal("no access")
	}
	w.refused(redeeming(client, code), 400, "invalid_grant")
	if w.opens(first.access) || w.opens(second.access) {
		t.Error("access tokens live on")
	}
	w.refused(refreshing(client, second.refresh), 400, "invalid_grant")
	w.audited(alice, "acme", "oauth_grant.revoked", 1)
}

func TestRefreshReplay(t *testing.T) {
	w := newWorld(t)
	alice := w.person("alice")
	w.workspace(alice, "acme")
	client := w.register(callback)
	first := w.exchange(redeeming(client, w.code(alice, asking(client, "files:read"))))
	untouched := w.exchange(redeeming(client, w.code(alice, asking(client, "files:read"))))
	second := w.exchange(refreshing(client, first.refresh))
	third := w.exchange(refreshing(client, second.refresh))
	if !w.opens(third.access) {
		t.Fatal("no access")
	}
	w.refused(refreshing(client, first.refresh), 400, "invalid_grant")
	if w.opens(first.access) || w.opens(second.access) || w.opens(third.access) {
		t.Error("access tokens live on")
	}
	w.refused(refreshing(client, third.refresh), 400, "invalid_grant")
	if !w.opens(untouched.access) {
		t.Error("another family ended with it")
	}
	w.audited(alice, "acme", "oauth_grant.revoked", 1)
}

// TestRaces exchanges one code concurrently. At most one request gets tokens, and they are revoked because the code was
// used twice.
func TestRaces(t *testing.T) {
	w := newWorld(t)
	alice := w.person("alice")
	w.workspace(alice, "acme")
	client := w.register(callback)
	code := w.code(alice, asking(client, "files:read"))
	var group sync.WaitGroup
	answers := make([]map[string]any, 8)
	for i := range answers {
		group.Go(func() { _, answers[i] = w.post("/oauth/token", redeeming(client, code)) })
	}
	group.Wait()
	won := 0
	for _, answer := range answers {
		access, ok := answer["access_token"].(string)
		if !ok {
			if answer["error"] != "invalid_grant" {
				t.Errorf("%v", answer)
			}
			continue
		}
		if won++; w.opens(access) {
			t.Error("the tokens of a replayed code open")
		}
	}
	if won != 1 {
		t.Errorf("%d exchanges of one code", won)
	}
}

func TestRevocation(t *testing.T) {
	w := newWorld(t)
	alice := w.person("alice")
	w.workspace(alice, "acme")
	client, other := w.register(callback), w.register(callback)
	revoke := func(clientID, token string, more ...string) {
		t.Helper()
		form := url.Values{"client_id": {clientID}, "token": {token}}
		if len(more) > 0 {
			form.Set("token_type_hint", more[0])
		}
		if status, answer := w.post("/oauth/revoke", form); status != 200 {
			t.Errorf("%d %v", status, answer)
		}
	}
	for _, kind := range []string{"access_token", "refresh_token", "nonsense"} {
		granted := w.exchange(redeeming(client, w.code(alice, asking(client, "files:read"))))
		revoke(other, granted.refresh)
		revoke(client, "atlrt_nonsense")
		revoke(client, granted.refresh[:len(granted.refresh)-4]+"aaaa")
		if !w.opens(granted.access) {
			t.Fatal("revoked without right")
		}
		token := granted.refresh
		if kind == "access_token" {
			token = granted.access
		}
		revoke(client, token, kind)
		revoke(client, token)
		if w.opens(granted.access) {
			t.Errorf("%s: the access token lives on", kind)
		}
		w.refused(refreshing(client, granted.refresh), 400, "invalid_grant")
	}
	if status, answer := w.post("/oauth/revoke", url.Values{"client_id": {client}}); status != 400 || answer["error"] != "invalid_request" {
		t.Errorf("%d %v", status, answer)
	}
	if status, answer := w.post("/oauth/revoke", url.Values{"token": {"x"}}); status != 401 || answer["error"] != "invalid_client" {
		t.Errorf("%d %v", status, answer)
	}
	w.audited(alice, "acme", "oauth_grant.revoked", 3)
}

// TestRevocationOfUnusableTokens has a client revoke a grant with a token that opens nothing any more, and while the person
// is disabled.
func TestRevocationOfUnusableTokens(t *testing.T) {
	w := newWorld(t)
	alice := w.person("alice")
	w.workspace(alice, "acme")
	client := w.register(callback)
	for name, use := range map[string]func(first tokens) (revoked, live tokens){
		"a used refresh token": func(first tokens) (tokens, tokens) { return first, w.exchange(refreshing(client, first.refresh)) },
		"a disabled person": func(first tokens) (tokens, tokens) {
			w.ask(entity.KindUser, alice.id, &userv1.Disable{})
			return first, first
		},
	} {
		revoked, live := use(w.exchange(redeeming(client, w.code(alice, asking(client, "files:read")))))
		if status, answer := w.post("/oauth/revoke", url.Values{"client_id": {client}, "token": {revoked.refresh}}); status != 200 {
			t.Errorf("%s: %d %v", name, status, answer)
		}
		w.ask(entity.KindUser, alice.id, &userv1.Enable{})
		w.advance(time.Second)
		if w.opens(live.access) {
			t.Errorf("%s: the access token lives on", name)
		}
		w.refused(refreshing(client, live.refresh), 400, "invalid_grant")
	}
}

// TestPersonRevokes revokes a grant as the person who made it.
func TestPersonRevokes(t *testing.T) {
	w := newWorld(t)
	alice := w.person("alice")
	w.workspace(alice, "acme")
	client := w.register(callback)
	granted := w.exchange(redeeming(client, w.code(alice, asking(client, "files:read"))))
	id := "ogr_" + strings.Split(granted.access, "_")[1]
	if status, text := w.api("DELETE", "/v1/user/oauth-grants/"+id, alice.key, ""); status != 200 {
		t.Fatalf("%d %s", status, text)
	}
	if w.opens(granted.access) {
		t.Error("the access token lives on")
	}
	w.refused(refreshing(client, granted.refresh), 400, "invalid_grant")
	w.audited(alice, "acme", "oauth_grant.revoked", 1)
}

func TestRegistration(t *testing.T) {
	w := newWorld(t)
	register := func(body string) (int, string) {
		t.Helper()
		w.advance(1e9 * 60) // one is let in each minute
		response, text := w.send("POST", "/oauth/register", body, "Content-Type", "application/json")
		return response.StatusCode, text
	}
	const redirect = `"redirect_uris":["https://client.example/callback"]`
	status, text := register(`{"client_name":"Tester",` + redirect + `,"token_endpoint_auth_method":"none","grant_types":["authorization_code","x"],
		"logo_uri":"javascript:alert(1)","client_uri":"https://client.example","jwks":{"keys":[]},"anything":7}`)
	if status != 201 || !strings.Contains(text, `"client_name":"Tester"`) || strings.Contains(text, "secret") || strings.Contains(text, "logo") {
		t.Errorf("%d %s", status, text)
	}
	// All metadata but redirect_uris is optional. Unsupported metadata is ignored or replaced in the response (RFC 7591, sections 2 and
	// 3.2.1).
	const page = `,"client_uri":"http://client.example/about"`
	for more, want := range map[string]string{
		``:                    ``,
		`,"client_name":""`:   ``,
		`,"client_name":" "`:  ``,
		`,"client_name":null`: ``,
		`,"client_name#en":"Tester","client_name#he":"` + "\u05d1" + `"`: ``,
		page:                                  page,
		`,"client_uri":""`:                    ``,
		`,"client_uri":"x"`:                   ``,
		`,"client_uri":"javascript:alert(1)"`: ``,
		`,"token_endpoint_auth_method":"client_secret_post"`:                                                                                         ``,
		`,"token_endpoint_auth_method":"client_secret_basic"`:                                                                                        ``,
		`,"token_endpoint_auth_method":"private_key_jwt","jwks_uri":"http://x","software_statement":"x.y.z"`:                                         ``,
		`,"grant_types":["client_credentials"],"response_types":["token"]`:                                                                           ``,
		`,"grant_types":[],"response_types":[]`:                                                                                                      ``,
		`,"logo_uri":"http://x/l.png","policy_uri":"/p","tos_uri":"","contacts":["a"],"software_id":"s","software_version":"1","scope":"everything"`: ``,
	} {
		status, text := register(`{` + redirect + more + `}`)
		_, shown, _ := strings.Cut(text, `,"client_id_issued_at":`)
		_, shown, _ = strings.Cut(shown, `,`)
		want = strings.TrimPrefix(want+`,`, `,`) + redirect +
			`,"token_endpoint_auth_method":"none","grant_types":["authorization_code","refresh_token"],"response_types":["code"]}`
		if status != 201 || strings.TrimSpace(shown) != want {
			t.Errorf("%s: %d %s, want %s", more, status, text, want)
		}
	}
	for body, want := range map[string]string{
		`{"client_name":"T"}`:                                               "invalid_redirect_uri",
		`{"client_name":"T","redirect_uris":[]}`:                            "invalid_redirect_uri",
		`{"client_name":"T","redirect_uris":["http://client.example/"]}`:    "invalid_redirect_uri",
		`{"client_name":"T","redirect_uris":["https://c.example/#x"]}`:      "invalid_redirect_uri",
		`{"client_name":"T","redirect_uris":["https://c.example;sandbox"]}`: "invalid_redirect_uri",
		`{"client_name":"T","redirect_uris":["javascript:alert(1)"]}`:       "invalid_redirect_uri",
		`{"client_name":"T","redirect_uris":["/callback"]}`:                 "invalid_redirect_uri",
		`{"client_name":7,` + redirect + `}`:                                "invalid_client_metadata",
		`{"client_name":"T\u202e",` + redirect + `}`:                        "invalid_client_metadata",
		`[]`: "invalid_client_metadata",
		`{`:  "invalid_client_metadata",
		`{"client_name":"` + strings.Repeat("n", 101) + `",` + redirect + `}`:                          "invalid_client_metadata",
		`{"client_name":"T","redirect_uris":["` + strings.Repeat(`https://a/","`, 11) + `https://a"]}`: "invalid_redirect_uri",
	} {
		if status, text := register(body); status != 400 || !strings.Contains(text, `"error":"`+want+`"`) {
			t.Errorf("%.90s: %d %s, want %s", body, status, text, want)
		}
	}
	if status, text := register(`{"client_name":"` + strings.Repeat("n", 33<<10) + `"}`); status != 413 {
		t.Errorf("%d %s", status, text)
	}
	if response, text := w.send("POST", "/oauth/register", "{}", "Content-Type", "text/plain"); response.StatusCode != 415 {
		t.Errorf("%d %s", response.StatusCode, text)
	}
}

// TestInsufficientScope has requests beyond the scope of a token, and refusals that a wider scope would not change.
func TestInsufficientScope(t *testing.T) {
	w := newWorld(t)
	owner, editor := w.person("owner"), w.person("editor")
	w.join(w.workspace(owner, "acme"), owner, editor)
	become := func(role string) {
		t.Helper()
		if status, text := w.api("PATCH", "/v1/ws/acme/members/"+editor.id, owner.key, `{"role":"`+role+`"}`); status != 200 {
			t.Fatalf("%d %s", status, text)
		}
	}
	client := w.register(callback)
	allow := func(p person, scopes ...string) string {
		t.Helper()
		return w.exchange(redeeming(client, w.code(p, asking(client, scopes...)))).access
	}
	become("editor")
	owners, editors := allow(owner, "files:read"), allow(editor, "files:read", "files:write")
	become("viewer")
	w.advance(time.Second)
	for name, test := range map[string]struct{ method, target, key, want string }{
		"administration":   {"GET", "/v1/ws/acme/admin/suspension", owners, "files:read admin"},
		"a change":         {"PUT", "/v1/ws/acme/drive/a.txt", owners, "files:read files:write"},
		"one of two":       {"GET", "/v1/ws/acme/agents", owners, "files:read sessions"},
		"a person's own":   {"GET", "/v1/user/api-keys", owners, ""},
		"a role that lost": {"PUT", "/v1/ws/acme/drive/a.txt", editors, ""},
		"an API key":       {"GET", "/v1/ws/acme/admin/suspension", editor.key, ""},
	} {
		want := `Bearer error="insufficient_scope", scope="` + test.want + `", resource_metadata="` + w.url + `/.well-known/oauth-protected-resource"`
		if test.want == "" {
			want = ""
		}
		response, text := w.send(test.method, test.target, "{}", "Authorization", "Bearer "+test.key)
		if got := response.Header.Get("WWW-Authenticate"); response.StatusCode != 403 || got != want {
			t.Errorf("%s: %d %s %s, want %s", name, response.StatusCode, got, text, want)
		}
	}
}

// TestNamelessClient has a client that registered no name. People see it by the host of its redirect URI.
func TestNamelessClient(t *testing.T) {
	w := newWorld(t)
	alice := w.person("alice")
	w.workspace(alice, "acme")
	long := "https://" + strings.Repeat("a.", 120) + "example/callback" // a host may be longer than a name
	for uri, host := range map[string]string{callback: "client.example", "com.example.app:/callback": "com.example.app:", long: "a.a.example"} {
		client := w.registered(`{"redirect_uris":["` + uri + `"]}`)
		query := with(asking(client, "files:read"), "redirect_uri", uri)
		if _, page := w.open(alice, query); !strings.Contains(page, "Allow ") || !strings.Contains(page, host+"?</h1>") {
			t.Errorf("%s: the consent page: %s", host, page)
		}
		w.exchange(with(redeeming(client, w.code(alice, query)), "redirect_uri", uri))
		if status, text := w.api("GET", "/v1/user/oauth-grants", alice.key, ""); status != 200 || !strings.Contains(text, host+`","redirectHost"`) {
			t.Errorf("%s: grants: %d %s", host, status, text)
		}
		if _, page := w.send("GET", "/account", "", "Cookie", alice.cookie); !strings.Contains(page, host+" in ACME (acme)") {
			t.Errorf("%s: the account page: %s", host, page)
		}
	}
}

// TestRegistrationIsLimited verifies the rate limit of registrations, the only requests without a credential that store data.
func TestRegistrationIsLimited(t *testing.T) {
	w := newWorld(t)
	var last string
	for range 10 {
		last = w.register(callback)
	}
	response, text := w.send("POST", "/oauth/register", `{"client_name":"T","redirect_uris":["https://a.example"]}`, "Content-Type", "application/json")
	w.hasForm("an eleventh registration", response, text, 429, "temporarily_unavailable")
	if response.Header.Get("Retry-After") != "60" {
		t.Errorf("retry after %q", response.Header.Get("Retry-After"))
	}
	w.advance(1e9 * 60)
	w.register(callback)
	if found := w.ask(entity.KindClient, last, &clientv1.DescribeClient{}).(*clientv1.Client); found.GetName() != "Tester" {
		t.Errorf("%v", found)
	}
}

func TestMetadata(t *testing.T) {
	w := newWorld(t)
	for path, want := range map[string][]string{
		"/.well-known/oauth-authorization-server": {
			`"issuer":"` + w.url + `"`, `"scopes_supported":["admin","agents","apps","files:read","files:write","members","publish","services","sessions","share"]`,
			`"code_challenge_methods_supported":["S256"]`, `"token_endpoint":"` + w.url + `/oauth/token"`,
			`"authorization_response_iss_parameter_supported":true`, `"token_endpoint_auth_methods_supported":["none"]`,
		},
		"/.well-known/oauth-protected-resource": {
			`"resource":"` + w.url + `"`, `"authorization_servers":["` + w.url + `"]`, `"bearer_methods_supported":["header"]`, `"files:read"`,
		},
	} {
		response, text := w.send("GET", path, "", "Origin", "https://page.example")
		for _, one := range want {
			if !strings.Contains(text, one) {
				t.Errorf("%s lacks %s: %s", path, one, text)
			}
		}
		if response.Header.Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("%s: %v", path, response.Header)
		}
	}
	for _, path := range []string{"/oauth/token", "/oauth/register", "/oauth/revoke"} {
		response, _ := w.send("OPTIONS", path, "", "Origin", "https://page.example", "Access-Control-Request-Method", "POST")
		if response.StatusCode != 204 || response.Header.Get("Access-Control-Allow-Origin") != "*" || response.Header.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("%s: %d %v", path, response.StatusCode, response.Header)
		}
	}
}
