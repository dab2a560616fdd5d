package http_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	nethttp "net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/http"
	"github.com/atelier-run/atelier/http/api"
	"github.com/atelier-run/atelier/http/api/apitest"
	credentialv1 "github.com/atelier-run/atelier/messages/credential/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// machine is a server over TCP that runs processes of this machine.
type machine struct {
	*testing.T
	world     *fakeEntities
	computers *apitest.Computers
	server    *http.Server
	key, host string
	// slug is the slug of the workspace.
	slug   string
	client *nethttp.Client
}

func newMachine(t *testing.T, edit ...func(*http.Options)) *machine {
	t.Helper()
	m := &machine{T: t, world: newFakeEntities(), computers: apitest.NewComputers(t), slug: "acme"}
	m.server = m.world.server(t, append(edit, func(o *http.Options) { o.Computers = m.computers })...)
	m.key = m.world.key(alice)
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m.host = l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- m.server.Serve(l) }()
	m.client = &nethttp.Client{Transport: &nethttp.Transport{}}
	t.Cleanup(func() {
		m.client.CloseIdleConnections()
		if err := m.server.Shutdown(m.patience()); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
		if n := m.computers.Running(); n != 0 {
			t.Errorf("%d processes have outlived the server", n)
		}
	})
	return m
}

// patience is the time after which a test that waits has failed.
func (m *machine) patience() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	m.Cleanup(cancel)
	return ctx
}

// revoke revokes the machine's key.
func (m *machine) revoke() {
	m.world.change(m.key, func(c *credentialv1.Credential) { c.RevokedAt = 1 })
}

// remove makes the workspace refuse access.
func (m *machine) remove() {
	m.world.mu.Lock()
	defer m.world.mu.Unlock()
	m.world.before = func(_ context.Context, c entity.Command) (proto.Message, error) {
		if _, is := c.Message.(*workspacev1.Authorize); is {
			return nil, entity.Errorf(entity.NotFound, "no such workspace")
		}
		return nil, nil
	}
}

const execPath = "/v1/ws/acme/computer/exec"

// command is a request to run a command.
type command struct {
	Argv           []string          `json:"argv"`
	Env            map[string]string `json:"env,omitempty"`
	Stdin          string            `json:"stdin,omitempty"`
	TimeoutSeconds int               `json:"timeoutSeconds,omitempty"`
}

func shell(text string) command { return command{Argv: []string{"sh", "-c", text}} }

// post sends the request to run a command.
func (m *machine) post(ctx context.Context, c command) (*nethttp.Response, error) {
	m.Helper()
	body, err := json.Marshal(c)
	if err != nil {
		m.Fatal(err)
	}
	r, err := nethttp.NewRequestWithContext(ctx, "POST", "http://"+m.host+strings.Replace(execPath, "acme", cmp.Or(m.slug, "acme"), 1), strings.NewReader(string(body)))
	if err != nil {
		m.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+m.key)
	r.Header.Set("Content-Type", "application/json")
	return m.client.Do(r)
}

// execution is a command that runs.
type execution struct {
	*machine
	body  io.ReadCloser
	lines *bufio.Reader
}

func (m *machine) run(c command) *execution {
	m.Helper()
	response, err := m.post(m.patience(), c)
	if err != nil {
		m.Fatal(err)
	}
	m.Cleanup(func() { response.Body.Close() })
	if response.StatusCode != 200 {
		text, _ := io.ReadAll(response.Body)
		m.Fatalf("%d %v %s", response.StatusCode, response.Header, text)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/x-ndjson", "Cache-Control": "no-store, no-transform", "X-Accel-Buffering": "no",
	} {
		if got := response.Header.Get(name); got != want {
			m.Errorf("%s: %q", name, got)
		}
	}
	return &execution{m, response.Body, bufio.NewReader(response.Body)}
}

// outputLine is a line of the response.
type outputLine struct {
	Stdout, Stderr *string
	Exit           *int
	Error          *struct{ Code, Message string }
}

// next returns the next line; io.EOF after the last one.
func (x *execution) next() (outputLine, error) {
	x.Helper()
	text, err := x.lines.ReadString('\n')
	if err != nil {
		return outputLine{}, err
	}
	if strings.ContainsAny(text, "\u0085\u2028\u2029") {
		x.Errorf("the line has the end of a line of other formats: %q", text)
	}
	var line outputLine
	if err := json.Unmarshal([]byte(text), &line); err != nil {
		x.Fatalf("%s: %v", text, err)
	}
	return line, nil
}

// rest returns the remaining output, and how the command ended: its exit status or the code of its error.
func (x *execution) rest() (stdout, stderr, end string) {
	x.Helper()
	for {
		line, err := x.next()
		switch {
		case err == io.EOF:
			return stdout, stderr, end
		case err != nil:
			x.Fatalf("the response breaks off after %q: %v", stdout, err)
		case end != "":
			x.Errorf("a line follows the last one, %s", end)
		case line.Stdout != nil:
			stdout += *line.Stdout
		case line.Stderr != nil:
			stderr += *line.Stderr
		case line.Exit != nil:
			end = fmt.Sprint(*line.Exit)
		default:
			end = line.Error.Code
			if line.Error.Message == "" {
				x.Errorf("%s has no message", end)
			}
		}
	}
}

// waitRunning waits until a number of processes run.
func (m *machine) waitRunning(n int) {
	m.Helper()
	if err := m.computers.WaitRunning(m.patience(), n); err != nil {
		m.Fatal(err)
	}
}

// create creates a file that a command waits for with untilFile.
func (m *machine) create(name string) {
	m.Helper()
	if err := os.WriteFile(filepath.Join(m.computers.Dir(), name), nil, 0o600); err != nil {
		m.Fatal(err)
	}
}

func untilFile(name string) string { return "until [ -e " + name + " ]; do sleep 0.01; done" }

func TestExecSendsOutputAtOnce(t *testing.T) {
	m := newMachine(t)
	x := m.run(shell("echo one; " + untilFile("go") + "; echo two >&2; " + untilFile("on") + "; echo three"))
	if line, err := x.next(); err != nil || line.Stdout == nil || *line.Stdout != "one\n" {
		t.Errorf("%+v, %v", line, err)
	}
	m.create("go")
	if line, err := x.next(); err != nil || line.Stderr == nil || *line.Stderr != "two\n" {
		t.Errorf("%+v, %v", line, err)
	}
	m.create("on")
	if stdout, stderr, end := x.rest(); stdout != "three\n" || stderr != "" || end != "0" {
		t.Errorf("%q, %q, %s", stdout, stderr, end)
	}
}

func TestExecOutput(t *testing.T) {
	m := newMachine(t)
	for _, test := range []struct {
		name, script, stdin string
		stdout, stderr, end string
	}{
		{name: "nothing", script: "", end: "0"},
		{name: "status", script: "exit 255", end: "255"},
		{name: "signal", script: "kill -9 $$", end: "137"},
		{name: "input", script: "cat; cat", stdin: "ä\x00b", stdout: "ä\x00b", end: "0"},
		{name: "input_that_is_not_read", script: "echo done", stdin: strings.Repeat("x", 500_000), stdout: "done\n", end: "0"},
		{name: "characters_that_arrive_in_parts", script: `printf 'a\342'; sleep 0.05; printf '\202'; sleep 0.05; printf '\254b'`, stdout: "a€b", end: "0"},
		{name: "invalid_bytes", script: `printf 'a\377\300b\342\202'`, stdout: "a\ufffd\ufffdb\ufffd\ufffd", end: "0"},
		{name: "line_ends", script: `printf 'a\302\205b\342\200\250c\342\200\251'`, stdout: "a\u0085b\u2028c\u2029", end: "0"},
		{name: "control_characters", script: `printf '\033[1m"\\\n\t\001'`, stdout: "\x1b[1m\"\\\n\t\x01", end: "0"},
		{name: "streams_stay_apart", script: `printf '\342' >&2; sleep 0.05; printf '\202\254'; sleep 0.05; printf '\202\254' >&2`,
			stdout: "\ufffd\ufffd", stderr: "€", end: "0"},
		{name: "background_processes_end", script: "sleep 1000 & echo started", stdout: "started\n", end: "0"},
		{name: "closed_output", script: "exec >&- 2>&-; sleep 0.05; exit 4", end: "4"},
		{name: "environment", script: "env | grep ^ATELIER_TEST=", stdout: "ATELIER_TEST=a b\n", end: "0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := shell(test.script)
			c.Stdin, c.Env = test.stdin, map[string]string{"ATELIER_TEST": "a b"}
			m := &machine{T: t, computers: m.computers, key: m.key, host: m.host, client: m.client}
			if stdout, stderr, end := m.run(c).rest(); stdout != test.stdout || stderr != test.stderr || end != test.end {
				t.Errorf("%q, %q, %s", stdout, stderr, end)
			}
		})
	}
}

func TestExecKeepsSilentConnectionsOpen(t *testing.T) {
	m := newMachine(t, func(o *http.Options) { o.Heartbeat = 10 * time.Millisecond })
	x := m.run(shell(untilFile("go") + "; echo done"))
	for range 3 {
		if line, err := x.next(); err != nil || line.Stdout == nil || *line.Stdout != "" {
			t.Errorf("%+v, %v", line, err)
		}
	}
	m.create("go")
	if stdout, _, end := x.rest(); stdout != "done\n" || end != "0" {
		t.Errorf("%q, %s", stdout, end)
	}
}

func TestExecLinesAreBounded(t *testing.T) {
	x, total := newMachine(t).run(shell("yes äöü | head -n 400000")), 0
	for {
		line, err := x.next()
		if err != nil {
			t.Fatal(err)
		}
		if line.Stdout == nil {
			break
		}
		if n := len(*line.Stdout); n == 0 || n > 32<<10 {
			t.Errorf("a line has %d bytes", n)
		}
		total += len(*line.Stdout)
	}
	if total != 2_800_000 {
		t.Errorf("%d bytes", total)
	}
}

func TestExecEnds(t *testing.T) {
	const forever = "sleep 1000 & echo ready; cat; sleep 1000"
	for _, test := range []struct {
		name string
		end  func(*machine)
		want string
	}{
		{"credential_revoked", (*machine).revoke, "unauthorized"},
		{"access_lost", (*machine).remove, "not_found"},
		{"shutdown", func(m *machine) {
			if err := m.server.Shutdown(m.patience()); err != nil {
				m.Error(err)
			}
		}, "unavailable"},
		{"time_over", func(*machine) {}, "timeout"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m, c := newMachine(t), shell(forever)
			if test.want == "timeout" {
				c.TimeoutSeconds = 1
			}
			x := m.run(c)
			if _, err := x.next(); err != nil {
				t.Fatal(err)
			}
			test.end(m)
			if _, _, end := x.rest(); end != test.want {
				t.Errorf("it ended with %s", end)
			}
			if n := m.computers.Running(); n != 0 {
				t.Errorf("%d processes are left", n)
			}
		})
	}
}

func TestExecEndsWithItsClient(t *testing.T) {
	m := newMachine(t)
	ctx, cancel := context.WithCancel(t.Context())
	response, err := m.post(ctx, shell("sleep 1000 & cat; sleep 1000"))
	if err != nil {
		t.Fatal(err)
	}
	m.waitRunning(1)
	cancel()
	m.waitRunning(0)
	response.Body.Close()
}

// TestExecWaitsForItsClient has a client that does not read. The process waits, and is ended after the stall time.
func TestExecWaitsForItsClient(t *testing.T) {
	m := newMachine(t, func(o *http.Options) { o.Limits.StallTime = time.Second })
	x := m.run(shell("yes"))
	m.waitRunning(0)
	read, err := io.Copy(io.Discard, x.body)
	if err == nil {
		t.Error("the response ends as if it were whole")
	}
	if read > 64<<20 { // the buffers of the kernel, and not the output of yes in a second
		t.Errorf("the server has sent %d bytes to a client that did not read", read)
	}
}

func TestExecReasons(t *testing.T) {
	m := newMachine(t)
	for _, reason := range []string{"out_of_memory", "disk_full", "stopped", "lost", "struck_by_lightning"} {
		m.computers.Reason = reason
		if _, _, end := m.run(shell("exit 137")).rest(); end != reason {
			t.Errorf("%s became %s", reason, end)
		}
	}
}

func TestExecRefusals(t *testing.T) {
	w, computers := newFakeEntities(), apitest.NewComputers(t)
	s, key := w.server(t, func(o *http.Options) { o.Computers = computers }), w.key(alice)
	for _, test := range []struct {
		err    error
		status int
		code   string
	}{
		{entity.Errorf(entity.Unavailable, "the computer is being replaced"), 503, "unavailable"},
		{entity.Errorf(entity.Forbidden, "this node must not run code"), 403, "forbidden"},
		{entity.Errorf(entity.LimitReached, "too many processes"), 409, "limit_reached"},
		{errors.New("fork failed"), 500, "internal"},
		{context.DeadlineExceeded, 503, "unavailable"},
	} {
		computers.Refuse = func([]string) error { return test.err }
		expect(t, request(t, s, "POST", execPath, key, `{"argv":["true"]}`), test.status, `{"error":"`+test.code+`"`)
	}
	many := `{"argv":[` + strings.TrimSuffix(strings.Repeat(`"a",`, 257), ",") + `]}`
	long := `{"argv":["` + strings.Repeat("a", 128<<10) + `"]}`
	large := `{"argv":["cat"],"stdin":"` + strings.Repeat("a", 1<<20) + `"}`
	for body, want := range map[string]string{many: "1 to 256 strings", long: "at most 131072 bytes", large: "payload_too_large"} {
		if got := request(t, s, "POST", execPath, key, body); got.Code != 400 && got.Code != 413 || !strings.Contains(got.Body.String(), want) {
			t.Errorf("%.40s: %d %s", body, got.Code, got.Body)
		}
	}
	if n := computers.Started(); n != 0 {
		t.Errorf("%d processes were started", n)
	}
	none := w.server(t)
	expect(t, request(t, none, "POST", execPath, key, `{"argv":["true"]}`), 403, "does not run processes")
}

func TestExecCountsAsAStream(t *testing.T) {
	m := newMachine(t, func(o *http.Options) { o.Limits.CredentialStreams, o.Limits.Requests = 1, 1 })
	x := m.run(shell("cat; " + untilFile("go")))
	response, err := m.post(t.Context(), shell("true"))
	if err != nil || response.StatusCode != 429 || response.Header.Get("Retry-After") == "" {
		t.Fatalf("%v, %v", response, err)
	}
	response.Body.Close()
	expect(t, request(t, m.server, "GET", "/v1/whoami", m.key, ""), 200, "") // it does not count as a request
	m.create("go")
	x.rest()
	m.waitRunning(0)
}

var _ api.Computers = (*apitest.Computers)(nil)
