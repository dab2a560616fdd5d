package builtin_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/acp-go-sdk"
	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/runner/meta"
)

const (
	end       = acp.StopReasonEndTurn
	cancelled = acp.StopReasonCancelled
)

func by(kind, sender string) meta.Input {
	return meta.Input{Kind: kind, Sender: meta.Sender{Kind: sender}}
}

// read returns the content of a file of the drive.
func (p *process) read(name string) string {
	p.t.Helper()
	content, err := os.ReadFile(filepath.Join(p.drive, name))
	if err != nil {
		p.t.Fatal(err)
	}
	return string(content)
}

func TestRunbook(t *testing.T) {
	host := newPlatform(t)
	p := start(t, t.TempDir()).open(nil, host.McpServer)
	got := p.prompt("write a/hello.txt\n  hello\n$ cat a/hello.txt\n$? exit 3\nstep 1/2 Half\n" +
		"start Child\n  say child\nawait\nsay one\nsay two")
	got.expect(t, end, "", "one\n\ntwo", "Write a/hello.txt: completed", "cat a/hello.txt: completed", "exit 3: failed",
		"Start session: Child: completed", "Await sessions: completed")
	if p.read("a/hello.txt") != "hello\n" || got.outputs["cat a/hello.txt"] != "hello\n" ||
		got.outputs["Write a/hello.txt"] != "diff hello\n" || got.outputs["exit 3"] != "\n[exit status 3]" ||
		got.outputs["Await sessions"] != "child of Child: complete\nI am done\n" {
		t.Errorf("%q", got.outputs)
	}
	host.expect(t, `report_progress {"step":"Half","completed":1,"total":2}`, `start_session {"prompt":"say child\n","title":"Child"}`,
		`await_sessions {"sessionIds":["child of Child"]`, "await_sessions")
	if len(got.states) != 9 {
		t.Errorf("the state was sent %d times", len(got.states))
	}
}

func TestPlatformRestarts(t *testing.T) {
	host := newPlatform(t)
	p := start(t, t.TempDir()).open(nil, host.McpServer)
	p.prompt("step 1/3 One").expect(t, end, "", "")
	host.restart()
	got := p.prompt("start A\n  say a")
	got.expect(t, end, "", "", "Start session: A: completed")
	refuse := func() {
		host.lock.Lock()
		defer host.lock.Unlock()
		host.refused = 2
	}
	refuse()
	p.prompt("step 2/3 Two").expect(t, end, "", "")
	host.expect(t, "report_progress", "start_session", "report_progress")
	refuse() // a session may have been started, and is not started again
	if got := p.prompt("start A\n  say a"); !strings.HasPrefix(got.failure(), "runbook_failed: line 1 (start A): call the platform: ") {
		t.Errorf("%q", got.failure())
	}
	host.expect(t)
}

func TestRunbookFailures(t *testing.T) {
	p := start(t, t.TempDir()).open(nil)
	p.prompt("$ echo no; exit 4\nsay never").expect(t, end,
		"runbook_failed: line 1 ($ echo no; exit 4): the command has ended with status 4", "", "echo no; exit 4: failed")
	p.prompt("fail It is wrong").expect(t, end, "runbook_failed: It is wrong", "")
	p.prompt("say a\nwhat?").expect(t, end, `runbook_invalid: the runbook is not carried out: line 2: "what?" is no instruction`, "")
	p.prompt("ask Well?").expect(t, end, "runbook_failed: line 1 (ask Well?): this needs the tools of the platform, "+
		"which the client does not offer", "")
	p.prompt("write ../x\n  y").expect(t, end, "runbook_failed: line 1 (write ../x): the path ../x is outside of the drive", "")
	p.prompt("write big\n  "+strings.Repeat("x", meta.MaxState)).expect(t, end, "runbook_invalid: the runbook is too long: "+
		"what is left of it has 262231 bytes, at most 262144 are allowed", "")
	help := p.prompt("Hello, who are you?")
	if help.failure() != "" || !strings.Contains(help.text, "$ COMMAND") || !strings.Contains(help.text, "no model is configured") {
		t.Errorf("%q, %q", help.failure(), help.text)
	}
}

func TestAskContinuesInAnotherProcess(t *testing.T) {
	host, drive := newPlatform(t), t.TempDir()
	first := start(t, drive).open(nil, host.McpServer)
	asked := first.prompt("say before\nask Which colour? | red | blue\n" +
		"$ printf \"%s\" \"$ATELIER_ANSWER\" > answer\nsay It is {{answer}}.")
	asked.expect(t, end, "", "before")
	host.expect(t, `ask {"text":"Which colour?","options":["red","blue"]}`)

	second := start(t, drive).open(asked.next(), host.McpServer)
	again := second.prompt("say in between", by(meta.KindMessage, meta.SenderUser))
	again.expect(t, end, "", "in between")
	host.expect(t, `ask {"text":"Which colour?","options":["red","blue"]}`)
	later := meta.Input{Kind: meta.KindMessage, Behavior: meta.BehaviorFollowUp, Sender: meta.Sender{Kind: meta.SenderUser}}
	second.prompt("say last", later).expect(t, end, "", "")

	answered := second.prompt("red'; rm -rf x", by(meta.KindAnswer, meta.SenderUser))
	answered.expect(t, end, "", "It is red'; rm -rf x.\n\nlast", `printf "%s" "$ATELIER_ANSWER" > answer: completed`)
	if second.read("answer") != "red'; rm -rf x" {
		t.Error(second.read("answer"))
	}
}

func TestSleepContinuesInAnotherProcess(t *testing.T) {
	host, drive := newPlatform(t), t.TempDir()
	before := time.Now()
	slept := start(t, drive).open(nil, host.McpServer).prompt("sleep 1h\nsay awake")
	slept.expect(t, end, "", "")
	host.lock.Lock()
	var arguments meta.SleepArguments
	if err := json.Unmarshal([]byte(strings.TrimPrefix(host.calls[0], "sleep_until ")), &arguments); err != nil {
		t.Fatal(err)
	}
	host.lock.Unlock()
	if at := time.UnixMilli(arguments.At); at.Before(before.Add(59*time.Minute)) || at.After(time.Now().Add(time.Hour)) {
		t.Error(at)
	}
	next := start(t, drive).open(slept.next(), host.McpServer)
	next.prompt("A note", by(meta.KindNote, meta.SenderUser)).expect(t, end, "", "") // sleeps again
	next.prompt(meta.SleepEnded, by(meta.KindMessage, meta.SenderUser)).expect(t, end, "", next.prompt("what?").text)
	next.prompt(meta.SleepEnded, by(meta.KindMessage, meta.SenderSystem)).expect(t, end, "", "awake")
}

func TestLostProcessDoesNotRepeatItsLine(t *testing.T) {
	drive := t.TempDir()
	first := start(t, drive).open(nil)
	got := first.prompt("say one\n$ echo x >> log\nsay three")
	if len(got.states) != 4 { // at the beginning, and before each line
		t.Fatalf("%d states", len(got.states))
	}
	next := start(t, drive).open(map[string]any{meta.State: got.states[2]})
	next.prompt(meta.Continue, by(meta.KindMessage, meta.SenderSystem)).expect(t, end, "", "Line 2 (`$ echo x >> log`) was interrupted. "+
		"It may have had its effect, and is not carried out again. The runbook continues with the next line.\n\nthree")
	if first.read("log") != "x\n" {
		t.Error(first.read("log"))
	}
}

// TestAwaitOfManyChildren expects that no call names more sessions than the platform takes, and that all are awaited.
func TestAwaitOfManyChildren(t *testing.T) {
	host := newPlatform(t)
	var text strings.Builder
	for i := range 70 {
		fmt.Fprintf(&text, "start %02d\n  say x\n", i)
	}
	got := start(t, t.TempDir()).open(nil, host.McpServer).prompt(text.String() + "await\nsay done")
	if got.text != "done" || got.failure() != "" {
		t.Errorf("%q, %s", got.text, got.failure())
	}
	awaited := map[string]bool{}
	for _, call := range host.calls {
		arguments, isAwait := strings.CutPrefix(call, meta.ToolAwaitSessions+" ")
		if !isAwait {
			continue
		}
		var in meta.AwaitArguments
		if err := json.Unmarshal([]byte(arguments), &in); err != nil || len(in.SessionIDs) > 32 {
			t.Errorf("%d sessions, %v", len(in.SessionIDs), err)
		}
		for _, id := range in.SessionIDs {
			awaited[id] = true
		}
	}
	if len(awaited) != 70 {
		t.Errorf("%d sessions were awaited", len(awaited))
	}
}

// hold starts a turn that waits until the returned function is called.
func (p *process) hold(after string) (finish func(), result func() turn) {
	p.t.Helper()
	pipe := filepath.Join(p.drive, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		p.t.Fatal(err)
	}
	result = p.begin("$ cat pipe\n" + after)
	writer, err := os.OpenFile(pipe, os.O_WRONLY, 0) // waits for the command
	if err != nil {
		p.t.Fatal(err)
	}
	return func() { writer.Close() }, result
}

func TestCancelEndsTheProcesses(t *testing.T) {
	p := start(t, t.TempDir()).open(nil)
	result := p.begin("$ sleep 300 & echo $!; wait\nsay never")
	var pid int
	p.await(func(updates []acp.SessionUpdate) bool {
		var got turn
		got.read(updates)
		for _, output := range got.outputs {
			pid, _ = strconv.Atoi(strings.TrimSpace(output))
		}
		return pid != 0
	})
	ended := watch(t, pid)
	if err := p.conn.Cancel(t.Context(), acp.CancelNotification{SessionId: p.session}); err != nil {
		t.Fatal(err)
	}
	got := result()
	got.expect(t, cancelled, "", "", "sleep 300 & echo $!; wait: failed")
	if !ended() {
		t.Error("the process still runs")
	}
	next := start(t, p.drive).open(got.next())
	next.prompt(meta.Continue, by(meta.KindMessage, meta.SenderSystem)).expect(t, end, "", "Line 1 (`$ sleep 300 & echo $!; wait`) was "+
		"interrupted. It may have had its effect, and is not carried out again. The runbook continues with the next line.\n\nnever")
	p.prompt("say next").expect(t, end, "", "next")
}

// watch returns a function that reports whether a process ends within some seconds.
func watch(t *testing.T, pid int) func() bool {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	return func() bool {
		defer unix.Close(fd)
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 10_000)
		return n == 1 && err == nil
	}
}

func TestClientThatGoesEndsTheProcesses(t *testing.T) {
	p := start(t, t.TempDir()).open(nil)
	p.hold("say never")
	p.hangUp()
	if status := <-p.ended; status != 0 {
		t.Errorf("status %d", status)
	}
	p.ended <- 0
}

func TestPermission(t *testing.T) {
	p := start(t, t.TempDir()).open(map[string]any{meta.Mode: meta.ModeConfirm})
	answers := []acp.PermissionOptionId{"reject", "allow_once", "allow_session"}
	p.permit = func(acp.RequestPermissionRequest) acp.PermissionOptionId {
		first := answers[0]
		answers = answers[1:]
		return first
	}
	p.prompt("$ echo 1\nsay never").expect(t, end, "runbook_failed: line 1 ($ echo 1): this was not permitted", "", "echo 1: failed")
	got := p.prompt("$ echo 2\n$ echo 3\n$ echo 4")
	got.expect(t, end, "", "", "echo 2: completed", "echo 3: completed", "echo 4: completed")
	if r := p.requests[0]; len(p.requests) != 3 || *r.ToolCall.Title != "echo 1" || len(r.Options) != 3 {
		t.Errorf("%+v", p.requests)
	}
	next := start(t, p.drive).open(map[string]any{meta.Mode: meta.ModeConfirm, meta.State: got.Meta[meta.State]})
	next.prompt("$ echo 5").expect(t, end, "", "", "echo 5: completed")
	result := next.begin("write x\n  y")
	next.await(func([]acp.SessionUpdate) bool { return true })
	next.await(func(u []acp.SessionUpdate) bool { return len(u) >= 3 }) // the state twice, and the call
	if err := next.conn.Cancel(t.Context(), acp.CancelNotification{SessionId: next.session}); err != nil {
		t.Fatal(err)
	}
	result().expect(t, cancelled, "", "", "Write x: failed")
}

// TestPermissionAfterTheProcess answers a request for permission after the process that has sent it was lost.
func TestPermissionAfterTheProcess(t *testing.T) {
	const text = "$ echo 1\n$ echo 2\nsay Done."
	for name, c := range map[string]struct {
		kind, answer  string
		failure, text string
		calls         []string
	}{
		"allow once":    {meta.KindAnswer, "Allow once", "", "Done.", []string{"echo 1: completed", "echo 2: completed"}},
		"allow always":  {meta.KindAnswer, " allow for this session ", "", "Done.", []string{"echo 1: completed", "echo 2: completed"}},
		"reject":        {meta.KindAnswer, "Reject", "runbook_failed: line 1 ($ echo 1): this was not permitted", "", nil},
		"another order": {meta.KindMessage, "say Instead.", "", "Instead.", nil},
	} {
		t.Run(name, func(t *testing.T) {
			first := start(t, t.TempDir()).open(map[string]any{meta.Mode: meta.ModeConfirm})
			asked, release := make(chan struct{}), make(chan struct{})
			first.permit = func(acp.RequestPermissionRequest) acp.PermissionOptionId {
				close(asked)
				<-release
				return "reject"
			}
			var saved any
			result := first.begin(text)
			<-asked
			first.await(func(updates []acp.SessionUpdate) bool {
				for _, u := range updates {
					if u.SessionInfoUpdate != nil && strings.Contains(fmt.Sprint(u.SessionInfoUpdate.Meta[meta.State]), "requested") {
						saved = u.SessionInfoUpdate.Meta[meta.State]
					}
				}
				return saved != nil
			})
			close(release)
			result()

			next := start(t, first.drive).open(map[string]any{meta.Mode: meta.ModeConfirm, meta.State: saved})
			requests := 0
			next.permit = func(acp.RequestPermissionRequest) acp.PermissionOptionId {
				requests++
				return "allow_once"
			}
			next.prompt(c.answer, meta.Input{Kind: c.kind, Sender: meta.Sender{Kind: meta.SenderUser}}).
				expect(t, end, c.failure, c.text, c.calls...)
			if want := map[string]int{"allow once": 1}[name]; requests != want {
				t.Errorf("%d permissions were requested, want %d", requests, want)
			}
		})
	}
}

func TestSecretsStayWithTheAgent(t *testing.T) {
	p := start(t, t.TempDir(), "ATELIER_AGENT_API_KEY=secret", "OTHER=visible").open(nil)
	got := p.prompt("$ env | sort")
	if strings.Contains(got.outputs["env | sort"], "secret") || !strings.Contains(got.outputs["env | sort"], "OTHER=visible") {
		t.Errorf("%q", got.outputs)
	}
}

func TestInvalidRequests(t *testing.T) {
	drive := t.TempDir()
	p := start(t, drive).open(nil)
	opening := func(cwd string, values map[string]any, servers ...acp.McpServer) error {
		_, err := p.conn.NewSession(t.Context(), acp.NewSessionRequest{
			Cwd: cwd, Meta: values, McpServers: append([]acp.McpServer{}, servers...),
		})
		return err
	}
	unreachable := newPlatform(t).McpServer
	unreachable.Http.Headers[0].Value = "wrong"
	double := newPlatform(t).McpServer
	finish, result := p.hold("say done")
	for part, err := range map[string]error{
		"no absolute path":       opening("x", nil),
		"outside of the drive":   opening("/", nil),
		"no such file":           opening(filepath.Join(drive, "none"), nil),
		`is \"never\"`:           opening(drive, map[string]any{meta.Mode: "never"}),
		`run/instructions\"] is`: opening(drive, map[string]any{meta.Instructions: 5}),
		"unknown instruction": opening(drive, map[string]any{
			meta.State: map[string]any{"runbook": map[string]any{"running": map[string]any{"kind": "x"}}},
		}),
		"newer agent":                 opening(drive, map[string]any{meta.State: map[string]any{"version": 99}}),
		"connect to the platform":     opening(drive, nil, unreachable),
		`have the name \"atelier\"`:   opening(drive, nil, double, double),
		"transport other than":        opening(drive, nil, acp.McpServer{Sse: &acp.McpServerSseInline{Type: "sse", Name: "x", Url: "x"}}),
		"there is no session":         prompting(p, "none", nil, "x"),
		"has 2 entries for 1 content": prompting(p, p.session, make([]meta.Input, 2), "x"),
		`unknown kind \"order\"`:      prompting(p, p.session, []meta.Input{by("order", "")}, "x"),
	} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v", part, err)
		}
	}
	finish()
	result().expect(t, end, "", "done", "cat pipe: completed")
	if _, err := p.conn.CallExtension(t.Context(), "_other", nil); err == nil {
		t.Error("an unknown method was answered")
	}
	if _, err := p.conn.CloseSession(t.Context(), acp.CloseSessionRequest{SessionId: p.session}); err != nil {
		t.Error(err)
	}
	if err := prompting(p, p.session, nil, "say x"); err == nil {
		t.Error("a closed session was used")
	}
}

// prompting sends a prompt to a session that need not exist, by a method of its own: a prompt to a session ends the prompt before.
func prompting(p *process, id acp.SessionId, inputs []meta.Input, text string) error {
	request := meta.SteerRequest[acp.ContentBlock]{SessionID: string(id), Prompt: []acp.ContentBlock{acp.TextBlock(text)}}
	request.Meta.Inputs = inputs
	_, err := p.conn.CallExtension(context.Background(), meta.SteerMethod, request)
	return err
}
