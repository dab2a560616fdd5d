package runbook_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/atelier-run/atelier/runner/builtin/runbook"
)

// A world records the effects of a runbook.
type world struct {
	t       *testing.T
	log     []string
	now     time.Time
	steered [][]runbook.Step // one for each call
	saves   []runbook.State
	refuse  string // an effect that fails
}

func (w *world) note(format string, arguments ...any) error {
	entry := fmt.Sprintf(format, arguments...)
	w.log = append(w.log, entry)
	if w.refuse != "" && strings.HasPrefix(entry, w.refuse) {
		return errors.New("refused")
	}
	return nil
}

func (w *world) Shell(_ context.Context, command, answer string) (int, error) {
	err := w.note("shell %s [%s]", command, answer)
	if command == "false" {
		return 1, err
	}
	return 0, err
}

func (w *world) Write(_ context.Context, path, text string) error {
	return w.note("write %s %q", path, text)
}
func (w *world) Say(_ context.Context, text string) error { return w.note("say %s", text) }

func (w *world) Ask(_ context.Context, question string, options []string) error {
	return w.note("ask %s %q", question, options)
}

func (w *world) Sleep(_ context.Context, until time.Time) error {
	return w.note("sleep %s", until.Sub(time.Unix(1000, 0)))
}

func (w *world) Report(_ context.Context, done, total int64, text string) error {
	return w.note("step %d of %d %s", done, total, text)
}

func (w *world) Start(_ context.Context, title, prompt string) (string, error) {
	return "child " + title, w.note("start %s %q", title, prompt)
}

func (w *world) Await(_ context.Context, ids []string) error { return w.note("await %q", ids) }

func (w *world) interpreter() runbook.Interpreter {
	return runbook.Interpreter{
		Computer: w, Platform: w,
		Now: func() time.Time { return w.now },
		Save: func(s runbook.State) error {
			w.saves = append(w.saves, w.copied(s))
			return nil
		},
		Steered: func() []runbook.Step {
			if len(w.steered) == 0 {
				return nil
			}
			first := w.steered[0]
			w.steered = w.steered[1:]
			return first
		},
	}
}

// copied returns a state as another process reads it.
func (w *world) copied(s runbook.State) runbook.State {
	w.t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		w.t.Fatal(err)
	}
	var read runbook.State
	if err := json.Unmarshal(text, &read); err != nil {
		w.t.Fatal(err)
	}
	if err := read.Validate(); err != nil {
		w.t.Fatal(err)
	}
	return read
}

func newWorld(t *testing.T) *world { return &world{t: t, now: time.Unix(1000, 0)} }

func parsed(t *testing.T, text string) []runbook.Step {
	t.Helper()
	steps, err := runbook.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return steps
}

// run carries out a state and returns how it ended.
func (w *world) run(state *runbook.State) string {
	outcome, err := w.interpreter().Run(context.Background(), state)
	if err != nil {
		return "failed: " + err.Error()
	}
	return [...]string{"ended", "asked", "sleeping"}[outcome]
}

func (w *world) expect(want ...string) {
	w.t.Helper()
	if !slices.Equal(w.log, want) {
		w.t.Errorf("%q, want %q", w.log, want)
	}
	w.log = nil
}

func TestRunCarriesOutEveryInstruction(t *testing.T) {
	w := newWorld(t)
	state := runbook.State{Steps: parsed(t, "$ ls\n$? false\nwrite x\n  y\nsay hi\nstep 1/2 half\nstart A\n  say b\nawait\nawait")}
	if got := w.run(&state); got != "ended" || state.IsActive() {
		t.Errorf("%s, %+v", got, state)
	}
	w.expect("shell ls []", "shell false []", `write x "y\n"`, "say hi", "step 1 of 2 half", `start A "say b\n"`, `await ["child A"]`)
}

func TestRunFails(t *testing.T) {
	for text, want := range map[string]string{
		"$ false\nsay no":     "failed: line 1 ($ false): the command has ended with status 1",
		"say a\nfail enough!": "failed: enough!",
		"write x\n  y":        "failed: line 1 (write x): refused",
	} {
		w := newWorld(t)
		w.refuse = "write"
		state := runbook.State{Steps: parsed(t, text)}
		if got := w.run(&state); got != want || state.IsActive() {
			t.Errorf("%s, %+v", got, state)
		}
	}
}

func TestAskContinuesInAnotherProcess(t *testing.T) {
	w := newWorld(t)
	steps := parsed(t, "ask Which {{answer}}? | red | blue\n$ paint {{answer}}\nsleep {{answer}}\nsay no")
	state := runbook.State{Steps: steps, Answer: "one"}
	if got := w.run(&state); got != "asked" {
		t.Fatal(got)
	}
	state = w.copied(state)
	if state.Wake() || !state.AnswerQuestion("red") || state.AnswerQuestion("again") {
		t.Error("the question is answered once, and nothing else")
	}
	if got, want := w.run(&state), `failed: line 3 (sleep {{answer}}): the duration "red" is not like 90s, 1h30m or 2d`; got != want {
		t.Error(got)
	}
	w.expect(`ask Which one? ["red" "blue"]`, "shell paint red [red]")
}

func TestSleepContinuesAtItsTime(t *testing.T) {
	w := newWorld(t)
	state := runbook.State{Steps: parsed(t, "sleep 1h\nsay awake")}
	if got := w.run(&state); got != "sleeping" {
		t.Fatal(got)
	}
	state = w.copied(state)
	w.now = w.now.Add(20 * time.Minute)
	if err := state.Interject(parsed(t, "say a message")); err != nil {
		t.Fatal(err)
	}
	if got := w.run(&state); got != "sleeping" {
		t.Fatal(got)
	}
	w.expect("sleep 1h0m0s", "say a message", "sleep 1h0m0s")
	if state.AnswerQuestion("x") || !state.Wake() {
		t.Error("a sleep has an end, and no answer")
	}
	if got := w.run(&state); got != "ended" {
		t.Error(got)
	}
	w.expect("say awake")
}

func TestSleepThatIsOverIsSkipped(t *testing.T) {
	w := newWorld(t)
	state := runbook.State{Steps: parsed(t, "sleep 1h\nsay awake")}
	w.run(&state)
	w.now = w.now.Add(2 * time.Hour)
	if err := state.Append(parsed(t, "say follow-up")); err != nil {
		t.Fatal(err)
	}
	if got := w.run(&state); got != "ended" {
		t.Error(got)
	}
	w.expect("sleep 1h0m0s", "say awake", "say follow-up")
}

func TestSteeringGoesAfterTheRunningLine(t *testing.T) {
	w := newWorld(t)
	w.steered = [][]runbook.Step{nil, parsed(t, "say steered")}
	state := runbook.State{Steps: parsed(t, "say one\nsay two")}
	if got := w.run(&state); got != "ended" {
		t.Error(got)
	}
	w.expect("say one", "say steered", "say two")
}

func TestRecoverDoesNotRepeat(t *testing.T) {
	for text, isLost := range map[string]bool{
		"$ false": true, "write x\n  y": true, "say x": true, "start x\n  say y": true,
		"await": false, "ask x": false, "sleep 1h": false, "step 1/2 x": false, "fail x": false,
	} {
		w := newWorld(t)
		state := runbook.State{Steps: parsed(t, text+"\nsay next"), Children: []string{"a"}}
		w.run(&state)
		saved := w.saves[0]
		lost := saved.Recover()
		if (lost != nil) != isLost || saved.Running != nil {
			t.Errorf("%s: lost %v", text, lost)
		}
		if want := 2; !isLost && len(saved.Steps) != want {
			t.Errorf("%s: %d steps, want %d", text, len(saved.Steps), want)
		}
		if isLost && strings.HasPrefix(text, "start") != saved.HasLostChild {
			t.Errorf("%s: HasLostChild is %t", text, saved.HasLostChild)
		}
	}
}

func TestAwaitAfterALostChildWaitsForAll(t *testing.T) {
	w := newWorld(t)
	state := runbook.State{Steps: parsed(t, "await"), HasLostChild: true, Children: []string{"a"}}
	w.run(&state)
	w.expect(`await []`)
	if state.HasLostChild || state.Children != nil {
		t.Errorf("%+v", state)
	}
}

func TestRunStopsWithItsContext(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	state := runbook.State{Steps: parsed(t, "say one")}
	if _, err := w.interpreter().Run(ctx, &state); !errors.Is(err, context.Canceled) || !state.IsInterrupted || len(state.Steps) != 1 {
		t.Error(err, state)
	}
	w.expect()
	if state.Resume(); state.Recover() != nil || w.run(&state) != "ended" {
		t.Errorf("%+v", state)
	}
	w.expect("say one")
}

func TestInterjectBoundsTheSteps(t *testing.T) {
	state := runbook.State{Steps: make([]runbook.Step, runbook.MaxSteps)}
	if err := state.Interject(make([]runbook.Step, 1)); !errors.Is(err, runbook.ErrTooLong) {
		t.Error(err)
	}
}

// A cancelling is a world in which Run is cancelled when it has asked, or sleeps.
type cancelling struct {
	*world
	cancel context.CancelFunc
}

func (c cancelling) Ask(ctx context.Context, question string, options []string) error {
	defer c.cancel()
	return c.world.Ask(ctx, question, options)
}

func (c cancelling) Sleep(ctx context.Context, until time.Time) error {
	defer c.cancel()
	return c.world.Sleep(ctx, until)
}

func TestRunStopsWhenItBeginsToWait(t *testing.T) {
	for _, text := range []string{"ask Which?\nsay never", "sleep 1h\nsay never"} {
		w := newWorld(t)
		ctx, cancel := context.WithCancel(t.Context())
		in := w.interpreter()
		in.Platform = cancelling{w, cancel}
		state := &runbook.State{Steps: parsed(t, text)}
		if _, err := in.Run(ctx, state); !errors.Is(err, context.Canceled) || !state.IsInterrupted {
			t.Errorf("%q: %v, %+v", text, err, state)
		}
		w.log = nil
		state.Resume()
		if err := state.Interject(nil); err != nil { // as the agent does with a runbook that waits
			t.Fatal(err)
		}
		if got := w.run(state); len(w.log) != 1 {
			t.Errorf("%q: it goes on with %q, %q", text, w.log, got)
		}
	}
}

// TestRunStopsIfItsStateIsNotSaved expects that no line has an effect that the next process would not know of.
func TestRunStopsIfItsStateIsNotSaved(t *testing.T) {
	w := newWorld(t)
	in := w.interpreter()
	in.Save = func(s runbook.State) error {
		if s.Running.Text == "two" {
			return errors.New("the state is too long")
		}
		return nil
	}
	state := runbook.State{Steps: parsed(t, "say one\nsay two\nsay three")}
	var failed *runbook.Failure
	if _, err := in.Run(t.Context(), &state); !errors.As(err, &failed) || failed.Step.Line != 2 || state.IsActive() {
		t.Errorf("%v, %+v", err, state)
	}
	w.expect("say one")
}
