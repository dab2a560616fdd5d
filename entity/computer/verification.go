package computer

import (
	"cmp"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

// cancelled is the reason of a task that an operator has cancelled.
const cancelled = "an operator has cancelled it"

// maxReason limits the reasons in commands, in bytes.
const maxReason = 512

var errNotCancellable = entity.Errorf(entity.InvalidRequest, "only backups, restores and verifications can be cancelled")

// verifyBackup opens the task that verifies a backup. Errors: invalid_request, not_found, unavailable.
func verifyBackup(call entity.Call, s *computerv1.Computer, c *computerv1.VerifyBackup) ([]computerv1.Event, error) {
	if err := checkID(c.GetTaskId(), errTaskID); err != nil {
		return nil, err
	}
	if s.GetBackups()[c.GetBackupId()] == nil {
		return nil, errNoBackup
	}
	return openIfIdle(call, s, &computerv1.Task{
		Id: c.GetTaskId(), Kind: computerv1.TaskKind_TASK_KIND_VERIFY, BackupId: c.GetBackupId(),
	})
}

// reportVerified records the result of a verification. The task fails if the backup is not usable.
func reportVerified(call entity.Call, s *computerv1.Computer, c *computerv1.ReportVerified) []computerv1.Event {
	if !isOpenTask(s, c.GetTaskId(), computerv1.TaskKind_TASK_KIND_VERIFY) {
		return nil
	}
	events := []computerv1.Event{&computerv1.BackupVerified{
		TaskId: c.GetTaskId(), BackupId: s.GetTask().GetBackupId(), Failure: c.GetFailure(), At: call.At(),
	}}
	if c.GetFailure() != "" {
		events = append(events, taskFailed(call, s.GetTask(), c.GetFailure()))
	}
	return events
}

// withVerification returns the backups after one was verified.
func withVerification(backups map[string]*computerv1.Backup, e *computerv1.BackupVerified) map[string]*computerv1.Backup {
	if backups[e.GetBackupId()] == nil {
		return backups
	}
	verified := entity.ShallowCopy(backups[e.GetBackupId()])
	verified.Verification = &computerv1.Verification{At: e.GetAt(), Failure: e.GetFailure()}
	return entity.With(backups, e.GetBackupId(), verified)
}

// cancelTask ends the open task. The runtime cancels its executor when the task's row disappears. The stored content of a cancelled
// backup is deleted. It has no effect if the task has ended. Errors: invalid_request, also if the task cannot be cancelled.
func cancelTask(call entity.Call, s *computerv1.Computer, c *computerv1.CancelTask) ([]computerv1.Event, error) {
	task := s.GetTask()
	switch {
	case len(c.GetReason()) > maxReason:
		return nil, entity.Errorf(entity.InvalidRequest, "reason must have at most %d bytes", maxReason)
	case task == nil, c.GetTaskId() != "" && task.GetId() != c.GetTaskId():
		return nil, nil
	case !isCancellable(task.GetKind()):
		return nil, errNotCancellable
	}
	return append([]computerv1.Event{taskFailed(call, task, cmp.Or(c.GetReason(), cancelled))}, dropUnreported(s, task)...), nil
}

// dropUnreported returns the event that drops the backup of a task that ends without a report. The archive may have stored the
// object although its answer was lost. It returns none for other tasks, and for a backup that is recorded or dropped already.
func dropUnreported(s *computerv1.Computer, task *computerv1.Task) []computerv1.Event {
	id := task.GetBackupId()
	if kindOfTask(task.GetKind()) != BackUpTask || s.GetBackups()[id] != nil || s.GetDropped()[id] != nil {
		return nil
	}
	return []computerv1.Event{&computerv1.BackupDropped{Backup: &computerv1.Backup{Id: id}}}
}

// isCancellable reports whether operators may cancel a task: it reads or writes a whole drive.
func isCancellable(k computerv1.TaskKind) bool {
	return slices.Contains([]string{BackUpTask, RestoreTask, VerifyTask}, kindOfTask(k))
}

func taskFailed(call entity.Call, task *computerv1.Task, reason string) *computerv1.TaskFailed {
	return &computerv1.TaskFailed{TaskId: task.GetId(), Reason: reason, At: call.At(), Kind: task.GetKind()}
}

// newBackup returns the backup that an executor has taken for a task.
func newBackup(call entity.Call, task *computerv1.Task, reported *computerv1.Backup) *computerv1.Backup {
	backup := proto.CloneOf(reported)
	if backup == nil {
		backup = &computerv1.Backup{}
	}
	backup.Id = task.GetBackupId()
	backup.CreatedAt = cmp.Or(backup.CreatedAt, call.At())
	backup.Version = call.Version
	switch {
	case task.GetKind() == computerv1.TaskKind_TASK_KIND_BACK_UP_AND_REPLACE:
		backup.Origin = computerv1.BackupOrigin_BACKUP_ORIGIN_REPLACEMENT
	case task.GetScheduled():
		backup.Origin = computerv1.BackupOrigin_BACKUP_ORIGIN_SCHEDULED
	}
	return backup
}
