package agents

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coder/acp-go-sdk"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/atelier-run/atelier/runner/builtin/model"
	"github.com/atelier-run/atelier/runner/meta"
	"github.com/atelier-run/atelier/runner/modeltest"
	"github.com/atelier-run/atelier/runner/presets"
)

// testPlatformTools calls a tool of a server with the name of the platform's. opencode requests no permission for it, and codex one
// that the preset recognizes.
func testPlatformTools(t *testing.T, a *agent) {
	session := a.open(platformServer(t))
	if a.preset == "codex" {
		a.model.Reply(modeltest.Reply{Raw: namespacedCall})
	} else {
		a.model.Reply(modeltest.Reply{Calls: []model.Call{call("call_tool", "atelier_greet", "name", "heron")}})
	}
	a.model.Reply(modeltest.Reply{Text: []string{"Greeted."}})
	a.say(session, "Greet.", acp.StopReasonEndTurn)
	requests := a.model.Requests()
	if last := requests[len(requests)-1].Last(); !strings.Contains(last.Text, "Hello, heron") {
		t.Errorf("the model got %+v", last)
	}
	preset, _ := presets.Find(a.preset)
	for _, r := range a.asked() {
		if a.preset != "codex" || !preset.IsPlatformCall(r) {
			t.Errorf("a permission was requested: %+v", r)
		}
	}
}

// platformServer returns an MCP server with one tool that refuses requests without the token.
func platformServer(t *testing.T) acp.McpServer {
	server := mcp.NewServer(&mcp.Implementation{Name: meta.PlatformServer, Version: "1"}, nil)
	type arguments struct {
		Name string `json:"name"`
	}
	mcp.AddTool(server, &mcp.Tool{Name: "greet", Description: "greets somebody"},
		func(_ context.Context, _ *mcp.CallToolRequest, in arguments) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "Hello, " + in.Name}}}, nil, nil
		})
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	live := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token {
			t.Error("a request to the platform's tools has no token")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		live.CloseClientConnections() // the agents keep a stream open
		live.Close()
	})
	return acp.McpServer{Http: &acp.McpServerHttpInline{
		Type: "http", Name: meta.PlatformServer, Url: live.URL + "/mcp",
		Headers: []acp.HttpHeader{{Name: "Authorization", Value: "Bearer " + token}},
	}}
}

// namespacedCall is a reply with a call, as codex expects calls of MCP servers' tools.
const namespacedCall = `event: response.created
data: {"type":"response.created","response":{"id":"resp_test"}}

event: response.output_item.done
data: {"type":"response.output_item.done","output_index":0,"item":{"type":"function_call","id":"fc_test","call_id":"call_tool",` +
	`"namespace":"mcp__atelier","name":"greet","arguments":"{\"name\":\"heron\"}"}}

event: response.completed
data: {"type":"response.completed","response":{"id":"resp_test","usage":{"input_tokens":1,"output_tokens":1,"total_tokens":2}}}

`
