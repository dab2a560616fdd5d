package computer

import (
	"cmp"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/audit"
	auditv1 "github.com/atelier-run/atelier/messages/audit/v1"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// The names of the lists of a computer.
const (
	// TaskList has the open task.
	TaskList = "computer.task"
	// PresentList has one row if the computer is present and must be sampled.
	PresentList = "computer.present"
	// Telemetry has the samples of the last day, in the order of their slots and not of their times.
	Telemetry = "telemetry"
	// BackupList has the backups that can be restored.
	BackupList = "backups"
	// ProcessList has the processes that run in the computer.
	ProcessList = "computer.process"
)

// The keys of the only rows in TaskList and PresentList.
const (
	taskKey    = "task"
	presentKey = "computer"
)

const (
	// SampleEvery is the interval between two samples of a computer.
	SampleEvery = 15 * time.Second
	// SlotsPerDay is the number of samples of a day.
	SlotsPerDay = uint64(24 * time.Hour / SampleEvery)
)

// Reply returns the answer to a command; s is the state after the events.
func Reply(_ entity.Call, s *computerv1.Computer, c computerv1.Command, events []computerv1.Event) proto.Message {
	switch c := c.(type) {
	case *computerv1.Reprovision:
		return replyReprovision(s, c, events)
	case *computerv1.DescribeComputer, *computerv1.BackUp, *computerv1.Restore, *computerv1.RetireComputer,
		*computerv1.VerifyBackup, *computerv1.CancelTask, *computerv1.SetBackupPolicy:
		return s
	case *computerv1.StartProcess:
		return s.GetProcesses()[c.GetProcessId()]
	case *computerv1.RequestComputer, *computerv1.ReportProvisioned, *computerv1.ReportBackedUp, *computerv1.ReportRestored,
		*computerv1.ReportRetired, *computerv1.ReportFailed, *computerv1.ReportRemoved, *computerv1.RecordSample, *computerv1.ReportMissing,
		*computerv1.AnnounceLoss, *computerv1.ApplyNodePolicy, *computerv1.BackUpOnSchedule,
		*computerv1.ReportCovered, *computerv1.ReportVerified, *computerv1.ReportProcessEnded:
	}
	return &wirev1.Done{}
}

// Rows returns the changes of the lists that follow from a command.
func Rows(call entity.Call, before, after *computerv1.Computer, c computerv1.Command, events []computerv1.Event) []entity.Row {
	var rows []entity.Row
	if c, ok := c.(*computerv1.RecordSample); ok && isPresent(after) {
		rows = append(rows, SampleRow(c.GetSample()))
	}
	if task := after.GetTask(); task != before.GetTask() {
		row := entity.Row{List: TaskList, Key: taskKey}
		if task != nil {
			row.Message = task
		}
		rows = append(rows, row)
	}
	for i, e := range events {
		rows = append(rows, backupRows(after, e)...)
		rows = append(rows, processRows(e)...)
		if logged := auditEvent(call, before, e); logged != nil {
			rows = append(rows, audit.NewRow(entity.KindComputer, call, i, logged))
		}
	}
	if p := isPresent(after); p != isPresent(before) || p && isMissed(after) != isMissed(before) {
		rows = append(rows, presentRow(after))
	}
	return append(rows, scheduleRows(before, after)...)
}

// StateRows returns the row in PresentList. Earlier rules wrote it without the field missed.
func StateRows(s *computerv1.Computer) []entity.Row {
	if !isPresent(s) {
		return nil
	}
	return []entity.Row{presentRow(s)}
}

// presentRow returns the row in PresentList, which is removed if the computer is not present.
func presentRow(s *computerv1.Computer) entity.Row {
	row := entity.Row{List: PresentList, Key: presentKey}
	if isPresent(s) {
		row.Message = &computerv1.Present{WorkspaceId: s.GetWorkspaceId(), Missed: isMissed(s)}
	}
	return row
}

// isMissed reports whether the last check did not find the computer, so that the next one that finds it changes the state.
func isMissed(s *computerv1.Computer) bool {
	return s.GetMissed() > 0 || s.GetStatus() == computerv1.Status_STATUS_LOST
}

// SampleRow returns the row of a sample in Telemetry. It replaces the sample of the same slot of the day before. No rule
// depends on samples, so a sample that does not change the state may be written without a command to the computer.
func SampleRow(sample *computerv1.Sample) entity.Row {
	slot := uint64(sample.GetAt()/SampleEvery.Milliseconds()) % SlotsPerDay
	return entity.Row{List: Telemetry, Key: entity.AscendingKey(slot), Message: sample}
}

// backupRows returns the changes of BackupList that follow from an event. after is the state after the command.
func backupRows(after *computerv1.Computer, e computerv1.Event) []entity.Row {
	if verified, ok := e.(*computerv1.BackupVerified); ok {
		if b := after.GetBackups()[verified.GetBackupId()]; b != nil {
			return []entity.Row{{List: BackupList, Key: b.GetId(), Message: b}}
		}
		return nil
	}
	taken, ok := e.(*computerv1.BackupTaken)
	if !ok {
		return nil
	}
	rows := []entity.Row{{List: BackupList, Key: taken.GetBackup().GetId(), Message: taken.GetBackup()}}
	for _, old := range taken.GetDropped() {
		rows = append(rows, entity.Row{List: BackupList, Key: old.GetId()})
	}
	return rows
}

// auditEvent returns the audit event for an event, or nil if it is not logged. s is the state before the command. A
// replacement is logged when it has succeeded, so that the log never names a backup that does not exist.
func auditEvent(call entity.Call, s *computerv1.Computer, e computerv1.Event) *auditv1.Event {
	switch e := e.(type) {
	case *computerv1.ComputerProvisioned:
		// The first computer of a workspace is logged as a change of the workspace's status.
		if s.GetTask().GetKind() != computerv1.TaskKind_TASK_KIND_REPLACE {
			return nil
		}
		return taskAuditEvent(call, s, "workspace.reprovisioned", &auditv1.Provenance{
			PreviousVmName: s.GetVmName(), VmName: e.GetVmName(), ImageRef: e.GetImageRef(),
			LifecycleBackupId: s.GetTask().GetBackupId(),
		})
	case *computerv1.BackupTaken:
		return taskAuditEvent(call, s, "backup.created", &auditv1.Provenance{LifecycleBackupId: e.GetBackup().GetId()})
	case *computerv1.BackupRestored:
		return taskAuditEvent(call, s, "backup.restored", &auditv1.Provenance{LifecycleBackupId: e.GetBackupId()})
	case *computerv1.ProcessStarted:
		return processAuditEvent(call, e.GetProcess())
	case *computerv1.TaskRequested, *computerv1.ComputerRetired, *computerv1.TaskFailed, *computerv1.ComputerMissed,
		*computerv1.ComputerLost, *computerv1.ComputerFound, *computerv1.WorkReported, *computerv1.BackupDropped,
		*computerv1.ProcessEnded, *computerv1.BackupRemoved, *computerv1.BackupCovered, *computerv1.BackupVerified, *computerv1.BackupPolicyChanged,
		*computerv1.BackupPostponed:
	}
	return nil
}

// taskAuditEvent returns an audit event for the end of the open task. Its actor is the person who requested the task,
// although the platform sends the report that ends it.
func taskAuditEvent(call entity.Call, s *computerv1.Computer, name string, provenance *auditv1.Provenance) *auditv1.Event {
	provenance.Actor = cmp.Or(s.GetTask().GetImpersonatorId(), s.GetTask().GetCredential())
	logged := audit.NewEvent(call, name, provenance)
	if requester := s.GetTask().GetRequestedBy(); requester != "" {
		logged.ActorId = requester
	}
	return logged
}
