package runbook

import (
	"errors"
	"fmt"
)

// A State is a runbook that is being carried out. Its zero value has none. It is valid JSON in both directions.
type State struct {
	// Steps are the steps that have not begun.
	Steps []Step `json:"steps,omitempty"`
	// Running is the step that has begun; its end is not known.
	Running *Step `json:"running,omitempty"`
	// Waiting is an ask step without its answer, or a sleep step.
	Waiting *Step `json:"waiting,omitempty"`
	// Answer is the last answer.
	Answer string `json:"answer,omitempty"`
	// Children are the sessions that start has started and no await has waited for.
	Children []string `json:"children,omitempty"`
	// IsInterrupted is set if the context of Run has ended. The caller continues, by Resume, or abandons the runbook.
	IsInterrupted bool `json:"isInterrupted,omitempty"`
	// HasLostChild is set if a session with an unknown id may have been started.
	HasLostChild bool `json:"hasLostChild,omitempty"`
}

// ErrTooLong is returned if a runbook would have more than MaxSteps instructions.
var ErrTooLong = fmt.Errorf("a runbook has at most %d instructions", MaxSteps)

// IsActive reports whether any step is left, running or waiting.
func (s *State) IsActive() bool { return len(s.Steps) > 0 || s.Running != nil || s.Waiting != nil }

// Validate returns an error if a State that was read is not one that an Interpreter has written.
func (s *State) Validate() error {
	if len(s.Steps) > 2*MaxSteps {
		return ErrTooLong
	}
	for _, step := range append([]*Step{s.Running, s.Waiting}, pointers(s.Steps)...) {
		if step != nil && !isKnown(step.Kind) {
			return fmt.Errorf("the state has an unknown instruction %q", excerpt(string(step.Kind)))
		}
	}
	if s.Waiting != nil && s.Waiting.Kind != Ask && s.Waiting.Kind != Sleep {
		return errors.New("the state waits for an instruction that needs no waiting")
	}
	return nil
}

func pointers(steps []Step) []*Step {
	all := make([]*Step, len(steps))
	for i := range steps {
		all[i] = &steps[i]
	}
	return all
}

func isKnown(kind Kind) bool {
	switch kind {
	case Shell, Write, Say, Ask, Sleep, Job, Start, Await, Fail:
		return true
	}
	return false
}

// Interject adds steps before the others. If the runbook waits, it will wait again after them.
func (s *State) Interject(steps []Step) error { return s.add(steps, nil) }

// Append adds steps after the others. If the runbook waits, it will wait again before them.
func (s *State) Append(steps []Step) error { return s.add(nil, steps) }

func (s *State) add(before, after []Step) error {
	if len(before)+len(s.Steps)+len(after) > MaxSteps {
		return ErrTooLong
	}
	all := append([]Step{}, before...)
	if s.Waiting != nil {
		all = append(all, *s.Waiting)
	}
	all = append(all, s.Steps...)
	s.Steps, s.Waiting = append(all, after...), nil
	return nil
}

// AnswerQuestion continues after an ask step. It reports false, and changes nothing, if no question is open.
func (s *State) AnswerQuestion(text string) bool {
	open := s.Waiting
	if open == nil {
		open = s.Running // the process was lost after it had asked
	}
	if open == nil || open.Kind != Ask {
		return false
	}
	s.Answer, s.Waiting, s.Running = text, nil, nil
	return true
}

// Wake continues after a sleep step. It reports false, and changes nothing, if the runbook does not sleep.
func (s *State) Wake() bool {
	open := s.Waiting
	if open == nil {
		open = s.Running
	}
	if open == nil || open.Kind != Sleep {
		return false
	}
	s.Waiting, s.Running = nil, nil
	return true
}

// Resume continues after an interruption. The running step is left to Recover.
func (s *State) Resume() { s.IsInterrupted = false }

// RequestsPermission reports whether the permission of the running step was requested, and no answer has arrived.
func (s *State) RequestsPermission() bool {
	return s.Running != nil && s.Running.Permission == Requested
}

// Grant continues with the running step. A process that was lost had requested its permission.
func (s *State) Grant() {
	step := *s.Running
	step.Permission = Granted
	s.Steps, s.Running = append([]Step{step}, s.Steps...), nil
}

// Recover prepares a State for another process than the process that has saved it. It returns the step that was running if it may
// have had its effect and is not repeated, or nil.
func (s *State) Recover() *Step {
	lost := s.Running
	s.Running = nil
	if lost == nil {
		return nil
	}
	if lost.Permission == Requested {
		again := *lost
		again.Permission = ""
		s.Steps = append([]Step{again}, s.Steps...)
		return nil
	}
	switch lost.Kind {
	case Shell, Write, Say, Start:
		s.HasLostChild = s.HasLostChild || lost.Kind == Start
		return lost
	}
	s.Steps = append([]Step{*lost}, s.Steps...)
	return nil
}

// Abandon drops all steps, as at a failure.
func (s *State) Abandon() { *s = State{Answer: s.Answer} }
