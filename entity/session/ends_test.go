package session_test

import (
	"slices"
	"testing"
	"time"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
)

// TestInterruptedTurnDoesNotGoOn ends turns that a person has interrupted, as a run does that does not know of it yet.
func TestInterruptedTurnDoesNotGoOn(t *testing.T) {
	lost := &sessionv1.Failure{Code: session.FailureComputerLost}
	for name, end := range map[string]*sessionv1.EndTurn{
		"sleep":         {Status: sleeping, WakeAt: noon.Add(time.Hour).UnixMilli()},
		"ask":           {Status: asking, Ask: &sessionv1.Ask{Text: "?"}},
		"computer lost": {Status: interrupted, Error: lost, Resume: "go on"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			first := w.start("a")
			w.claim()
			w.user("alice", editor).must(&sessionv1.Interrupt{})
			w.end(end)
			w.wantTerminal(first, interrupted)
			if w.s.GetTurn() != nil || w.s.GetAsk() != nil || w.s.GetWakeAt() != 0 || w.s.GetTurnStatus() != interrupted {
				t.Fatalf("the session is %v", w.s)
			}
		})
	}
}

func TestPersonInterruptsAfterThePlatform(t *testing.T) {
	w := newWorld(t)
	w.start("a")
	w.claim()
	waits := w.input(message("b", followUp))
	w.platform().must(&sessionv1.Interrupt{Reason: &sessionv1.Failure{Code: "workspace_suspended"}})
	w.user("alice", editor).must(&sessionv1.Interrupt{})
	w.wantTerminal(waits, interrupted)
	w.end(&sessionv1.EndTurn{Status: interrupted, Resume: "go on"})
	if w.s.GetTurn() != nil {
		t.Fatalf("the turn is %v", w.s.GetTurn())
	}
}

// TestComputerThatIsLostAgainAndAgain expects that a session does not go on without end.
func TestComputerThatIsLostAgainAndAgain(t *testing.T) {
	w := newWorld(t)
	w.start("a")
	lost := &sessionv1.EndTurn{Status: interrupted, Error: &sessionv1.Failure{Code: session.FailureComputerLost}, Resume: "go on"}
	for range session.MaxResumes {
		w.end(lost)
		if w.s.GetTurn() == nil {
			t.Fatal("the session does not go on")
		}
	}
	w.end(lost)
	if w.s.GetTurn() != nil {
		t.Fatal("the session goes on without end")
	}
	w.input(message("b", steer))
	w.end(&sessionv1.EndTurn{Status: complete})
	w.input(message("c", steer))
	w.end(lost)
	if w.s.GetTurn() == nil {
		t.Fatal("a turn that was complete does not count")
	}
}

func TestInputsOfATurnAreBounded(t *testing.T) {
	w := newWorld(t)
	w.start("a")
	turn, run := w.claim()
	for batch := range uint64(2) {
		var joined []uint64
		for range session.MaxPending/2 - int(batch) {
			joined = append(joined, w.input(message("b", steer)))
		}
		w.platform().must(&sessionv1.RecordRows{TurnId: turn, RunId: run, Batch: batch + 1, Joined: joined})
	}
	w.user("alice", editor).refused(message("c", steer), entity.LimitReached)
	w.end(&sessionv1.EndTurn{Status: complete})
	w.input(message("c", steer))
}

// TestFullSessionGoesOn fills sessions that run no turn. The input that starts the next turn is not refused.
func TestFullSessionGoesOn(t *testing.T) {
	note := &sessionv1.SendInput{Input: &sessionv1.Input{Kind: sessionv1.InputKind_INPUT_KIND_NOTE, Text: "n"}}
	question := &sessionv1.EndTurn{Status: asking, Ask: &sessionv1.Ask{Text: "?"}}
	for name, c := range map[string]struct {
		end           *sessionv1.EndTurn
		waits, starts *sessionv1.SendInput
	}{
		"a message after notes":         {&sessionv1.EndTurn{Status: complete}, note, message("b", steer)},
		"a follow-up after notes":       {&sessionv1.EndTurn{Status: complete}, note, message("b", followUp)},
		"an answer before follow-ups":   {question, message("b", followUp), answer("yes")},
		"a message in place of answers": {question, message("b", followUp), message("c", steer)},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.start("a")
			w.end(c.end)
			in := c.waits.GetInput()
			waits := &sessionv1.Pending{Kind: in.GetKind(), Behavior: in.GetBehavior()}
			w.s.Pending = slices.Repeat([]*sessionv1.Pending{waits}, session.MaxPending)
			w.refused(c.waits, entity.LimitReached)
			if seq := w.input(c.starts); w.s.GetTurn().GetId() != seq {
				t.Fatalf("the turn is %v", w.s.GetTurn())
			}
			w.refused(message("d", steer), entity.LimitReached)
		})
	}
}

func TestUsage(t *testing.T) {
	w := newWorld(t)
	w.start("a")
	w.now = w.now.Add(time.Hour) // no run has claimed the turn
	turn, run := w.claim()
	w.now = w.now.Add(time.Second)
	w.platform().must(&sessionv1.RecordRows{TurnId: turn, RunId: run, Batch: 1, Rows: []*sessionv1.Row{{Text: &sessionv1.Text{Text: "x"}}}})
	w.now = w.now.Add(time.Hour) // the server is down
	w.must(&sessionv1.EndTurn{
		TurnId: turn, RunId: run, Status: interrupted, Error: &sessionv1.Failure{Code: session.FailureRunnerLost},
		Usage: &sessionv1.Usage{InputTokens: 1 << 63, OutputTokens: 1 << 63},
	})
	w.user("alice", editor).input(message("b", steer))
	w.end(&sessionv1.EndTurn{Status: complete, Usage: &sessionv1.Usage{InputTokens: 1 << 63, OutputTokens: 1 << 63}})
	if u := w.s.GetUsage(); u.GetRunningMs() != 1000 || u.GetInputTokens() != entity.MaxTime || u.GetOutputTokens() != entity.MaxTime {
		t.Fatalf("the usage is %v", u)
	}
}

// TestInterruptInAMessageDuringASleep interrupts a sleep at the moment in which a message has started a turn.
func TestInterruptInAMessageDuringASleep(t *testing.T) {
	for name, claims := range map[string]bool{"before a run takes the turn": false, "while it runs": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.start("a")
			w.end(&sessionv1.EndTurn{Status: sleeping, WakeAt: noon.Add(time.Hour).UnixMilli()})
			during := w.input(message("b", steer))
			if claims {
				w.claim()
			}
			w.must(&sessionv1.Interrupt{})
			if claims {
				if session.BucketOf(w.s) != session.BucketRunning {
					t.Errorf("while the turn runs the session is %v", w.s)
				}
				w.end(&sessionv1.EndTurn{Status: interrupted})
			}
			w.wantTerminal(during, interrupted)
			if len(session.Timers(w.s)) != 0 || session.BucketOf(w.s) != session.BucketDone {
				t.Errorf("the session goes on sleeping: %v", w.s)
			}
		})
	}
}

// TestInterruptAfterAQuestion interrupts a session just after its turn has ended with a question. The inputs that wait are dropped, too.
func TestInterruptAfterAQuestion(t *testing.T) {
	w := newWorld(t)
	w.start("a")
	waits := w.input(message("b", followUp))
	w.end(&sessionv1.EndTurn{Status: asking, Ask: &sessionv1.Ask{Text: "?"}})
	w.platform().must(&sessionv1.Interrupt{Reason: &sessionv1.Failure{Code: "workspace_suspended"}})
	if len(w.s.GetPending()) != 1 {
		t.Fatalf("the platform has dropped an input: %v", w.s)
	}
	if m := w.user("alice", editor).must(&sessionv1.Interrupt{}).(*sessionv1.Interrupted); !m.GetInterrupted() || len(w.s.GetPending()) != 0 {
		t.Fatalf("the session is %v", w.s)
	}
	w.wantTerminal(waits, interrupted)
	if w.s.GetAsk() == nil {
		t.Error("the question was withdrawn")
	}
}

// TestInterruptOfAQuestionDuringASleep interrupts a session that sleeps and asks, because the turn of a message has asked.
func TestInterruptOfAQuestionDuringASleep(t *testing.T) {
	w := newWorld(t)
	w.start("a")
	w.end(&sessionv1.EndTurn{Status: sleeping, WakeAt: noon.Add(time.Hour).UnixMilli()})
	w.input(message("b", steer))
	w.end(&sessionv1.EndTurn{Status: asking, Ask: &sessionv1.Ask{Text: "?"}})
	w.must(&sessionv1.Interrupt{})
	if len(session.Timers(w.s)) != 0 || (w.s.GetAsk() != nil) != (session.BucketOf(w.s) == session.BucketAsking) {
		t.Errorf("the session is %v", w.s)
	}
}

// TestFailureDuringASleep ends the turn of a message during a sleep without success. The session goes on sleeping.
func TestFailureDuringASleep(t *testing.T) {
	for name, end := range map[string]*sessionv1.EndTurn{
		"the work fails":           {Status: interrupted, Error: &sessionv1.Failure{Code: session.FailureRunbook}},
		"the platform interrupts":  {Status: interrupted, Error: &sessionv1.Failure{Code: "workspace_suspended"}},
		"the agent gives up early": {Status: interrupted},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.start("a")
			turn, run := w.claim()
			w.platform().must(&sessionv1.RecordRows{TurnId: turn, RunId: run, Batch: 1, Progress: &sessionv1.Machine{Total: 2}})
			w.end(&sessionv1.EndTurn{Status: sleeping, WakeAt: noon.Add(time.Hour).UnixMilli()})
			during := w.user("alice", editor).input(message("b", steer))
			w.end(end)
			w.wantTerminal(during, interrupted)
			if w.s.GetTurnStatus() != sleeping || session.BucketOf(w.s) != session.BucketScheduled || w.s.GetMachine().GetOutcome() != 0 {
				t.Errorf("the session is %v", w.s)
			}
		})
	}
}
