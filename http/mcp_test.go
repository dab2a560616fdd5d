package http_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	nethttp "net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/atelier-run/atelier/http"
)

// mcpRequest is an example of a request to the tools.
func mcpRequest(*scene) exampleRequest {
	return exampleRequest{
		target: "/mcp", body: `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`,
		headers: headers{"Accept": "application/json, text/event-stream"},
	}
}

// carrier sends requests with a credential.
type carrier struct{ credential headers }

func (c carrier) RoundTrip(r *nethttp.Request) (*nethttp.Response, error) {
	r = r.Clone(r.Context())
	for name, value := range c.credential {
		r.Header.Set(name, value)
	}
	return nethttp.DefaultTransport.RoundTrip(r)
}

// agent connects the client of the SDK with a credential.
func (sc *scene) agent(credential headers) (*mcp.ClientSession, error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	connected, err := client.Connect(sc.t.Context(), &mcp.StreamableClientTransport{
		Endpoint: sc.stage.live.URL + "/mcp", HTTPClient: &nethttp.Client{Transport: carrier{credential}}, MaxRetries: -1,
		DisableStandaloneSSE: true,
	}, nil)
	if err == nil {
		sc.t.Cleanup(func() { connected.Close() })
	}
	return connected, err
}

// tool calls a tool, and returns the text of its result.
func (sc *scene) tool(credential headers, name string, in map[string]any) (text string, failed bool) {
	sc.t.Helper()
	client, err := sc.agent(credential)
	if err != nil {
		sc.t.Fatal(err)
	}
	result, err := client.CallTool(sc.t.Context(), &mcp.CallToolParams{Name: name, Arguments: in})
	if err != nil {
		sc.t.Fatalf("%s: %v", name, err)
	}
	return result.Content[0].(*mcp.TextContent).Text, result.IsError
}

func TestToolsWithAccessToken(t *testing.T) {
	b := newBoundary(t)
	sc := b.scene(t, visitor{role: "owner"}, true)
	_, token := sc.openFor("http://localhost:8080/mcp", "owner", "files:read", "files:write")
	credential := bearer(token)
	client, err := sc.agent(credential)
	if err != nil {
		t.Fatal(err)
	}
	listed, err := client.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(listed.Tools, func(tool *mcp.Tool) bool { return tool.Name == "read_activity" }) {
		t.Errorf("tools are %v", listed.Tools)
	}

	in := func(fields ...any) map[string]any {
		arguments := map[string]any{"workspace": sc.slug}
		for i := 0; i < len(fields); i += 2 {
			arguments[fields[i].(string)] = fields[i+1]
		}
		return arguments
	}
	for _, one := range []struct {
		tool string
		in   map[string]any
		want string
	}{
		{"list_workspaces", nil, `"slug":"` + sc.slug + `"`},
		{"write_file", in("path", "new/notes/one.txt", "text", "Hello"), `{"created":true,"size":5}`},
		{"write_file", in("path", "new/notes/one.txt", "text", "Hello!"), `{"created":false,"size":6}`},
		{"read_file", in("path", "new/notes/one.txt"), `{"size":6,"offset":0,"text":"Hello!"}`},
		{"read_file", in("path", "new/notes/one.txt", "offset", 3, "limit", 2), `{"size":6,"offset":3,"nextOffset":5,"text":"lo"}`},
		{"read_file", in("path", "new/notes/one.txt", "offset", 100), `{"size":6,"offset":100}`},
		{"list_files", in("path", "new"), `"name":"notes","folder":true`},
		{"read_activity", in("path", "new", "reads", true), `"kind":"read"`},
		{"last_writers", in("dir", "new/notes", "names", []string{"one.txt"}), `"path":"new/notes/one.txt","actor":"api-key:ogr_`},
	} {
		if got, failed := sc.tool(credential, one.tool, one.in); failed || !strings.Contains(got, one.want) {
			t.Errorf("%s %v: %s, want %s", one.tool, one.in, got, one.want)
		}
	}
	for _, one := range []struct {
		tool string
		in   map[string]any
		want string
	}{
		{"start_session", in("prompt", "Do it"), "forbidden: "}, // the token has no capability sessions
		{"list_sessions", in(), "forbidden: "},
		{"read_file", in("path", "none"), "not_found: "},
		{"read_file", in("path", "new"), "is_folder: "},
		{"write_file", in("path", "new", "text", "x"), "is_folder: "},
		{"write_file", in("path", "a.txt/b", "text", "x"), "no_parent: "},
		{"read_activity", map[string]any{"workspace": "elsewhere"}, "not_found: "},
	} {
		if got, failed := sc.tool(credential, one.tool, one.in); !failed || !strings.HasPrefix(got, one.want) {
			t.Errorf("%s %v: %s, want %s", one.tool, one.in, got, one.want)
		}
	}
	if got := sc.get("/v1/whoami", credential); got.StatusCode != 401 {
		t.Errorf("a token for the tools opens the API: %d", got.StatusCode)
	}
	if got, failed := sc.tool(bearer(b.people["outsider"].key), "read_activity", in()); !failed || !strings.HasPrefix(got, "not_found: ") {
		t.Errorf("an outsider: %s", got)
	}
	_, api := sc.open("viewer", everything...)
	if got, failed := sc.tool(bearer(api), "write_file", in("path", "x", "text", "x")); !failed || !strings.HasPrefix(got, "forbidden: ") {
		t.Errorf("a viewer writes: %s", got)
	}
}

// get sends a request over the network.
func (sc *scene) get(path string, credential headers) *nethttp.Response {
	sc.t.Helper()
	return sc.exchange("GET", path, "", credential)
}

func (sc *scene) exchange(method, path, body string, more headers) *nethttp.Response {
	sc.t.Helper()
	r, err := nethttp.NewRequestWithContext(sc.t.Context(), method, sc.stage.live.URL+path, strings.NewReader(body))
	if err != nil {
		sc.t.Fatal(err)
	}
	r.Host = "localhost:8080" // of the public URL
	for name, value := range more {
		r.Header.Set(name, value)
	}
	got, err := nethttp.DefaultClient.Do(r)
	if err != nil {
		sc.t.Fatal(err)
	}
	sc.t.Cleanup(func() { got.Body.Close() })
	return got
}

func TestToolsRefuseOtherCallers(t *testing.T) {
	b := newBoundary(t)
	sc := b.scene(t, visitor{role: "owner"}, true)
	key := b.people["owner"].key
	example := mcpRequest(sc)
	with := func(credential headers, more ...string) headers {
		all := headers{"Content-Type": "application/json", "Accept": example.headers["Accept"]}
		for name, value := range credential {
			all[name] = value
		}
		for i := 0; i < len(more); i += 2 {
			all[more[i]] = more[i+1]
		}
		return all
	}
	const challenge = `resource_metadata="http://localhost:8080/.well-known/oauth-protected-resource/mcp"`
	for name, one := range map[string]struct {
		method, body string
		headers      headers
		status       int
	}{
		"no credential":        {"POST", example.body, with(nil), 401},
		"an unknown key":       {"POST", example.body, with(sc.unknownKey()), 401},
		"a cookie":             {"POST", example.body, with(sc.cookie()), 401},
		"another audience":     {"POST", example.body, with(sc.foreignGrant()), 401},
		"another resource":     {"POST", example.body, with(sc.grantFor("http://localhost:8080/other")), 401},
		"a page of other site": {"POST", example.body, with(bearer(key), "Origin", "https://evil.example"), 403},
		"a long body":          {"POST", `{"a":"` + strings.Repeat("x", 2<<20) + `"}`, with(bearer(key)), 413},
		"another method":       {"GET", "", with(bearer(key)), 405},
		"no JSON":              {"POST", "hello", with(bearer(key)), 400},
		"a batch":              {"POST", " [" + example.body + "]", with(bearer(key)), 400},
		"another media type":   {"POST", example.body, with(bearer(key), "Content-Type", "text/plain"), 415},
		"a good request":       {"POST", example.body, with(bearer(key)), 200},
		"the API's audience":   {"POST", example.body, with(sc.grantFor("http://localhost:8080")), 200},
	} {
		got := sc.exchange(one.method, "/mcp", one.body, one.headers)
		if got.StatusCode != one.status {
			body, _ := io.ReadAll(got.Body)
			t.Errorf("%s: %d %s, want %d", name, got.StatusCode, body, one.status)
		}
		if one.status == 401 && !strings.Contains(got.Header.Get("Www-Authenticate"), challenge) {
			t.Errorf("%s: challenge is %q", name, got.Header.Get("Www-Authenticate"))
		}
	}
	var metadata struct {
		Resource        string
		ScopesSupported []string `json:"scopes_supported"`
		Servers         []string `json:"authorization_servers"`
	}
	if err := json.NewDecoder(sc.get("/.well-known/oauth-protected-resource/mcp", nil).Body).Decode(&metadata); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(metadata) != "{http://localhost:8080/mcp [files:read files:write services sessions] [http://localhost:8080]}" {
		t.Errorf("metadata is %v", metadata)
	}
}

func (sc *scene) grantFor(audience string) headers {
	_, token := sc.openFor(audience, "owner", everything...)
	return bearer(token)
}

// A session that no runner runs is awaited until the client goes, the credential is revoked, or the time is over.
func TestToolsAwaitSession(t *testing.T) {
	b := newBoundary(t)
	sc := b.scene(t, visitor{role: "owner"}, true)
	grant, token := sc.openFor("http://localhost:8080/mcp", "editor", "sessions")
	text, failed := sc.tool(bearer(token), "start_session", map[string]any{"workspace": sc.slug, "prompt": "Do it", "requestId": "r1"})
	var started struct{ SessionID string }
	if err := json.Unmarshal([]byte(text), &started); failed || err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	await := map[string]any{"workspace": sc.slug, "sessionIds": []string{started.SessionID}, "timeoutSeconds": 1}
	if text, failed := sc.tool(bearer(token), "await_sessions", await); failed || !strings.Contains(text, `"running":["`+started.SessionID) {
		t.Errorf("after a second: %s", text)
	}
	await["timeoutSeconds"] = 300
	client, err := sc.agent(bearer(token))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	answered := make(chan string)
	go func() {
		result, err := client.CallTool(ctx, &mcp.CallToolParams{Name: "await_sessions", Arguments: await})
		if err != nil {
			answered <- err.Error()
			return
		}
		answered <- result.Content[0].(*mcp.TextContent).Text
	}()
	waitFor(t, func() bool { return openStreams(t, sc.stage.live.URL) == 1 })
	sc.stage.node.Server.EndCredential(grant) // as the revocation of the grant does
	// The end of the tool and the end of the request race: the answer is one of the two.
	if got := <-answered; !strings.Contains(got, "Unauthorized") && !strings.HasPrefix(got, "unavailable: ") {
		t.Errorf("after the revocation: %s", got)
	}
	waitFor(t, func() bool { return openStreams(t, sc.stage.live.URL) == 0 })
}

// TestRequestIDsOfTools sends a message with a request id that begins with the id of a later request.
func TestRequestIDsOfTools(t *testing.T) {
	b := newBoundary(t)
	sc := b.scene(t, visitor{name: "owner", role: "owner"}, true)
	_, token := sc.openFor("http://localhost:8080/mcp", "owner", "sessions")
	const id = "6f1c8a52-0f0e-4c8b-9a51-5f6f3f9b6c01"
	session := sc.startedAs("owner", `{"prompt":"Hello"}`)
	send := func(requestID, text string) (string, bool) {
		return sc.tool(bearer(token), "message_session",
			map[string]any{"workspace": sc.slug, "sessionId": session, "text": text, "requestId": requestID})
	}
	if got, failed := send(id+"-x", "Longer"); failed {
		t.Fatal(got)
	}
	body := fmt.Sprintf(`{"text":"Shorter","clientRequestId":%q}`, id)
	if got := sc.drive("POST", "/agent/sessions/"+session+"/messages", "owner", body); got.Code != 200 {
		t.Errorf("%d %s", got.Code, got.Body)
	}
	first, failed := send(id+"-", "Third")
	if again, failedToo := send(id+"-", "Third"); failed || failedToo || again != first {
		t.Errorf("%s, then %s", first, again)
	}
	if got, failed := send(id+"-x", "Else"); !failed || !strings.HasPrefix(got, "request_id_reused: ") {
		t.Error(got)
	}
}

// openStreams returns the gauge of open streams.
func openStreams(t *testing.T, address string) int {
	t.Helper()
	got, err := nethttp.Get(address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	body, err := io.ReadAll(got.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(body)) {
		var n int
		if _, err := fmt.Sscanf(line, "atelier_http_streams %d", &n); err == nil {
			return n
		}
	}
	t.Fatal("there is no gauge of streams")
	return 0
}

// waitFor waits until a condition holds.
func waitFor(t *testing.T, holds func() bool) {
	t.Helper()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(longest); !holds(); <-ticker.C {
		if time.Now().After(deadline) {
			t.Fatal("the condition does not hold")
		}
	}
}

// A call that waits outlasts the time limits of ordinary requests, and ends when its client goes.
func TestToolsOutlastTheTimeOfRequests(t *testing.T) {
	s := newSite(t, func(o *http.Options) { o.Limits.RequestTime, o.Limits.StallTime = 2*time.Second, time.Second })
	key := s.person("ada")
	send := func(ctx context.Context, path, body string) (string, error) {
		r, err := nethttp.NewRequestWithContext(ctx, "POST", s.live.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+key)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		got, err := nethttp.DefaultClient.Do(r)
		if err != nil {
			return "", err
		}
		defer got.Body.Close()
		text, err := io.ReadAll(got.Body)
		return string(text), err
	}
	call := func(ctx context.Context, name, in string) (string, error) {
		return send(ctx, "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+name+`","arguments":`+in+`}}`)
	}
	if got, err := send(t.Context(), "/v1/workspaces", `{"slug":"acme","name":"Acme"}`); err != nil || !strings.Contains(got, "workspaceId") {
		t.Fatal(got, err)
	}
	got, err := call(t.Context(), "start_session", `{"workspace":"acme","prompt":"Do it"}`)
	_, id, ok := strings.Cut(got, `"structuredContent":{"sessionId":"`)
	if err != nil || !ok {
		t.Fatal(got, err)
	}
	id = id[:30]
	if got, err := call(t.Context(), "await_sessions", `{"workspace":"acme","sessionIds":["`+id+`"],"timeoutSeconds":4}`); err != nil || !strings.Contains(got, `"running":["`+id) {
		t.Errorf("after four seconds: %s, %v", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := call(ctx, "await_sessions", `{"workspace":"acme","sessionIds":["`+id+`"],"timeoutSeconds":300}`)
		left <- err
	}()
	waitFor(t, func() bool { return openStreams(t, s.live.URL) == 1 })
	cancel()
	if err := <-left; err == nil {
		t.Error("the call has ended before its client went")
	}
	waitFor(t, func() bool { return openStreams(t, s.live.URL) == 0 })
}
