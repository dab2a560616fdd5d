package oauth

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// TestErrorsHaveOneForm sends requests that the server refuses before OAuth sees them. Clients know only the form of OAuth's errors.
func TestErrorsHaveOneForm(t *testing.T) {
	w := newWorld(t)
	const form = "application/x-www-form-urlencoded"
	for _, test := range []struct {
		method, path, media, body string
		status                    int
		want                      string
	}{
		{"POST", "/oauth/token", form, "code=" + strings.Repeat("x", 20<<10), 413, "invalid_request"},
		{"POST", "/oauth/revoke", form, "token=" + strings.Repeat("x", 20<<10), 413, "invalid_request"},
		{"POST", "/oauth/register", "application/json", `{"client_name":"` + strings.Repeat("x", 40<<10) + `"}`, 413, "invalid_request"},
		{"POST", "/oauth/register", "text/plain", `{"redirect_uris":["` + callback + `"]}`, 415, "invalid_request"},
		{"POST", "/oauth/token", form, "code=%zz", 400, "invalid_request"},
		{"POST", "/oauth/revoke", form, "token=%zz;", 400, "invalid_request"},
		{"POST", "/oauth/token", "text/plain", "code=x", 400, "invalid_request"},
		{"GET", "/oauth/token", "", "", 405, "invalid_request"},
		{"DELETE", "/oauth/register", "", "", 405, "invalid_request"},
		{"PUT", "/.well-known/oauth-authorization-server", "", "", 405, "invalid_request"},
	} {
		response, text := w.send(test.method, test.path, test.body, "Content-Type", test.media)
		w.hasForm(test.method+" "+test.path, response, text, test.status, test.want)
	}
}

// TestLimitsHaveTheForm sends more requests than an address may send without a credential.
func TestLimitsHaveTheForm(t *testing.T) {
	w := newWorld(t, func(w *world) { w.limits.AddressRate, w.limits.AddressBurst = 1, 10 })
	for _, path := range []string{"/oauth/token", "/oauth/revoke", "/oauth/register"} {
		var response *http.Response
		var text string
		for range 11 {
			response, text = w.send("POST", path, "", "Content-Type", "application/x-www-form-urlencoded")
		}
		w.hasForm(path, response, text, 429, "temporarily_unavailable")
		if response.Header.Get("Retry-After") != "1" {
			t.Errorf("%s: retry after %q", path, response.Header.Get("Retry-After"))
		}
	}
}

// hasForm verifies that a response has a status, and an error of OAuth with a description, which pages of other origins can read.
func (w *world) hasForm(request string, response *http.Response, text string, status int, name string) {
	w.Helper()
	var answer struct {
		Error       string `json:"error"`
		Description string `json:"error_description"`
	}
	err := json.Unmarshal([]byte(text), &answer)
	if err != nil || response.StatusCode != status || answer.Error != name || strings.Trim(answer.Description, `"\`) == "" {
		w.Errorf("%s: %d %s, want %d %s with a description", request, response.StatusCode, text, status, name)
	}
	if response.Header.Get("Access-Control-Allow-Origin") != "*" {
		w.Errorf("%s: pages of other origins cannot read the error: %v", request, response.Header)
	}
}

// TestOmittedRedirect has requests without a redirect URI, which a client that has registered exactly one may omit (RFC 6749, section
// 3.1.2.3). The token request then omits it, too (section 4.1.3).
func TestOmittedRedirect(t *testing.T) {
	w := newWorld(t)
	alice := w.person("alice")
	w.workspace(alice, "acme")
	client := w.register(callback)
	omitted := func() string { return w.code(alice, without(asking(client, "files:read"), "redirect_uri")) }
	w.exchange(without(redeeming(client, omitted()), "redirect_uri"))
	w.refused(redeeming(client, omitted()), 400, "invalid_grant")
	w.refused(without(redeeming(client, w.code(alice, asking(client, "files:read"))), "redirect_uri"), 400, "invalid_grant")

	several := w.register(callback, callback+"2")
	if response, page := w.open(alice, without(asking(several, "files:read"), "redirect_uri")); response.StatusCode != 400 || !strings.Contains(page, "has registered several") {
		t.Errorf("several redirect URIs: %d %s", response.StatusCode, page)
	}
}
