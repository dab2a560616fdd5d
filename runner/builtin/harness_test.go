package builtin_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/acp-go-sdk"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/atelier-run/atelier/runner/builtin"
	"github.com/atelier-run/atelier/runner/meta"
)

// A process is an agent that runs over pipes, and its client.
type process struct {
	acp.Client // nil: the agent uses no other methods of the client

	t       *testing.T
	conn    *acp.ClientSideConnection
	drive   string
	session acp.SessionId
	permit  func(acp.RequestPermissionRequest) acp.PermissionOptionId
	hangUp  func()
	ended   chan int

	lock     sync.Mutex
	updates  []acp.SessionUpdate
	arrived  chan struct{} // closed at the next update
	requests []acp.RequestPermissionRequest
}

// start starts an agent for a drive, with further variables in its environment.
func start(t *testing.T, drive string, environ ...string) *process {
	t.Helper()
	fromClient, toAgent := io.Pipe()
	fromAgent, toClient := io.Pipe()
	p := &process{t: t, drive: drive, ended: make(chan int, 1), arrived: make(chan struct{})}
	p.hangUp = func() { toAgent.Close() }
	go func() {
		environ := append([]string{"PATH=" + os.Getenv("PATH"), "ATELIER_DRIVE=" + drive}, environ...)
		p.ended <- builtin.Run(context.Background(), fromClient, toClient, t.Output(), environ, nil)
		toClient.Close()
	}()
	p.conn = acp.NewClientSideConnection(p, toAgent, fromAgent)
	p.conn.SetLogger(slog.New(slog.DiscardHandler))
	t.Cleanup(func() {
		p.hangUp()
		if status := <-p.ended; status != 0 {
			t.Errorf("the agent has ended with status %d", status)
		}
		p.ended <- 0
	})
	answer, err := p.conn.Initialize(t.Context(), acp.InitializeRequest{ProtocolVersion: acp.ProtocolVersionNumber})
	if err != nil || answer.AgentCapabilities.Meta[meta.Steer] != true || !answer.AgentCapabilities.PromptCapabilities.Image {
		t.Fatalf("%+v, %v", answer, err)
	}
	return p
}

// open starts a session in the drive. values are its _meta.
func (p *process) open(values map[string]any, servers ...acp.McpServer) *process {
	p.t.Helper()
	answer, err := p.conn.NewSession(p.t.Context(), acp.NewSessionRequest{
		Cwd: p.drive, McpServers: append([]acp.McpServer{}, servers...), Meta: values,
	})
	if err != nil {
		p.t.Fatal(err)
	}
	p.session = answer.SessionId
	return p
}

// SessionUpdate implements acp.Client.
func (p *process) SessionUpdate(_ context.Context, n acp.SessionNotification) error {
	p.lock.Lock()
	defer p.lock.Unlock()
	if n.Update.SessionInfoUpdate != nil {
		n.Update.SessionInfoUpdate.Meta = n.Meta
	}
	p.updates = append(p.updates, n.Update)
	close(p.arrived)
	p.arrived = make(chan struct{})
	return nil
}

// RequestPermission implements acp.Client.
func (p *process) RequestPermission(
	ctx context.Context, r acp.RequestPermissionRequest,
) (acp.RequestPermissionResponse, error) {
	p.lock.Lock()
	p.requests = append(p.requests, r)
	permit := p.permit
	p.lock.Unlock()
	if permit == nil {
		<-ctx.Done()
		return acp.RequestPermissionResponse{Outcome: acp.NewRequestPermissionOutcomeCancelled()}, nil
	}
	return acp.RequestPermissionResponse{Outcome: acp.NewRequestPermissionOutcomeSelected(permit(r))}, nil
}

// await waits until the updates satisfy a condition.
func (p *process) await(condition func([]acp.SessionUpdate) bool) {
	p.t.Helper()
	timer := time.NewTimer(3 * time.Minute)
	defer timer.Stop()
	for {
		p.lock.Lock()
		isSatisfied, arrived := condition(p.updates), p.arrived
		p.lock.Unlock()
		if isSatisfied {
			return
		}
		select {
		case <-arrived:
		case <-timer.C:
			p.t.Fatal("the updates did not arrive")
		}
	}
}

// A turn is how a prompt has ended.
type turn struct {
	acp.PromptResponse
	err error
	// text has the texts of the agent, rows are its tool calls as "title: status".
	text, thoughts string
	rows           []string
	outputs        map[string]string
	plan           []acp.PlanEntry
	states         []any
}

// prompt sends a prompt and waits for its end.
func (p *process) prompt(blocks ...any) turn {
	p.t.Helper()
	return p.begin(blocks...)()
}

// begin sends a prompt, of texts, content blocks and meta.Inputs, and returns a function that waits for its end.
func (p *process) begin(parts ...any) func() turn {
	p.t.Helper()
	blocks, values := promptOf(parts)
	p.lock.Lock()
	p.updates = nil
	p.lock.Unlock()
	result := make(chan turn, 1)
	go func() {
		response, err := p.conn.Prompt(context.Background(), acp.PromptRequest{SessionId: p.session, Prompt: blocks, Meta: values})
		result <- turn{PromptResponse: response, err: err}
	}()
	return func() turn {
		t := <-result
		p.lock.Lock()
		defer p.lock.Unlock()
		t.read(p.updates)
		return t
	}
}

func promptOf(parts []any) ([]acp.ContentBlock, map[string]any) {
	var blocks []acp.ContentBlock
	var inputs []meta.Input
	for _, part := range parts {
		switch part := part.(type) {
		case string:
			blocks = append(blocks, acp.TextBlock(part))
		case acp.ContentBlock:
			blocks = append(blocks, part)
		case meta.Input:
			inputs = append(inputs, part)
		}
	}
	if inputs == nil {
		return blocks, nil
	}
	return blocks, map[string]any{meta.Inputs: inputs}
}

func (t *turn) read(updates []acp.SessionUpdate) {
	titles, order, status := map[acp.ToolCallId]string{}, []acp.ToolCallId{}, map[acp.ToolCallId]string{}
	t.outputs = map[string]string{}
	for _, u := range updates {
		switch {
		case u.AgentMessageChunk != nil:
			t.text += u.AgentMessageChunk.Content.Text.Text
		case u.AgentThoughtChunk != nil:
			t.thoughts += u.AgentThoughtChunk.Content.Text.Text
		case u.ToolCall != nil:
			titles[u.ToolCall.ToolCallId] = u.ToolCall.Title
			order = append(order, u.ToolCall.ToolCallId)
			status[u.ToolCall.ToolCallId] = string(u.ToolCall.Status)
		case u.ToolCallUpdate != nil:
			id := u.ToolCallUpdate.ToolCallId
			status[id] = string(*u.ToolCallUpdate.Status)
			for _, content := range u.ToolCallUpdate.Content {
				if content.Content != nil {
					t.outputs[titles[id]] = content.Content.Content.Text.Text
				}
				if content.Diff != nil {
					t.outputs[titles[id]] = "diff " + content.Diff.NewText
				}
			}
		case u.Plan != nil:
			t.plan = u.Plan.Entries
		case u.SessionInfoUpdate != nil && u.SessionInfoUpdate.Meta[meta.State] != nil:
			t.states = append(t.states, u.SessionInfoUpdate.Meta[meta.State])
		}
	}
	for _, id := range order {
		t.rows = append(t.rows, titles[id]+": "+status[id])
	}
}

// failure returns the code and the message of a failed turn.
func (t turn) failure() string {
	found, ok := t.Meta[meta.Error].(map[string]any)
	if !ok {
		return ""
	}
	return found["code"].(string) + ": " + found["message"].(string)
}

// next returns the _meta of session/new for the process after this turn.
func (t turn) next() map[string]any { return map[string]any{meta.State: t.Meta[meta.State]} }

// expect compares how a turn has ended.
func (t turn) expect(test *testing.T, stop acp.StopReason, failure, text string, rows ...string) {
	test.Helper()
	if t.err != nil || t.StopReason != stop || t.failure() != failure || t.text != text || !slices.Equal(t.rows, rows) {
		test.Errorf("the turn is %q, %v, failure %q, text %q, rows %q; want %q, %q, %q, %q",
			t.StopReason, t.err, t.failure(), t.text, t.rows, stop, failure, text, rows)
	}
}

// steer sends inputs to the turn that runs.
func (p *process) steer(parts ...any) bool {
	p.t.Helper()
	blocks, _ := promptOf(parts)
	request := meta.SteerRequest[acp.ContentBlock]{SessionID: string(p.session), Prompt: blocks}
	for range blocks {
		request.Meta.Inputs = append(request.Meta.Inputs, meta.Input{Kind: meta.KindMessage, Sender: meta.Sender{Kind: meta.SenderUser}})
	}
	raw, err := p.conn.CallExtension(p.t.Context(), meta.SteerMethod, request)
	if err != nil {
		p.t.Fatal(err)
	}
	var answer meta.SteerResponse
	if err := json.Unmarshal(raw, &answer); err != nil {
		p.t.Fatal(err)
	}
	return answer.Accepted
}

// A platform is an MCP server with the platform's tools, which records their calls.
type platform struct {
	acp.McpServer
	lock    sync.Mutex
	calls   []string
	awaited int
	refused int          // how many requests are refused
	handler http.Handler // nil at first
	restart func()
}

const bearer = "Bearer session-key"

// newPlatform starts a platform. Its child sessions run for one call of await_sessions.
func newPlatform(t *testing.T) *platform {
	t.Helper()
	p := &platform{}
	server := mcp.NewServer(&mcp.Implementation{Name: "atelier", Version: "1"}, nil)
	addTool(p, server, meta.ToolAsk, func(meta.AskArguments) (any, error) { return struct{}{}, nil })
	addTool(p, server, meta.ToolSleep, func(meta.SleepArguments) (any, error) { return struct{}{}, nil })
	addTool(p, server, meta.ToolReportProgress, func(meta.ProgressArguments) (any, error) { return struct{}{}, nil })
	addTool(p, server, meta.ToolStartSession, func(a meta.StartArguments) (any, error) {
		return meta.StartResult{SessionID: "child of " + a.Title}, nil
	})
	addTool(p, server, meta.ToolAwaitSessions, func(a meta.AwaitArguments) (any, error) {
		p.awaited++
		if p.awaited == 1 {
			return meta.AwaitResult{Running: a.SessionIDs}, nil
		}
		return meta.AwaitResult{Done: []meta.DoneSession{{SessionID: a.SessionIDs[0], TurnStatus: "complete", Text: "I am done"}}}, nil
	})
	p.restart = func() {
		p.lock.Lock()
		defer p.lock.Unlock()
		p.handler = mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	}
	p.restart()
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != bearer {
			http.Error(w, "no key", http.StatusUnauthorized)
			return
		}
		p.lock.Lock()
		handler, isRefused := p.handler, p.refused > 0
		p.refused = max(p.refused-1, 0)
		p.lock.Unlock()
		if isRefused {
			http.Error(w, "restarting", http.StatusBadGateway)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	p.McpServer = acp.McpServer{Http: &acp.McpServerHttpInline{
		Type: "http", Name: meta.PlatformServer, Url: front.URL,
		Headers: []acp.HttpHeader{{Name: "Authorization", Value: bearer}},
	}}
	return p
}

func addTool[A any](p *platform, server *mcp.Server, name string, answer func(A) (any, error)) {
	mcp.AddTool(server, &mcp.Tool{Name: name, Description: "A tool of the platform"},
		func(_ context.Context, _ *mcp.CallToolRequest, arguments A) (*mcp.CallToolResult, any, error) {
			p.lock.Lock()
			defer p.lock.Unlock()
			text, err := json.Marshal(arguments)
			if err != nil {
				return nil, nil, err
			}
			p.calls = append(p.calls, name+" "+string(text))
			result, err := answer(arguments)
			return nil, result, err
		})
}

func (p *platform) expect(t *testing.T, want ...string) {
	t.Helper()
	p.lock.Lock()
	defer p.lock.Unlock()
	if !slices.EqualFunc(p.calls, want, func(got, want string) bool { return strings.HasPrefix(got, want) }) {
		t.Errorf("the calls are %q, want %q", p.calls, want)
	}
	p.calls = nil
}
