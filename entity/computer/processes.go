package computer

import (
	"cmp"
	"regexp"
	"strings"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/audit"
	auditv1 "github.com/atelier-run/atelier/messages/audit/v1"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

const (
	// MaxProcesses is the greatest number of processes, each with its descendants, that members may have running in a computer.
	MaxProcesses = 64
	// MaxSessionProcesses is the greatest number of processes of sessions, which do not count as processes of members.
	MaxSessionProcesses = 256
	// maxProgram limits the name of a program that is stored, in bytes.
	maxProgram = 256
	// TerminalActor is the author of the changes of processes that no session and no app owns.
	TerminalActor = "terminal"
	// sessionActor begins the author of the changes of a session's processes. The id of the session follows.
	sessionActor = "session:"
)

var (
	errProcessID        = entity.Errorf(entity.InvalidRequest, "processId must have 1 to %d bytes", maxIDLength)
	errProcessKind      = entity.Errorf(entity.InvalidRequest, "kind must be exec, terminal or session")
	errSessionID        = entity.Errorf(entity.InvalidRequest, "sessionId must have 1 to %d letters, digits, underscores and hyphens", maxIDLength)
	errSessionUser      = entity.Errorf(entity.InvalidRequest, "userId must have at most %d bytes", maxIDLength)
	errNoSession        = entity.Errorf(entity.InvalidRequest, "only a process of a session has a sessionId and a userId")
	errProgram          = entity.Errorf(entity.InvalidRequest, "argv must name a program")
	errTooManyProcesses = unavailable("too many processes are running in the computer")

	// A session id is part of an actor and of the name of a process group.
	validSessionID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
)

// startProcess admits a process. It has no effect if the process was admitted before. Errors: invalid_request, unavailable if
// the computer is not ready, is being replaced or restored, or has too many processes of members or of sessions.
func startProcess(call entity.Call, s *computerv1.Computer, c *computerv1.StartProcess) ([]computerv1.Event, error) {
	if c.GetProgram() == "" {
		return nil, errProgram
	}
	if err := cmp.Or(checkID(c.GetProcessId(), errProcessID), checkProcessKind(c)); err != nil {
		return nil, err
	}
	switch {
	case s.GetProcesses()[c.GetProcessId()] != nil:
		return nil, nil
	case s.GetStatus() != computerv1.Status_STATUS_ACTIVE:
		return nil, errNotPresent
	case endsProcesses(s.GetTask().GetKind()):
		return nil, errBusy
	case isFull(s, c.GetKind()):
		return nil, errTooManyProcesses
	}
	program := c.GetProgram()
	p := &computerv1.Process{
		Id: c.GetProcessId(), Kind: c.GetKind(), Actor: TerminalActor, StartedAt: call.At(),
		Program: strings.ToValidUTF8(program[:min(len(program), maxProgram)], ""),
		UserId:  call.Principal.GetUserId(), ImpersonatorId: call.Principal.GetImpersonatorId(),
	}
	if isOfSession(c.GetKind()) {
		p.Actor, p.SessionId, p.UserId = sessionActor+c.GetSessionId(), c.GetSessionId(), c.GetUserId()
	}
	return []computerv1.Event{&computerv1.ProcessStarted{Process: p}}, nil
}

// checkProcessKind returns invalid_request unless the kind is known, and a session has the fields of a session and others do not.
func checkProcessKind(c *computerv1.StartProcess) error {
	switch c.GetKind() {
	case computerv1.ProcessKind_PROCESS_KIND_EXEC, computerv1.ProcessKind_PROCESS_KIND_TERMINAL:
		if c.GetSessionId() != "" || c.GetUserId() != "" {
			return errNoSession
		}
		return nil
	case computerv1.ProcessKind_PROCESS_KIND_SESSION:
		switch {
		case !validSessionID.MatchString(c.GetSessionId()):
			return errSessionID
		case len(c.GetUserId()) > maxIDLength:
			return errSessionUser
		}
		return nil
	default:
		return errProcessKind
	}
}

func isOfSession(k computerv1.ProcessKind) bool {
	return k == computerv1.ProcessKind_PROCESS_KIND_SESSION
}

// isFull reports whether a computer has as many processes as it may have: of sessions, or of members.
func isFull(s *computerv1.Computer, k computerv1.ProcessKind) bool {
	sessions := 0
	for _, p := range s.GetProcesses() {
		if isOfSession(p.GetKind()) {
			sessions++
		}
	}
	if isOfSession(k) {
		return sessions >= MaxSessionProcesses
	}
	return len(s.GetProcesses())-sessions >= MaxProcesses
}

// endsProcesses reports whether the executor of a task ends all processes of the computer, so that none may start while the
// task is open.
func endsProcesses(k computerv1.TaskKind) bool {
	switch k {
	case computerv1.TaskKind_TASK_KIND_PROVISION, computerv1.TaskKind_TASK_KIND_REPLACE, computerv1.TaskKind_TASK_KIND_RESTORE,
		computerv1.TaskKind_TASK_KIND_RETIRE:
		return true
	default:
		return false
	}
}

// reportProcessEnded removes a process. It has no effect if the process is not in the state, because the report is then a
// repetition.
func reportProcessEnded(call entity.Call, s *computerv1.Computer, c *computerv1.ReportProcessEnded) []computerv1.Event {
	if s.GetProcesses()[c.GetProcessId()] == nil {
		return nil
	}
	return []computerv1.Event{&computerv1.ProcessEnded{
		ProcessId: c.GetProcessId(), Status: c.GetStatus(), Reason: c.GetReason(), At: call.At(),
	}}
}

// processRows returns the changes of ProcessList that follow from an event.
func processRows(e computerv1.Event) []entity.Row {
	switch e := e.(type) {
	case *computerv1.ProcessStarted:
		return []entity.Row{{List: ProcessList, Key: e.GetProcess().GetId(), Message: e.GetProcess()}}
	case *computerv1.ProcessEnded:
		return []entity.Row{{List: ProcessList, Key: e.GetProcessId()}}
	default:
		return nil
	}
}

// processAuditEvent returns the audit event for the start of a process, or nil for a process of a session, because the session
// itself is logged. The event names the program without its arguments, which may have secrets.
func processAuditEvent(call entity.Call, p *computerv1.Process) *auditv1.Event {
	if isOfSession(p.GetKind()) {
		return nil
	}
	return audit.NewEvent(call, auditedName(p.GetKind()), &auditv1.Provenance{Name: p.GetProgram(), Source: p.GetId()})
}

// auditedName returns the name of the audit event for the start of a process that a member has requested.
func auditedName(k computerv1.ProcessKind) string {
	if k == computerv1.ProcessKind_PROCESS_KIND_TERMINAL {
		return "terminal.opened"
	}
	return "exec.started"
}
