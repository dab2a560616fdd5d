// Package computer holds the rules of a workspace's runtime computer and of the backups of its drive.
//
//	none ──RequestComputer──► provisioning ──ReportProvisioned──► active ──ReportMissing, twice in a row──► lost
//	  ▲                            │                              ▲    ◄───────────RecordSample────────────┘
//	  │                            └──ReportFailed──► lost        │
//	  └──ReportRetired── active, lost                             └──ReportProvisioned (of a replacement)── active, lost
//
// What a driver has to do is a task: at most one at a time, carried out outside and told back with the task's id. A
// report with another id than the open task's is of something that has ended, and changes nothing. Only giving the
// computer up takes another's place. A replacement with a backup first is two tasks of one id, of which the second
// follows from the end of the first:
//
//	Reprovision ──► BACK_UP_AND_REPLACE ──ReportBackedUp──► REPLACE ──ReportProvisioned──► done
//
// A backup that is no longer kept, or that was taken for a task that has ended, is dropped; its deletion from the archive
// is a task of its own, of which any number may be open:
//
//	BackupTaken, BackupDropped ──► dropped ──ReportRemoved──► deleted
//
// While tasks go on the status stays as it is; only the first provision has a status of its own.
package computer

import (
	"maps"

	"github.com/atelier-run/atelier/entity"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// MaxBackups is how many backups a workspace keeps; the oldest make room.
const MaxBackups = 100

// Zero is the state before the first event.
func Zero(identity string) *computerv1.Computer {
	return &computerv1.Computer{WorkspaceId: identity}
}

// Kind describes computers to the runtime: each belongs to the workspace whose identity it has.
var Kind = entity.Rules[*computerv1.Computer, computerv1.Command, computerv1.Event]{
	Name: entity.KindComputer, Owner: entity.KindWorkspace, Zero: Zero, Access: accessOf, Decide: Decide, Evolve: Evolve,
	Reply: Reply, Rows: Rows, Tasks: Tasks, EffectLists: []string{TaskList, PresentList}, StateRows: StateRows, React: React,
	Lists: map[string]entity.List{
		Telemetry: {Need: entity.Reads(), Most: int(Slots)},
		Backups:   {Need: entity.Reads(entity.Admin)},
		TaskList:  {Need: entity.Reads(entity.Admin)},
	},
}.Kind()

// accessOf returns who may send a command; the workspace checks it.
func accessOf(c computerv1.Command) entity.Access {
	if _, ok := c.(*computerv1.Reprovision); ok {
		return entity.Requires(entity.Changes(entity.Admin))
	}
	return entity.PlatformOnly()
}

// Decide turns a command into events. No events and no error: already so, nothing to do, or a query.
// Errors: invalid_request, not_found for a backup that there is none of, unavailable while another task is open or the
// computer is not there.
func Decide(call entity.Call, s *computerv1.Computer, c computerv1.Command) ([]computerv1.Event, error) {
	switch c := c.(type) {
	case *computerv1.RequestComputer:
		return request(call, s, c)
	case *computerv1.Reprovision:
		return reprovision(call, s, c)
	case *computerv1.BackUp:
		return backUp(call, s, c)
	case *computerv1.Restore:
		return restore(call, s, c)
	case *computerv1.RetireComputer:
		return retire(call, s, c)
	case *computerv1.ReportProvisioned:
		return provisioned(call, s, c), nil
	case *computerv1.ReportBackedUp:
		return backedUp(call, s, c), nil
	case *computerv1.ReportRestored:
		return restored(call, s, c), nil
	case *computerv1.ReportRetired:
		return retired(call, s, c), nil
	case *computerv1.ReportRemoved:
		return removed(call, s, c), nil
	case *computerv1.ReportFailed:
		return failed(call, s, c), nil
	case *computerv1.RecordSample:
		return found(call, s), nil
	case *computerv1.ReportMissing:
		return missing(s, c), nil
	case *computerv1.ReportWork:
		return work(s, c), nil
	case *computerv1.AnnounceLoss:
		return announceLoss(s, c), nil
	case *computerv1.DescribeComputer:
		return nil, nil
	}
	return nil, errUnknownCommand
}

// Evolve is the state after an event.
func Evolve(s *computerv1.Computer, e computerv1.Event) *computerv1.Computer {
	next := copyOf(s)
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
		next.Backups = taken(s.GetBackups(), e)
		next.Dropped = withDropped(s.GetDropped(), e.GetDropped()...)
	case *computerv1.BackupDropped:
		next.Dropped = withDropped(s.GetDropped(), e.GetBackup())
	case *computerv1.BackupRemoved:
		next.Dropped = maps.Clone(s.GetDropped())
		delete(next.Dropped, e.GetBackupId())
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
	case *computerv1.WorkReported:
		next.ActiveSessions, next.ActiveJobs = e.GetActiveSessions(), e.GetActiveJobs()
	}
	return next
}

// taken are the backups after another was.
func taken(backups map[string]*computerv1.Backup, e *computerv1.BackupTaken) map[string]*computerv1.Backup {
	next := entity.With(backups, e.GetBackup().GetId(), e.GetBackup())
	for _, old := range e.GetDropped() {
		delete(next, old.GetId())
	}
	return next
}

func withDropped(dropped map[string]*computerv1.Backup, more ...*computerv1.Backup) map[string]*computerv1.Backup {
	for _, b := range more {
		dropped = entity.With(dropped, b.GetId(), b)
	}
	return dropped
}

func copyOf(s *computerv1.Computer) *computerv1.Computer {
	return &computerv1.Computer{
		WorkspaceId: s.GetWorkspaceId(), Status: s.GetStatus(), VmName: s.GetVmName(), ImageRef: s.GetImageRef(),
		Task: s.GetTask(), Backups: s.GetBackups(), ActiveSessions: s.GetActiveSessions(), ActiveJobs: s.GetActiveJobs(),
		Missed: s.GetMissed(), MissedAt: s.GetMissedAt(), Failed: s.GetFailed(),
		Dropped: s.GetDropped(),
	}
}

// present tells whether there is a computer to work with, found or not.
func present(s *computerv1.Computer) bool {
	return s.GetStatus() == computerv1.Status_STATUS_ACTIVE || s.GetStatus() == computerv1.Status_STATUS_LOST
}

// React returns the commands that follow from an event: the workspace learns whether its computer is present. The
// computer's identity is the workspace's.
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
