package builtin_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/coder/acp-go-sdk"

	"github.com/atelier-run/atelier/runner/meta"
)

func TestSteerIsCarriedOutAfterTheRunningLine(t *testing.T) {
	p := start(t, t.TempDir()).open(nil)
	if p.steer("say early") {
		t.Error("inputs were accepted without a turn")
	}
	finish, result := p.hold("say last")
	if !p.steer("say steered", "what?") {
		t.Error("the inputs were not accepted")
	}
	finish()
	got := result()
	if !strings.HasPrefix(got.text, "I am Atelier's built-in agent") || !strings.HasSuffix(got.text, "\n\nsteered\n\nlast") {
		t.Errorf("%q", got.text)
	}
	if p.steer("say late") {
		t.Error("inputs were accepted after the turn")
	}
}

// TestInterruptedTurnKeepsSteeredLines interrupts a turn as the platform does, which then lets it go on.
func TestInterruptedTurnKeepsSteeredLines(t *testing.T) {
	p := start(t, t.TempDir()).open(nil)
	_, result := p.hold("say last")
	if !p.steer("say steered") {
		t.Error("the input was not accepted")
	}
	if err := p.conn.Cancel(t.Context(), acp.CancelNotification{SessionId: p.session}); err != nil {
		t.Fatal(err)
	}
	if got := result(); got.StopReason != cancelled {
		t.Errorf("%+v", got.PromptResponse)
	}
	got := p.prompt(meta.Continue, by(meta.KindMessage, meta.SenderSystem))
	if !strings.HasSuffix(got.text, "\n\nsteered\n\nlast") {
		t.Errorf("%q", got.text)
	}
}

// TestSteeredLinesThatAreTooLong expects that lines that the client cannot store are left to the next turn.
func TestSteeredLinesThatAreTooLong(t *testing.T) {
	p := start(t, t.TempDir()).open(nil)
	finish, result := p.hold("say last")
	if p.steer("say one\nwrite big\n  " + strings.Repeat("x", meta.MaxState)) {
		t.Error("the input was accepted")
	}
	finish()
	result().expect(t, end, "", "last", "cat pipe: completed")
}

// TestLostProcessKeepsSteeredLines loses a process that has accepted lines while an earlier one ran.
func TestLostProcessKeepsSteeredLines(t *testing.T) {
	p := start(t, t.TempDir()).open(nil)
	finish, result := p.hold("say last")
	var state any
	for _, line := range []string{"say steered", "say also"} {
		if !p.steer(line) {
			t.Error("the input was not accepted")
		}
		p.await(func(all []acp.SessionUpdate) bool {
			for _, u := range all {
				if u.SessionInfoUpdate != nil && u.SessionInfoUpdate.Meta[meta.State] != nil {
					state = u.SessionInfoUpdate.Meta[meta.State]
				}
			}
			return strings.Contains(fmt.Sprint(state), strings.TrimPrefix(line, "say "))
		})
	}
	next := start(t, p.drive).open(map[string]any{meta.State: state})
	got := next.prompt(meta.Continue, by(meta.KindMessage, meta.SenderSystem))
	if !strings.HasSuffix(got.text, "\n\nsteered\n\nalso\n\nlast") {
		t.Errorf("%q", got.text)
	}
	finish()
	result().expect(t, end, "", "steered\n\nalso\n\nlast", "cat pipe: completed")
}

// TestAnswerThatIsTooLong expects a state that the client stores: it would go on with the state before, which waits for the answer.
func TestAnswerThatIsTooLong(t *testing.T) {
	host := newPlatform(t)
	for text, failure := range map[string]string{
		"ask Which?":           "",
		"ask Which?\nsay last": meta.CodeRunbookInvalid + ": the runbook is too long",
	} {
		p := start(t, t.TempDir()).open(nil, host.McpServer)
		p.prompt(text).expect(t, end, "", "")
		got := p.prompt(strings.Repeat("x", meta.MaxState), by(meta.KindAnswer, meta.SenderUser))
		if !strings.HasPrefix(got.failure(), failure) || got.text != "" {
			t.Errorf("%q, %s", got.text, got.failure())
		}
		if state, err := json.Marshal(got.Meta[meta.State]); err != nil || len(state) > meta.MaxState {
			t.Errorf("the state has %d bytes, %v", len(state), err)
		}
	}
}
