package session

import (
	"slices"

	"github.com/atelier-run/atelier/entity"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// Evolve returns the state after an event. It shares unchanged values with s.
func Evolve(s *sessionv1.Session, e sessionv1.Event) *sessionv1.Session {
	next := shallowCopy(s)
	switch e := e.(type) {
	case *sessionv1.SessionStarted:
		applyStarted(next, e)
	case *sessionv1.RowAdded:
		applyRow(next, e)
	case *sessionv1.TurnStarted:
		applyTurn(next, e.GetTurn())
	case *sessionv1.TurnClaimed:
		next.Turn = entity.ShallowCopy(s.GetTurn())
		next.Turn.RunId, next.Turn.StartedAt = e.GetRunId(), max(e.GetAt(), s.GetTurn().GetStartedAt())
	case *sessionv1.InputsJoined:
		applyJoined(next, e.GetSeqs())
	case *sessionv1.BatchRecorded:
		applyBatch(next, e)
	case *sessionv1.TurnEnded:
		applyEnded(next, e)
	case *sessionv1.InterruptRequested:
		next.Turn = entity.ShallowCopy(s.GetTurn())
		next.Turn.Interrupting, next.Turn.InterruptCode = true, e.GetReason().GetCode()
	case *sessionv1.InputsDropped:
		next.Pending = withoutPending(s.GetPending(), e.GetSeqs())
	case *sessionv1.SessionWoken:
		next.WakeAt, next.WakeBounds = 0, nil
		if e.GetCancelled() {
			next.TurnStatus = sessionv1.TurnStatus_TURN_STATUS_INTERRUPTED
			next.Machine = withOutcome(s.GetMachine(), sessionv1.Outcome_OUTCOME_CANCELLED)
		}
	case *sessionv1.SessionArchived:
		applyArchived(next, e)
	case *sessionv1.AudienceChanged:
		next.Audience = e.GetAudience()
	case *sessionv1.ReadMarked:
		next.Read = entity.With(s.GetRead(), e.GetUserId(), e.GetSeq())
	case *sessionv1.ChildAdmitted:
		next.Children++
	case *sessionv1.UsageAllowed:
		next.Allowed = e.GetUsage()
	case *sessionv1.SessionSealed:
		next.Sealed = true
	case *sessionv1.SessionErased:
		// Only the fact that the session was deleted remains.
		return &sessionv1.Session{Id: s.GetId(), WorkspaceId: s.GetWorkspaceId(), Sealed: true, Erased: true}
	}
	return next
}

func applyStarted(next *sessionv1.Session, e *sessionv1.SessionStarted) {
	next.Started, next.CreatedAt, next.UpdatedAt = true, e.GetAt(), e.GetAt()
	next.CreatedBy, next.CreatorUserId = e.GetCreatedBy(), e.GetCreatorUserId()
	next.ParentId, next.AgentId, next.Mode, next.Cwd, next.Audience = e.GetParentId(), e.GetAgentId(), e.GetMode(), e.GetCwd(), e.GetAudience()
	next.Title, next.TitleOrigin, next.TitleStatus = e.GetTitle(), e.GetTitleOrigin(), sessionv1.TitleStatus_TITLE_STATUS_COMPLETE
	if e.GetTitleOrigin() == sessionv1.TitleOrigin_TITLE_ORIGIN_EXCERPT {
		next.TitleStatus = sessionv1.TitleStatus_TITLE_STATUS_GENERATING
	}
}

// applyRow applies the row with the greatest seq so far. A reader who had read everything before has read the row too.
func applyRow(next *sessionv1.Session, e *sessionv1.RowAdded) {
	if user := e.GetReader(); user != "" && next.GetRead()[user] >= next.GetLastEventSeq() {
		next.Read = entity.With(next.GetRead(), user, e.GetSeq())
	}
	next.LastEventSeq, next.UpdatedAt = e.GetSeq(), e.GetAt()
	row := e.GetRow()
	if row.GetInput() != nil {
		applyInput(next, e)
	}
	if row.GetAsk() != nil {
		next.Ask = &sessionv1.PendingAsk{
			Seq: e.GetSeq(), Text: row.GetAsk().GetText(), Options: row.GetAsk().GetOptions(), Bounds: next.GetTurn().GetBounds(),
		}
	}
	if set := row.GetSetting(); set != nil {
		if set.Cwd != nil {
			next.Cwd = set.GetCwd()
		}
		if set.Title != nil {
			next.Title, next.TitleOrigin = set.GetTitle(), sessionv1.TitleOrigin_TITLE_ORIGIN_MANUAL
			next.TitleStatus = sessionv1.TitleStatus_TITLE_STATUS_COMPLETE
		}
		if set.Tier != nil {
			next.Tier = set.GetTier()
		}
	}
}

// applyInput adds an input to the pending inputs. An answer withdraws the question at once, a message when it starts a turn.
func applyInput(next *sessionv1.Session, e *sessionv1.RowAdded) {
	in := e.GetRow().GetInput()
	pending := make([]*sessionv1.Pending, len(next.GetPending()), len(next.GetPending())+1)
	copy(pending, next.GetPending())
	next.Pending = append(pending, &sessionv1.Pending{
		Seq: e.GetSeq(), Kind: in.GetKind(), Behavior: in.GetBehavior(), Tier: e.GetResolvedTier(), CreatedAt: e.GetAt(),
		Bounds: in.GetBounds(), Participant: e.GetParticipant(),
		Continues: in.GetSender().GetKind() == sessionv1.SenderKind_SENDER_KIND_SYSTEM,
	})
	switch in.GetKind() {
	case sessionv1.InputKind_INPUT_KIND_PROMPT:
		next.PromptSeq, next.PromptDigest = e.GetSeq(), in.GetDigest()
		if in.GetTier() != workspacev1.Tier_TIER_UNSPECIFIED {
			next.Tier = in.GetTier()
		}
	case sessionv1.InputKind_INPUT_KIND_ANSWER:
		next.Ask = nil
	}
}

func applyTurn(next *sessionv1.Session, turn *sessionv1.Turn) {
	for _, seq := range turn.GetInputs() {
		applyParticipant(next, PendingInput(next, seq))
	}
	next.Pending = withoutPending(next.GetPending(), turn.GetInputs())
	next.Turn, next.Ask, next.LastTier = turn, nil, turn.GetTier()
	next.TurnStatus = sessionv1.TurnStatus_TURN_STATUS_RUNNING
	next.Machine = withOutcome(next.GetMachine(), sessionv1.Outcome_OUTCOME_UNSPECIFIED)
}

// applyParticipant makes the participant of an input that a turn takes the participant of the session. An input that waits, and that
// perhaps no turn takes, changes nothing: it neither continues nor ends the work of another person.
func applyParticipant(next *sessionv1.Session, taken *sessionv1.Pending) {
	if taken.GetParticipant() != nil {
		next.Participant = taken.GetParticipant()
	}
}

// applyJoined moves inputs from the pending inputs to the turn. Notes only stop being pending, because they get no terminal.
func applyJoined(next *sessionv1.Session, seqs []uint64) {
	turn := entity.ShallowCopy(next.GetTurn())
	turn.Inputs = slices.Clone(turn.GetInputs())
	for _, seq := range seqs {
		if p := PendingInput(next, seq); p != nil && p.GetKind() != sessionv1.InputKind_INPUT_KIND_NOTE {
			turn.Inputs = append(turn.GetInputs(), seq)
			if !p.GetContinues() {
				applyParticipant(next, p)
			}
		}
	}
	next.Turn, next.Pending = turn, withoutPending(next.GetPending(), seqs)
}

func withoutPending(all []*sessionv1.Pending, seqs []uint64) []*sessionv1.Pending {
	return slices.DeleteFunc(slices.Clone(all), func(p *sessionv1.Pending) bool { return slices.Contains(seqs, p.GetSeq()) })
}

func applyBatch(next *sessionv1.Session, e *sessionv1.BatchRecorded) {
	next.Turn = entity.ShallowCopy(next.GetTurn())
	next.Turn.LastBatch = e.GetBatch()
	if e.GetAgent() != nil {
		next.Agent = e.GetAgent()
	}
	if p := e.GetProgress(); p != nil {
		next.Machine = &sessionv1.Machine{Step: p.GetStep(), Completed: p.GetCompleted(), Total: p.GetTotal()}
	}
	if e.GetTitle() != "" {
		next.Title, next.TitleOrigin = e.GetTitle(), sessionv1.TitleOrigin_TITLE_ORIGIN_AUTO
		next.TitleStatus = sessionv1.TitleStatus_TITLE_STATUS_COMPLETE
	}
}

func applyEnded(next *sessionv1.Session, e *sessionv1.TurnEnded) {
	if e.GetStatus() == sessionv1.TurnStatus_TURN_STATUS_SLEEP {
		next.WakeAt, next.WakeBounds = e.GetWakeAt(), next.GetTurn().GetBounds()
	}
	next.Turn, next.Usage = nil, e.GetTotal()
	if e.GetAgent() != nil {
		next.Agent = e.GetAgent()
	}
	if next.TurnStatus = e.GetStatus(); e.GetError().GetCode() == FailureComputerLost {
		next.LostTurns++
	} else {
		next.LostTurns = 0
	}
	if next.GetWakeAt() != 0 && e.GetStatus() != sessionv1.TurnStatus_TURN_STATUS_ASK {
		// The turn was the turn of a message during a sleep. The sleep goes on however the turn has ended. A person who interrupts the
		// turn ends the sleep first.
		next.TurnStatus = sessionv1.TurnStatus_TURN_STATUS_SLEEP
	}
	next.Machine = withOutcome(next.GetMachine(), outcomeOf(next, e))
	if next.GetTitleStatus() == sessionv1.TitleStatus_TITLE_STATUS_GENERATING {
		next.TitleStatus = sessionv1.TitleStatus_TITLE_STATUS_COMPLETE
		if e.GetTitleFailed() {
			next.TitleStatus = sessionv1.TitleStatus_TITLE_STATUS_FAILED
		}
	}
}

// The codes of the failures that end a turn.
const (
	// FailureRunbook and FailureTask are failures of the work itself.
	FailureRunbook = "runbook_failed"
	FailureTask    = "failed"
	// FailureRunnerLost and FailureComputerLost end a turn after its process has ended with the server or the computer.
	FailureRunnerLost   = "runner_lost"
	FailureComputerLost = "computer_lost"
	// FailureAccessLost ends a turn after its participant has lost the right to take part in the session.
	FailureAccessLost = "access_lost"
)

// outcomeOf returns the outcome of a job after a turn; unspecified while the job goes on.
func outcomeOf(s *sessionv1.Session, e *sessionv1.TurnEnded) sessionv1.Outcome {
	switch code := e.GetError().GetCode(); {
	case s.GetTurnStatus() == sessionv1.TurnStatus_TURN_STATUS_COMPLETE:
		return sessionv1.Outcome_OUTCOME_COMPLETED
	case s.GetTurnStatus() != sessionv1.TurnStatus_TURN_STATUS_INTERRUPTED:
		return sessionv1.Outcome_OUTCOME_UNSPECIFIED
	case code == "":
		return sessionv1.Outcome_OUTCOME_CANCELLED
	case code == FailureRunbook || code == FailureTask:
		return sessionv1.Outcome_OUTCOME_FAILED
	case code == FailureRunnerLost || code == FailureComputerLost:
		return sessionv1.Outcome_OUTCOME_INTERRUPTED
	default:
		return sessionv1.Outcome_OUTCOME_ERROR
	}
}

// withOutcome returns a job with an outcome; nil if the session is no job.
func withOutcome(m *sessionv1.Machine, o sessionv1.Outcome) *sessionv1.Machine {
	if m == nil || m.GetOutcome() == o {
		return m
	}
	m = entity.ShallowCopy(m)
	m.Outcome = o
	return m
}

func applyArchived(next *sessionv1.Session, e *sessionv1.SessionArchived) {
	switch {
	case e.GetScope() == sessionv1.ArchiveScope_ARCHIVE_SCOPE_GLOBAL:
		next.GlobalArchivedAt = e.GetArchivedAt()
	case e.GetArchivedAt() == 0:
		next.PersonalArchivedAt = entity.Without(next.GetPersonalArchivedAt(), e.GetUserId())
	default:
		next.PersonalArchivedAt = entity.With(next.GetPersonalArchivedAt(), e.GetUserId(), e.GetArchivedAt())
	}
}

// The buckets of sessions (specification, Session summary).
const (
	BucketAsking    = "asking"
	BucketRunning   = "running"
	BucketScheduled = "scheduled"
	BucketDone      = "done"
)

// BucketOf returns the bucket of a session. A job and a turn have the same state here, because a job works only in its turns.
func BucketOf(s *sessionv1.Session) string {
	switch ActivityOf(s) {
	case sessionv1.Activity_ACTIVITY_RUNNING:
		return BucketRunning
	case sessionv1.Activity_ACTIVITY_SLEEPING:
		return BucketScheduled
	case sessionv1.Activity_ACTIVITY_WAITING:
		return BucketAsking
	default:
		return BucketDone
	}
}

// ActivityOf returns the activity of a session.
func ActivityOf(s *sessionv1.Session) sessionv1.Activity {
	switch {
	case s.GetTurnStatus() == sessionv1.TurnStatus_TURN_STATUS_RUNNING:
		return sessionv1.Activity_ACTIVITY_RUNNING
	case s.GetTurnStatus() == sessionv1.TurnStatus_TURN_STATUS_ASK:
		return sessionv1.Activity_ACTIVITY_WAITING
	case s.GetWakeAt() != 0:
		return sessionv1.Activity_ACTIVITY_SLEEPING
	default:
		return sessionv1.Activity_ACTIVITY_IDLE
	}
}

// IsUnread reports whether a user has not read the last row.
func IsUnread(s *sessionv1.Session, userID string) bool {
	return s.GetRead()[userID] < s.GetLastEventSeq()
}

// IsArchived reports whether a session is archived for a user.
func IsArchived(s *sessionv1.Session, userID string) bool {
	return s.GetGlobalArchivedAt() != 0 || s.GetPersonalArchivedAt()[userID] != 0
}
