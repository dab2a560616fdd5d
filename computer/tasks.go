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

// Bounds are the limits of an executor of tasks.
type Bounds struct {
	// Limit is the number of tasks of the kind that run at the same time.
	Limit int
	// Timeout limits one attempt: the context of Run has it as its deadline.
	Timeout time.Duration
}

// maxAttempts limits the attempts of a backup or restore. With pauses of up to a minute they last about a quarter of an hour.
// An attempt that reaches its timeout is the last one, because the next one would need as long. Other tasks are retried without
// limit.
const maxAttempts = 20

// Kinds returns the kinds of tasks that Run handles, with their bounds. Tasks that read or write a whole drive have a longer
// timeout, and run two at a time in addition to the others.
func Kinds() map[string]Bounds {
	quick, slow := Bounds{Limit: 8, Timeout: 5 * time.Minute}, Bounds{Limit: 2, Timeout: 6 * time.Hour}
	return map[string]Bounds{
		entitycomputer.ProvisionTask: quick, entitycomputer.ReplaceTask: quick, entitycomputer.RetireTask: quick,
		entitycomputer.RemoveBackupTask: quick, entitycomputer.BackUpTask: slow, entitycomputer.RestoreTask: slow,
		entitycomputer.VerifyTask: slow,
	}
}

// Run runs a task of a computer once and returns the command that reports its outcome: steps 4, 5 and 7 of "The flow of a
// backup" in the package comment. attempt counts the calls for the task, from 1. After an error the caller calls Run again.
// The caller never runs two tasks of one workspace at the same time, except tasks that delete backups.
func (f *Fleet) Run(ctx context.Context, workspaceID string, work *computerv1.Work, attempt int) (report proto.Message, err error) {
	if work.GetTask() == nil {
		return f.removeBackup(ctx, workspaceID, work.GetBackup())
	}
	task := work.GetTask()
	log := f.o.Log.With(slog.String("workspace", workspaceID), slog.String("task", kindName(task.GetKind())))
	report, err = f.runTask(ctx, workspaceID, work)
	defer func() { f.countBackup(task, report) }()
	switch {
	case err == nil:
		log.Info("completed a task of a computer")
		return report, nil
	case errors.Is(ctx.Err(), context.Canceled):
		return nil, err // the process stops, or the task was removed
	case entity.IsRefusal(err), isSlow(task.GetKind()) && (attempt >= maxAttempts || ctx.Err() != nil):
		log.Error("a task of a computer has failed", slog.Int("attempts", attempt), slog.Any("error", err))
		return &computerv1.ReportFailed{TaskId: task.GetId(), Reason: truncateReason(err)}, nil
	}
	return nil, err
}

// runTask calls the driver or the archive for a task. The report is valid only if err is nil.
func (f *Fleet) runTask(ctx context.Context, workspaceID string, work *computerv1.Work) (proto.Message, error) {
	task := work.GetTask()
	switch task.GetKind() {
	case computerv1.TaskKind_TASK_KIND_PROVISION, computerv1.TaskKind_TASK_KIND_REPLACE:
		var machine Machine
		err := f.withoutProcesses(ctx, workspaceID, func() (err error) {
			machine, err = f.o.Driver.Provision(ctx, workspaceID, task.GetVmName())
			return err
		})
		return &computerv1.ReportProvisioned{TaskId: task.GetId(), VmName: machine.VMName, ImageRef: machine.ImageRef, Policy: f.o.Policy}, err
	case computerv1.TaskKind_TASK_KIND_BACK_UP, computerv1.TaskKind_TASK_KIND_BACK_UP_AND_REPLACE:
		if covered, err := f.isCovered(ctx, workspaceID, work); err != nil || covered != nil {
			return covered, err
		}
		report, ended := f.progress.begin(task.GetId())
		defer ended()
		backup, err := f.o.Archive.Save(ctx, workspaceID, task.GetBackupId(), report)
		if err == nil {
			backup.Id = cmp.Or(backup.GetId(), task.GetBackupId())
		}
		return &computerv1.ReportBackedUp{TaskId: task.GetId(), Backup: backup}, err
	case computerv1.TaskKind_TASK_KIND_RESTORE:
		report, ended := f.progress.begin(task.GetId())
		defer ended()
		// A restore exchanges the folder that the computer has mounted.
		err := f.withoutProcesses(ctx, workspaceID, func() error {
			return f.o.Archive.Load(ctx, workspaceID, task.GetId(), work.GetBackup(), report)
		})
		return &computerv1.ReportRestored{TaskId: task.GetId()}, err
	case computerv1.TaskKind_TASK_KIND_VERIFY:
		report, ended := f.progress.begin(task.GetId())
		defer ended()
		failure, err := f.o.Archive.Verify(ctx, work.GetBackup(), report)
		return &computerv1.ReportVerified{TaskId: task.GetId(), Failure: truncateText(failure)}, err
	case computerv1.TaskKind_TASK_KIND_RETIRE:
		err := f.withoutProcesses(ctx, workspaceID, func() error { return f.o.Driver.Release(ctx, workspaceID) })
		return &computerv1.ReportRetired{TaskId: task.GetId()}, err
	}
	return nil, errUnknownTask
}

var errUnknownTask = errors.New("computer: unknown kind of task")

// isCovered returns the report that a scheduled backup is not needed, or nil if it is.
func (f *Fleet) isCovered(ctx context.Context, workspaceID string, work *computerv1.Work) (proto.Message, error) {
	last := work.GetLastGood()
	if last == nil {
		return nil, nil
	}
	seq, err := f.o.Archive.Sequence(ctx, workspaceID)
	if err != nil || seq != last.GetSeq() {
		return nil, err
	}
	return &computerv1.ReportCovered{TaskId: work.GetTask().GetId(), BackupId: last.GetId(), Seq: seq}, nil
}

// removeBackup deletes a dropped backup from the archive. If the archive refuses, removeBackup logs it and reports the
// backup as removed, so that the task ends; the object stays in the archive.
func (f *Fleet) removeBackup(ctx context.Context, workspaceID string, b *computerv1.Backup) (proto.Message, error) {
	err := f.o.Archive.Remove(ctx, workspaceID, b)
	if err != nil && (!entity.IsRefusal(err) || ctx.Err() != nil) {
		return nil, err
	}
	if err != nil {
		f.o.Log.Error("the archive refuses to delete a dropped backup; its object stays", slog.String("workspace", workspaceID),
			slog.String("backup", b.GetId()), slog.String("object", b.GetObject()), slog.Any("error", err))
	}
	return &computerv1.ReportRemoved{BackupId: b.GetId()}, nil
}

// isSlow reports whether a task reads or writes a whole drive or backup.
func isSlow(k computerv1.TaskKind) bool {
	switch k {
	case computerv1.TaskKind_TASK_KIND_BACK_UP, computerv1.TaskKind_TASK_KIND_BACK_UP_AND_REPLACE, computerv1.TaskKind_TASK_KIND_RESTORE,
		computerv1.TaskKind_TASK_KIND_VERIFY:
		return true
	default:
		return false
	}
}

func kindName(k computerv1.TaskKind) string {
	return strings.ToLower(strings.TrimPrefix(k.String(), "TASK_KIND_"))
}

// maxReason limits the reason of a failure that is stored with the task, in bytes.
const maxReason = 512

// truncateReason returns the text of an error as valid UTF-8 of at most maxReason bytes.
func truncateReason(err error) string { return truncateText(err.Error()) }

func truncateText(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxReason)], "")
}
