// Package session implements the rules of agent sessions.
//
//	         StartSession                 EndTurn: complete, interrupted
//	(none) ──────────────► running ─────────────────────────────────────► at rest
//	                          ▲  │ EndTurn: ask      ┌─ SendInput ────────────┘
//	                          │  ├──────────► asking │
//	                          │  │ EndTurn: sleep    │
//	                          │  └──────► sleeping   │
//	                          └─ answer, message, WakeSession
//
// The stream of a session is its timeline: each RowAdded is a row; its seq is the version of the event. Inputs, turns and
// their ends are in inputs.go and turns.go:
//
//   - An input that waits is pending. A turn starts with one input; inputs that steer join it when the agent takes them.
//   - A turn is a task (TurnTask). Its executor claims it with ClaimTurn, so that no other run gives the agent its inputs
//     again, and reports rows in numbered batches.
//   - When a turn ends, each of its inputs gets a row of the kind terminal in the same batch of events; no input gets two.
//   - A turn that asks or sleeps has ended. The answer starts the next turn, or the input of the system that follows the sleep.
//   - A follow-up waits until the session neither runs, asks nor sleeps.
//   - The agent has in a turn the capabilities that the credential of its input grants, and an input that is no note joins only a turn with
//     the same bounds (bounds.go).
//   - The last input that a turn has taken determines the participant: turns run on behalf of this person (access.go). Inputs that
//     wait, and notes, do not. When the participant loses the right to take part, the turn ends as interrupted, and so does a turn that
//     starts later; package runner checks it. A turn that follows a sleep, or the loss of the computer, runs on behalf of the same person.
//
// Members change settings, the audience and archives (settings.go). A deletion seals the session, which hides it from everybody
// at once; the task DeletionTask then deletes its descendants and rows, and the event that completes it removes all earlier events. Visibility and permissions depend on the sender's role,
// which the workspace determines (access.go). Lists are in lists.go.
package session

import (
	"strconv"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// The kinds of the tasks of a session.
const (
	// TurnTask runs a turn. Its message is a sessionv1.TurnTask.
	TurnTask = "session.turn"
	// DeletionTask removes the rows and descendants of a sealed session. Its message is a sessionv1.DeletionTask.
	DeletionTask = "session.delete"
)

// wakeTimer is the id of the timer of a sleeping session.
const wakeTimer = "wake"

// Kind describes sessions to the runtime. A session is owned by its workspace.
var Kind = entity.Rules[*sessionv1.Session, sessionv1.Command, sessionv1.Event]{
	Name: entity.KindSession, Owner: entity.KindWorkspace, Version: 3, Zero: Zero, Access: accessOf, Decide: Decide, Evolve: Evolve,
	Reply: Reply, Rows: Rows, Timers: Timers, Tasks: Tasks, Waits: Waits,
	Erases: func(e sessionv1.Event) bool { _, is := e.(*sessionv1.SessionErased); return is },
	Timeline: &entity.Timeline[*sessionv1.Session, sessionv1.Command, sessionv1.Event]{
		Need: entity.Reads(entity.Sessions), Visible: Visible,
		IsRow:  func(e sessionv1.Event) bool { _, is := e.(*sessionv1.RowAdded); return is },
		Passes: func(c sessionv1.Command) bool { _, is := c.(*sessionv1.PublishDelta); return is },
	},
}.Kind()

// Zero returns the state before the first event. The identity is <workspace id>/<session id>.
func Zero(identity string) *sessionv1.Session {
	workspaceID, id := SplitIdentity(identity)
	return &sessionv1.Session{Id: id, WorkspaceId: workspaceID}
}

// Decide turns a command into events. It returns no events and no error if the state is already as the command requires, or
// if the command is a query. Errors: not_found if the sender does not see the session, and the errors of the rules.
func Decide(call entity.Call, s *sessionv1.Session, c sessionv1.Command) ([]sessionv1.Event, error) {
	switch c.(type) {
	case *sessionv1.StartSession, *sessionv1.SendInput, *sessionv1.DeleteSession,
		*sessionv1.EraseRows, *sessionv1.ReportErased: // possible for a session that does not exist or is hidden; each checks it
	default:
		if err := Visible(call, s); err != nil {
			return nil, err
		}
	}
	switch c := c.(type) {
	case *sessionv1.StartSession:
		return start(call, s, c)
	case *sessionv1.SendInput:
		return send(call, s, c)
	case *sessionv1.DeleteSession:
		return seal(call, s)
	case *sessionv1.EraseRows:
		return nil, checkErasing(s)
	case *sessionv1.MoveImage:
		return nil, nil // Rows
	case *sessionv1.ReportErased:
		return reportErased(call, s), nil
	case *sessionv1.Interrupt:
		return interrupt(call, s, c), nil
	case *sessionv1.MoveCwd:
		return moveCwd(call, s, c)
	case *sessionv1.RenameSession:
		return rename(call, s, c)
	case *sessionv1.ArchiveSession:
		return archive(call, s, c)
	case *sessionv1.ChangeAudience:
		return changeAudience(call, s, c)
	case *sessionv1.MarkRead:
		return markRead(call, s, c)
	case *sessionv1.AdmitChild:
		return admitChild(s, c)
	case *sessionv1.ClaimTurn:
		return claimTurn(call, s, c)
	case *sessionv1.RecordRows:
		return recordRows(call, s, c)
	case *sessionv1.EndTurn:
		return endTurn(call, s, c)
	case *sessionv1.WakeSession:
		return wake(call, s, c), nil
	case *sessionv1.AllowUsage:
		return []sessionv1.Event{&sessionv1.UsageAllowed{Usage: s.GetUsage()}}, nil
	case *sessionv1.DescribeSession, *sessionv1.AwaitInput, *sessionv1.AwaitTurn, *sessionv1.PublishDelta:
		return nil, nil
	}
	return nil, entity.UnknownCommand(entity.KindSession, c)
}

// Waits reports whether the answer to a query must wait: until no turn has the input of AwaitInput any more, or until the turn of
// AwaitTurn has something new for its run. A query that is refused does not wait.
func Waits(call entity.Call, s *sessionv1.Session, c sessionv1.Command) bool {
	if Visible(call, s) != nil {
		return false
	}
	switch c := c.(type) {
	case *sessionv1.AwaitInput:
		if PendingInput(s, c.GetSeq()) != nil {
			return true
		}
		taken := s.GetTurn().GetRunId() != "" && c.GetTaken()
		return hasInput(s.GetTurn(), c.GetSeq()) && !taken
	case *sessionv1.AwaitTurn:
		return isRun(s, c.GetTurnId(), c.GetRunId()) && !s.GetTurn().GetInterrupting() && !steersAfter(s, c.GetAfter())
	default:
		return false
	}
}

// Reply returns the answer to a command; s is the state after the events.
func Reply(call entity.Call, s *sessionv1.Session, c sessionv1.Command, events []sessionv1.Event) proto.Message {
	switch c := c.(type) {
	case *sessionv1.StartSession:
		return replyStarted(s, events)
	case *sessionv1.SendInput:
		if len(events) == 0 || isStart(events) {
			return replyStarted(s, events)
		}
		return &sessionv1.Accepted{InputSeq: lastInput(events), Digest: c.GetInput().GetDigest()}
	case *sessionv1.Interrupt:
		return &sessionv1.Interrupted{Interrupted: len(events) > 0}
	case *sessionv1.MoveCwd, *sessionv1.RenameSession, *sessionv1.ArchiveSession, *sessionv1.ChangeAudience, *sessionv1.MarkRead,
		*sessionv1.DescribeSession, *sessionv1.AwaitInput, *sessionv1.AwaitTurn, *sessionv1.AdmitChild, *sessionv1.ClaimTurn,
		*sessionv1.RecordRows, *sessionv1.AllowUsage:
		return &sessionv1.Description{Session: s, Permissions: PermissionsOf(call, s)}
	case *sessionv1.DeleteSession, *sessionv1.EndTurn, *sessionv1.PublishDelta, *sessionv1.WakeSession,
		*sessionv1.EraseRows, *sessionv1.MoveImage, *sessionv1.ReportErased:
	}
	return &wirev1.Done{}
}

// replyStarted answers a command that creates the session, also if an earlier one has created it.
func replyStarted(s *sessionv1.Session, events []sessionv1.Event) proto.Message {
	return &sessionv1.Accepted{InputSeq: s.GetPromptSeq(), Digest: s.GetPromptDigest(), Created: len(events) > 0}
}

// Timers returns the timer that ends a sleep.
func Timers(s *sessionv1.Session) []entity.Timer {
	if s.GetWakeAt() == 0 || s.GetSealed() {
		return nil
	}
	return []entity.Timer{{ID: wakeTimer, At: s.GetWakeAt(), Message: &sessionv1.WakeSession{At: s.GetWakeAt()}}}
}

// Tasks returns the task of the running turn, or the task of the deletion.
func Tasks(s *sessionv1.Session) []entity.Task {
	switch {
	case s.GetErased():
		return nil
	case s.GetSealed():
		return []entity.Task{{Kind: DeletionTask, ID: "delete", Message: &sessionv1.DeletionTask{SessionId: s.GetId()}}}
	case s.GetTurn() != nil:
		id := s.GetTurn().GetId()
		return []entity.Task{{Kind: TurnTask, ID: strconv.FormatUint(id, 10), Message: &sessionv1.TurnTask{TurnId: id}}}
	default:
		return nil
	}
}
