package oauth

import (
	"encoding/json"
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

	response, _ := w.open(person{}, asking(client, "files:read"))
	_, page := w.send("GET", w.led(response).RequestURI(), "")
	action, form := w.form(page)
	form.Set("email", alice.email)
	form.Set("password", "four words or so")
	response, page = w.submit(person{}, action, form)
	to := w.led(response)
	session := slices.IndexFunc(response.Cookies(), func(c *http.Cookie) bool { return c.Name == "atelier" })
	if to == nil || session < 0 {
		t.Fatalf("%d to %v with %v: %s", response.StatusCode, to, response.Cookies(), page)
	}
	browser := person{cookie: "atelier=" + response.Cookies()[session].Value}
	_, page = w.send("GET", to.RequestURI(), "", "Cookie", browser.cookie)
	action, form = w.form(page)
	response, _ = w.submit(browser, action, form)
	w.exchange(redeeming(client, w.led(response).Query().Get("code")))
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
