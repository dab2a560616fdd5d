package computer

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

// A report ends the open task, if it is the one that the report is of.

func provisioned(call entity.Call, s *computerv1.Computer, c *computerv1.ReportProvisioned) []computerv1.Event {
	if !ends(s, c.GetTaskId(), computerv1.TaskKind_TASK_KIND_PROVISION, computerv1.TaskKind_TASK_KIND_REPLACE) {
		return nil
	}
	return one(&computerv1.ComputerProvisioned{
		TaskId: c.GetTaskId(), VmName: c.GetVmName(), ImageRef: c.GetImageRef(), At: call.At(), OldVmName: s.GetVmName(),
	})
}

func restored(call entity.Call, s *computerv1.Computer, c *computerv1.ReportRestored) []computerv1.Event {
	if !ends(s, c.GetTaskId(), computerv1.TaskKind_TASK_KIND_RESTORE) {
		return nil
	}
	return one(&computerv1.BackupRestored{TaskId: c.GetTaskId(), BackupId: s.GetTask().GetBackupId(), At: call.At()})
}

func retired(call entity.Call, s *computerv1.Computer, c *computerv1.ReportRetired) []computerv1.Event {
	if !ends(s, c.GetTaskId(), computerv1.TaskKind_TASK_KIND_RETIRE) {
		return nil
	}
	return one(&computerv1.ComputerRetired{TaskId: c.GetTaskId(), At: call.At()})
}

func failed(call entity.Call, s *computerv1.Computer, c *computerv1.ReportFailed) []computerv1.Event {
	if s.GetTask() == nil || s.GetTask().GetId() != c.GetTaskId() {
		return nil
	}
	return one(&computerv1.TaskFailed{TaskId: c.GetTaskId(), Reason: c.GetReason(), At: call.At()})
}

// ends tells whether a report is of the open task, which is of one of the kinds.
func ends(s *computerv1.Computer, taskID string, kinds ...computerv1.TaskKind) bool {
	return s.GetTask() != nil && s.GetTask().GetId() == taskID && slices.Contains(kinds, s.GetTask().GetKind())
}

func one(e computerv1.Event) []computerv1.Event { return []computerv1.Event{e} }

// backedUp keeps the backup, and goes on to the replacement that it was taken for.
func backedUp(call entity.Call, s *computerv1.Computer, c *computerv1.ReportBackedUp) []computerv1.Event {
	task := s.GetTask()
	if !ends(s, c.GetTaskId(), computerv1.TaskKind_TASK_KIND_BACK_UP, computerv1.TaskKind_TASK_KIND_BACK_UP_AND_REPLACE) {
		return unwanted(s, c.GetBackup())
	}
	backup := proto.CloneOf(c.GetBackup())
	if backup == nil {
		backup = &computerv1.Backup{}
	}
	backup.Id = task.GetBackupId()
	if backup.CreatedAt == 0 {
		backup.CreatedAt = call.At()
	}
	events := one(&computerv1.BackupTaken{TaskId: task.GetId(), Backup: backup, Dropped: oldest(s.GetBackups(), backup.Id)})
	if task.GetKind() != computerv1.TaskKind_TASK_KIND_BACK_UP_AND_REPLACE {
		return events
	}
	replace := proto.CloneOf(task)
	replace.Kind = computerv1.TaskKind_TASK_KIND_REPLACE
	return append(events, &computerv1.TaskRequested{Task: replace})
}

// unwanted drops a backup that came too late for its task, unless it is one that is kept: the report is a repeated one.
func unwanted(s *computerv1.Computer, b *computerv1.Backup) []computerv1.Event {
	if b.GetId() == "" || s.GetBackups()[b.GetId()] != nil || s.GetDropped()[b.GetId()] != nil || s.GetTask().GetBackupId() == b.GetId() {
		return nil
	}
	return one(&computerv1.BackupDropped{Backup: b})
}

func removed(call entity.Call, s *computerv1.Computer, c *computerv1.ReportRemoved) []computerv1.Event {
	if s.GetDropped()[c.GetBackupId()] == nil {
		return nil
	}
	return one(&computerv1.BackupRemoved{BackupId: c.GetBackupId(), At: call.At()})
}

func found(call entity.Call, s *computerv1.Computer) []computerv1.Event {
	if !present(s) || s.GetStatus() == computerv1.Status_STATUS_ACTIVE && s.GetMissed() == 0 {
		return nil
	}
	return one(&computerv1.ComputerFound{At: call.At()})
}

// missing counts a check; one that was told of before changes nothing.
func missing(s *computerv1.Computer, c *computerv1.ReportMissing) []computerv1.Event {
	switch {
	case s.GetStatus() != computerv1.Status_STATUS_ACTIVE, s.GetMissed() > 0 && c.GetAt() <= s.GetMissedAt():
		return nil
	case s.GetMissed() == 0:
		return one(&computerv1.ComputerMissed{At: c.GetAt()})
	}
	return one(&computerv1.ComputerLost{At: c.GetAt()})
}

func work(s *computerv1.Computer, c *computerv1.ReportWork) []computerv1.Event {
	if s.GetActiveSessions() == c.GetActiveSessions() && s.GetActiveJobs() == c.GetActiveJobs() {
		return nil
	}
	return one(&computerv1.WorkReported{ActiveSessions: c.GetActiveSessions(), ActiveJobs: c.GetActiveJobs()})
}

// announceLoss repeats a ComputerLost of before the command's time, which the workspace did not take while it was closed.
func announceLoss(s *computerv1.Computer, c *computerv1.AnnounceLoss) []computerv1.Event {
	if s.GetStatus() != computerv1.Status_STATUS_LOST || s.GetMissedAt() >= c.GetAt() {
		return nil
	}
	return one(&computerv1.ComputerLost{At: c.GetAt()})
}
