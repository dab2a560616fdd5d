package computer

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	entitycomputer "github.com/atelier-run/atelier/entity/computer"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

// askTimeout limits one command to an entity.
const askTimeout = 10 * time.Second

// Options are the arguments of New. Driver, Host, Observer, Archive, Asker and Put are required.
type Options struct {
	Driver   Driver
	Host     Host
	Observer Observer
	Archive  Archive
	Asker    entity.Asker
	// Put writes a row of a computer's list without a command to its entity.
	Put func(ctx context.Context, workspaceID string, row entity.Row) error
	// Clock returns the time for samples; nil: time.Now.
	Clock func() time.Time
	// Policy is the policy of backups of workspaces without one of their own; nil: none are scheduled.
	Policy *computerv1.BackupPolicy
	// SampleEvery is the interval between samples of a running computer; 0: SampleEvery of entity/computer.
	SampleEvery time.Duration
	// DetachedLimit is the time after which a terminal without clients ends; 0: DefaultDetachedLimit.
	DetachedLimit time.Duration
	// MaxProcesses limits the processes of all computers together that run at the same time; 0: no limit.
	MaxProcesses int
	// Log receives failures; nil: slog.Default.
	Log *slog.Logger
}

// A Share is the part of all computers that belongs to one partition, which this process owns.
type Share interface {
	// Running returns the workspaces in use, with or without a computer.
	Running() []string
	// Present returns at most limit existing computers, in the order of their workspaces' ids, beginning after one id. An
	// empty result means that there are no more.
	Present(after string, limit int) ([]*computerv1.Present, error)
	// Find returns the computer of a workspace, or nil if it has none.
	Find(workspaceID string) (*computerv1.Present, error)
	// Occupied returns at most limit workspaces with recorded processes in their computers, in the order of their ids, beginning
	// after one id. An empty result means that there are no more.
	Occupied(after string, limit int) ([]string, error)
	// Processes returns the recorded processes of a workspace's computer.
	Processes(workspaceID string) ([]*computerv1.Process, error)
	// Schedules returns at most limit schedules of backups, in the order of their workspaces' ids, beginning after one id. An
	// empty result means that there are no more.
	Schedules(after string, limit int) ([]*computerv1.ScheduleRow, error)
	// Schedule returns the schedule of a workspace's backups, or nil if it has none.
	Schedule(workspaceID string) (*computerv1.ScheduleRow, error)
}

// A Fleet runs the tasks of computers, starts processes in them, and samples them. The journal has everything that must
// survive a restart. It is a prometheus.Collector and safe for concurrent use.
type Fleet struct {
	o         Options
	metrics   *metrics
	progress  progresses
	overdue   overdue
	processes processes
	shared    shared
	// terminals has the open terminals by process id.
	terminals sync.Map
	// running ends when the fleet is closed, by cancel.
	running context.Context
	cancel  context.CancelFunc
}

// New returns a Fleet. It samples the computers of a share while Follow runs.
func New(o Options) *Fleet {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	o.SampleEvery = cmp.Or(o.SampleEvery, entitycomputer.SampleEvery)
	o.Log = cmp.Or(o.Log, slog.Default())
	if o.Policy == nil {
		o.Policy = &computerv1.BackupPolicy{}
	}
	f := &Fleet{
		o: o, metrics: newMetrics(), progress: progresses{of: map[string]progress{}}, overdue: overdue{of: map[*followed]int{}},
		processes: processes{running: map[string]*Running{}, stopping: map[string]int{}, watched: map[string]bool{}, most: o.MaxProcesses},
	}
	f.running, f.cancel = context.WithCancel(context.Background())
	return f
}

// ask sends a command to a computer's entity as the platform.
func (f *Fleet) ask(ctx context.Context, workspaceID string, m proto.Message) (proto.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return entity.AskAsPlatform[proto.Message](ctx, f.o.Asker, entity.KindComputer, workspaceID, m)
}
