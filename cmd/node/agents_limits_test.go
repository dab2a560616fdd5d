package node

import (
	"encoding/json"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/atelier-run/atelier/runner/builtin/model"
	"github.com/atelier-run/atelier/runner/modeltest"
	"github.com/atelier-run/atelier/tests/race"
)

// working is a reply with a command that runs until it is ended.
func (s *modelSite) working() modeltest.Reply {
	return modeltest.Reply{Calls: []model.Call{shell("w", "exec sleep "+s.duration())}}
}

const (
	sessionBudget   = "ask The session has used its budget of tokens or time. Go on?"
	workspaceBudget = "ask The sessions of the workspace have used their budget of tokens or time for today. Go on?"
)

// TestBudgetOfASession uses up the budget of a session twice. Every reply has 15 tokens.
func TestBudgetOfASession(t *testing.T) {
	race.Skip(t, "agents and apps are processes; packages runner and computer/apps test the same goroutines")
	s := newModelSite(t, "budgets: {sessionTokens: 25}", 0)
	s.models.Reply(modeltest.Reply{Calls: []model.Call{shell("1", "echo one")}}, s.working(), modeltest.Reply{Text: []string{"I go on."}}, s.working())
	id := s.startSession("Work.", nil)
	line := s.follow(id)
	line.awaitTerminal()
	line.expect("ask terminal", sessionBudget, "terminal ask")
	s.choose(id, "continue")
	line.awaitTerminal()
	line.expect("text terminal", "terminal ask", "text I go on.", "terminal complete")
	s.send(id, "messages", fields{"text": "More."})
	line.awaitTerminal()
	line.expect("ask terminal", sessionBudget, "terminal ask", "terminal complete", sessionBudget, "terminal ask")
	s.choose(id, "stop")
	line.awaitTerminal()
	if last := line.rows[len(line.rows)-1]; last.String() != "terminal interrupted budget" {
		t.Errorf("the session has ended with %s", last)
	}
	if n := len(s.asked(0)); n != 4 {
		t.Errorf("the model was asked %d times", n)
	}
}

// TestBudgetOfAWorkspaceOnANode uses up the budget of all sessions of a workspace.
func TestBudgetOfAWorkspaceOnANode(t *testing.T) {
	race.Skip(t, "agents and apps are processes; packages runner and computer/apps test the same goroutines")
	s := newModelSite(t, "budgets: {workspaceTokensPerDay: 30}", 0)
	s.models.Reply(modeltest.Reply{Text: []string{"Within it."}}, s.working())
	first := s.startSession("Work.", nil)
	s.follow(first).awaitTerminal() // has used 19
	second := s.startSession("Work, too.", nil)
	working := s.follow(second)
	working.awaitTerminal()
	working.expect("ask terminal", workspaceBudget, "terminal ask")
	third := s.startSession("And I?", nil)
	waiting := s.follow(third)
	waiting.awaitTerminal()
	waiting.expect("ask terminal", workspaceBudget, "terminal ask")
	if n := len(s.asked(0)); n != 2 {
		t.Errorf("the model was asked %d times without a budget", n)
	}
	s.restart() // the use is durable
	s.models.Reply(modeltest.Reply{Text: []string{"Yes, you."}}, modeltest.Reply{Text: []string{"I go on."}})
	waiting = s.follow(third)
	waiting.awaitTerminal()
	s.choose(third, "continue")
	waiting.awaitTerminal()
	waiting.expect("text terminal", "terminal ask", "text Yes, you.", "terminal complete")
	if asked := s.asked(2); len(asked) != 1 || !strings.Contains(asked[0].Last().Text, "And I?") {
		t.Errorf("the model got %+v", asked)
	}
	s.choose(second, "continue")
	working = s.follow(second)
	working.awaitTerminal()
	working.awaitTerminal()
	working.expect("text terminal", "terminal ask", "text I go on.", "terminal complete")
}

// TestToolsOfThePlatform has a model call the tools of the platform, and sleep.
func TestToolsOfThePlatform(t *testing.T) {
	race.Skip(t, "agents and apps are processes; packages runner and computer/apps test the same goroutines")
	s := newModelSite(t, "", 50*time.Millisecond) // when an agent ends, its changes are recorded at once
	replies := []modeltest.Reply{
		{Calls: []model.Call{shell("1", "echo one > made.txt"), call("2", "report_progress", `{"step":"Writing","completed":1,"total":3}`)}},
		{Text: []string{"Begun."}},
		{Calls: []model.Call{
			call("3", "read_activity", `{"limit":50}`), call("4", "last_writers", `{"names":["made.txt"]}`),
			call("5", "read_activity", `{"limit":5000}`), call("6", "start_session", `{"prompt":"A child.","title":"Child","tier":"openai-frontier"}`),
		}},
		{Calls: []model.Call{call("7", "await_sessions", `{"timeoutSeconds":60}`), call("8", "sleep_until", `{"seconds":1}`), call("9", "shell", `{"command":"echo never > never.txt"}`)}},
		{Text: []string{"Good morning."}},
	}
	var next atomic.Int64
	s.models.Respond(func(r modeltest.Request) modeltest.Reply {
		if strings.Contains(r.Last().Text, "A child.") { // at any time
			return modeltest.Reply{Text: []string{"From the child."}}
		}
		return replies[next.Add(1)-1]
	})
	id := s.startSession("Work.", nil)
	line := s.follow(id)
	line.awaitTerminal()
	s.expectWriter(id, "made.txt")
	s.send(id, "messages", fields{"text": "Go on."})
	if end := line.awaitTerminal(); end.String() != "terminal sleep" {
		t.Fatalf("the turn has ended with %s: %q", end, line.order)
	}
	if d := s.describe(id); d.Bucket != "scheduled" || d.Machine == nil || d.Machine.Activity != "sleeping" || d.Machine.NextWakeAt == 0 ||
		d.Machine.Step != "Writing" || d.Machine.Progress.Completed != 1 || d.Machine.Progress.Total != 3 {
		t.Errorf("the session is %+v %+v", d, d.Machine)
	}
	if end := line.awaitTerminal(); end.String() != "terminal complete" {
		t.Errorf("the next turn has ended with %s", end)
	}
	line.expect("input text", "input user Work.", "text Begun.", "input user Go on.", "input system The sleep has ended.", "text Good morning.")
	results := map[string]string{}
	for _, r := range s.asked(0) {
		for _, m := range r.Messages {
			if m.Role == model.ToolResult {
				results[m.CallID] = m.Text
			}
		}
	}
	for id, want := range map[string]string{
		"call_3": `"made.txt"`, "call_4": "session:" + id, "call_6": `"sessionId"`, "call_2": "Recorded",
	} {
		if !strings.Contains(results[id], want) {
			t.Errorf("%s has the result %q, which has not %s", id, results[id], want)
		}
	}
	if tools := strings.Join(line.of("tool"), "\n"); !strings.Contains(tools, "From the child.") {
		t.Errorf("the tools have answered %s", tools)
	}
	var activity struct {
		Rows []struct {
			Event struct{ Path, Actor, UserID string }
		}
	}
	s.check(json.Unmarshal([]byte(results["call_3"]), &activity))
	if !slices.ContainsFunc(activity.Rows, func(r struct {
		Event struct{ Path, Actor, UserID string }
	}) bool {
		return r.Event.Path == "made.txt" && r.Event.Actor == "session:"+id && r.Event.UserID == s.userID
	}) {
		t.Errorf("the agent has read %+v", activity)
	}
	if !strings.Contains(results["call_5"], "limit") || !strings.Contains(results["call_5"], "100") {
		t.Errorf("a wrong argument has the result %q", results["call_5"])
	}
	if content := s.read("never.txt"); content != "not_found" {
		t.Errorf("a call after the end of the turn was carried out: %s", content)
	}
	if all := s.children(id); len(all) != 1 || s.describe(all[0]).Title != "Child" {
		t.Errorf("the children are %v", all)
	}
}
