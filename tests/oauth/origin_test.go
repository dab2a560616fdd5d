package oauth

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
)

// TestOrigin has a client that knows the server by another of its names than the public one. The names of the resource and of the issuer
// must be the names that the client has asked with (RFC 8414, section 3.3; RFC 9728, section 3.3; RFC 9207).
func TestOrigin(t *testing.T) {
	w := newWorld(t)
	alice := w.person("alice")
	w.workspace(alice, "acme")
	public := w.url
	w.url = strings.Replace(public, "127.0.0.1", "localhost", 1)

	response, _ := w.send("POST", "/mcp", "{}", "Content-Type", "application/json")
	if got, want := response.Header.Get("WWW-Authenticate"), `resource_metadata="`+w.url+`/.well-known/oauth-protected-resource/mcp"`; !strings.Contains(got, want) {
		t.Errorf("the challenge is %s, want %s", got, want)
	}
	for path, want := range map[string]string{
		"/.well-known/oauth-protected-resource/mcp": `"resource":"` + w.url + `/mcp"`,
		"/.well-known/oauth-protected-resource":     `"authorization_servers":["` + w.url + `"]`,
		"/.well-known/oauth-authorization-server":   `"issuer":"` + w.url + `"`,
	} {
		if _, text := w.send("GET", path, ""); !strings.Contains(text, want) || strings.Contains(text, public) {
			t.Errorf("%s: %s, want %s and nowhere %s", path, text, want, public)
		}
	}
	client, resource := w.register(callback), w.url+"/mcp"
	to, page := w.answer(alice, with(asking(client, "files:read"), "resource", resource), func(url.Values) {})
	if to == nil || to.Query().Get("iss") != w.url {
		t.Fatalf("the response is %v %s, want the issuer %s", to, page, w.url)
	}
	granted := w.exchange(with(redeeming(client, to.Query().Get("code")), "resource", resource))
	for _, origin := range []string{w.url, public} { // one server has issued the token
		w.url = origin
		w.refused(with(refreshing(client, "atlrt_x"), "resource", resource), 400, "invalid_grant")
		const call = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`
		response, text := w.send("POST", "/mcp", call, "Authorization", "Bearer "+granted.access, "Content-Type", "application/json",
			"Accept", "application/json, text/event-stream")
		var answer struct{ Result map[string]any }
		if err := json.Unmarshal([]byte(text), &answer); err != nil || answer.Result["serverInfo"] == nil {
			t.Errorf("a call at %s: %d %s", origin, response.StatusCode, text)
		}
		if status, _ := w.api("GET", "/v1/whoami", granted.access, ""); status != 401 {
			t.Errorf("the token for the tools opens the API at %s: %d", origin, status)
		}
	}
}
