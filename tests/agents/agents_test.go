package agents

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/atelier-run/atelier/runner/builtin/model"
	"github.com/atelier-run/atelier/runner/modeltest"
)

// TestAgents runs whole turns of each product in one process of it, because a start takes several seconds of processor time.
func TestAgents(t *testing.T) {
	for _, p := range products {
		t.Run(p.preset, func(t *testing.T) {
			t.Parallel()
			a := newMachine(t, p).start(p.wire)
			for _, test := range []struct {
				name string
				run  func(*testing.T, *agent)
			}{
				{"text", testText}, {"command", testCommand}, {"patch", testPatch}, {"permission is denied", testDenied},
				{"permission is cancelled", testCancelledPermission}, {"cancel a reply", testCancelReply},
				{"cancel a command", testCancelCommand}, {"image", testImage}, {"cut reply", testCut}, {"errors", testErrors},
				{"platform's tools", testPlatformTools}, {"load", testLoad},
			} {
				t.Run(test.name, func(t *testing.T) { test.run(t, a) })
				if t.Failed() {
					return // the next test expects another script of the model
				}
			}
		})
	}
}

func testText(t *testing.T, a *agent) {
	session := a.open()
	a.model.Reply(modeltest.Reply{Thoughts: []string{"so ", "it is"}, Text: []string{"Hello ", "there."}, Usage: model.Usage{Input: 21, Output: 4}})
	answer := a.say(session, "Greet me.", acp.StopReasonEndTurn)
	if text, thoughts := a.reply(); text != "Hello there." || thoughts != "so it is" {
		t.Errorf("text %q, thoughts %q", text, thoughts)
	}
	if u := answer.Usage; a.preset == "opencode" && (u == nil || u.InputTokens != 21 || u.OutputTokens != 4) {
		t.Errorf("usage %+v", u)
	}
	requests := a.model.Requests()
	if len(requests) != 1 {
		t.Fatalf("%d requests to the model for one prompt", len(requests))
	}
	r := requests[0]
	if r.Model != modelName || r.Header.Get("Authorization") != "Bearer "+token || !strings.HasSuffix(r.Last().Text, "Greet me.") || r.System == "" {
		t.Errorf("model %q, authorization %q, last message %q", r.Model, r.Header.Get("Authorization"), r.Last().Text)
	}
	if slices.Contains(r.Tools, "web_search") || slices.Contains(r.Tools, "namespace") {
		t.Errorf("tools %q include some that only one service knows", r.Tools)
	}
}

func testCommand(t *testing.T, a *agent) {
	session := a.open()
	a.model.Reply(
		modeltest.Reply{Text: []string{"I write."}, Calls: []model.Call{a.shell("call_write", "echo hello >made.txt; echo done; id -un")}},
		modeltest.Reply{Text: []string{"Written."}})
	a.say(session, "Write it.", acp.StopReasonEndTurn)
	if text, _ := a.reply(); a.file("made.txt") != "hello\n" || !strings.HasSuffix(text, "Written.") {
		t.Errorf("file %q, text %q", a.file("made.txt"), text)
	}
	asked := a.asked()
	if len(asked) != 1 || asked[0].ToolCall.ToolCallId != "call_write" {
		t.Fatalf("permissions %+v", asked)
	}
	r := a.reported("call_write")
	if r.kind != "execute" || r.status != "completed" || !strings.Contains(r.title+*asked[0].ToolCall.Title, "echo hello") {
		t.Errorf("reported %+v", r)
	}
	requests := a.model.Requests()
	last := requests[len(requests)-1].Last()
	if last.Role != model.ToolResult || last.CallID != "call_write" || !strings.Contains(last.Text, "done") {
		t.Errorf("the model got %+v", last)
	}
}

func testPatch(t *testing.T, a *agent) {
	path := filepath.Join(a.drive, "text.txt")
	if err := os.WriteFile(path, []byte("one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	session := a.open()
	read := []model.Call{}
	if a.preset == "opencode" { // edits only files that it has read
		read = append(read, call("call_read", "read", "filePath", path))
	} else {
		read = append(read, a.shell("call_read", "cat text.txt"))
	}
	a.model.Reply(modeltest.Reply{Calls: read}, modeltest.Reply{Calls: []model.Call{a.patch("call_patch", path)}}, modeltest.Reply{Text: []string{"Patched."}})
	a.say(session, "Patch it.", acp.StopReasonEndTurn)
	if a.file("text.txt") != "two\n" {
		t.Errorf("file %q", a.file("text.txt"))
	}
	asked := a.asked()
	if len(asked) != 1 || asked[0].ToolCall.ToolCallId != "call_patch" || asked[0].ToolCall.Kind == nil || *asked[0].ToolCall.Kind != acp.ToolKindEdit {
		t.Fatalf("permissions %+v", asked)
	}
	r := a.reported("call_patch")
	if r.kind != "edit" || r.status != "completed" || !slices.Contains(r.paths, path) || len(r.diffs) == 0 || r.diffs[0].Path != path ||
		!strings.HasPrefix(r.diffs[0].NewText, "two") {
		t.Errorf("reported %+v", r)
	}
}

func testDenied(t *testing.T, a *agent) {
	a.setPermit(t, choose(acp.PermissionOptionKindRejectOnce))
	session := a.open()
	a.model.Reply(modeltest.Reply{Calls: []model.Call{a.shell("call_denied", "echo no >denied.txt")}})
	if a.deniedEnd == acp.StopReasonEndTurn {
		a.model.Reply(modeltest.Reply{Text: []string{"As you wish."}})
	}
	a.say(session, "Try it.", a.deniedEnd)
	if a.file("denied.txt") != "" {
		t.Error("the command has run")
	}
}

func testCancelledPermission(t *testing.T, a *agent) {
	session := a.open()
	a.setPermit(t, func(acp.RequestPermissionRequest) acp.RequestPermissionOutcome {
		if err := a.conn.Cancel(a.limit(), acp.CancelNotification{SessionId: session}); err != nil {
			t.Error(err)
		}
		return acp.NewRequestPermissionOutcomeCancelled()
	})
	a.model.Reply(modeltest.Reply{Calls: []model.Call{a.shell("call_cancelled", "echo no >cancelled.txt")}})
	a.say(session, "Try it.", acp.StopReasonCancelled)
	if a.file("cancelled.txt") != "" {
		t.Error("the command has run")
	}
}

func testCancelReply(t *testing.T, a *agent) {
	session := a.open()
	a.model.Reply(modeltest.Reply{Text: []string{"A long"}, Hold: t.Context().Done()}, modeltest.Reply{Text: []string{"Here."}})
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.say(session, "Talk.", acp.StopReasonCancelled)
	}()
	await(t, "the beginning of the reply", func() bool { text, _ := a.reply(); return text == "A long" })
	began := time.Now()
	if err := a.conn.Cancel(a.limit(), acp.CancelNotification{SessionId: session}); err != nil {
		t.Fatal(err)
	}
	<-done
	t.Logf("%s has cancelled after %s", a.preset, time.Since(began).Round(time.Millisecond))
	a.say(session, "Are you there?", acp.StopReasonEndTurn)
	if text, _ := a.reply(); text != "Here." {
		t.Errorf("text %q", text)
	}
}

func testCancelCommand(t *testing.T, a *agent) {
	session := a.open()
	a.model.Reply(modeltest.Reply{Calls: []model.Call{a.shell("call_long", "echo $$ >pid.new; mv pid.new pid; exec sleep 1000")}},
		modeltest.Reply{Text: []string{"Ended."}})
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.say(session, "Wait.", acp.StopReasonCancelled)
	}()
	await(t, "the command", func() bool { return a.file("pid") != "" })
	pid, err := strconv.Atoi(strings.TrimSpace(a.file("pid")))
	if err != nil {
		t.Fatal(err)
	}
	if err := a.conn.Cancel(a.limit(), acp.CancelNotification{SessionId: session}); err != nil {
		t.Fatal(err)
	}
	<-done
	await(t, "the end of the command", func() bool { return syscall.Kill(pid, 0) != nil })
	a.say(session, "Go on.", acp.StopReasonEndTurn)
}

// pixel is an image of one pixel.
const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

func testImage(t *testing.T, a *agent) {
	session := a.open()
	a.model.Reply(modeltest.Reply{Text: []string{"I see."}})
	answer, err := a.prompt(session, acp.TextBlock("Look."), acp.ImageBlock(pixel, "image/png"))
	if err != nil || answer.StopReason != acp.StopReasonEndTurn {
		t.Fatalf("%+v, %v", answer, err)
	}
	requests := a.model.Requests()
	if last := requests[len(requests)-1].Last(); len(last.Images) != 1 || last.Images[0] != (model.Image{MediaType: "image/png", Base64: pixel}) {
		t.Errorf("the model got %+v", last)
	}
}

// testCut cuts a reply: the agents request it again.
func testCut(t *testing.T, a *agent) {
	session := a.open()
	a.model.Reply(modeltest.Reply{Text: []string{"Lost"}, CutAfter: 1}, modeltest.Reply{Text: []string{"Complete."}})
	a.say(session, "Speak.", acp.StopReasonEndTurn)
	if text, _ := a.reply(); !strings.HasSuffix(text, "Complete.") {
		t.Errorf("text %q", text)
	}
}

// testErrors has errors of the model server that end: opencode requests the reply again each time, codex only after the first.
func testErrors(t *testing.T, a *agent) {
	session := a.open()
	a.model.Reply(modeltest.Reply{Status: http.StatusInternalServerError, Message: "broken"}, modeltest.Reply{Text: []string{"Again."}})
	a.say(session, "One.", acp.StopReasonEndTurn)
	if text, _ := a.reply(); text != "Again." {
		t.Errorf("text %q after an error that is repeated", text)
	}
	a.model.Reply(modeltest.Reply{Status: http.StatusTooManyRequests, Message: "too much", RetryAfter: 1})
	if a.preset == "opencode" {
		a.model.Reply(modeltest.Reply{Text: []string{"Later."}})
		a.say(session, "Two.", acp.StopReasonEndTurn)
	} else if _, err := a.prompt(session, acp.TextBlock("Two.")); !strings.Contains(errorText(err), "429") {
		t.Errorf("error %v, want the status", err)
	}
}

// testLoad loads a session in another process, which reports the conversation so far and has it in its next request. That process
// speaks the product's other wire format, if it has one, as after a change of the configuration. It then meets an error that lasts.
func testLoad(t *testing.T, a *agent) {
	session := a.open()
	a.model.Reply(modeltest.Reply{Text: []string{"It is a heron."}})
	a.say(session, "Remember the bird.", acp.StopReasonEndTurn)
	a.end()
	other := a.machine.start(a.loadWire)
	_, err := other.conn.LoadSession(other.limit(), acp.LoadSessionRequest{SessionId: session, Cwd: a.drive, McpServers: []acp.McpServer{}})
	if err != nil {
		t.Fatal(err)
	}
	a.model.Reply(modeltest.Reply{Calls: []model.Call{a.shell("call_load", "echo heron >bird.txt")}}, modeltest.Reply{Text: []string{"A heron."}})
	other.say(session, "Write which one.", acp.StopReasonEndTurn)
	if text, _ := other.reply(); !strings.HasSuffix(text, "A heron.") || a.file("bird.txt") != "heron\n" {
		t.Errorf("text %q, file %q", text, a.file("bird.txt"))
	}
	requests := a.model.Requests()
	var said []string
	for _, m := range requests[len(requests)-1].Messages {
		said = append(said, strings.TrimSpace(m.Text))
	}
	if !slices.Contains(said, "It is a heron.") {
		t.Errorf("the model got %q", said)
	}
	a.model.Reply(modeltest.Reply{Status: http.StatusBadRequest, Message: "no such model"})
	if _, err := other.prompt(other.open(), acp.TextBlock("Three.")); !strings.Contains(errorText(err), "no such model") {
		t.Errorf("error %q, want the message of the server", errorText(err))
	}
}

// await polls for a state that the agents do not announce.
func await(t *testing.T, what string, reached func() bool) {
	t.Helper()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for limit := time.After(longest); !reached(); {
		select {
		case <-ticker.C:
		case <-limit:
			t.Fatalf("%s: not after %s", what, longest)
		}
	}
}
