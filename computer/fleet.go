package computer

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	entitycomputer "github.com/atelier-run/atelier/entity/computer"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

// askTimeout bounds one command.
const askTimeout = 10 * time.Second

// Options of New. Driver, Archive, Asker and Put are needed.
type Options struct {
	Driver  Driver
	Archive Archive
	Asker   Asker
	// Put writes a row of a computer's list past its entity.
	Put func(ctx context.Context, workspaceID string, row entity.Row) error
	// Clock is the time of samples.
	Clock func() time.Time
	// SampleEvery is the pause between samples; 0: that of the rules.
	SampleEvery time.Duration
	Log         *slog.Logger
}

// Share is a part of all computers: those of one partition, while this process leads it.
type Share interface {
	// Running are the workspaces in use, with or without a computer.
	Running() []string
	// Present are the computers that exist, after a workspace in the order of their ids: at most limit. None: there are
	// no more.
	Present(after string, limit int) ([]*computerv1.Present, error)
	// Find is the computer of a workspace; nil: it has none.
	Find(workspaceID string) (*computerv1.Present, error)
}

// Fleet runs the tasks of computers and samples them. It keeps nothing that has to survive it. It is a
// prometheus.Collector.
type Fleet struct {
	o       Options
	metrics *metrics
}

// New makes a fleet that samples nothing yet.
func New(o Options) *Fleet {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	o.SampleEvery = cmp.Or(o.SampleEvery, entitycomputer.SampleEvery)
	o.Log = cmp.Or(o.Log, slog.Default())
	return &Fleet{o: o, metrics: newMetrics()}
}

// ask sends a computer a command of the platform's.
func (f *Fleet) ask(ctx context.Context, workspaceID string, m proto.Message) (proto.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return f.o.Asker.Ask(ctx, entity.Command{
		Kind: entity.KindComputer, Identity: workspaceID, Principal: entity.Platform(), Message: m,
	})
}

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

type metrics struct{ samples *prometheus.CounterVec }

func newMetrics() *metrics {
	return &metrics{samples: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "atelier_computer_samples_total", Help: "Checks of computers by outcome: found, missing, failed.",
	}, []string{"outcome"})}
}

// Describe is of prometheus.Collector.
func (f *Fleet) Describe(descriptions chan<- *prometheus.Desc) {
	f.metrics.samples.Describe(descriptions)
}

// Collect is of prometheus.Collector.
func (f *Fleet) Collect(metrics chan<- prometheus.Metric) { f.metrics.samples.Collect(metrics) }
