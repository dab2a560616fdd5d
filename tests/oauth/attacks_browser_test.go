package oauth

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

// The tests named TestAttack… attack the server as RFC 9700 describes. The number in each comment is the section. The attacks in
// this file go through the browser; attacks_tokens_test.go has the attacks on the token endpoint and on the API.

// stage returns the preconditions of an attack: a person who owns the workspace acme, and a registered client.
func stage(t *testing.T) (w *world, alice person, client string) {
	w = newWorld(t)
	alice = w.person("alice")
	w.workspace(alice, "acme")
	return w, alice, w.register(callback)
}

// wantPage fails the test if a response leads anywhere: it must be a page for the person.
func (w *world) wantPage(name string, response *http.Response) {
	w.Helper()
	if response.StatusCode != 400 || response.Header.Get("Location") != "" {
		w.Errorf("%s: %d to %q", name, response.StatusCode, response.Header.Get("Location"))
	}
}

// wantRefusal fails the test if an authorization request is not refused with an error that is sent to the client.
func (w *world) wantRefusal(name string, p person, query url.Values, want string) {
	w.Helper()
	response, page := w.open(p, query)
	to := w.led(response)
	if to == nil || to.Query().Get("error") != want || to.Query().Has("code") || !strings.HasPrefix(to.String(), callback+"?") {
		w.Errorf("%s: %d %v %s, want %s", name, response.StatusCode, to, page, want)
	}
}

// 4.1: a redirect URI that resembles the registered one would send the code to the attacker.
func TestAttackRedirectURIManipulation(t *testing.T) {
	w, alice, client := stage(t)
	for _, uri := range []string{
		"https://evil.example/callback", "https://client.example.evil.example/callback", "https://evil.client.example/callback",
		"https://client.example@evil.example/callback", "https://client.example:444/callback", "http://client.example/callback",
		"https://client.example/callback/../evil", "https://client.example/callback%2f..%2fevil", "https://client.example/Callback",
		"https://client.example/callback?to=https://evil.example", "https://client.example/callback#x", "https://client.example/callback/",
		"https://CLIENT.example/callback", "https://client.example./callback", "//client.example/callback", "/callback", " " + callback,
		callback + " ", callback + "\n", "https://client.example\\.evil.example/callback", "HTTPS://client.example/callback",
	} {
		response, _ := w.open(alice, with(asking(client, "files:read"), "redirect_uri", uri))
		w.wantPage(uri, response)
	}
	for _, uri := range []string{"https://*.client.example/callback", "https://client.example/#x", "//client.example/callback"} {
		response, text := w.send("POST", "/oauth/register", `{"client_name":"T","redirect_uris":["`+uri+`"]}`, "Content-Type", "application/json")
		if response.StatusCode != 400 {
			t.Errorf("%s was registered: %s", uri, text)
		}
	}
	native := w.register("http://127.0.0.1/callback")
	for _, uri := range []string{
		"http://127.0.0.1.evil.example/callback", "http://127.0.0.1@evil.example/callback", "http://127.0.0.1:80@evil.example/callback",
		"http://127.0.0.1:9/callback#x", "http://127.0.0.1:9/callback?x", "http://localhost:9/callback", "http://[::1]:9/callback",
	} {
		response, _ := w.open(alice, with(asking(native, "files:read"), "redirect_uri", uri))
		w.wantPage(uri, response)
	}
}

// 4.2: the address of a page or redirect would tell other sites the code or the state in Referer.
func TestAttackCodeLeakByReferer(t *testing.T) {
	w, alice, client := stage(t)
	shown, page := w.open(alice, asking(client, "files:read"))
	action, form := w.form(page)
	answered, _ := w.submit(alice, action, form)
	signIn, signInPage := w.send("GET", "/sign-in", "")
	for name, response := range map[string]*http.Response{"consent": shown, "redirect": answered, "sign-in": signIn} {
		if policy := response.Header.Get("Referrer-Policy"); policy != "same-origin" && policy != "no-referrer" {
			t.Errorf("%s: Referrer-Policy %q", name, policy)
		}
	}
	elsewhere := regexp.MustCompile(`(?i)(src|href|url)\s*[=(]\s*["']?(https?:)?//`)
	for _, text := range []string{page, signInPage} {
		if found := elsewhere.FindString(text); found != "" {
			t.Errorf("a page loads from elsewhere: %s", found)
		}
	}
}

// 4.3: tokens in addresses stay in the browser's history and in logs.
func TestAttackTokenLeakByBrowserHistory(t *testing.T) {
	w, alice, client := stage(t)
	response, _ := w.open(alice, asking(client, "files:read"))
	to, _ := w.answer(alice, asking(client, "files:read"), nil)
	granted := w.exchange(redeeming(client, to.Query().Get("code")))
	if response.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("the browser may keep the page: %v", response.Header)
	}
	for _, name := range []string{"access_token", "refresh_token", "token"} {
		if to.Query().Has(name) || to.Fragment != "" {
			t.Errorf("a token is in the address %s", to)
		}
		if status, text := w.api("GET", "/v1/whoami?"+name+"="+granted.access, "", ""); status == 200 {
			t.Errorf("a token in the address is accepted: %s", text)
		}
	}
}

// 4.4: a client that uses several servers would send the code of one to another. Each response names its issuer.
func TestAttackMixUp(t *testing.T) {
	w, alice, _ := stage(t)
	spoofed := callback + "?iss=https://evil.example&code=atlac_evil&error=none"
	client := w.register(spoofed)
	good := func() url.Values { return with(asking(client, "files:read"), "redirect_uri", spoofed) }
	_, metadata := w.send("GET", "/.well-known/oauth-authorization-server", "")
	if !strings.Contains(metadata, `"issuer":"`+w.url+`"`) || !strings.Contains(metadata, `"authorization_response_iss_parameter_supported":true`) {
		t.Errorf("metadata: %s", metadata)
	}
	allowed, _ := w.answer(alice, good(), nil)
	denied, _ := w.answer(alice, good(), func(form url.Values) { form.Set("decision", "deny") })
	response, _ := w.open(alice, with(good(), "response_type", "token"))
	for name, to := range map[string]*url.URL{"allowed": allowed, "denied": denied, "refused": w.led(response)} {
		query := to.Query()
		if issuers := query["iss"]; len(issuers) != 1 || issuers[0] != w.url {
			t.Errorf("%s: issuers %q", name, issuers)
		}
		if query.Has("code") == query.Has("error") || query.Get("code") == "atlac_evil" || query.Get("error") == "none" {
			t.Errorf("%s: %s", name, to)
		}
	}
}

// 4.6: an access token in the authorization response could be injected into another client.
func TestAttackAccessTokenInjection(t *testing.T) {
	w, alice, client := stage(t)
	for _, kind := range []string{"token", "id_token", "code token", "code id_token", "id_token token", "code id_token token", "none"} {
		w.wantRefusal(kind, alice, with(asking(client, "files:read"), "response_type", kind), "unsupported_response_type")
	}
	w.wantRefusal("fragment", alice, with(asking(client, "files:read"), "response_mode", "fragment"), "unsupported_response_mode")
}

// 4.7: another site has the person's browser send the consent.
func TestAttackCrossSiteRequestForgery(t *testing.T) {
	w, alice, client := stage(t)
	mallory := w.person("mallory")
	_, page := w.open(alice, asking(client, "files:read"))
	action, form := w.form(page)
	send := func(p person, edit func(url.Values), headers ...string) *http.Response {
		copied, _ := url.ParseQuery(form.Encode())
		edit(copied)
		headers = append(headers, "Cookie", p.cookie, "Content-Type", "application/x-www-form-urlencoded")
		response, _ := w.send("POST", action, copied.Encode(), headers...)
		return response
	}
	same := []string{"Origin", w.url, "Sec-Fetch-Site", "same-origin"}
	keep := func(url.Values) {}
	for name, response := range map[string]*http.Response{
		"another site":             send(alice, keep, "Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"),
		"an older browser":         send(alice, keep, "Origin", "https://evil.example"),
		"a sandboxed page":         send(alice, keep, "Origin", "null", "Sec-Fetch-Site", "cross-site"),
		"no ticket":                send(alice, func(f url.Values) { f.Del("ticket") }, same...),
		"a ticket of someone else": send(mallory, keep, same...),
	} {
		if to := w.led(response); to != nil {
			t.Errorf("%s: led to %s", name, to)
		}
	}
	w.audited(alice, "acme", "oauth_grant.created", 0)
	for _, state := range []string{"x", "a b&c=d#e", "ÿ\x00"} { // which binds the answer to the client's session, and must not change
		to, _ := w.answer(alice, with(asking(client, "files:read"), "state", state), nil)
		if got := to.Query()["state"]; len(got) != 1 || got[0] != state {
			t.Errorf("state %q became %q", state, got)
		}
	}
	if to, _ := w.answer(alice, without(asking(client, "files:read"), "state"), nil); to.Query().Has("state") {
		t.Errorf("a state that was not sent: %s", to)
	}
}

// 4.11: the server's good name lends itself to a link that leads to the attacker's site.
func TestAttackOpenRedirector(t *testing.T) {
	w, alice, client := stage(t)
	evil := w.register("https://evil.example/")
	for name, query := range map[string]url.Values{
		"a good request": with(asking(evil, "files:read"), "redirect_uri", "https://evil.example/"),
		"a bad scope":    with(asking(evil, "everything"), "redirect_uri", "https://evil.example/"),
		"prompt=none":    with(with(asking(evil, "files:read"), "redirect_uri", "https://evil.example/"), "prompt", "none"),
	} {
		response, _ := w.open(person{}, query)
		if to := w.led(response); to == nil || to.Host != "" || to.Path != "/sign-in" {
			t.Errorf("%s: nobody is signed in, and led to %v", name, to)
		}
	}
	response, page := w.open(alice, with(with(asking(evil, "files:read"), "redirect_uri", "https://evil.example/"), "prompt", "none"))
	if response.StatusCode != 200 || !strings.Contains(page, "evil.example") {
		t.Errorf("prompt=none: %d %v", response.StatusCode, w.led(response))
	}
	for name, query := range map[string]url.Values{
		"an unregistered redirect":            with(asking(client, "files:read"), "redirect_uri", "https://evil.example/"),
		"an unregistered redirect, bad scope": with(asking(client, "everything"), "redirect_uri", "https://evil.example/"),
		"an unknown client":                   with(asking("oc_01j00000000000000000000zzz", "x"), "redirect_uri", "https://evil.example/"),
	} {
		response, _ := w.open(alice, query)
		w.wantPage(name, response)
	}
	w.password(alice, "four words or so")
	for _, next := range []string{"https://evil.example/", "//evil.example/", `/\evil.example/`, "javascript:alert(1)"} {
		form := url.Values{"email": {alice.email}, "password": {"four words or so"}, "next": {next}}
		response, _ := w.submit(person{}, "/sign-in", form)
		if to := w.led(response); to == nil || to.String() != "/account" {
			t.Errorf("signing in leads to %v", to)
		}
	}
}

// 4.12: a browser that follows 307 or 308 sends the form, and with it the password, to the client.
func TestAttackRedirect307(t *testing.T) {
	w, alice, client := stage(t)
	w.password(alice, "four words or so")
	alice.cookie = w.session(alice.id) // a new password has ended the other
	_, page := w.open(alice, asking(client, "files:read"))
	action, form := w.form(page)
	refused, _ := url.ParseQuery(form.Encode())
	refused.Set("decision", "deny")
	allowed, _ := w.submit(alice, action, form)
	denied, _ := w.submit(alice, action, refused)
	signIn, _ := w.submit(person{}, action, form)
	invalid, _ := w.open(alice, asking(client, "everything"))
	for name, response := range map[string]*http.Response{
		"allowed": allowed, "denied": denied, "nobody is signed in": signIn, "invalid": invalid,
	} {
		if response.StatusCode != 303 || response.Header.Get("Location") == "" {
			t.Errorf("%s: %d to %q", name, response.StatusCode, response.Header.Get("Location"))
		}
	}
	signedIn, page := w.submit(person{}, "/sign-in", url.Values{
		"email": {alice.email}, "password": {"four words or so"}, "next": {"/oauth/authorize?" + asking(client, "files:read").Encode()},
	})
	if to := w.led(signedIn); signedIn.StatusCode != 200 || to == nil || to.Path != "/oauth/authorize" {
		t.Errorf("signed in: %d to %v: %s", signedIn.StatusCode, to, page)
	}
}

// 4.13: a request claims to have come through a proxy that terminates TLS, or through one that authenticates people.
func TestAttackReverseProxyHeaders(t *testing.T) {
	w, alice, client := stage(t)
	claims := http.Header{
		"X-Forwarded-Host": {"evil.example"}, "X-Forwarded-Proto": {"https"}, "X-Forwarded-Port": {"444"}, "X-Forwarded-Prefix": {"/evil"},
		"Forwarded": {"host=evil.example;proto=https"}, "X-Original-Url": {"https://evil.example/"}, "X-Rewrite-Url": {"/evil"},
		"X-Forwarded-User": {alice.email}, "X-Remote-User": {alice.email}, "Remote-User": {alice.email}, "X-Client-Cert": {"alice"},
	}
	send := func(target, cookie string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", w.url+target, nil)
		r.Header = claims.Clone()
		r.Header.Set("Cookie", cookie)
		answer := httptest.NewRecorder()
		w.node.Load().Server.ServeHTTP(answer, r)
		return answer
	}
	for _, target := range []string{
		"/.well-known/oauth-authorization-server", "/.well-known/oauth-protected-resource", "/v1/whoami", "/sign-in",
		"/oauth/authorize?" + asking(client, "files:read").Encode(), "/oauth/authorize?" + asking(client, "everything").Encode(),
	} {
		for _, cookie := range []string{alice.cookie, ""} {
			answer := send(target, cookie)
			text := answer.Body.String() + answer.Header().Get("Location") + strings.Join(answer.Header().Values("Www-Authenticate"), "")
			if strings.Contains(text, "evil") || target == "/v1/whoami" && cookie == "" && answer.Code != 401 {
				t.Errorf("%s believes the headers: %d %s", target, answer.Code, text)
			}
		}
	}
	if to, err := url.Parse(send("/oauth/authorize?"+asking(client, "everything").Encode(), alice.cookie).Header().Get("Location")); err != nil || to.Query().Get("iss") != w.url {
		t.Errorf("the issuer became %v", to)
	}
	r := httptest.NewRequest("GET", "http://evil.example/.well-known/oauth-authorization-server", nil)
	answer := httptest.NewRecorder()
	if w.node.Load().Server.ServeHTTP(answer, r); answer.Code != 421 || strings.Contains(answer.Body.String(), "evil") {
		t.Errorf("an unknown host: %d %s", answer.Code, answer.Body)
	}
	for i := range 12 { // the limit of an address holds for the peer, whatever it claims
		r := httptest.NewRequest("POST", "/oauth/register", strings.NewReader(`{"client_name":"T","redirect_uris":["https://a.example"]}`))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-Forwarded-For", "203.0.113."+string(rune('0'+i)))
		answer := httptest.NewRecorder()
		w.node.Load().Server.ServeHTTP(answer, r)
		if i == 11 && answer.Code != 429 {
			t.Errorf("registration %d: %d", i, answer.Code)
		}
	}
}

// 4.16: another site shows the consent page in a frame and has the person click on it.
func TestAttackClickjacking(t *testing.T) {
	w, alice, client := stage(t)
	consent, _ := w.open(alice, asking(client, "files:read"))
	signIn, _ := w.send("GET", "/sign-in", "")
	account, _ := w.send("GET", "/account", "", "Cookie", alice.cookie)
	problem, _ := w.open(alice, asking("nobody"))
	for name, response := range map[string]*http.Response{"consent": consent, "sign-in": signIn, "account": account, "problem": problem} {
		if policy := response.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "frame-ancestors 'none'") {
			t.Errorf("%s: %s", name, policy)
		}
		if response.Header.Get("X-Frame-Options") != "DENY" {
			t.Errorf("%s: %v", name, response.Header)
		}
	}
}

// 4.17: a response that a page posts to its opener would reach whichever site opened it.
func TestAttackInBrowserCommunication(t *testing.T) {
	w, alice, client := stage(t)
	for _, mode := range []string{"web_message", "form_post", "query.jwt", "fragment"} {
		w.wantRefusal(mode, alice, with(asking(client, "files:read"), "response_mode", mode), "unsupported_response_mode")
	}
	response, page := w.open(alice, asking(client, "files:read"))
	policy := response.Header.Get("Content-Security-Policy")
	if !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "script-src") || strings.Contains(page, "<script") {
		t.Errorf("the page may run scripts: %s", policy)
	}
	if response.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("pages of other origins may read the consent page: %v", response.Header)
	}
}
