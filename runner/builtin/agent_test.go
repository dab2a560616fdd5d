package builtin

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/coder/acp-go-sdk"
	"golang.org/x/sys/unix"
)

// silent is a client that ignores updates.
type silent struct{ client }

func (silent) SessionUpdate(context.Context, acp.SessionNotification) error { return nil }

// TestLateCancel calls Cancel as the library does if the next turn has begun after the library has ended the context of the turn
// before.
func TestLateCancel(t *testing.T) {
	dir := t.TempDir()
	a := newAgent(settings{drive: dir, environ: os.Environ()})
	a.connect(silent{})
	s, err := a.NewSession(t.Context(), acp.NewSessionRequest{Cwd: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer a.close(stopping)
	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	result := make(chan acp.StopReason, 1)
	go func() {
		response, err := a.Prompt(t.Context(), acp.PromptRequest{
			SessionId: s.SessionId, Prompt: []acp.ContentBlock{acp.TextBlock("$ cat pipe")},
		})
		if err != nil {
			t.Error(err)
		}
		result <- response.StopReason
	}()
	command, err := os.OpenFile(pipe, os.O_WRONLY, 0) // returns when the command has begun
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Cancel(t.Context(), acp.CancelNotification{SessionId: s.SessionId}); err != nil {
		t.Error(err)
	}
	command.Close()
	if got := <-result; got != acp.StopReasonEndTurn {
		t.Errorf("the turn is %q", got)
	}
}

// TestPromptAtTheEnd sends a prompt to a session that ends at the same time: the agent has found the session, and the turn has not
// begun when the end interrupts the turn that runs.
func TestPromptAtTheEnd(t *testing.T) {
	dir := t.TempDir()
	a := newAgent(settings{drive: dir, environ: os.Environ()})
	a.connect(silent{})
	opened, err := a.NewSession(t.Context(), acp.NewSessionRequest{Cwd: dir})
	if err != nil {
		t.Fatal(err)
	}
	s, err := a.session(opened.SessionId)
	if err != nil {
		t.Fatal(err)
	}
	s.end()
	if response, err := s.prompt(t.Context(), []input{{text: "$ touch effect"}}); err == nil {
		t.Errorf("the turn is %+v", response)
	}
	if _, err := os.Stat(filepath.Join(dir, "effect")); err == nil {
		t.Error("a line was carried out after the end")
	}
}
