package oauth

import (
	"encoding/base64"
	"net/url"
	"strings"
	"testing"
)

// FuzzBegin parses any authorization request. Whatever it contains, a response leads to the registered redirect URI only, and
// names the issuer and the state exactly once.
func FuzzBegin(f *testing.F) {
	f.Add(good().Encode())
	f.Add(good().Encode() + "&resource=https://evil.example&resource=")
	f.Add("client_id=" + clientID + "&redirect_uri=" + url.QueryEscape(callback) + "&state=%00%ff&response_type=token")
	f.Add("redirect_uri=%zz;")
	f.Fuzz(func(t *testing.T, query string) {
		p, _ := provide()
		asked, err := p.Begin(t.Context(), "req_1", "https://atelier.example", query)
		if asked == nil {
			if err == nil {
				t.Error("neither a request nor an error")
			}
			return
		}
		to := asked.Refuse(Denied)
		parsed, failed := url.Parse(to)
		if failed != nil || !strings.HasPrefix(to, callback+"?") {
			t.Fatalf("led to %s", to)
		}
		form, _ := url.ParseQuery(query)
		answer := parsed.Query()
		if got := answer["iss"]; len(got) != 1 || got[0] != "https://atelier.example" || answer.Get("state") != form.Get("state") {
			t.Errorf("led to %s", to)
		}
		if err != nil {
			return
		}
		if scopes := asked.Scopes(); len(scopes) == 0 || !containsAll(p.Scopes, scopes) {
			t.Errorf("scopes %q", scopes)
		}
		if again, err := p.Begin(t.Context(), "req_1", "https://atelier.example", asked.Query); err != nil || again.Query != asked.Query {
			t.Errorf("%q is another request: %v", asked.Query, err)
		}
	})
}

// FuzzLoopbackRedirect tries any redirect URI against registered loopback ones: an accepted one leads to the same address, path
// and query over http.
func FuzzLoopbackRedirect(f *testing.F) {
	registered := []string{"http://127.0.0.1/callback", "http://[::1]:5000/callback?a=b"}
	for _, uri := range []string{
		"http://127.0.0.1:9999/callback", "http://[::1]:1/callback?a=b", "http://127.0.0.1:80@evil.example/callback", "http://[::1%25x]/callback?a=b",
		"http://127.0.0.1:9/callback#x", "http://127.0.0.1:/callback", "http://127.0.0.1:9/%63allback", "HTTP://127.0.0.1/callback",
	} {
		f.Add(uri)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		parsed, err := url.Parse(uri)
		if err != nil || !isRegistered(registered, uri, parsed) {
			return
		}
		host := parsed.Hostname()
		v4 := host == "127.0.0.1" && parsed.EscapedPath() == "/callback" && parsed.RawQuery == ""
		v6 := host == "::1" && parsed.EscapedPath() == "/callback" && parsed.RawQuery == "a=b"
		if parsed.Scheme != "http" || parsed.User != nil || parsed.Fragment != "" || !v4 && !v6 || strings.ContainsAny(uri, "#@\\ ") {
			t.Errorf("%q is accepted", uri)
		}
	})
}

// good returns an authorization request that is valid.
func good() url.Values {
	return url.Values{
		"client_id": {clientID}, "redirect_uri": {callback}, "response_type": {"code"}, "scope": {"files:read"}, "state": {"x"},
		"code_challenge_method": {"S256"}, "code_challenge": {base64.RawURLEncoding.EncodeToString(hashOf(verifier))},
	}
}
