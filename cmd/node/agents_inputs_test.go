package node

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/atelier-run/atelier/runner/builtin/model"
	"github.com/atelier-run/atelier/runner/modeltest"
	"github.com/atelier-run/atelier/tests/race"
)

// TestInputsDuringARunbook sends inputs while a line of a runbook runs.
func TestInputsDuringARunbook(t *testing.T) {
	s := newAgentSite(t)
	id := s.startSession("$ until [ -e go ]; do sleep 0.05; done\nsay Second line.\nask Ready?\nsay After {{answer}}.", nil)
	line := s.follow(id)
	line.awaitLine("tool")
	for _, in := range []struct {
		kind, behavior, text, delivery string
	}{
		{"messages", "follow_up", "say Follow-up.", "queued"}, {"notes", "", "A note.", "queued"}, {"messages", "steer", "say Steered.", "accepted"},
	} {
		body := fields{"text": in.text}
		if in.behavior != "" {
			body["behavior"] = in.behavior
		}
		if delivery := s.send(id, in.kind, body); delivery != in.delivery {
			t.Errorf("the delivery of %q is %s, want %s", in.text, delivery, in.delivery)
		}
	}
	s.makeFolder("go")
	line.awaitTerminal() // of the prompt
	line.awaitTerminal() // of the message that steers
	line.expect("text terminal", "text Steered.\n\nSecond line.", "terminal ask", "terminal ask")
	if d := s.describe(id); d.Bucket != "asking" || len(d.PendingInputs) == 0 { // a question goes before a follow-up
		t.Errorf("the session is %+v", d)
	}
	s.send(id, "answer", fields{"text": "all"})
	line.awaitTerminal()
	line.awaitTerminal()
	line.expect("text terminal", "text Steered.\n\nSecond line.", "terminal ask", "terminal ask",
		"text After all.", "terminal complete", "text Follow-up.", "terminal complete")
}

// TestInputsDuringAModelsTurn sends inputs while a model's command runs. The next request has the message that steers, the note is
// in the next turn.
func TestInputsDuringAModelsTurn(t *testing.T) {
	s := newModelSite(t, "", 0)
	s.models.Reply(
		modeltest.Reply{Calls: []model.Call{shell("1", "until [ -e go ]; do sleep 0.05; done; echo over")}},
		modeltest.Reply{Text: []string{"Steered."}}, modeltest.Reply{Text: []string{"Followed."}},
	)
	id := s.startSession("Work.", nil)
	line := s.follow(id)
	line.awaitLine("tool")
	s.send(id, "messages", fields{"text": "Later, please.", "behavior": "follow_up"})
	s.send(id, "notes", fields{"text": "A note."})
	s.send(id, "messages", fields{"text": "To the left!"})
	s.makeFolder("go")
	for range 3 {
		line.awaitTerminal()
	}
	line.expect("text terminal", "text Steered.", "terminal complete", "terminal complete", "text Followed.", "terminal complete")
	asked := s.asked(0)
	if len(asked) != 3 {
		t.Fatalf("the model was asked %d times", len(asked))
	}
	for i, want := range []struct{ has, hasNot string }{{"Work.", "left"}, {"To the left!", "note"}, {"Later, please.", ""}} {
		last := asked[i].Last()
		if last.Role != model.User || !strings.Contains(last.Text, want.has) || want.hasNot != "" && strings.Contains(last.Text, want.hasNot) {
			t.Errorf("the request %d ends with %+v", i, last)
		}
	}
	if text := string(asked[2].Body); !strings.Contains(text, "A note.") || !strings.Contains(text, "over") {
		t.Errorf("the last request is %s", text)
	}
}

// TestInterruptEndsCommands interrupts commands. One command ignores the signal, and has descendants.
func TestInterruptEndsCommands(t *testing.T) {
	race.Skip(t, "agents and apps are processes; packages runner and computer/apps test the same goroutines")
	testInterruptEndsCommands(t)
}

func testInterruptEndsCommands(t *testing.T, changes ...func(*Options)) {
	s := newAgentSite(t, changes...)
	for name, command := range map[string]string{
		"one process": "exec sleep ", "stubborn": "trap '' TERM; (trap '' TERM; exec sleep LONG) & sleep ",
	} {
		t.Run(name, func(t *testing.T) {
			s.home.T = t
			long := s.duration()
			id := s.startSession("$ "+strings.ReplaceAll(command, "LONG", long)+long+"\nsay Never.", nil)
			line := s.follow(id)
			pids := s.awaitProcess(long)
			s.send(id, "messages", fields{"text": "say Dropped.", "behavior": "follow_up"})
			var interrupted struct{ OK, Interrupted bool }
			s.must(http.StatusOK, s.request("POST", sessionPath(id)+"/interrupt", nil), &interrupted)
			if !interrupted.Interrupted {
				t.Error("nothing was interrupted")
			}
			line.awaitTerminal()
			line.awaitTerminal()
			line.expect("text terminal", "terminal interrupted", "terminal interrupted")
			s.awaitEnd(append(pids, s.processes(long)...))
			s.must(http.StatusOK, s.request("POST", sessionPath(id)+"/interrupt", nil), &interrupted)
			if interrupted.Interrupted {
				t.Error("a session that rests was interrupted")
			}
			s.send(id, "messages", fields{"text": "say Still here."})
			if end := line.awaitTerminal(); end.String() != "terminal complete" {
				t.Errorf("the next turn has ended with %s", end)
			}
		})
	}
	s.home.T = t
}

// TestWaitsForAgents waits for turns that end after the deadline of the request.
func TestWaitsForAgents(t *testing.T) {
	s := newAgentSite(t, func(o *Options) { o.HTTP.Sessions.WaitTime = 300 * time.Millisecond })
	type waited struct {
		SessionID string
		InputSeq  uint64
		Terminal  *row
	}
	// wait sends a request until it is answered with 200, once before the turn ends, and returns the answer.
	wait := func(path string, body fields, id string, end func()) (w waited) {
		t.Helper()
		body["clientRequestId"] = "0c7c2f5e-9e1b-4c57-8f0a-" + id
		var early waited
		s.must(http.StatusAccepted, s.request("POST", path, body), &early)
		if early.Terminal != nil || early.SessionID == "" || early.InputSeq == 0 {
			t.Errorf("%s: %+v", path, early)
		}
		end()
		s.until(func() bool { // each request waits itself
			r := s.request("POST", path, body)
			if r.status == http.StatusAccepted {
				return false
			}
			s.must(http.StatusOK, r, &w)
			return true
		})
		if w.SessionID != early.SessionID || w.InputSeq != early.InputSeq || w.Terminal == nil || w.Terminal.InputSeq != w.InputSeq {
			t.Errorf("%s: %+v and then %+v", path, early, w)
		}
		return w
	}
	first := wait(sessionsPath+"/wait", fields{"prompt": "$ until [ -e one ]; do sleep 0.05; done\nask Go on?\n$ until [ -e two ]; do sleep 0.05; done"}, "000000000001", func() { s.makeFolder("one") })
	if first.Terminal.TurnStatus != "ask" {
		t.Errorf("the prompt has ended with %s", first.Terminal)
	}
	id := first.SessionID
	second := wait(sessionPath(id)+"/answer/wait", fields{"text": "yes"}, "000000000002", func() { s.makeFolder("two") })
	if second.Terminal.TurnStatus != "complete" {
		t.Errorf("the answer has ended with %s", second.Terminal)
	}
	third := wait(sessionPath(id)+"/messages/wait", fields{"text": "$ until [ -e three ]; do sleep 0.05; done\nfail Too bad."}, "000000000003", func() { s.makeFolder("three") })
	if third.Terminal.String() != "terminal interrupted runbook_failed" {
		t.Errorf("the message has ended with %s", third.Terminal)
	}
	child := wait(sessionPath(id)+"/sessions/wait", fields{"prompt": "$ until [ -e four ]; do sleep 0.05; done\nsleep 1h"}, "000000000004", func() { s.makeFolder("four") })
	if child.Terminal.TurnStatus != "sleep" || s.describe(child.SessionID).CreatedBySessionID != id {
		t.Errorf("the child has ended with %s", child.Terminal)
	}
	line := s.follow(id)
	line.await(func(r row) bool { return r.Kind == "terminal" && r.InputSeq == third.InputSeq })
	inputs := 0
	for _, r := range line.rows {
		if r.Kind == "input" {
			inputs++
		}
	}
	if inputs != 3 { // repeated requests add none
		t.Errorf("the timeline has %d inputs", inputs)
	}
}
