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
	// MaxAppProcesses is the greatest number of processes of apps, which count neither as processes of members nor of sessions.
	MaxAppProcesses = 256
	// maxProgram limits the name of a program that is stored, in bytes.
	maxProgram = 256
	// TerminalActor is the author of the changes of processes that no session and no app owns.
	TerminalActor = "terminal"
	// sessionActor begins the author of the changes of a session's processes. The id of the session follows.
	sessionActor = "session:"
	// appActor begins the author of the changes of an app's processes, which are the changes of a program with a key. The id of
	// the app follows.
	appActor = "api-key:"
)

var (
	errProcessID        = entity.Errorf(entity.InvalidRequest, "processId must have 1 to %d bytes", maxIDLength)
	errProcessKind      = entity.Errorf(entity.InvalidRequest, "kind must be exec, terminal, session or app")
	errSessionID        = entity.Errorf(entity.InvalidRequest, "sessionId must have 1 to %d letters, digits, underscores and hyphens", maxIDLength)
	errAppID            = entity.Errorf(entity.InvalidRequest, "appId must have 1 to %d letters, digits, underscores and hyphens", maxIDLength)
	errProcessUser      = entity.Errorf(entity.InvalidRequest, "userId must have at most %d bytes", maxIDLength)
	errNoUser           = entity.Errorf(entity.InvalidRequest, "only a process of a session or of an app has a userId")
	errNoSession        = entity.Errorf(entity.InvalidRequest, "only a process of a session has a sessionId")
	errNoApp            = entity.Errorf(entity.InvalidRequest, "only a process of an app has an appId")
	errProgram          = entity.Errorf(entity.InvalidRequest, "argv must name a program")
	errTooManyProcesses = unavailable("too many processes are running in the computer")

	// The id of a session or an app is part of an actor and of the name of a process group.
	validWorkerID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
)

// startProcess admits a process. It has no effect if the process was admitted before. Errors: invalid_request, unavailable if
// the computer is not ready, is being replaced or restored, or has too many processes of members, of sessions or of apps.
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
	switch c.GetKind() {
	case computerv1.ProcessKind_PROCESS_KIND_SESSION:
		p.Actor, p.SessionId, p.UserId = sessionActor+c.GetSessionId(), c.GetSessionId(), c.GetUserId()
	case computerv1.ProcessKind_PROCESS_KIND_APP:
		p.Actor, p.AppId, p.UserId = appActor+c.GetAppId(), c.GetAppId(), c.GetUserId()
	}
	return []computerv1.Event{&computerv1.ProcessStarted{Process: p}}, nil
}

// checkProcessKind returns invalid_request unless the kind is known, and the process has the fields of its kind and no others.
func checkProcessKind(c *computerv1.StartProcess) error {
	kind := c.GetKind()
	switch kind {
	case computerv1.ProcessKind_PROCESS_KIND_EXEC, computerv1.ProcessKind_PROCESS_KIND_TERMINAL,
		computerv1.ProcessKind_PROCESS_KIND_SESSION, computerv1.ProcessKind_PROCESS_KIND_APP:
	default:
		return errProcessKind
	}
	isOfSession, isOfApp := kind == computerv1.ProcessKind_PROCESS_KIND_SESSION, kind == computerv1.ProcessKind_PROCESS_KIND_APP
	switch {
	case !isOfSession && c.GetSessionId() != "":
		return errNoSession
	case !isOfApp && c.GetAppId() != "":
		return errNoApp
	case isOfMember(kind) && c.GetUserId() != "":
		return errNoUser
	case isOfSession && !validWorkerID.MatchString(c.GetSessionId()):
		return errSessionID
	case isOfApp && !validWorkerID.MatchString(c.GetAppId()):
		return errAppID
	case len(c.GetUserId()) > maxIDLength:
		return errProcessUser
	}
	return nil
}

// isOfMember reports whether members start processes of a kind. The platform starts the processes of the other kinds.
func isOfMember(k computerv1.ProcessKind) bool {
	return k != computerv1.ProcessKind_PROCESS_KIND_SESSION && k != computerv1.ProcessKind_PROCESS_KIND_APP
}

// isFull reports whether a computer has as many processes as it may have of the kinds that are limited together with a kind.
// The processes of sessions, of apps and of members each have a limit of their own.
func isFull(s *computerv1.Computer, k computerv1.ProcessKind) bool {
	running, most := 0, MaxProcesses
	switch k {
	case computerv1.ProcessKind_PROCESS_KIND_SESSION:
		most = MaxSessionProcesses
	case computerv1.ProcessKind_PROCESS_KIND_APP:
		most = MaxAppProcesses
	}
	for _, p := range s.GetProcesses() {
		if p.GetKind() == k || isOfMember(p.GetKind()) && isOfMember(k) {
			running++
		}
	}
	return running >= most
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

// processAuditEvent returns the audit event for the start of a process, or nil for a process of a session or an app, because the
// session or the app itself is logged. The event names the program without its arguments, which may have secrets.
func processAuditEvent(call entity.Call, p *computerv1.Process) *auditv1.Event {
	if !isOfMember(p.GetKind()) {
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
