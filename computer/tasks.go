package computer

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	entitycomputer "github.com/atelier-run/atelier/entity/computer"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

// Bounds of an executor of tasks.
type Bounds struct {
	// Limit is how many tasks of the kind are run at the same time.
	Limit int
	// Timeout is how long one attempt takes at most.
	Timeout time.Duration
}

// maxAttempts is how often a backup or a restore is tried: for about a quarter of an hour, with pauses of up to a minute.
// The other tasks have no end.
const maxAttempts = 20

// Kinds are the kinds of tasks that Run carries out, with their bounds: those that read or write a whole drive take
// longer and run two at a time, beside the others.
func Kinds() map[string]Bounds {
	quick, slow := Bounds{Limit: 8, Timeout: 5 * time.Minute}, Bounds{Limit: 2, Timeout: 6 * time.Hour}
	return map[string]Bounds{
		entitycomputer.ProvisionTask: quick, entitycomputer.ReplaceTask: quick, entitycomputer.RetireTask: quick,
		entitycomputer.RemoveBackupTask: quick, entitycomputer.BackUpTask: slow, entitycomputer.RestoreTask: slow,
	}
}

// Run carries out a task of a computer once, and returns the command that reports what came of it. An error says that
// the task is to be tried again. attempt counts the calls for the task, from 1. The caller never runs two tasks of one
// workspace at the same time, but for the deletion of backups.
func (f *Fleet) Run(ctx context.Context, workspaceID string, work *computerv1.Work, attempt int) (report proto.Message, err error) {
	if work.GetTask() == nil {
		return f.remove(ctx, workspaceID, work.GetBackup())
	}
	task := work.GetTask()
	log := f.o.Log.With(slog.String("workspace", workspaceID), slog.String("task", kindName(task.GetKind())))
	report, err = f.try(ctx, workspaceID, work)
	switch {
	case err == nil:
		log.Info("a computer's task is done")
		return report, nil
	case ctx.Err() != nil:
		return nil, err
	case entity.IsRefusal(err), attempt >= maxAttempts && slow(task.GetKind()):
		log.Error("a computer's task has failed", slog.Any("error", err))
		return &computerv1.ReportFailed{TaskId: task.GetId(), Reason: reason(err)}, nil
	}
	return nil, err
}

func (f *Fleet) try(ctx context.Context, workspaceID string, work *computerv1.Work) (proto.Message, error) {
	task := work.GetTask()
	switch task.GetKind() {
	case computerv1.TaskKind_TASK_KIND_PROVISION, computerv1.TaskKind_TASK_KIND_REPLACE:
		machine, err := f.o.Driver.Provision(ctx, workspaceID, task.GetVmName())
		return &computerv1.ReportProvisioned{TaskId: task.GetId(), VmName: machine.VMName, ImageRef: machine.ImageRef}, err
	case computerv1.TaskKind_TASK_KIND_BACK_UP, computerv1.TaskKind_TASK_KIND_BACK_UP_AND_REPLACE:
		backup, err := f.o.Archive.Save(ctx, workspaceID, task.GetBackupId())
		if err == nil {
			backup.Id = cmp.Or(backup.GetId(), task.GetBackupId())
		}
		return &computerv1.ReportBackedUp{TaskId: task.GetId(), Backup: backup}, err
	case computerv1.TaskKind_TASK_KIND_RESTORE:
		err := f.o.Archive.Load(ctx, workspaceID, task.GetId(), work.GetBackup())
		return &computerv1.ReportRestored{TaskId: task.GetId()}, err
	case computerv1.TaskKind_TASK_KIND_RETIRE:
		return &computerv1.ReportRetired{TaskId: task.GetId()}, f.o.Driver.Release(ctx, workspaceID)
	}
	return nil, errUnknownTask
}

var errUnknownTask = errors.New("computer: the kind of the task is not known")

// remove deletes a backup from the archive. One that the archive refuses to delete stays there, and is forgotten.
func (f *Fleet) remove(ctx context.Context, workspaceID string, b *computerv1.Backup) (proto.Message, error) {
	err := f.o.Archive.Remove(ctx, workspaceID, b)
	if err != nil && (!entity.IsRefusal(err) || ctx.Err() != nil) {
		return nil, err
	}
	if err != nil {
		f.o.Log.Error("a backup that is no longer kept stays in the archive", slog.String("workspace", workspaceID),
			slog.String("backup", b.GetId()), slog.String("object", b.GetObject()), slog.Any("error", err))
	}
	return &computerv1.ReportRemoved{BackupId: b.GetId()}, nil
}

// slow reports whether a task reads or writes a whole drive.
func slow(k computerv1.TaskKind) bool {
	switch k {
	case computerv1.TaskKind_TASK_KIND_BACK_UP, computerv1.TaskKind_TASK_KIND_BACK_UP_AND_REPLACE, computerv1.TaskKind_TASK_KIND_RESTORE:
		return true
	default:
		return false
	}
}

func kindName(k computerv1.TaskKind) string {
	return strings.ToLower(strings.TrimPrefix(k.String(), "TASK_KIND_"))
}

// maxReason bounds what is stored of an error, in bytes.
const maxReason = 512

func reason(err error) string {
	text := err.Error()
	return strings.ToValidUTF8(text[:min(len(text), maxReason)], "")
}
