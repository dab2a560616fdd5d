package computer

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

// attend carries out what is open of a workspace's computer, until nothing is.
func (f *Fleet) attend(workspaceID string, a *attention) {
	log := f.o.Log.With(slog.String("workspace", workspaceID))
	var pause time.Duration
	var trying string
	var since time.Time
	for f.running.Err() == nil {
		state, err := f.describe(f.running, workspaceID)
		task := state.GetTask()
		if err == nil && task == nil {
			if f.rest(workspaceID, a, false) {
				return
			}
			continue
		}
		if task != nil {
			if stage := task.GetId() + task.GetKind().String(); stage != trying {
				trying, since, pause = stage, time.Now(), 0
			}
			if err = f.carryOut(workspaceID, state, time.Since(since) < patience); err == nil {
				pause = 0
				continue
			}
		}
		pause = min(max(2*pause, firstPause), longestPause)
		log.Warn("a computer's task is tried again", slog.String("task", kindName(task.GetKind())), slog.Any("error", err))
		f.sleep(pause/2 + rand.N(pause))
	}
	f.rest(workspaceID, a, true)
}

func (f *Fleet) sleep(pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-f.running.Done():
	}
}

// carryOut tries the open task once and reports what came of it. An error says that it is to be tried again.
func (f *Fleet) carryOut(workspaceID string, state *computerv1.Computer, again bool) error {
	task := state.GetTask()
	kind := kindName(task.GetKind())
	report, err := f.try(workspaceID, state)
	if err != nil && f.running.Err() != nil {
		return err
	}
	outcome := "done"
	switch {
	case err == nil:
	case final(err), !again && slow(task.GetKind()):
		outcome = "failed"
		f.o.Log.Error("a computer's task has failed", slog.String("workspace", workspaceID), slog.String("task", kind), slog.Any("error", err))
		report = &computerv1.ReportFailed{TaskId: task.GetId(), Reason: reason(err)}
	default:
		f.metrics.tasks.WithLabelValues(kind, "retried").Inc()
		return err
	}
	f.metrics.tasks.WithLabelValues(kind, outcome).Inc()
	if _, err := f.ask(f.running, workspaceID, report); err != nil {
		return err
	}
	if outcome == "done" {
		f.o.Log.Info("a computer's task is done", slog.String("workspace", workspaceID), slog.String("task", kind))
	}
	return f.forgetUnwanted(workspaceID, report)
}

// try has a task done, when there is room for it.
func (f *Fleet) try(workspaceID string, state *computerv1.Computer) (report proto.Message, err error) {
	task := state.GetTask()
	room, timeout := f.quick, quickTimeout
	if slow(task.GetKind()) {
		room, timeout = f.slow, slowTimeout
	}
	select {
	case room <- struct{}{}:
		defer func() { <-room }()
	case <-f.running.Done():
		return nil, f.running.Err()
	}
	ctx, cancel := context.WithTimeout(f.running, timeout)
	defer cancel()
	began := time.Now()
	defer func() {
		f.metrics.seconds.WithLabelValues(kindName(task.GetKind())).Observe(time.Since(began).Seconds())
	}()
	switch task.GetKind() {
	case computerv1.TaskKind_TASK_KIND_PROVISION, computerv1.TaskKind_TASK_KIND_REPLACE:
		machine, err := f.o.Driver.Provision(ctx, workspaceID, task.GetVmName())
		return &computerv1.ReportProvisioned{TaskId: task.GetId(), VmName: machine.VMName, ImageRef: machine.ImageRef}, err
	case computerv1.TaskKind_TASK_KIND_BACK_UP, computerv1.TaskKind_TASK_KIND_BACK_UP_AND_REPLACE:
		backup, err := f.o.Archive.Save(ctx, workspaceID, task.GetBackupId())
		return &computerv1.ReportBackedUp{TaskId: task.GetId(), Backup: backup}, err
	case computerv1.TaskKind_TASK_KIND_RESTORE:
		err := f.o.Archive.Load(ctx, workspaceID, task.GetId(), state.GetBackups()[task.GetBackupId()])
		return &computerv1.ReportRestored{TaskId: task.GetId()}, err
	case computerv1.TaskKind_TASK_KIND_RETIRE:
		return &computerv1.ReportRetired{TaskId: task.GetId()}, f.o.Driver.Release(ctx, workspaceID)
	}
	return nil, errUnknownTask
}

var errUnknownTask = errors.New("computer: a task of a kind that is not known")

// forgetUnwanted removes a backup that came too late to be kept: its task was given up meanwhile.
func (f *Fleet) forgetUnwanted(workspaceID string, report proto.Message) error {
	taken, ok := report.(*computerv1.ReportBackedUp)
	if !ok {
		return nil
	}
	state, err := f.describe(f.running, workspaceID)
	if err != nil || state.GetBackups()[taken.GetBackup().GetId()] != nil {
		return err
	}
	if f.o.Archive.Remove(f.running, workspaceID, taken.GetBackup()) != nil {
		f.Forget(workspaceID, []*computerv1.Backup{taken.GetBackup()})
	}
	return nil
}

// Forget removes backups that are no longer kept, in the background. What fails is tried again while the process lives, and
// left lying after it.
func (f *Fleet) Forget(workspaceID string, backups []*computerv1.Backup) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || len(backups) == 0 {
		return
	}
	f.work.Go(func() {
		for _, b := range backups {
			f.remove(workspaceID, b)
		}
	})
}

// remove takes a backup away, when the bucket lets it.
func (f *Fleet) remove(workspaceID string, b *computerv1.Backup) {
	log := f.o.Log.With(slog.String("workspace", workspaceID), slog.String("backup", b.GetId()))
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		err := f.o.Archive.Remove(f.running, workspaceID, b)
		if err == nil {
			return
		}
		if final(err) || f.running.Err() != nil {
			log.Error("a backup is left lying in the bucket", slog.Any("error", err))
			return
		}
		log.Warn("a backup is removed later", slog.Any("error", err))
		f.sleep(pause/2 + rand.N(pause))
	}
}

// slow tells whether a task goes through a whole drive.
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
