package runbook

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// A Computer has the effects of a runbook on the computer and the timeline. Each method returns an error if the effect did not
// happen; the runbook fails with it.
type Computer interface {
	// Shell runs a command with the variable ATELIER_ANSWER in its environment and returns its exit status.
	Shell(ctx context.Context, command, answer string) (status int, err error)
	// Write replaces the content of a file, and makes it if it is missing.
	Write(ctx context.Context, path, text string) error
	// Say adds a text to the timeline.
	Say(ctx context.Context, text string) error
}

// A Platform has the effects of a runbook on sessions.
type Platform interface {
	// Ask asks a question. It does not wait for the answer.
	Ask(ctx context.Context, question string, options []string) error
	// Sleep sets the time at which the session continues. It does not wait.
	Sleep(ctx context.Context, until time.Time) error
	// Report says how far the job is.
	Report(ctx context.Context, done, total int64, text string) error
	// Start starts a child session and returns its id.
	Start(ctx context.Context, title, prompt string) (id string, err error)
	// Await waits until none of the child sessions with the ids runs; without ids, until no child session runs.
	Await(ctx context.Context, ids []string) error
}

// An Outcome says why Run has returned without an error.
type Outcome int

// The outcomes.
const (
	// Ended: no step is left.
	Ended Outcome = iota
	// Asked: the runbook continues after AnswerQuestion.
	Asked
	// Sleeping: the runbook continues after Wake.
	Sleeping
)

// A Failure is a step that has failed.
type Failure struct {
	Step   Step
	Reason string
}

func (f *Failure) Error() string {
	if f.Step.Kind == Fail {
		return f.Reason
	}
	return fmt.Sprintf("line %d (%s): %s", f.Step.Line, excerpt(f.Step.String()), f.Reason)
}

// An Interpreter carries out the steps of a State.
type Interpreter struct {
	Computer Computer
	Platform Platform
	// Now returns the time.
	Now func() time.Time
	// Save stores the state before a step begins. If it fails, the step does not begin: the next process would not know of it.
	Save func(State) error
	// Steered returns steps that have arrived since the last call and go before the steps of the State.
	Steered func() []Step
}

// Run carries out steps until none is left, or the runbook waits. A step that fails drops all others and is returned as a
// *Failure. When ctx is done, Run returns the error of ctx and leaves the State interrupted: the step that was running may have
// had its effect, and the others have not begun.
func (in Interpreter) Run(ctx context.Context, state *State) (Outcome, error) {
	for {
		if err := state.Interject(in.Steered()); err != nil {
			state.Abandon()
			return Ended, &Failure{Step{Kind: Fail}, err.Error()}
		}
		if len(state.Steps) == 0 {
			return Ended, nil
		}
		if err := ctx.Err(); err != nil {
			state.IsInterrupted = true
			return Ended, err
		}
		step := state.Steps[0]
		state.Steps = state.Steps[1:]
		outcome, err := in.begin(ctx, state, step)
		if stopped := ctx.Err(); stopped != nil && (state.Running != nil || outcome != Ended) {
			state.IsInterrupted = true
			return Ended, stopped
		}
		if err != nil {
			state.Abandon()
			return Ended, &Failure{step, err.Error()}
		}
		if outcome != Ended {
			return outcome, nil
		}
	}
}

// begin saves the state and carries out one step.
func (in Interpreter) begin(ctx context.Context, state *State, step Step) (Outcome, error) {
	original := step
	step.Text = strings.ReplaceAll(step.Text, answer, state.Answer)
	step.Block = strings.ReplaceAll(step.Block, answer, state.Answer)
	if err := step.check(); err != nil {
		return Ended, err
	}
	if step.Kind == Sleep && step.Until == 0 {
		duration, err := step.duration()
		if err != nil {
			return Ended, err
		}
		original.Until = in.Now().Add(duration).UnixMilli()
	}
	state.Running = &original
	if err := in.Save(*state); err != nil {
		return Ended, err
	}
	switch step.Kind {
	case Ask, Sleep:
		return in.wait(ctx, state, step)
	}
	err := in.carryOut(ctx, state, step)
	if err == nil || ctx.Err() == nil {
		state.Running = nil
	}
	return Ended, err
}

// wait carries out a step after which the turn ends.
func (in Interpreter) wait(ctx context.Context, state *State, step Step) (Outcome, error) {
	outcome := Asked
	if step.Kind == Sleep {
		outcome = Sleeping
		until := time.UnixMilli(state.Running.Until)
		if !until.After(in.Now()) {
			state.Running = nil
			return Ended, nil
		}
		if err := in.Platform.Sleep(ctx, until); err != nil {
			return Ended, err
		}
	} else {
		question, options, err := step.question()
		if err != nil {
			return Ended, err
		}
		if err := in.Platform.Ask(ctx, question, options); err != nil {
			return Ended, err
		}
	}
	state.Waiting, state.Running = state.Running, nil
	return outcome, nil
}

// carryOut carries out a step after which the runbook goes on at once.
func (in Interpreter) carryOut(ctx context.Context, state *State, step Step) error {
	switch step.Kind {
	case Shell:
		status, err := in.Computer.Shell(ctx, step.Text, state.Answer)
		if err != nil {
			return err
		}
		if status != 0 && !step.MayFail {
			return fmt.Errorf("the command has ended with status %d", status)
		}
		return nil
	case Write:
		return in.Computer.Write(ctx, step.Text, step.Block)
	case Say:
		return in.Computer.Say(ctx, step.Text)
	case Job:
		done, total, text, err := step.progress()
		if err != nil {
			return err
		}
		return in.Platform.Report(ctx, done, total, text)
	case Start:
		child, err := in.Platform.Start(ctx, step.Text, step.Block)
		if err == nil {
			state.Children = append(state.Children, child)
		}
		return err
	case Await:
		return in.await(ctx, state)
	case Fail:
		return errors.New(step.Text)
	}
	return fmt.Errorf("unknown instruction %q", step.Kind)
}

// await waits for the children, if there are any.
func (in Interpreter) await(ctx context.Context, state *State) error {
	children := state.Children
	if state.HasLostChild {
		children = nil // all
	} else if len(children) == 0 {
		return nil
	}
	if err := in.Platform.Await(ctx, children); err != nil {
		return err
	}
	state.Children, state.HasLostChild = nil, false
	return nil
}
