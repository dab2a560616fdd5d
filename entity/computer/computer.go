// Package computer implements the rules of the runtime computer of a workspace and of the backups of the workspace's drive.
//
//	none ──RequestComputer──► provisioning ──ReportProvisioned──► active ──ReportMissing, twice in a row──► lost
//	  ▲                            │                              ▲    ◄───────────RecordSample────────────┘
//	  │                            └──ReportFailed──► lost        │
//	  └──ReportRetired── active, lost                             └──ReportProvisioned (of a replacement)── active, lost
//
// The work of the driver is a task (tasks.go). A computer has at most one open task. The executor reports the result of a
// task with the task's id; a report with another id is late and has no effect. Only the task that retires the computer may
// replace an open one. A replacement that backs the drive up first consists of two tasks with the same id. The second task is
// opened when the first task succeeds:
//
//	Reprovision ──► BACK_UP_AND_REPLACE ──ReportBackedUp──► REPLACE ──ReportProvisioned──► done
//
// Reprovision has the numbers of the sessions and jobs that a replacement would interrupt. If there are any it has no effect.
//
// A backup is dropped when newer ones replace it, when it was taken for a task that has ended, or when its task has failed or was
// cancelled, because the archive may have stored it nevertheless. Its deletion from the archive is a task of its own; any number
// of these tasks may be open:
//
//	BackupTaken, BackupDropped ──► dropped ──ReportRemoved──► deleted
//
// A process is started in the computer, and removed from the state when it has ended (processes.go):
//
//	StartProcess ──► ProcessStarted ──► running ──ReportProcessEnded──► removed
//
// Members start commands and terminals; the platform starts the agents of sessions and the processes of apps. Each of the three
// has a limit of its own.
//
// Operators may cancel a backup, a restore or a verification; the task then fails. Backups on a schedule are described in
// schedule.go.
//
// The status does not change while a task is open, except for the first provision, which has its own status.
package computer

import (
	"github.com/atelier-run/atelier/entity"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// MaxBackups is the greatest number of backups of a workspace. Another backup replaces the oldest one.
const MaxBackups = 100

// Zero returns the state before the first event.
func Zero(identity string) *computerv1.Computer {
	return &computerv1.Computer{WorkspaceId: identity}
}

// Kind describes computers to the runtime. A computer is owned by the workspace with the same identity.
var Kind = entity.Rules[*computerv1.Computer, computerv1.Command, computerv1.Event]{
	Name: entity.KindComputer, Owner: entity.KindWorkspace, Zero: Zero, Access: accessOf, Decide: Decide, Evolve: Evolve,
	Reply: Reply, Rows: Rows, Timers: Timers, Tasks: Tasks, EffectLists: []string{TaskList, PresentList}, StateRows: StateRows, React: React,
	Lists: map[string]entity.List{
		Telemetry:   {Need: entity.Reads(), Most: int(SlotsPerDay)},
		BackupList:  {Need: entity.Reads(entity.Admin)},
		TaskList:    {Need: entity.Reads(entity.Admin)},
		ProcessList: {Need: entity.Reads(entity.Services), Most: MaxProcesses + MaxSessionProcesses + MaxAppProcesses},
	},
}.Kind()

// accessOf returns the access to a command, which the workspace checks.
func accessOf(c computerv1.Command) entity.Access {
	switch c := c.(type) {
	case *computerv1.Reprovision:
		return entity.Requires(entity.Changes(entity.Admin))
	case *computerv1.StartProcess:
		if !isOfMember(c.GetKind()) {
			return entity.PlatformOnly()
		}
		return entity.Requires(entity.Changes(entity.Services))
	default:
		return entity.PlatformOnly()
	}
}

// Decide turns a command into events. It returns no events and no error if the state is already as the command requires, if
// the command is a late report, or if it is a query. Errors: invalid_request, not_found if there is no such backup,
// unavailable while another task is open or the computer is not present.
func Decide(call entity.Call, s *computerv1.Computer, c computerv1.Command) ([]computerv1.Event, error) {
	switch c := c.(type) {
	case *computerv1.RequestComputer:
		return requestComputer(call, s, c)
	case *computerv1.Reprovision:
		return reprovision(call, s, c)
	case *computerv1.BackUp:
		return backUp(call, s, c)
	case *computerv1.Restore:
		return restore(call, s, c)
	case *computerv1.RetireComputer:
		return retire(call, s, c)
	case *computerv1.ReportProvisioned:
		return reportProvisioned(call, s, c), nil
	case *computerv1.ReportBackedUp:
		return reportBackedUp(call, s, c), nil
	case *computerv1.ReportRestored:
		return reportRestored(call, s, c), nil
	case *computerv1.ReportRetired:
		return reportRetired(call, s, c), nil
	case *computerv1.ReportRemoved:
		return reportRemoved(call, s, c), nil
	case *computerv1.ReportFailed:
		return reportFailed(call, s, c), nil
	case *computerv1.RecordSample:
		return reportFound(call, s), nil
	case *computerv1.ReportMissing:
		return reportMissing(s, c), nil
	case *computerv1.AnnounceLoss:
		return announceLoss(s, c), nil
	case *computerv1.StartProcess:
		return startProcess(call, s, c)
	case *computerv1.ReportProcessEnded:
		return reportProcessEnded(call, s, c), nil
	case *computerv1.VerifyBackup:
		return verifyBackup(call, s, c)
	case *computerv1.CancelTask:
		return cancelTask(call, s, c)
	case *computerv1.SetBackupPolicy:
		return setPolicy(call, s, c.GetPolicy())
	case *computerv1.ApplyNodePolicy:
		return applyNodePolicy(call, s, c.GetPolicy())
	case *computerv1.BackUpOnSchedule:
		return backUpOnSchedule(call, s, c), nil
	case *computerv1.ReportCovered:
		return reportCovered(call, s, c), nil
	case *computerv1.ReportVerified:
		return reportVerified(call, s, c), nil
	case *computerv1.DescribeComputer:
		return nil, nil
	}
	return nil, entity.UnknownCommand(entity.KindComputer, c)
}

// Evolve returns the state after an event. It shares unchanged values with s.
func Evolve(s *computerv1.Computer, e computerv1.Event) *computerv1.Computer {
	next := entity.ShallowCopy(s)
	switch e := e.(type) {
	case *computerv1.TaskRequested:
		next.Task = e.GetTask()
		if e.GetTask().GetKind() == computerv1.TaskKind_TASK_KIND_PROVISION {
			next.Status = computerv1.Status_STATUS_PROVISIONING
		}
	case *computerv1.ComputerProvisioned:
		next.Task, next.Failed = nil, nil
		next.Status = computerv1.Status_STATUS_ACTIVE
		next.VmName, next.ImageRef = e.GetVmName(), e.GetImageRef()
		next.Missed, next.MissedAt = 0, 0
	case *computerv1.BackupTaken:
		next.Task, next.Failed = nil, nil
		next.Backups = backupsAfter(s.GetBackups(), e)
		next.Dropped = withDropped(s.GetDropped(), e.GetDropped()...)
		next.Schedule = evolveSchedule(s.GetSchedule(), e)
	case *computerv1.BackupDropped:
		next.Dropped = withDropped(s.GetDropped(), e.GetBackup())
	case *computerv1.BackupRemoved:
		next.Dropped = entity.Without(s.GetDropped(), e.GetBackupId())
	case *computerv1.BackupRestored:
		next.Task, next.Failed = nil, nil
	case *computerv1.ComputerRetired:
		next.Task, next.Failed = nil, nil
		next.Status = computerv1.Status_STATUS_UNSPECIFIED
		next.VmName, next.ImageRef = "", ""
		next.Missed, next.MissedAt = 0, 0
	case *computerv1.TaskFailed:
		next.Task, next.Failed = nil, e
		if s.GetStatus() == computerv1.Status_STATUS_PROVISIONING {
			next.Status = computerv1.Status_STATUS_LOST
		}
	case *computerv1.ComputerMissed:
		next.Missed, next.MissedAt = 1, e.GetAt()
	case *computerv1.ComputerLost:
		next.Status = computerv1.Status_STATUS_LOST
		next.Missed, next.MissedAt = s.GetMissed()+1, e.GetAt()
	case *computerv1.ComputerFound:
		next.Status = computerv1.Status_STATUS_ACTIVE
		next.Missed, next.MissedAt = 0, 0
	case *computerv1.WorkReported: // an event of earlier rules, without effect
	case *computerv1.ProcessStarted:
		next.Processes = entity.With(s.GetProcesses(), e.GetProcess().GetId(), e.GetProcess())
	case *computerv1.ProcessEnded:
		next.Processes = entity.Without(s.GetProcesses(), e.GetProcessId())
	case *computerv1.BackupVerified:
		next.Task, next.Failed = nil, nil
		next.Backups = withVerification(s.GetBackups(), e)
	case *computerv1.BackupCovered:
		next.Task, next.Failed = nil, nil
		next.Schedule = evolveSchedule(s.GetSchedule(), e)
	case *computerv1.BackupPolicyChanged, *computerv1.BackupPostponed:
		next.Schedule = evolveSchedule(s.GetSchedule(), e)
	}
	return next
}

// backupsAfter returns the backups after another backup was taken.
func backupsAfter(backups map[string]*computerv1.Backup, e *computerv1.BackupTaken) map[string]*computerv1.Backup {
	next := entity.With(backups, e.GetBackup().GetId(), e.GetBackup())
	for _, old := range e.GetDropped() {
		delete(next, old.GetId())
	}
	return next
}

// withDropped returns the dropped backups after more were dropped.
func withDropped(dropped map[string]*computerv1.Backup, more ...*computerv1.Backup) map[string]*computerv1.Backup {
	for _, b := range more {
		dropped = entity.With(dropped, b.GetId(), b)
	}
	return dropped
}

// isPresent reports whether the workspace has a computer, even one that the last checks did not find.
func isPresent(s *computerv1.Computer) bool {
	return s.GetStatus() == computerv1.Status_STATUS_ACTIVE || s.GetStatus() == computerv1.Status_STATUS_LOST
}

// React returns the commands that follow from an event: the workspace learns whether its computer is ready or lost. Both
// have the same identity.
func React(identity string, event computerv1.Event) []entity.Reaction {
	switch event.(type) {
	case *computerv1.ComputerProvisioned, *computerv1.ComputerFound:
		return []entity.Reaction{entity.Send(entity.KindWorkspace, identity, &workspacev1.ReportReady{})}
	case *computerv1.ComputerLost:
		return []entity.Reaction{entity.Send(entity.KindWorkspace, identity, &workspacev1.ReportUnhealthy{})}
	default:
		return nil
	}
}
