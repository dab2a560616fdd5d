package computer

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/audit"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

// The kinds of the tasks of a computer. The message of each task is a computerv1.Work. BackUpTask, RestoreTask and
// VerifyTask read or write a whole drive or backup; the other tasks are short.
const (
	ProvisionTask    = "computer.provision"
	ReplaceTask      = "computer.replace"
	RetireTask       = "computer.retire"
	BackUpTask       = "computer.back_up"
	RestoreTask      = "computer.restore"
	VerifyTask       = "computer.verify"
	RemoveBackupTask = "computer.remove_backup"
)

// The statuses in the reply to Reprovision.
const (
	BackupPending = "backup_pending"
	Provisioning  = "provisioning"
	Deferred      = "deferred"
)

var (
	errTaskID     = entity.Errorf(entity.InvalidRequest, "taskId must have 1 to %d bytes", maxIDLength)
	errBackupID   = entity.Errorf(entity.InvalidRequest, "backupId must have 1 to %d bytes", maxIDLength)
	errNoBackup   = entity.Errorf(entity.NotFound, "no such backup")
	errBusy       = unavailable("the computer is busy with another task")
	errNotPresent = unavailable("the computer is not ready")
)

// maxIDLength is the greatest length of the ids in commands, in bytes.
const maxIDLength = 64

func unavailable(message string) *entity.Error {
	return &entity.Error{Code: entity.Unavailable, Message: message, RetryAfter: 5 * time.Second}
}

// checkID returns the given error if an id in a command is empty or too long.
func checkID(id string, invalid *entity.Error) error {
	if id == "" || len(id) > maxIDLength {
		return invalid
	}
	return nil
}

// Tasks returns the open task, and a task for the deletion of each dropped backup.
func Tasks(s *computerv1.Computer) []entity.Task {
	var all []entity.Task
	if t := s.GetTask(); t != nil {
		work := &computerv1.Work{Task: t}
		switch t.GetKind() {
		case computerv1.TaskKind_TASK_KIND_RESTORE, computerv1.TaskKind_TASK_KIND_VERIFY:
			work.Backup = s.GetBackups()[t.GetBackupId()]
		case computerv1.TaskKind_TASK_KIND_BACK_UP:
			if t.GetScheduled() {
				work.LastGood = LastGood(s)
			}
		default:
		}
		all = append(all, entity.Task{Kind: kindOfTask(t.GetKind()), ID: t.GetId(), Message: work})
	}
	for _, id := range slices.Sorted(maps.Keys(s.GetDropped())) {
		all = append(all, entity.Task{Kind: RemoveBackupTask, ID: id, Message: &computerv1.Work{Backup: s.GetDropped()[id]}})
	}
	return all
}

// kindOfTask returns the kind of the runtime task for an open task.
func kindOfTask(k computerv1.TaskKind) string {
	switch k {
	case computerv1.TaskKind_TASK_KIND_BACK_UP, computerv1.TaskKind_TASK_KIND_BACK_UP_AND_REPLACE:
		return BackUpTask
	case computerv1.TaskKind_TASK_KIND_REPLACE:
		return ReplaceTask
	case computerv1.TaskKind_TASK_KIND_RESTORE:
		return RestoreTask
	case computerv1.TaskKind_TASK_KIND_VERIFY:
		return VerifyTask
	case computerv1.TaskKind_TASK_KIND_RETIRE:
		return RetireTask
	default:
		return ProvisionTask
	}
}

// requestComputer opens the task that provisions the first computer. It has no effect if there is a computer or an open
// task. Errors: invalid_request.
func requestComputer(call entity.Call, s *computerv1.Computer, c *computerv1.RequestComputer) ([]computerv1.Event, error) {
	if err := checkID(c.GetTaskId(), errTaskID); err != nil {
		return nil, err
	}
	if s.GetStatus() != computerv1.Status_STATUS_UNSPECIFIED || s.GetTask() != nil {
		return nil, nil
	}
	return open(call, &computerv1.Task{
		Id: c.GetTaskId(), Kind: computerv1.TaskKind_TASK_KIND_PROVISION, VmName: vmName(call, c.GetTaskId()),
	}), nil
}

// reprovision opens the task that replaces a computer. It has no effect if sessions or jobs are active, or if the computer is
// not present or already has a task; see replyReprovision.
func reprovision(call entity.Call, s *computerv1.Computer, c *computerv1.Reprovision) ([]computerv1.Event, error) {
	if err := checkID(c.GetTaskId(), errTaskID); err != nil {
		return nil, err
	}
	if s.GetTask() != nil || !isPresent(s) || c.GetActiveSessions() > 0 || c.GetActiveJobs() > 0 {
		return nil, nil
	}
	t := &computerv1.Task{Id: c.GetTaskId(), Kind: computerv1.TaskKind_TASK_KIND_REPLACE, VmName: vmName(call, c.GetTaskId())}
	if c.GetDriveReadable() {
		if err := checkID(c.GetBackupId(), errBackupID); err != nil {
			return nil, err
		}
		t.Kind, t.BackupId = computerv1.TaskKind_TASK_KIND_BACK_UP_AND_REPLACE, c.GetBackupId()
	}
	return open(call, t), nil
}

// replyReprovision returns the reply to Reprovision; s is the state after the events. Deferred means that sessions or
// jobs are active. Without events, Provisioning means that another task is open or the computer is not present yet.
func replyReprovision(s *computerv1.Computer, c *computerv1.Reprovision, events []computerv1.Event) *computerv1.Reprovisioned {
	switch {
	case len(events) == 0 && s.GetTask() == nil && isPresent(s):
		return &computerv1.Reprovisioned{Status: Deferred, ActiveSessions: c.GetActiveSessions(), ActiveJobs: c.GetActiveJobs()}
	case len(events) == 0:
		return &computerv1.Reprovisioned{Status: Provisioning}
	case s.GetTask().GetKind() == computerv1.TaskKind_TASK_KIND_BACK_UP_AND_REPLACE:
		return &computerv1.Reprovisioned{Status: BackupPending, BackupId: c.GetBackupId()}
	}
	return &computerv1.Reprovisioned{Status: Provisioning, Scheduled: true, OldVmName: s.GetVmName(), ImageRef: s.GetImageRef()}
}

// backUp opens the task of a backup. It has no effect if the backup exists. Errors: invalid_request, unavailable.
func backUp(call entity.Call, s *computerv1.Computer, c *computerv1.BackUp) ([]computerv1.Event, error) {
	if err := cmp.Or(checkID(c.GetTaskId(), errTaskID), checkID(c.GetBackupId(), errBackupID)); err != nil {
		return nil, err
	}
	if s.GetBackups()[c.GetBackupId()] != nil {
		return nil, nil
	}
	return openIfIdle(call, s, &computerv1.Task{
		Id: c.GetTaskId(), Kind: computerv1.TaskKind_TASK_KIND_BACK_UP, BackupId: c.GetBackupId(),
	})
}

// restore opens the task that restores the drive from a backup. Errors: invalid_request, not_found, unavailable.
func restore(call entity.Call, s *computerv1.Computer, c *computerv1.Restore) ([]computerv1.Event, error) {
	if err := checkID(c.GetTaskId(), errTaskID); err != nil {
		return nil, err
	}
	if s.GetBackups()[c.GetBackupId()] == nil {
		return nil, errNoBackup
	}
	return openIfIdle(call, s, &computerv1.Task{
		Id: c.GetTaskId(), Kind: computerv1.TaskKind_TASK_KIND_RESTORE, BackupId: c.GetBackupId(),
	})
}

// retire opens the task that gives the computer up. It replaces any other open task: the deletion of a workspace does not
// wait for a backup.
func retire(call entity.Call, s *computerv1.Computer, c *computerv1.RetireComputer) ([]computerv1.Event, error) {
	if err := checkID(c.GetTaskId(), errTaskID); err != nil {
		return nil, err
	}
	if s.GetStatus() == computerv1.Status_STATUS_UNSPECIFIED || s.GetTask().GetKind() == computerv1.TaskKind_TASK_KIND_RETIRE {
		return nil, nil
	}
	return open(call, &computerv1.Task{
		Id: c.GetTaskId(), Kind: computerv1.TaskKind_TASK_KIND_RETIRE, VmName: s.GetVmName(),
	}), nil
}

// openIfIdle opens a task if the computer is present and has no open task. Errors: unavailable.
func openIfIdle(call entity.Call, s *computerv1.Computer, t *computerv1.Task) ([]computerv1.Event, error) {
	switch {
	case s.GetTask().GetId() == t.GetId():
		return nil, nil
	case s.GetTask() != nil:
		return nil, errBusy
	case !isPresent(s):
		return nil, errNotPresent
	}
	return open(call, t), nil
}

// open returns the event that opens a task on behalf of the sender of the command.
func open(call entity.Call, t *computerv1.Task) []computerv1.Event {
	t.RequestedAt = call.At()
	if !entity.IsPlatform(call.Principal) {
		t.RequestedBy, t.ImpersonatorId = call.Principal.GetUserId(), call.Principal.GetImpersonatorId()
		t.Credential = audit.Credential(call.Principal)
	}
	return []computerv1.Event{&computerv1.TaskRequested{Task: t}}
}

// vmName returns the name of the computer that a task creates. It depends only on the workspace and the task, so it is
// unique, and every attempt of the task has the same name.
func vmName(call entity.Call, taskID string) string {
	sum := sha256.Sum256([]byte(call.Identity + "/" + taskID))
	return "vm-" + hex.EncodeToString(sum[:8])
}

// The functions below decide the reports of executors and of the sampling of computers. The report of a task has no effect
// unless that task is open.

func reportProvisioned(call entity.Call, s *computerv1.Computer, c *computerv1.ReportProvisioned) []computerv1.Event {
	if !isOpenTask(s, c.GetTaskId(), computerv1.TaskKind_TASK_KIND_PROVISION, computerv1.TaskKind_TASK_KIND_REPLACE) {
		return nil
	}
	events := []computerv1.Event{&computerv1.ComputerProvisioned{
		TaskId: c.GetTaskId(), VmName: c.GetVmName(), ImageRef: c.GetImageRef(), At: call.At(), OldVmName: s.GetVmName(),
	}}
	if c.GetPolicy() != nil && CheckBackupPolicy(c.GetPolicy()) == nil {
		events = append(events, changePolicy(call, s, s.GetSchedule().GetOwn(), c.GetPolicy())...)
	}
	return events
}

func reportRestored(call entity.Call, s *computerv1.Computer, c *computerv1.ReportRestored) []computerv1.Event {
	if !isOpenTask(s, c.GetTaskId(), computerv1.TaskKind_TASK_KIND_RESTORE) {
		return nil
	}
	return []computerv1.Event{&computerv1.BackupRestored{TaskId: c.GetTaskId(), BackupId: s.GetTask().GetBackupId(), At: call.At()}}
}

func reportRetired(call entity.Call, s *computerv1.Computer, c *computerv1.ReportRetired) []computerv1.Event {
	if !isOpenTask(s, c.GetTaskId(), computerv1.TaskKind_TASK_KIND_RETIRE) {
		return nil
	}
	return []computerv1.Event{&computerv1.ComputerRetired{TaskId: c.GetTaskId(), At: call.At()}}
}

// reportFailed ends a task. If the task was a backup, it drops the backup, because an attempt may have stored the object.
func reportFailed(call entity.Call, s *computerv1.Computer, c *computerv1.ReportFailed) []computerv1.Event {
	if s.GetTask() == nil || s.GetTask().GetId() != c.GetTaskId() {
		return nil
	}
	return slices.Concat([]computerv1.Event{taskFailed(call, s.GetTask(), c.GetReason())}, dropUnreported(s, s.GetTask()), retryAfterFailure(call, s))
}

// isOpenTask reports whether the task with an id is open and of one of the kinds.
func isOpenTask(s *computerv1.Computer, taskID string, kinds ...computerv1.TaskKind) bool {
	return s.GetTask() != nil && s.GetTask().GetId() == taskID && slices.Contains(kinds, s.GetTask().GetKind())
}

// reportBackedUp adds the backup, and opens the task of the replacement that it was taken for.
func reportBackedUp(call entity.Call, s *computerv1.Computer, c *computerv1.ReportBackedUp) []computerv1.Event {
	task := s.GetTask()
	if !isOpenTask(s, c.GetTaskId(), computerv1.TaskKind_TASK_KIND_BACK_UP, computerv1.TaskKind_TASK_KIND_BACK_UP_AND_REPLACE) {
		return dropUnlessKnown(s, c.GetBackup())
	}
	backup := newBackup(call, task, c.GetBackup())
	events := []computerv1.Event{&computerv1.BackupTaken{
		TaskId: task.GetId(), Backup: backup, Dropped: backupsToDrop(s, backup),
	}}
	if task.GetKind() != computerv1.TaskKind_TASK_KIND_BACK_UP_AND_REPLACE {
		return events
	}
	replace := proto.CloneOf(task)
	replace.Kind = computerv1.TaskKind_TASK_KIND_REPLACE
	return append(events, &computerv1.TaskRequested{Task: replace})
}

// dropUnlessKnown drops a backup that was reported after its task had ended. It has no effect if the backup is known,
// because the report is then a repetition.
func dropUnlessKnown(s *computerv1.Computer, b *computerv1.Backup) []computerv1.Event {
	if b.GetId() == "" || s.GetBackups()[b.GetId()] != nil || s.GetDropped()[b.GetId()] != nil || s.GetTask().GetBackupId() == b.GetId() {
		return nil
	}
	return []computerv1.Event{&computerv1.BackupDropped{Backup: b}}
}

func reportRemoved(call entity.Call, s *computerv1.Computer, c *computerv1.ReportRemoved) []computerv1.Event {
	if s.GetDropped()[c.GetBackupId()] == nil {
		return nil
	}
	return []computerv1.Event{&computerv1.BackupRemoved{BackupId: c.GetBackupId(), At: call.At()}}
}

// reportFound records that a check found a computer that earlier checks had not found.
func reportFound(call entity.Call, s *computerv1.Computer) []computerv1.Event {
	if !isPresent(s) || s.GetStatus() == computerv1.Status_STATUS_ACTIVE && s.GetMissed() == 0 {
		return nil
	}
	return []computerv1.Event{&computerv1.ComputerFound{At: call.At()}}
}

// lateReport is the longest time by which a report of a missing computer may be older than the last report that was recorded. An older time is
// right: the last report was recorded while the clock was ahead.
const lateReport = time.Minute

// reportMissing records that a check did not find the computer; the second one in a row marks it as lost. A repeated
// report of the same check, and a late report of an earlier check, have no effect.
func reportMissing(s *computerv1.Computer, c *computerv1.ReportMissing) []computerv1.Event {
	older := s.GetMissedAt() - c.GetAt()
	switch {
	case s.GetStatus() != computerv1.Status_STATUS_ACTIVE, s.GetMissed() > 0 && older >= 0 && older <= lateReport.Milliseconds():
		return nil
	case s.GetMissed() == 0:
		return []computerv1.Event{&computerv1.ComputerMissed{At: c.GetAt()}}
	}
	return []computerv1.Event{&computerv1.ComputerLost{At: c.GetAt()}}
}

// announceLoss repeats the event ComputerLost if the computer is lost, because the workspace ignored the report of the loss while it was closed.
// A repeated command has no effect, and neither has a command that arrives after a report of the loss. The times are not ordered: the
// computer may have been lost while the clock was ahead.
func announceLoss(s *computerv1.Computer, c *computerv1.AnnounceLoss) []computerv1.Event {
	later := s.GetMissedAt() - c.GetAt() // less than lateReport: a check has found the loss, and reported it, since the command was sent
	if s.GetStatus() != computerv1.Status_STATUS_LOST || later >= 0 && later <= lateReport.Milliseconds() {
		return nil
	}
	return []computerv1.Event{&computerv1.ComputerLost{At: c.GetAt()}}
}
