package builtin_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coder/acp-go-sdk"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/atelier-run/atelier/runner/builtin/model"
	"github.com/atelier-run/atelier/runner/meta"
	"github.com/atelier-run/atelier/runner/modeltest"
)

// TestMain also runs the program of TestToolsOfOtherServers.
func TestMain(m *testing.M) {
	if os.Getenv("RUN_MCP_SERVER") == "" {
		os.Exit(m.Run())
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "weather", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "forecast", Description: "Forecasts"},
		func(_ context.Context, _ *mcp.CallToolRequest, in struct {
			City string `json:"city"`
		}) (*mcp.CallToolResult, any, error) {
			if in.City == "" {
				return nil, nil, errors.New("which city?")
			}
			text := "Sun in " + in.City + os.Getenv("ATELIER_AGENT_API_KEY")
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil, nil
		})
	if err := server.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		os.Exit(1)
	}
}

// eachWire runs a test with a model server and an agent for each wire format. Titles are "A title".
func eachWire(t *testing.T, test func(t *testing.T, server *modeltest.Server, p *process)) {
	t.Helper()
	for _, wire := range []model.Wire{model.Chat, model.Responses, model.Anthropic} {
		t.Run(string(wire), func(t *testing.T) {
			server := modeltest.New(t)
			test(t, server, withModel(t, server, t.TempDir(), wire))
		})
	}
}

func withModel(t *testing.T, server *modeltest.Server, drive string, wire model.Wire) *process {
	t.Helper()
	server.WithoutTools(modeltest.Reply{Text: []string{"\"A title.\"\n"}, Usage: model.Usage{Input: 1, Output: 1}})
	return start(t, drive, "ATELIER_AGENT_MODEL=test-1", "ATELIER_AGENT_WIRE="+string(wire),
		"ATELIER_AGENT_BASE_URL="+server.URL+"/v1", "ATELIER_AGENT_API_KEY=secret", "ATELIER_AGENT_MAX_TOKENS=1000")
}

func call(id, name, arguments string) model.Call {
	return model.Call{ID: id, Name: name, Arguments: arguments}
}

// conversation returns the requests with tools.
func conversation(server *modeltest.Server) []modeltest.Request {
	return slices.DeleteFunc(server.Requests(), func(r modeltest.Request) bool { return len(r.Tools) == 0 })
}

// TestKeyOfTheSession opens a session with a key of its own for the model's server.
func TestKeyOfTheSession(t *testing.T) {
	eachWire(t, func(t *testing.T, server *modeltest.Server, p *process) {
		p.open(map[string]any{meta.ModelKey: "of the session"})
		server.Reply(modeltest.Reply{Text: []string{"Hello."}})
		p.prompt("Hello?")
		for _, r := range server.Requests() {
			if sent := r.Header.Get("Authorization") + r.Header.Get("X-Api-Key"); !strings.HasSuffix(sent, "of the session") {
				t.Errorf("a request has the key %q", sent)
			}
		}
	})
}

func TestModelTurn(t *testing.T) {
	eachWire(t, func(t *testing.T, server *modeltest.Server, p *process) {
		p.open(map[string]any{
			meta.Instructions: "Follow AGENT.md.",
			meta.History: []meta.Entry{
				{Role: meta.RoleUser, Text: "Earlier question"}, {Role: meta.RoleAssistant, Text: "Earlier answer"},
				{Role: meta.RoleTool, Text: "ls: a.txt"},
			},
		})
		server.Reply(
			modeltest.Reply{Thoughts: []string{"I must ", "look."}, Text: []string{"Let me look. "}, Calls: []model.Call{
				call("1", "write_file", `{"path":"src/a.txt","text":"one\ntwo\n"}`),
				call("2", "edit_file", `{"path":"src/a.txt","old":"two","new":"three"}`),
				call("3", "shell", `{"command":"cat src/a.txt; exit 2"}`),
				call("4", "read_file", `{"path":"src/a.txt","firstLine":2}`),
				call("5", "list_files", `{}`),
				call("6", "search", `{"pattern":"^th"}`),
				call("7", "plan", `{"steps":[{"text":"Write","status":"completed"},{"text":"Check","status":"in_progress"}]}`),
			}},
			modeltest.Reply{Text: []string{"It is ", "done."}, Usage: model.Usage{Input: 100, Output: 20}},
		)
		got := p.prompt("Do it", "A note", by(meta.KindPrompt, meta.SenderUser), meta.Input{
			Kind: meta.KindNote, Sender: meta.Sender{Kind: meta.SenderSession, SessionID: "s1"},
		})
		got.expect(t, end, "", "Let me look. It is done.", "Write src/a.txt: completed", "Edit src/a.txt: completed",
			"cat src/a.txt; exit 2: failed", "Read src/a.txt: completed", "List .: completed", "Search ^th: completed")
		if got.thoughts != "I must look." || len(got.plan) != 2 || got.plan[1].Status != acp.PlanEntryStatusInProgress {
			t.Errorf("%q, %+v", got.thoughts, got.plan)
		}
		if usage := fmt.Sprint(got.Meta[meta.Usage]); usage != "map[inputTokens:110 outputTokens:25]" || got.Meta[meta.Title] != nil {
			t.Errorf("%s, %v", usage, got.Meta[meta.Title])
		}
		requests := conversation(server)
		first, second := requests[0], requests[1]
		if !strings.HasSuffix(first.System, "Follow AGENT.md.") || !strings.Contains(first.System, p.drive) || first.MaxTokens != 1000 {
			t.Errorf("%q, %d", first.System, first.MaxTokens)
		}
		if first.Messages[0].Text != "Earlier question" ||
			!strings.HasSuffix(first.Last().Text, "Do it\n\n[Note from session s1, for your information]\nA note") {
			t.Errorf("%+v", first.Messages)
		}
		var results []string
		for _, m := range second.Messages {
			if m.Role == model.ToolResult {
				results = append(results, m.CallID+": "+m.Text)
			}
		}
		want := []string{"1: src/a.txt was written.", "2: 1 replaced in src/a.txt.", "3: one\nthree\n\n[exit status 2]", "4: three\n",
			"5: src/\n", "6: src/a.txt:2: three\n", "7: The plan is shown."}
		if !slices.Equal(results, want) {
			t.Errorf("%q", results)
		}
		if slices.ContainsFunc(server.Requests(), func(r modeltest.Request) bool { return len(r.Tools) == 0 }) {
			t.Error("a title was asked for in a session with a history")
		}
	})
}

func TestModelTitleAndNextTurn(t *testing.T) {
	eachWire(t, func(t *testing.T, server *modeltest.Server, p *process) {
		p.open(nil)
		server.Reply(modeltest.Reply{Text: []string{"Hello"}}, modeltest.Reply{Text: []string{"Again"}})
		got := p.prompt("Hi", acp.ImageBlock("aGk=", "image/png"))
		if got.Meta[meta.Title] != "A title" || got.text != "Hello" {
			t.Errorf("%+v", got)
		}
		if got := p.prompt("And now?"); got.text != "Again" || got.Meta[meta.Title] != nil {
			t.Errorf("%+v", got)
		}
		requests := conversation(server)
		if last := requests[1]; len(last.Messages) != 3 || last.Messages[1].Text != "Hello" || len(last.Messages[0].Images) != 1 {
			t.Errorf("%+v", last.Messages)
		}
	})
}

func TestModelAttachments(t *testing.T) {
	server := modeltest.New(t)
	p := withModel(t, server, t.TempDir(), model.Anthropic).open(nil)
	server.Reply(modeltest.Reply{Text: []string{"Nice"}})
	if err := os.WriteFile(filepath.Join(p.drive, "cat.png"), []byte("picture"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := acp.ResourceLinkBlock("cat", "file://"+p.drive+"/cat.png")
	link.ResourceLink.MimeType = acp.Ptr("image/png")
	embedded := acp.ResourceBlock(acp.EmbeddedResourceResource{
		TextResourceContents: &acp.TextResourceContents{Uri: "file:///notes.md", Text: "Some notes"},
	})
	p.prompt("Look", link, embedded, acp.ResourceLinkBlock("x", "file:///x.pdf")).expect(t, end, "", "Nice")
	got := conversation(server)[0].Last()
	want := "Look\n\nAttached file: " + p.drive + "/cat.png\n\nAttached: file:///notes.md\nSome notes\n\nAttached file: /x.pdf"
	if got.Text != want || len(got.Images) != 1 || got.Images[0].Base64 != base64.StdEncoding.EncodeToString([]byte("picture")) {
		t.Errorf("%+v", got)
	}
}

func TestModelAsksAndContinues(t *testing.T) {
	eachWire(t, func(t *testing.T, server *modeltest.Server, p *process) {
		host := newPlatform(t)
		p.open(nil, host.McpServer)
		server.Reply(modeltest.Reply{Calls: []model.Call{
			call("1", "ask", `{"text":"Red?","options":["yes","no"]}`), call("2", "shell", `{"command":"touch never"}`),
		}}, modeltest.Reply{Text: []string{"Thanks"}})
		p.prompt("Paint").expect(t, end, "", "", "ask: completed")
		host.expect(t, `ask {"text":"Red?","options":["yes","no"]}`)
		p.prompt("yes", by(meta.KindAnswer, meta.SenderUser)).expect(t, end, "", "Thanks")
		last := conversation(server)[1]
		if !strings.HasSuffix(last.Last().Text, "[Answer to your question]\nyes") || !slices.Contains(last.Tools, "start_session") {
			t.Errorf("%+v", last)
		}
	})
}

func TestModelIsSteered(t *testing.T) {
	eachWire(t, func(t *testing.T, server *modeltest.Server, p *process) {
		p.open(nil)
		hold := make(chan struct{})
		server.Reply(modeltest.Reply{Text: []string{"One. "}, Hold: hold}, modeltest.Reply{Text: []string{"Two."}})
		result := p.begin("Begin")
		p.await(func(u []acp.SessionUpdate) bool { return len(u) > 0 && u[len(u)-1].AgentMessageChunk != nil })
		if !p.steer("Rather this") {
			t.Error("the input was not accepted")
		}
		close(hold)
		result().expect(t, end, "", "One. Two.")
		if got := conversation(server)[1].Last().Text; got != "Rather this" {
			t.Errorf("%q", got)
		}
	})
}

// TestSteeredInputOutlivesItsTurn expects that the model gets an input that the agent has accepted, and that no request has had.
func TestSteeredInputOutlivesItsTurn(t *testing.T) {
	eachWire(t, func(t *testing.T, server *modeltest.Server, p *process) {
		p.open(nil)
		server.Reply(modeltest.Reply{Text: []string{"One. "}, Hold: make(chan struct{})}, modeltest.Reply{Text: []string{"Two."}})
		result := p.begin("Begin")
		p.await(func(u []acp.SessionUpdate) bool { return len(u) > 0 && u[len(u)-1].AgentMessageChunk != nil })
		if !p.steer("Rather this") {
			t.Error("the input was not accepted")
		}
		if err := p.conn.Cancel(t.Context(), acp.CancelNotification{SessionId: p.session}); err != nil {
			t.Fatal(err)
		}
		result()
		p.prompt("Next").expect(t, end, "", "Two.")
		if all := conversation(server)[1].Messages; !slices.ContainsFunc(all, func(m model.Message) bool {
			return strings.HasPrefix(m.Text, "Rather this")
		}) {
			t.Errorf("%+v", all)
		}
	})
}

func TestModelIsCancelled(t *testing.T) {
	eachWire(t, func(t *testing.T, server *modeltest.Server, p *process) {
		p.open(nil)
		server.Reply(modeltest.Reply{Text: []string{"Half a "}, Hold: make(chan struct{})}, modeltest.Reply{Calls: []model.Call{
			call("1", "shell", `{"command":"echo begun; sleep 300"}`), call("2", "shell", `{"command":"touch never"}`),
		}}, modeltest.Reply{Text: []string{"Well"}})
		for _, begun := range []func(acp.SessionUpdate) bool{
			func(u acp.SessionUpdate) bool { return u.AgentMessageChunk != nil },
			func(u acp.SessionUpdate) bool { return u.ToolCallUpdate != nil && len(u.ToolCallUpdate.Content) > 0 },
		} {
			result := p.begin("Go")
			p.await(func(u []acp.SessionUpdate) bool { return slices.ContainsFunc(u, begun) })
			if err := p.conn.Cancel(t.Context(), acp.CancelNotification{SessionId: p.session}); err != nil {
				t.Fatal(err)
			}
			if got := result(); got.StopReason != cancelled || got.failure() != "" {
				t.Errorf("%+v", got.PromptResponse)
			}
		}
		p.prompt("Next").expect(t, end, "", "Well")
		if last := conversation(server)[2]; last.Messages[1].Text != "Half a " || last.Messages[4].CallID != "1" ||
			last.Messages[5].Text != "[the turn was interrupted before this call]" {
			t.Errorf("%+v", last.Messages)
		}
	})
}

func TestModelFailures(t *testing.T) {
	for name, test := range map[string]struct {
		reply modeltest.Reply
		want  string
		text  string
	}{
		"unknown model": {modeltest.Reply{Status: http.StatusNotFound, Message: "no"},
			`model_unavailable: the model server HOST has no model "test-1": no`, ""},
		"malformed": {modeltest.Reply{Text: []string{"One"}, MalformedAfter: 4},
			"model_error: the model server has sent a malformed reply: an event is no JSON of the format", "One"},
		"rate limit": {modeltest.Reply{Status: http.StatusTooManyRequests, RetryAfter: 1000},
			"rate_limited: the model server HOST limits the rate of requests", ""},
		"refusal": {modeltest.Reply{Text: []string{"No"}, Stop: model.Refused},
			"model_refused: the model has refused to reply", "No"},
	} {
		t.Run(name, func(t *testing.T) {
			eachWire(t, func(t *testing.T, server *modeltest.Server, p *process) {
				p.open(nil)
				reply := test.reply
				if reply.MalformedAfter > 0 && strings.HasSuffix(t.Name(), "/responses") {
					reply.MalformedAfter = 5 // this format has more events before the text
				}
				server.Reply(reply)
				want := strings.ReplaceAll(test.want, "HOST", strings.TrimPrefix(server.URL, "http://"))
				got := p.prompt("Go")
				if got.failure() != want || !strings.HasPrefix(got.text, test.text) || got.StopReason != end {
					t.Errorf("%q, %q", got.failure(), got.text)
				}
			})
		})
	}
}

func TestModelStopsAtItsLimits(t *testing.T) {
	server := modeltest.New(t)
	p := withModel(t, server, t.TempDir(), model.Chat).open(nil)
	server.Reply(modeltest.Reply{Text: []string{"Cut"}, Stop: model.Truncated})
	p.prompt("Go").expect(t, acp.StopReasonMaxTokens, "", "Cut")
	n := 0
	server.Respond(func(modeltest.Request) modeltest.Reply {
		n++
		return modeltest.Reply{Calls: []model.Call{call(fmt.Sprint(n), "nonsense", "{")}, Stop: model.Truncated}
	})
	p.prompt("Go").expect(t, end, "too_many_steps: the model has called tools in 200 replies of this turn", "")
}

func TestModelIsNotAskedWithoutInput(t *testing.T) {
	server := modeltest.New(t)
	p := withModel(t, server, t.TempDir(), model.Anthropic).open(nil)
	p.prompt("").expect(t, end, "", "")
	if n := len(server.Requests()); n != 0 {
		t.Errorf("%d requests", n)
	}
}

func TestModelCallsAreChecked(t *testing.T) {
	server := modeltest.New(t)
	p := withModel(t, server, t.TempDir(), model.Chat).open(map[string]any{meta.Mode: meta.ModeConfirm})
	p.permit = func(acp.RequestPermissionRequest) acp.PermissionOptionId { return "reject" }
	server.Reply(modeltest.Reply{Calls: []model.Call{
		call("1", "shell", `{"command":"touch never"}`), call("2", "write_file", `{"path":"never","text":""}`),
		call("3", "edit_file", `{"path":"never","old":"a","new":"b"}`), call("4", "nonsense", `{}`), call("5", "shell", `[]`),
		call("6", "shell", `{}`), call("7", "read_file", `{"path":"/etc/passwd"}`), call("8", "plan", `{"steps":[{"status":"x"}]}`),
		call("9", "search", `{"pattern":"("}`),
	}}, modeltest.Reply{Text: []string{"Sorry"}})
	p.prompt("Go").expect(t, end, "", "Sorry", "touch never: failed", "Write never: failed", "Edit never: failed", "Search (: failed")
	for i, part := range []string{"not permitted", "not permitted", "not permitted", "no tool", "no JSON of the tool's schema",
		"command is empty", "outside of the drive", `status "x"`, "pattern is invalid"} {
		if got := conversation(server)[1].Messages[2+i].Text; !strings.Contains(got, part) {
			t.Errorf("%d: %q", i+1, got)
		}
	}
	if len(p.requests) != 3 {
		t.Errorf("%d permission requests", len(p.requests))
	}
}

func TestToolsOfOtherServers(t *testing.T) {
	server := modeltest.New(t)
	weather := acp.McpServer{Stdio: &acp.McpServerStdio{
		Name: "weather", Command: os.Args[0], Args: []string{}, Env: []acp.EnvVariable{{Name: "RUN_MCP_SERVER", Value: "1"}},
	}}
	broken := acp.McpServer{Stdio: &acp.McpServerStdio{
		Name: "broken", Command: "/none", Args: []string{}, Env: []acp.EnvVariable{},
	}}
	p := withModel(t, server, t.TempDir(), model.Chat).open(nil, weather, broken)
	server.Reply(modeltest.Reply{Calls: []model.Call{
		call("1", "weather__forecast", `{"city":"Bern"}`), call("2", "weather__forecast", `{"city":""}`),
		call("3", "weather__forecast", `nonsense`),
	}}, modeltest.Reply{Text: []string{"Sun"}})
	got := p.prompt("Weather?")
	if !strings.HasPrefix(got.text, `The MCP server "broken" is unavailable: `) || !strings.HasSuffix(got.text, "Sun") ||
		!slices.Equal(got.rows, []string{"weather__forecast: completed", "weather__forecast: failed"}) {
		t.Errorf("%q, %q", got.text, got.rows)
	}
	results := conversation(server)[1].Messages[2:]
	if results[0].Text != "Sun in Bern" || results[1].Text != "which city?" || !strings.Contains(results[2].Text, "no JSON object") {
		t.Errorf("%+v", results)
	}
}

// TestFastModelDoesNotFloodTheClient streams more deltas than the client's library queues.
func TestFastModelDoesNotFloodTheClient(t *testing.T) {
	server := modeltest.New(t)
	p := withModel(t, server, t.TempDir(), model.Chat).open(nil)
	server.Reply(modeltest.Reply{Text: slices.Repeat([]string{"word "}, 20_000)})
	got := p.prompt("Go")
	got.expect(t, end, "", strings.Repeat("word ", 20_000))
	if n := len(p.updates); n > 500 {
		t.Errorf("%d updates", n)
	}
}
