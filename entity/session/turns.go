package session

import (
	"slices"
	"unicode/utf8"

	"github.com/atelier-run/atelier/entity"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
)

// Limits of the reports of a run.
const (
	// MaxBatchRows is the greatest number of rows of a batch.
	MaxBatchRows = 256
	// MaxBatchBytes limits the text of a batch.
	MaxBatchBytes = 4 << 20
	// MaxStateBytes is the greatest size of the state of an agent.
	MaxStateBytes = 256 << 10
	// MaxQuestion is the greatest number of characters of a question, MaxOptions of its options.
	MaxQuestion = 10_000
	MaxOptions  = 16
	// MaxResumes is the number of times in succession that a session goes on after the computer of a turn was lost.
	MaxResumes = 5
)

// The texts of the inputs of the system.
const (
	// SleepEnded is the input that a session goes on with after a sleep.
	SleepEnded = "The sleep has ended."
)

var (
	errNoTurn    = entity.Errorf(entity.NotFound, "the session runs no such turn")
	errTurnTaken = entity.Errorf(entity.TurnTaken, "another run has taken the turn")
	errBatch     = entity.Errorf(entity.InvalidRequest,
		"a batch must follow the last one, and have at most %d rows of an agent with %d bytes of text", MaxBatchRows, MaxBatchBytes)
	errAgentState = entity.Errorf(entity.InvalidRequest, "the state of an agent has at most %d bytes", MaxStateBytes)
	errTurnStatus = entity.Errorf(entity.InvalidRequest, "a turn ends as complete, ask, interrupted or sleep; ask has a question, sleep a later time")
)

// isRun reports whether a run has taken the turn with an id, and the turn has not ended.
func isRun(s *sessionv1.Session, turnID uint64, runID string) bool {
	return s.GetTurn() != nil && s.GetTurn().GetId() == turnID && s.GetTurn().GetRunId() == runID
}

// checkRun returns an error unless isRun. Errors: not_found if the turn has ended, turn_taken if another run has it.
func checkRun(s *sessionv1.Session, turnID uint64, runID string) error {
	switch {
	case s.GetTurn() == nil || s.GetTurn().GetId() != turnID:
		return errNoTurn
	case runID == "" || s.GetTurn().GetRunId() != runID:
		return errTurnTaken
	}
	return nil
}

// claimTurn takes the turn for a run. Errors: not_found, turn_taken.
func claimTurn(call entity.Call, s *sessionv1.Session, c *sessionv1.ClaimTurn) ([]sessionv1.Event, error) {
	switch turn := s.GetTurn(); {
	case turn == nil || turn.GetId() != c.GetTurnId():
		return nil, errNoTurn
	case turn.GetRunId() == "" && entity.IsID(c.GetRunId()):
		return []sessionv1.Event{&sessionv1.TurnClaimed{TurnId: c.GetTurnId(), RunId: c.GetRunId(), At: call.At()}}, nil
	default:
		return nil, checkRun(s, c.GetTurnId(), c.GetRunId())
	}
}

// recordRows adds a batch of rows of the agent. A batch that was recorded before has no effect. Errors: not_found, turn_taken,
// invalid_request.
func recordRows(call entity.Call, s *sessionv1.Session, c *sessionv1.RecordRows) ([]sessionv1.Event, error) {
	if err := checkRun(s, c.GetTurnId(), c.GetRunId()); err != nil {
		return nil, err
	}
	if c.GetBatch() <= s.GetTurn().GetLastBatch() {
		return nil, nil
	}
	if err := checkBatch(s, c); err != nil {
		return nil, err
	}
	d := draft{call: call, state: s}
	joined := slices.DeleteFunc(slices.Clone(c.GetJoined()), func(seq uint64) bool {
		waiting := PendingInput(s, seq)
		return waiting == nil || !MayJoin(s.GetTurn(), waiting)
	})
	if len(joined) > 0 {
		d.add(&sessionv1.InputsJoined{Seqs: joined})
	}
	for _, row := range c.GetRows() {
		d.row(&sessionv1.RowAdded{Row: row})
	}
	d.add(&sessionv1.BatchRecorded{
		Batch: c.GetBatch(), Agent: c.GetAgent(), Usage: c.GetUsage(), Progress: c.GetProgress(), Title: autoTitle(s, c.GetTitle()),
	})
	return d.events, nil
}

func checkBatch(s *sessionv1.Session, c *sessionv1.RecordRows) error {
	bytes := 0
	for _, row := range c.GetRows() {
		text := row.GetText() != nil || row.GetThought() != nil
		if !text && row.GetTool() == nil && row.GetPlan() == nil {
			return errBatch
		}
		bytes += len(row.GetText().GetText()) + len(row.GetThought().GetText()) + len(row.GetTool().GetOutput())
	}
	switch {
	case c.GetBatch() != s.GetTurn().GetLastBatch()+1 || len(c.GetRows()) > MaxBatchRows || bytes > MaxBatchBytes:
		return errBatch
	case len(c.GetAgent().GetState()) > MaxStateBytes:
		return errAgentState
	}
	return nil
}

// autoTitle returns the title of an agent if it replaces the excerpt; "" if not.
func autoTitle(s *sessionv1.Session, title string) string {
	if s.GetTitleOrigin() != sessionv1.TitleOrigin_TITLE_ORIGIN_EXCERPT || checkTitle(title) != nil {
		return ""
	}
	return title
}

// endTurn ends the turn of a run, with a terminal for each of its inputs, and starts the next one. It has no effect if the turn
// has ended. A turn that a person has interrupted neither asks nor sleeps, and the session does not go on. Errors: turn_taken,
// invalid_request.
func endTurn(call entity.Call, s *sessionv1.Session, c *sessionv1.EndTurn) ([]sessionv1.Event, error) {
	turn := s.GetTurn()
	if turn == nil || turn.GetId() != c.GetTurnId() {
		return nil, nil
	}
	if err := checkRun(s, c.GetTurnId(), c.GetRunId()); err != nil {
		return nil, err
	}
	if err := checkEnd(call, c); err != nil {
		return nil, err
	}
	status, failure, resume := c.GetStatus(), c.GetError(), c.GetResume()
	if turn.GetInterrupting() && turn.GetInterruptCode() == "" {
		// The run may have ended before it knew of the interruption. The person does not expect the session to go on.
		resume = ""
		if status != sessionv1.TurnStatus_TURN_STATUS_COMPLETE {
			status = sessionv1.TurnStatus_TURN_STATUS_INTERRUPTED
		}
	}
	d := draft{call: call, state: s}
	if status == sessionv1.TurnStatus_TURN_STATUS_ASK {
		d.row(&sessionv1.RowAdded{Row: &sessionv1.Row{Ask: c.GetAsk()}})
	}
	d.terminals(turn.GetInputs(), status, failure)
	usage := usageOf(call, s, c)
	d.add(&sessionv1.TurnEnded{
		TurnId: turn.GetId(), Status: status, Error: failure, WakeAt: c.GetWakeAt(), Agent: c.GetAgent(),
		Usage: usage, Total: addUsage(s.GetUsage(), usage), TitleFailed: c.GetTitleFailed(), At: call.At(),
	})
	if resume != "" && d.current().GetLostTurns() <= MaxResumes {
		d.systemInput(resume, turn.GetBounds())
	}
	d.startNext()
	return d.events, nil
}

func checkEnd(call entity.Call, c *sessionv1.EndTurn) error {
	if len(c.GetAgent().GetState()) > MaxStateBytes {
		return errAgentState
	}
	ask := c.GetAsk()
	switch c.GetStatus() {
	case sessionv1.TurnStatus_TURN_STATUS_COMPLETE, sessionv1.TurnStatus_TURN_STATUS_INTERRUPTED:
		return nil
	case sessionv1.TurnStatus_TURN_STATUS_ASK:
		n := utf8.RuneCountInString(ask.GetText())
		if n == 0 || n > MaxQuestion || len(ask.GetOptions()) > MaxOptions {
			return errTurnStatus
		}
		return nil
	case sessionv1.TurnStatus_TURN_STATUS_SLEEP:
		if c.GetWakeAt() <= 0 || c.GetWakeAt() > entity.MaxTime {
			return errTurnStatus
		}
		return nil
	default:
		return errTurnStatus
	}
}

// usageOf returns the usage of the turn that a command ends. When the end of a lost run is known, much time may have passed since.
func usageOf(call entity.Call, s *sessionv1.Session, c *sessionv1.EndTurn) *sessionv1.Usage {
	until := call.At()
	if c.GetError().GetCode() == FailureRunnerLost {
		until = s.GetUpdatedAt()
	}
	return &sessionv1.Usage{
		InputTokens: c.GetUsage().GetInputTokens(), OutputTokens: c.GetUsage().GetOutputTokens(),
		RunningMs: max(until-s.GetTurn().GetStartedAt(), 0),
	}
}

// addUsage returns the sum of two usages. It has a bound, so that a false report of an agent cannot make a total small again.
func addUsage(total, turn *sessionv1.Usage) *sessionv1.Usage {
	sum := func(a, b uint64) uint64 {
		return min(a, entity.MaxTime) + min(b, entity.MaxTime-min(a, entity.MaxTime))
	}
	return &sessionv1.Usage{
		InputTokens:  sum(total.GetInputTokens(), turn.GetInputTokens()),
		OutputTokens: sum(total.GetOutputTokens(), turn.GetOutputTokens()),
		RunningMs:    total.GetRunningMs() + turn.GetRunningMs(),
	}
}

// systemInput adds a message of the system, which starts a turn within bounds if none runs. It continues the work of the participant,
// also if it waits and another person takes part meanwhile.
func (d *draft) systemInput(text string, bounds *sessionv1.Bounds) {
	in := &sessionv1.Input{
		Kind: sessionv1.InputKind_INPUT_KIND_MESSAGE, Sender: &sessionv1.Sender{Kind: sessionv1.SenderKind_SENDER_KIND_SYSTEM},
		Text: text, Behavior: sessionv1.Behavior_BEHAVIOR_STEER, Bounds: bounds,
	}
	s := d.current()
	d.row(&sessionv1.RowAdded{Row: &sessionv1.Row{Input: in}, ResolvedTier: s.GetLastTier(), Participant: s.GetParticipant()})
	d.startNext()
}

// wake ends the sleep that is due at the time of the command. It has no effect if that sleep has ended.
func wake(call entity.Call, s *sessionv1.Session, c *sessionv1.WakeSession) []sessionv1.Event {
	if s.GetWakeAt() == 0 || s.GetWakeAt() != c.GetAt() {
		return nil
	}
	d := draft{call: call, state: s}
	d.add(&sessionv1.SessionWoken{At: call.At()})
	d.systemInput(SleepEnded, s.GetWakeBounds())
	return d.events
}
