package computer

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"

	"github.com/atelier-run/atelier/entity"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

// The answers to who wants a computer replaced.
const (
	BackupPending = "backup_pending"
	Provisioning  = "provisioning"
	Deferred      = "deferred"
)

func request(call entity.Call, s *computerv1.Computer, c *computerv1.RequestComputer) ([]computerv1.Event, error) {
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

// reprovision replaces a computer that stands and has nothing running; see answer for what else is said.
func reprovision(call entity.Call, s *computerv1.Computer, c *computerv1.Reprovision) ([]computerv1.Event, error) {
	if err := checkID(c.GetTaskId(), errTaskID); err != nil {
		return nil, err
	}
	if s.GetTask() != nil || !present(s) || busy(s) {
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

// answer is what a person is told who wants the computer replaced; s is the state after the events.
func answer(s *computerv1.Computer, c *computerv1.Reprovision, events []computerv1.Event) *computerv1.Reprovisioned {
	switch {
	case len(events) == 0 && s.GetTask() == nil && present(s):
		return &computerv1.Reprovisioned{Status: Deferred, ActiveSessions: s.GetActiveSessions(), ActiveJobs: s.GetActiveJobs()}
	case len(events) == 0:
		return &computerv1.Reprovisioned{Status: Provisioning}
	case s.GetTask().GetKind() == computerv1.TaskKind_TASK_KIND_BACK_UP_AND_REPLACE:
		return &computerv1.Reprovisioned{Status: BackupPending, BackupId: c.GetBackupId()}
	}
	return &computerv1.Reprovisioned{Status: Provisioning, Scheduled: true, OldVmName: s.GetVmName(), ImageRef: s.GetImageRef()}
}

func backUp(call entity.Call, s *computerv1.Computer, c *computerv1.BackUp) ([]computerv1.Event, error) {
	if err := cmp.Or(checkID(c.GetTaskId(), errTaskID), checkID(c.GetBackupId(), errBackupID)); err != nil {
		return nil, err
	}
	if s.GetBackups()[c.GetBackupId()] != nil {
		return nil, nil
	}
	return alone(call, s, &computerv1.Task{
		Id: c.GetTaskId(), Kind: computerv1.TaskKind_TASK_KIND_BACK_UP, BackupId: c.GetBackupId(),
	})
}

func restore(call entity.Call, s *computerv1.Computer, c *computerv1.Restore) ([]computerv1.Event, error) {
	if err := checkID(c.GetTaskId(), errTaskID); err != nil {
		return nil, err
	}
	if s.GetBackups()[c.GetBackupId()] == nil {
		return nil, errNoBackup
	}
	return alone(call, s, &computerv1.Task{
		Id: c.GetTaskId(), Kind: computerv1.TaskKind_TASK_KIND_RESTORE, BackupId: c.GetBackupId(),
	})
}

// retire takes the place of whatever else is to be done: who deletes a workspace waits for no backup of it.
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

// alone opens a task of a computer that stands, unless another is open.
func alone(call entity.Call, s *computerv1.Computer, t *computerv1.Task) ([]computerv1.Event, error) {
	switch {
	case s.GetTask().GetId() == t.GetId():
		return nil, nil
	case s.GetTask() != nil:
		return nil, errBusy
	case !present(s):
		return nil, errNotThere
	}
	return open(call, t), nil
}

func open(call entity.Call, t *computerv1.Task) []computerv1.Event {
	t.RequestedAt = call.At()
	if !entity.IsPlatform(call.Principal) {
		t.RequestedBy, t.ImpersonatorId = call.Principal.GetUserId(), call.Principal.GetImpersonatorId()
	}
	return []computerv1.Event{&computerv1.TaskRequested{Task: t}}
}

// vmName is a computer's, made from its workspace and the task that makes it: the same however often that is tried, and
// no other's.
func vmName(call entity.Call, taskID string) string {
	sum := sha256.Sum256([]byte(call.Identity + "/" + taskID))
	return "vm-" + hex.EncodeToString(sum[:8])
}

func busy(s *computerv1.Computer) bool { return s.GetActiveSessions() > 0 || s.GetActiveJobs() > 0 }

// oldest are the backups that have to go so that there is room for another.
func oldest(backups map[string]*computerv1.Backup, another string) []*computerv1.Backup {
	kept := slices.SortedFunc(maps.Values(backups), func(a, b *computerv1.Backup) int {
		return cmp.Or(cmp.Compare(a.GetCreatedAt(), b.GetCreatedAt()), cmp.Compare(a.GetId(), b.GetId()))
	})
	kept = slices.DeleteFunc(kept, func(b *computerv1.Backup) bool { return b.GetId() == another })
	return kept[:max(0, len(kept)-MaxBackups+1)]
}
