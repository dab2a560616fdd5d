package oauth

import (
	"encoding/json"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// TestSignsInFirst follows the whole flow in a browser without a session: from the client's link to the sign-in page, the
// consent page, and back to the client.
func TestSignsInFirst(t *testing.T) {
	w := newWorld(t)
	alice := w.person("alice")
	w.workspace(alice, "acme")
	w.password(alice, "four words or so")
	client := w.register(callback)
	browser, _, page := w.signIn(alice.email, "four words or so", asking(client, "files:read"))
	action, form := w.form(page)
	response, _ := w.submit(browser, action, form)
	w.exchange(redeeming(client, w.led(response).Query().Get("code")))
}

// TestRefusedAfterSigningIn has requests with an error for the client, in a browser without a session. The client gets the error when
// the person has signed in.
func TestRefusedAfterSigningIn(t *testing.T) {
	w := newWorld(t)
	alice := w.person("alice")
	w.password(alice, "four words or so")
	client := w.register(callback)
	good := func() url.Values { return asking(client, "files:read") }
	for want, query := range map[string]url.Values{
		"invalid_scope":             with(good(), "scope", "files:read everything"),
		"invalid_request":           without(without(good(), "code_challenge"), "code_challenge_method"),
		"invalid_target":            with(good(), "resource", "https://elsewhere.example"),
		"unsupported_response_mode": with(good(), "response_mode", "fragment"),
		"unsupported_response_type": with(good(), "response_type", "token"),
	} {
		_, response, page := w.signIn(alice.email, "four words or so", query)
		to := w.led(response)
		if to == nil || to.Query().Get("error") != want || to.Query().Get("state") != state || !strings.HasPrefix(to.String(), callback+"?") {
			t.Errorf("%s: %d %v %s", want, response.StatusCode, to, page)
		}
	}
}

// signIn makes an authorization request in a browser without a session, signs in, and returns the browser and the response to the
// request. The form to sign in must not be redirected: browsers would apply the form-action of its page to the redirect to the client.
func (w *world) signIn(email, password string, query url.Values) (browser person, response *http.Response, page string) {
	w.Helper()
	response, _ = w.open(person{}, query)
	_, page = w.send("GET", w.led(response).RequestURI(), "")
	action, form := w.form(page)
	form.Set("email", email)
	form.Set("password", password)
	response, page = w.submit(person{}, action, form)
	to := w.led(response)
	session := slices.IndexFunc(response.Cookies(), func(c *http.Cookie) bool { return c.Name == "atelier" })
	if to == nil || session < 0 || response.StatusCode != 200 || !strings.Contains(page, html.EscapeString(to.String())) {
		w.Fatalf("%d to %v with %v: %s", response.StatusCode, to, response.Cookies(), page)
	}
	browser = person{cookie: "atelier=" + response.Cookies()[session].Value}
	response, page = w.send("GET", to.RequestURI(), "", "Cookie", browser.cookie)
	return browser, response, page
}

// password sets a person's password with a link from an operator.
func (w *world) password(p person, text string) {
	w.Helper()
	r := httptest.NewRequest("POST", "/admin/links", strings.NewReader(`{"email":"`+p.email+`"}`))
	r.Header.Set("Content-Type", "application/json")
	answer := httptest.NewRecorder()
	w.node.Load().Server.Admin().ServeHTTP(answer, r)
	var made struct{ PasswordLink string }
	if err := json.Unmarshal(answer.Body.Bytes(), &made); err != nil {
		w.Fatalf("%v: %s", err, answer.Body)
	}
	link, err := url.Parse(made.PasswordLink)
	if err != nil {
		w.Fatal(err)
	}
	form := url.Values{"token": {link.Query().Get("token")}, "password": {text}, "again": {text}}
	if response, page := w.submit(person{}, "/set-password", form); response.StatusCode != 303 {
		w.Fatalf("%d %s", response.StatusCode, page)
	}
}
