package oauth

import "testing"

// The tools for agents are a resource of their own: a token for them is valid for nothing else, and one for the whole server is
// valid for them too (RFC 8707).
func TestTokensForTools(t *testing.T) {
	w, alice, client := stage(t)
	tools := w.url + "/mcp"
	reaches := func(token string) bool {
		response, text := w.send("POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, "Authorization", "Bearer "+token,
			"Content-Type", "application/json", "Accept", "application/json, text/event-stream")
		if response.StatusCode != 200 && response.StatusCode != 401 {
			t.Fatalf("%d %s", response.StatusCode, text)
		}
		return response.StatusCode == 200
	}
	narrow := with(asking(client, "files:read"), "resource", tools)
	code := w.code(alice, narrow)
	w.refused(with(redeeming(client, code), "resource", w.url), 400, "invalid_target")
	first := w.exchange(with(redeeming(client, code), "resource", tools))
	w.refused(with(refreshing(client, first.refresh), "resource", w.url), 400, "invalid_target")
	for _, granted := range []tokens{first, w.exchange(with(refreshing(client, first.refresh), "resource", tools))} {
		if w.opens(granted.access) || !reaches(granted.access) {
			t.Error("a token for the tools opens the API, or not the tools")
		}
	}
	whole := w.exchange(with(redeeming(client, w.code(alice, asking(client, "files:read"))), "resource", tools))
	if !w.opens(whole.access) || !reaches(whole.access) {
		t.Error("a token for the server does not open all of it")
	}
	both := asking(client, "files:read")
	both["resource"] = []string{w.url, tools}
	if granted := w.exchange(redeeming(client, w.code(alice, both))); !w.opens(granted.access) || !reaches(granted.access) {
		t.Error("a token for both resources does not open both")
	}
}
