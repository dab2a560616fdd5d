package node

import (
	"slices"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/runner/builtin/model"
	"github.com/atelier-run/atelier/runner/modeltest"
)

// TestComputerOfAModelIsLost kills the computer while a command of a model runs. The model is asked to continue, and knows what it
// has done.
func TestComputerOfAModelIsLost(t *testing.T) {
	s := newModelSite(t, "", 0)
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
