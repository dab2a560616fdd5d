package computer

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/audit"
	auditv1 "github.com/atelier-run/atelier/messages/audit/v1"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// The lists of a computer.
const (
	// TaskList has the open task.
	TaskList = "computer.task"
	// PresentList has the computers that are to be checked.
	PresentList = "computer.present"
	// Telemetry has the samples of a day, each in its slot, not in the order of their times.
	Telemetry = "telemetry"
	// Backups has what can be restored.
	Backups = "backups"
)

const (
	taskKey = "task"
	// PresentKey is the key of the row in PresentList.
	PresentKey = "computer"
)

// SampleEvery is the pause between two samples; Slots is how many of them a day has.
const (
	SampleEvery = 15 * time.Second
	Slots       = uint64(24 * time.Hour / SampleEvery)
)

// Reply is what the asker gets; s is the state after the events.
func Reply(_ entity.Call, s *computerv1.Computer, c computerv1.Command, events []computerv1.Event) proto.Message {
	switch c := c.(type) {
	case *computerv1.Reprovision:
		return answer(s, c, events)
	case *computerv1.DescribeComputer, *computerv1.BackUp, *computerv1.Restore, *computerv1.RetireComputer:
		return s
	case *computerv1.RequestComputer, *computerv1.ReportProvisioned, *computerv1.ReportBackedUp, *computerv1.ReportRestored,
		*computerv1.ReportRetired, *computerv1.ReportFailed, *computerv1.ReportRemoved, *computerv1.RecordSample, *computerv1.ReportMissing,
		*computerv1.ReportWork, *computerv1.AnnounceLoss:
	}
	return &wirev1.Done{}
}

// Rows are the entries of lists that a command changes.
func Rows(call entity.Call, before, after *computerv1.Computer, c computerv1.Command, events []computerv1.Event) []entity.Row {
	var rows []entity.Row
	if c, ok := c.(*computerv1.RecordSample); ok && present(after) {
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
		rows = append(rows, changed(e)...)
		if logged := logged(call, before, e); logged != nil {
			rows = append(rows, audit.Row(entity.KindComputer, call, i, logged))
		}
	}
	if p := present(after); p != present(before) || p && isMissed(after) != isMissed(before) {
		rows = append(rows, presentRow(after))
	}
	return rows
}

// StateRows returns the row in PresentList, which earlier rules wrote without telling whether the computer was missed.
func StateRows(s *computerv1.Computer) []entity.Row {
	if !present(s) {
		return nil
	}
	return []entity.Row{presentRow(s)}
}

func presentRow(s *computerv1.Computer) entity.Row {
	row := entity.Row{List: PresentList, Key: PresentKey}
	if present(s) {
		row.Message = &computerv1.Present{WorkspaceId: s.GetWorkspaceId(), Missed: isMissed(s)}
	}
	return row
}

// isMissed reports whether a check that finds the computer changes its state.
func isMissed(s *computerv1.Computer) bool {
	return s.GetMissed() > 0 || s.GetStatus() == computerv1.Status_STATUS_LOST
}

// SampleRow is a sample in its slot, in the place of that of a day before. Nothing is decided on it: it may be written
// without the computer's entity, where that has nothing to learn from it.
func SampleRow(sample *computerv1.Sample) entity.Row {
	slot := uint64(sample.GetAt()/SampleEvery.Milliseconds()) % Slots
	return entity.Row{List: Telemetry, Key: entity.Ascending(slot), Message: sample}
}

func changed(e computerv1.Event) []entity.Row {
	taken, ok := e.(*computerv1.BackupTaken)
	if !ok {
		return nil
	}
	rows := []entity.Row{{List: Backups, Key: taken.GetBackup().GetId(), Message: taken.GetBackup()}}
	for _, old := range taken.GetDropped() {
		rows = append(rows, entity.Row{List: Backups, Key: old.GetId()})
	}
	return rows
}

// logged is what the audit log says of an event; nil: nothing. s is the state before the command. A replacement is recorded
// when it has succeeded, once, like every other change: a request that fails names no backup that does not exist.
func logged(call entity.Call, s *computerv1.Computer, e computerv1.Event) *auditv1.Event {
	switch e := e.(type) {
	case *computerv1.ComputerProvisioned:
		// The first computer of a workspace is recorded with the workspace's status.
		if s.GetTask().GetKind() != computerv1.TaskKind_TASK_KIND_REPLACE {
			return nil
		}
		return byTask(call, s, "workspace.reprovisioned", &auditv1.Provenance{
			PreviousVmName: s.GetVmName(), VmName: e.GetVmName(), ImageRef: e.GetImageRef(),
			LifecycleBackupId: s.GetTask().GetBackupId(),
		})
	case *computerv1.BackupTaken:
		return byTask(call, s, "backup.created", &auditv1.Provenance{LifecycleBackupId: e.GetBackup().GetId()})
	case *computerv1.BackupRestored:
		return byTask(call, s, "backup.restored", &auditv1.Provenance{LifecycleBackupId: e.GetBackupId()})
	case *computerv1.TaskRequested, *computerv1.ComputerRetired, *computerv1.TaskFailed, *computerv1.ComputerMissed,
		*computerv1.ComputerLost, *computerv1.ComputerFound, *computerv1.WorkReported, *computerv1.BackupDropped,
		*computerv1.BackupRemoved:
	}
	return nil
}

// byTask is an audit event of the person who requested the open task, whose end the platform reports.
func byTask(call entity.Call, s *computerv1.Computer, name string, provenance *auditv1.Provenance) *auditv1.Event {
	provenance.Actor = s.GetTask().GetImpersonatorId()
	logged := audit.Event(call, name, provenance)
	if who := s.GetTask().GetRequestedBy(); who != "" {
		logged.ActorId = who
	}
	return logged
}
