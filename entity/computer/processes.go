package computer

import (
	"strings"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/audit"
	auditv1 "github.com/atelier-run/atelier/messages/audit/v1"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

const (
	// MaxProcesses is the greatest number of processes, each with its descendants, that members may have running in a computer.
	MaxProcesses = 64
	// maxProgram limits the name of a program that is stored, in bytes.
	maxProgram = 256
	// TerminalActor is the author of the changes of processes that no session and no app owns.
	TerminalActor = "terminal"
)

var (
	errProcessID        = entity.Errorf(entity.InvalidRequest, "processId must have 1 to %d bytes", maxIDLength)
	errProcessKind      = entity.Errorf(entity.InvalidRequest, "kind must be exec or terminal")
	errProgram          = entity.Errorf(entity.InvalidRequest, "argv must name a program")
	errTooManyProcesses = unavailable("too many processes are running in the computer")
)

// startProcess admits a process. It has no effect if the process was admitted before. Errors: invalid_request, unavailable if
// the computer is not ready, is being replaced or restored, or has too many processes.
func startProcess(call entity.Call, s *computerv1.Computer, c *computerv1.StartProcess) ([]computerv1.Event, error) {
	switch {
	case c.GetProgram() == "":
		return nil, errProgram
	case auditedName(c.GetKind()) == "":
		return nil, errProcessKind
	}
	if err := checkID(c.GetProcessId(), errProcessID); err != nil {
		return nil, err
	}
	switch {
	case s.GetProcesses()[c.GetProcessId()] != nil:
		return nil, nil
	case s.GetStatus() != computerv1.Status_STATUS_ACTIVE:
		return nil, errNotPresent
	case endsProcesses(s.GetTask().GetKind()):
		return nil, errBusy
	case len(s.GetProcesses()) >= MaxProcesses:
		return nil, errTooManyProcesses
	}
	program := c.GetProgram()
	return []computerv1.Event{&computerv1.ProcessStarted{Process: &computerv1.Process{
		Id: c.GetProcessId(), Kind: c.GetKind(), Actor: TerminalActor, StartedAt: call.At(),
		Program: strings.ToValidUTF8(program[:min(len(program), maxProgram)], ""),
		UserId:  call.Principal.GetUserId(), ImpersonatorId: call.Principal.GetImpersonatorId(),
	}}}, nil
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

// processAuditEvent returns the audit event for the start of a process. It names the program without its arguments, which
// may have secrets.
func processAuditEvent(call entity.Call, p *computerv1.Process) *auditv1.Event {
	return audit.NewEvent(call, auditedName(p.GetKind()), &auditv1.Provenance{Name: p.GetProgram(), Source: p.GetId()})
}

// auditedName returns the name of the audit event for the start of a process, or "" if the kind is unknown.
func auditedName(k computerv1.ProcessKind) string {
	switch k {
	case computerv1.ProcessKind_PROCESS_KIND_EXEC:
		return "exec.started"
	case computerv1.ProcessKind_PROCESS_KIND_TERMINAL:
		return "terminal.opened"
	default:
		return ""
	}
}
