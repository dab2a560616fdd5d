package agents

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/atelier-run/atelier/runner/builtin/model"
	"github.com/atelier-run/atelier/runner/gateway"
	"github.com/atelier-run/atelier/runner/modeltest"
	"github.com/atelier-run/atelier/runner/presets"
	"github.com/atelier-run/atelier/tests/testmachine"
)

// longest limits waits that measure nothing. A test that waits longer has failed.
const longest = 3 * time.Minute

const (
	token     = "token-of-the-run"
	modelName = "test-model"
)

// A product is an agent that a preset configures.
type product struct {
	preset  string
	program string
	// wire is the format of most tests; opencode speaks the others, too: where a session is loaded, and where it asks.
	wire, loadWire, askWire gateway.Wire
	// shell and patch return calls of the product's tools: a command, and a change of a file's text from "one" to "two".
	shell, patch func(id, command string) model.Call
	// deniedEnd is the end of a prompt in which a permission is denied.
	deniedEnd acp.StopReason
}

var products = []product{
	{
		preset:    "codex",
		program:   "@zed-industries/codex-acp-linux-" + map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH] + "/bin/codex-acp",
		wire:      gateway.Responses,
		loadWire:  gateway.Responses,
		askWire:   gateway.Responses,
		shell:     func(id, command string) model.Call { return call(id, "shell_command", "command", command) },
		deniedEnd: acp.StopReasonCancelled,
		patch: func(id, path string) model.Call {
			return call(id, "shell_command", "command",
				"apply_patch <<'EOF'\n*** Begin Patch\n*** Update File: "+filepath.Base(path)+"\n@@\n-one\n+two\n*** End Patch\nEOF\n")
		},
	},
	{
		preset:   "opencode",
		program:  "opencode-linux-x64-baseline/bin/opencode",
		wire:     gateway.Chat,
		loadWire: gateway.Responses,
		askWire:  gateway.Anthropic,
		shell: func(id, command string) model.Call {
			return call(id, "bash", "command", command, "description", "test")
		},
		deniedEnd: acp.StopReasonEndTurn,
		patch: func(id, path string) model.Call {
			return call(id, "edit", "filePath", path, "oldString", "one", "newString", "two")
		},
	},
}

// call returns a call of a tool with named arguments.
func call(id, name string, pairs ...string) model.Call {
	arguments := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		arguments[pairs[i]] = pairs[i+1]
	}
	encoded, err := json.Marshal(arguments)
	if err != nil {
		panic(err) // strings can be encoded
	}
	return model.Call{ID: id, Name: name, Arguments: string(encoded)}
}

// installed returns the path of a product's program, or skips the test.
func (p product) installed(t *testing.T) string {
	t.Helper()
	at, err := filepath.Abs(filepath.Join("node_modules", p.program))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(at); err != nil {
		testmachine.Lacks(t, "npm ci in tests/agents has installed no "+p.preset+" for this platform")
	}
	return at
}

// A machine is where an agent runs: its folders, and the only server that it finds.
type machine struct {
	*testing.T
	product
	home, drive string
	model       *modeltest.Server
	proxy       string
}

func newMachine(t *testing.T, p product) *machine {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{T: t, product: p, home: filepath.Join(root, "home"), drive: filepath.Join(root, "drive"), model: modeltest.New(t)}
	for _, dir := range []string{m.home, m.drive} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("%s has tried to reach %s %s", p.preset, r.Method, r.Host)
		w.WriteHeader(http.StatusForbidden)
	}))
	t.Cleanup(proxy.Close)
	m.proxy = proxy.URL
	return m
}

// environ returns the variables of processes in the machine.
func (m *machine) environ(more map[string]string) []string {
	env := []string{
		"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + m.home, "ATELIER_AGENT_STATE=" + m.home, "LANG=C.UTF-8",
		"no_proxy=127.0.0.1", "NO_PROXY=127.0.0.1",
	}
	for _, name := range []string{"http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"} {
		env = append(env, name+"="+m.proxy)
	}
	for name, value := range more {
		env = append(env, name+"="+value)
	}
	return env
}

// An agent is a process of a product and the client that it is connected to.
type agent struct {
	acp.Client // nil: for the methods of the client that the runner does not offer

	*machine
	conn *acp.ClientSideConnection
	end  func()

	mu sync.Mutex
	// permit answers the requests for permission; nil: the first option.
	permit      func(acp.RequestPermissionRequest) acp.RequestPermissionOutcome
	permissions []acp.RequestPermissionRequest
	updates     []acp.SessionUpdate
}

// start starts the product as its preset says.
func (m *machine) start(wire gateway.Wire) *agent {
	m.Helper()
	preset, _ := presets.Find(m.preset)
	argv, env, err := preset.Configure([]string{m.installed(m.T)}, presets.Target{
		URL: m.model.URL + "/model/fast", Token: token, Model: modelName, Wire: wire,
	})
	if err != nil {
		m.Fatal(err)
	}
	process := exec.Command(argv[0], argv[1:]...)
	process.Dir, process.Env = m.drive, m.environ(env)
	process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	process.Stderr = m.Output()
	stdin, err := process.StdinPipe()
	if err != nil {
		m.Fatal(err)
	}
	stdout, err := process.StdoutPipe()
	if err != nil {
		m.Fatal(err)
	}
	if err := process.Start(); err != nil {
		m.Fatal(err)
	}
	a := &agent{machine: m}
	a.end = sync.OnceFunc(func() {
		_ = syscall.Kill(-process.Process.Pid, syscall.SIGKILL)
		_ = process.Wait()
	})
	m.Cleanup(a.end)
	a.conn = acp.NewClientSideConnection(a, stdin, io.Reader(stdout))
	a.conn.SetLogger(slog.New(slog.DiscardHandler))
	answer, err := a.conn.Initialize(a.limit(), acp.InitializeRequest{ProtocolVersion: acp.ProtocolVersionNumber})
	if err != nil {
		m.Fatal(err)
	}
	c := answer.AgentCapabilities
	if !c.LoadSession || !c.PromptCapabilities.Image || !c.McpCapabilities.Http || answer.ProtocolVersion != acp.ProtocolVersionNumber {
		m.Fatalf("%+v", answer)
	}
	return a
}

// limit returns a context that ends with the test or after longest.
func (m *machine) limit() context.Context {
	ctx, cancel := context.WithTimeout(m.Context(), longest)
	m.Cleanup(cancel)
	return ctx
}

// open opens a session in the drive.
func (a *agent) open(servers ...acp.McpServer) acp.SessionId {
	a.Helper()
	answer, err := a.conn.NewSession(a.limit(), acp.NewSessionRequest{Cwd: a.drive, McpServers: append([]acp.McpServer{}, servers...)})
	if err != nil {
		a.Fatal(err)
	}
	return answer.SessionId
}

// prompt sends a prompt and returns its response.
func (a *agent) prompt(session acp.SessionId, blocks ...acp.ContentBlock) (acp.PromptResponse, error) {
	a.mu.Lock()
	a.updates, a.permissions = nil, nil
	a.mu.Unlock()
	return a.conn.Prompt(a.limit(), acp.PromptRequest{SessionId: session, Prompt: blocks})
}

// say sends a text and expects an end of its prompt.
func (a *agent) say(session acp.SessionId, text string, end acp.StopReason) acp.PromptResponse {
	a.Helper()
	answer, err := a.prompt(session, acp.TextBlock(text))
	if err != nil || answer.StopReason != end {
		a.Fatalf("%+v, %v; want the reason %s", answer, err, end)
	}
	return answer
}

// SessionUpdate implements acp.Client.
func (a *agent) SessionUpdate(_ context.Context, n acp.SessionNotification) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.updates = append(a.updates, n.Update)
	return nil
}

// RequestPermission implements acp.Client.
func (a *agent) RequestPermission(_ context.Context, r acp.RequestPermissionRequest) (acp.RequestPermissionResponse, error) {
	a.mu.Lock()
	a.permissions = append(a.permissions, r)
	permit := a.permit
	a.mu.Unlock()
	if permit == nil {
		permit = choose(acp.PermissionOptionKindAllowOnce)
	}
	return acp.RequestPermissionResponse{Outcome: permit(r)}, nil
}

// choose answers with the option of a kind.
func choose(kind acp.PermissionOptionKind) func(acp.RequestPermissionRequest) acp.RequestPermissionOutcome {
	return func(r acp.RequestPermissionRequest) acp.RequestPermissionOutcome {
		for _, o := range r.Options {
			if o.Kind == kind {
				return acp.NewRequestPermissionOutcomeSelected(o.OptionId)
			}
		}
		return acp.NewRequestPermissionOutcomeCancelled()
	}
}

// setPermit sets the answer to requests for permission until the test ends.
func (a *agent) setPermit(t *testing.T, permit func(acp.RequestPermissionRequest) acp.RequestPermissionOutcome) {
	set := func(to func(acp.RequestPermissionRequest) acp.RequestPermissionOutcome) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.permit = to
	}
	set(permit)
	t.Cleanup(func() { set(nil) })
}

// WriteTextFile implements acp.Client.
func (a *agent) WriteTextFile(context.Context, acp.WriteTextFileRequest) (acp.WriteTextFileResponse, error) {
	return acp.WriteTextFileResponse{}, acp.NewMethodNotFound(acp.ClientMethodFsWriteTextFile)
}

// reply returns the text of the last prompt's messages without the product's own, and the text of its thoughts.
func (a *agent) reply() (text, thoughts string) {
	preset, _ := presets.Find(a.preset)
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, u := range a.updates {
		switch {
		case u.AgentMessageChunk != nil && u.AgentMessageChunk.Content.Text != nil:
			if chunk := u.AgentMessageChunk.Content.Text.Text; !preset.IsNotice(chunk) {
				text += chunk
			}
		case u.AgentThoughtChunk != nil && u.AgentThoughtChunk.Content.Text != nil:
			thoughts += u.AgentThoughtChunk.Content.Text.Text
		}
	}
	return text, thoughts
}

// A report is the report of a product on a call of a tool.
type report struct {
	kind, status, output, title string
	paths                       []string
	diffs                       []acp.ToolCallContentDiff
}

// reported returns the reports of a call in the last prompt.
func (a *agent) reported(id string) (r report) {
	a.mu.Lock()
	defer a.mu.Unlock()
	add := func(content []acp.ToolCallContent, places []acp.ToolCallLocation, raw any) {
		for _, c := range content {
			switch {
			case c.Diff != nil:
				r.diffs = append(r.diffs, *c.Diff)
			case c.Content != nil && c.Content.Content.Text != nil:
				r.output = c.Content.Content.Text.Text
			}
		}
		for _, l := range places {
			r.paths = append(r.paths, l.Path)
		}
		if fields, is := raw.(map[string]any); is && len(content) == 0 {
			r.output, _ = fields["formatted_output"].(string)
		}
	}
	for _, u := range a.updates {
		switch c, changed := u.ToolCall, u.ToolCallUpdate; {
		case c != nil && string(c.ToolCallId) == id:
			r.kind, r.status, r.title = string(c.Kind), string(c.Status), c.Title
			add(c.Content, c.Locations, c.RawOutput)
		case changed != nil && string(changed.ToolCallId) == id:
			if changed.Status != nil {
				r.status = string(*changed.Status)
			}
			add(changed.Content, changed.Locations, changed.RawOutput)
		}
	}
	return r
}

// asked returns the requests for permission of the last prompt.
func (a *agent) asked() []acp.RequestPermissionRequest {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.permissions
}

// errorText returns the text of an agent on the failure of a prompt.
func errorText(err error) string {
	refused, is := errors.AsType[*acp.RequestError](err)
	if !is {
		return ""
	}
	data, _ := json.Marshal(refused.Data)
	return strings.ToLower(refused.Message + " " + string(data))
}

func (a *agent) file(name string) string {
	content, err := os.ReadFile(filepath.Join(a.drive, name))
	if err != nil {
		return ""
	}
	return string(content)
}
