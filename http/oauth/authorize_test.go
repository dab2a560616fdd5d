package oauth

import (
	"strings"
	"testing"
)

// TestRegisteredQueryIsRetained has redirect URIs with a query. A response leads to all of it, but for parameters that the client would
// take for the server's.
func TestRegisteredQueryIsRetained(t *testing.T) {
	for query, want := range map[string]string{
		"":                            "",
		"tenant=b&area=a":             "tenant=b&area=a&",
		"a=1;b=2&flag":                "a=1;b=2&flag&",
		"path=/x&text=%7e":            "path=/x&text=%7e&",
		"x=%zz":                       "x=%zz&",
		"code=evil&a=1&c%6fde=evil":   "a=1&",
		"a=1;code=evil&state=evil":    "",
		"iss=evil&error_uri=//evil&&": "",
	} {
		p, e := provide()
		uri := callback + "?" + query
		e.redirects = []string{uri}
		form := good()
		form.Set("redirect_uri", uri)
		asked, err := p.Begin(t.Context(), "req_1", "https://atelier.example", form.Encode())
		if err != nil {
			t.Fatalf("%s: %v", uri, err)
		}
		want = callback + "?" + want + "error=access_denied&error_description=The+person+did+not+allow+it.&iss=https%3A%2F%2Fatelier.example&state=x"
		if got := asked.Refuse(Denied); got != want {
			t.Errorf("%s leads to\n%s, want\n%s", uri, got, want)
		}
	}
}

// TestLongRequests has a request with a canonical form that is longer than the request. Every accepted request can be answered, with the
// query that the consent page sends.
func TestLongRequests(t *testing.T) {
	p, _ := provide()
	isRefused, isAccepted := false, false
	for n := 1000; n < MaxQuery; n += 100 {
		asked, err := p.Begin(t.Context(), "req_1", "https://atelier.example", good().Encode()+"&more="+strings.Repeat("/", n))
		if err != nil {
			wantError(t, err, "invalid_request")
			isRefused = true
			continue
		}
		isAccepted = true
		if _, err := p.Begin(t.Context(), "req_1", "https://atelier.example", asked.Query); err != nil {
			t.Fatalf("the answer to an accepted request of %d bytes is refused: %v", n, err)
		}
	}
	if !isAccepted || !isRefused {
		t.Errorf("accepted %v, refused %v", isAccepted, isRefused)
	}
}

// TestOfflineAccess has requests for a refresh token, which every client gets: the value neither adds a capability nor is refused.
func TestOfflineAccess(t *testing.T) {
	p, _ := provide()
	for scope, want := range map[string]string{
		"offline_access": DefaultScope, "offline_access files:write": "files:write", "files:read offline_access offline_access": "files:read",
	} {
		if scopes, err := p.scopesOf(scope); err != nil || strings.Join(scopes, " ") != want {
			t.Errorf("%q: %q, %v, want %q", scope, scopes, err, want)
		}
	}
	_, err := p.scopesOf("offline_access everything")
	wantError(t, err, "invalid_scope")

	first, err := p.post(redeeming())
	if err != nil {
		t.Fatal(err)
	}
	form := refreshing(first.RefreshToken)
	form.Set("scope", "files:read offline_access")
	if answer, err := p.post(form); err != nil || answer.Scope != "files:read" {
		t.Errorf("refreshed: %v, %v", answer, err)
	}
}
