package computer

import (
	"maps"
	"slices"

	"github.com/atelier-run/atelier/entity"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

// The kinds of tasks that a computer opens; the message of each is a computerv1.Work. BackUpTask, also of the backup that
// precedes a replacement, and RestoreTask read or write a whole drive; the others are quick.
const (
	ProvisionTask    = "computer.provision"
	ReplaceTask      = "computer.replace"
	RetireTask       = "computer.retire"
	BackUpTask       = "computer.back_up"
	RestoreTask      = "computer.restore"
	RemoveBackupTask = "computer.remove_backup"
)

// Tasks are the open task, and the deletion of each dropped backup.
func Tasks(s *computerv1.Computer) []entity.Task {
	var all []entity.Task
	if t := s.GetTask(); t != nil {
		work := &computerv1.Work{Task: t}
		if t.GetKind() == computerv1.TaskKind_TASK_KIND_RESTORE {
			work.Backup = s.GetBackups()[t.GetBackupId()]
		}
		all = append(all, entity.Task{Kind: executorOf(t.GetKind()), ID: t.GetId(), Message: work})
	}
	for _, id := range slices.Sorted(maps.Keys(s.GetDropped())) {
		all = append(all, entity.Task{Kind: RemoveBackupTask, ID: id, Message: &computerv1.Work{Backup: s.GetDropped()[id]}})
	}
	return all
}

func executorOf(k computerv1.TaskKind) string {
	switch k {
	case computerv1.TaskKind_TASK_KIND_BACK_UP, computerv1.TaskKind_TASK_KIND_BACK_UP_AND_REPLACE:
		return BackUpTask
	case computerv1.TaskKind_TASK_KIND_REPLACE:
		return ReplaceTask
	case computerv1.TaskKind_TASK_KIND_RESTORE:
		return RestoreTask
	case computerv1.TaskKind_TASK_KIND_RETIRE:
		return RetireTask
	default:
		return ProvisionTask
	}
}
