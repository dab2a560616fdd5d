package computer

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	entitycomputer "github.com/atelier-run/atelier/entity/computer"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

const (
	// maxQuick and maxSlow bound the tasks that are carried out at once: slow are those that go through a whole drive.
	maxQuick = 8
	maxSlow  = 2
	// firstPause and longestPause are between two tries.
	firstPause   = 500 * time.Millisecond
	longestPause = time.Minute
	// patience is how long a backup or a restore is tried; a provision has no end.
	patience = 15 * time.Minute
	// askTimeout bounds one command; quickTimeout one try of a quick task, slowTimeout one of a slow one.
	askTimeout   = 10 * time.Second
	quickTimeout = 5 * time.Minute
	slowTimeout  = 6 * time.Hour
)

// Options of New. Driver, Archive, Asker and Identities are needed.
type Options struct {
	Driver  Driver
	Archive Archive
	Asker   Asker
	// Identities are the workspaces that have rows in a list of computers.
	Identities func(list string) ([]string, error)
	// Put writes a row past the workspace's entity; nil: samples are all told to it.
	Put func(ctx context.Context, workspaceID string, row entity.Row) error
	// Clock is the time of samples.
	Clock func() time.Time
	// SampleEvery is the pause between samples; 0: that of the rules.
	SampleEvery time.Duration
	Log         *slog.Logger
}

// Fleet looks after the computers of this machine. It is a prometheus.Collector.
type Fleet struct {
	o           Options
	metrics     *metrics
	quick, slow chan struct{}

	running context.Context
	end     context.CancelFunc
	work    sync.WaitGroup

	mu     sync.Mutex
	closed bool
	// attended are the workspaces whose tasks are being seen to.
	attended map[string]*attention
	// present are the workspaces with a computer to be checked. well are those among them whose entity has learnt that it
	// was found, and has nothing to learn from it being found again.
	present, well map[string]struct{}
}

// attention is one workspace's.
type attention struct {
	// again is set where something changed since the open task was asked for.
	again bool
	done  chan struct{}
}

// New makes a fleet that does nothing yet.
func New(o Options) *Fleet {
	o.Clock = orNow(o.Clock)
	o.SampleEvery = cmp.Or(o.SampleEvery, entitycomputer.SampleEvery)
	o.Log = cmp.Or(o.Log, slog.Default())
	f := &Fleet{
		o: o, metrics: newMetrics(), quick: make(chan struct{}, maxQuick), slow: make(chan struct{}, maxSlow),
		attended: map[string]*attention{}, present: map[string]struct{}{}, well: map[string]struct{}{},
	}
	f.running, f.end = context.WithCancel(context.Background())
	return f
}

func orNow(clock func() time.Time) func() time.Time {
	if clock == nil {
		return time.Now
	}
	return clock
}

// Start takes up what was open when the process before ended, and samples from now on.
func (f *Fleet) Start() error {
	present, err := f.o.Identities(entitycomputer.PresentList)
	if err != nil {
		return fmt.Errorf("computers to be checked: %w", err)
	}
	for _, id := range present {
		f.Present(id, true)
	}
	open, err := f.o.Identities(entitycomputer.TaskList)
	if err != nil {
		return fmt.Errorf("open tasks of computers: %w", err)
	}
	for _, id := range open {
		f.Begin(id)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed {
		f.work.Go(f.sampleOnAndOn)
	}
	return nil
}

// Close ends what is being done and waits for that. What was not reported the next process does.
func (f *Fleet) Close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.end()
	f.work.Wait()
}

// Present tells that there is a computer to be checked, or none any more.
func (f *Fleet) Present(workspaceID string, is bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if is {
		f.present[workspaceID] = struct{}{}
	} else {
		delete(f.present, workspaceID)
		delete(f.well, workspaceID)
	}
}

// isWell tells whether a computer was found, as its entity knows.
func (f *Fleet) isWell(workspaceID string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, is := f.well[workspaceID]
	return is
}

func (f *Fleet) setWell(workspaceID string, is bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, present := f.present[workspaceID]; is && present {
		f.well[workspaceID] = struct{}{}
	} else {
		delete(f.well, workspaceID)
	}
}

// Begin has the open task of a workspace's computer carried out, if there is one. It does not wait.
func (f *Fleet) Begin(workspaceID string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	if a := f.attended[workspaceID]; a != nil {
		a.again = true
		return
	}
	a := &attention{done: make(chan struct{})}
	f.attended[workspaceID] = a
	f.work.Go(func() { f.attend(workspaceID, a) })
}

// Wait waits until nothing is being done to a workspace's computer, or until ctx ends.
func (f *Fleet) Wait(ctx context.Context, workspaceID string) error {
	f.mu.Lock()
	a := f.attended[workspaceID]
	f.mu.Unlock()
	if a == nil {
		return nil
	}
	select {
	case <-a.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// rest ends the attention to a workspace, unless something changed.
func (f *Fleet) rest(workspaceID string, a *attention, whatever bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if a.again && !whatever {
		a.again = false
		return false
	}
	delete(f.attended, workspaceID)
	close(a.done)
	return true
}

// ask sends a computer a command of the platform's.
func (f *Fleet) ask(ctx context.Context, workspaceID string, m proto.Message) (proto.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return f.o.Asker.Ask(ctx, entity.Command{
		Kind: entity.KindComputer, Identity: workspaceID, Principal: entity.Platform(), Message: m,
	})
}

func (f *Fleet) describe(ctx context.Context, workspaceID string) (*computerv1.Computer, error) {
	reply, err := f.ask(ctx, workspaceID, &computerv1.DescribeComputer{})
	if err != nil {
		return nil, err
	}
	state, ok := reply.(*computerv1.Computer)
	if !ok {
		return nil, fmt.Errorf("computer: unexpected reply %T", reply)
	}
	return state, nil
}
