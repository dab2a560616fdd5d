package node

import (
	"slices"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/runner/builtin/model"
	"github.com/atelier-run/atelier/runner/modeltest"
	"github.com/atelier-run/atelier/tests/race"
)

// TestComputerOfAModelIsLost kills the computer while a command of a model runs. The model is asked to continue, and knows its
// earlier work.
func TestComputerOfAModelIsLost(t *testing.T) {
	race.Skip(t, "agents and apps are processes; packages runner and computer/apps test the same goroutines")
	testComputerOfAModelIsLost(t)
}

func testComputerOfAModelIsLost(t *testing.T, changes ...func(*Options)) {
	s := newModelSite(t, "", 0, changes...)
	working := s.working()
	s.models.Reply(
		modeltest.Reply{Text: []string{"I begin."}, Calls: []model.Call{shell("1", "echo one >> log; cat log")}}, working,
		modeltest.Reply{Text: []string{"I am back."}},
	)
	id := s.startSession("Work once.", nil)
	line := s.follow(id)
	line.await(func(r row) bool { return strings.Contains(r.Title, "sleep") })
	s.loseComputer()
	line.awaitTerminal()
	line.awaitTerminal()
	line.expect("text terminal", "text I begin.", "terminal interrupted computer_lost", "text I am back.", "terminal complete")
	last := s.asked(2)[0]
	if got := last.Last(); got.Role != model.User || strings.Contains(got.Text, "Work once.") {
		t.Errorf("the model is asked %+v", got)
	}
	if !slices.ContainsFunc(last.Messages, func(m model.Message) bool { return strings.Contains(m.Text, "Work once.") }) ||
		!strings.Contains(string(last.Body), "I begin.") || !strings.Contains(string(last.Body), "echo one") {
		t.Errorf("the model knows %s", last.Body)
	}
	if log := s.read("log"); log != "one\n" {
		t.Errorf("the log is %q", log)
	}
}

// TestPermissionOfALostAgent answers requests for permission after the process of the agent has ended.
func TestPermissionOfALostAgent(t *testing.T) {
	race.Skip(t, "agents and apps are processes; packages runner and computer/apps test the same goroutines")
	testPermissionOfALostAgent(t)
}

func testPermissionOfALostAgent(t *testing.T, changes ...func(*Options)) {
	t.Run("runbook", func(t *testing.T) {
		s := newAgentSite(t, changes...)
		id := s.startSession("$ echo one >> log\n$ echo two >> log\nsay Done.", fields{"mode": "confirm"})
		line := s.follow(id)
		line.awaitTerminal()
		s.loseComputer()
		s.until(func() bool { return len(s.running()) == 0 }) // the runner may know it later

		s.choose(id, "Allow once")
		line.awaitLine("terminal ask")
		if log := s.read("log"); log != "one\n" {
			t.Errorf("the log is %q", log)
		}
		s.restart()
		line = s.follow(id)
		s.choose(id, "Allow for this session")
		line.awaitLine("terminal complete")
		line.expect("text ask", "ask The agent asks for permission: echo one >> log", "ask The agent asks for permission: echo two >> log", "text Done.")
		if log := s.read("log"); log != "one\ntwo\n" {
			t.Errorf("the log is %q", log)
		}
	})
	t.Run("model", func(t *testing.T) {
		s := newModelSite(t, "", 0, changes...)
		s.models.Reply(
			modeltest.Reply{Calls: []model.Call{shell("1", "echo one >> log")}},
			modeltest.Reply{Calls: []model.Call{shell("2", "echo two >> log")}},
			modeltest.Reply{Text: []string{"Done."}},
		)
		id := s.startSession("Work.", fields{"mode": "confirm"})
		line := s.follow(id)
		line.awaitTerminal()
		s.loseComputer()
		s.until(func() bool { return len(s.running()) == 0 })
		s.choose(id, "Allow once") // what the new process does with it is the model's decision
		line.awaitLine("terminal ask")
		if asked := s.asked(1)[0]; !strings.Contains(string(asked.Body), "echo one") || !strings.Contains(asked.Last().Text, "Allow once") {
			t.Errorf("the model was asked %s", asked.Body)
		}
		s.choose(id, "Allow once")
		line.awaitLine("terminal complete")
		line.expect("text", "text Done.")
		if log := s.read("log"); log != "two\n" {
			t.Errorf("the log is %q", log)
		}
	})
}
