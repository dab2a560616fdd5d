package actors

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	runtimev1 "github.com/atelier-run/atelier/messages/runtime/v1"
	"github.com/atelier-run/atelier/persistence"
)

type (
	// tasksChanged tells of the kinds of tasks that were opened, and of the rows that were removed.
	tasksChanged struct{ opened, removed []string }
	// runTasks has the tasks actor run tasks of a kind; of all kinds where it is empty.
	runTasks struct{ kind string }
	// ran ends a run.
	ran struct {
		kind, value string
		attempt     int
		// remains tells that the task is open still.
		remains bool
		err     error
	}
)

// tasks runs the open tasks of a partition. It keeps in memory what runs, and a bounded number of tasks that failed:
// those that wait for room are read from the index when there is some, in turns, so that none waits for ever.
type tasks struct {
	node      *System
	partition persistence.Partition
	effects   *effects
	mailbox   *mailbox

	self   *actor.PID
	queues map[string]*taskQueue
	// next wakes the actor for tasks that are held.
	next *time.Timer
}

// taskQueue is the tasks of one kind.
type taskQueue struct {
	kind     string
	executor *executor
	// cursor is the value up to which the index was read in this turn; more tells that the turn goes on, and again that
	// tasks were opened during it, some of them perhaps before the cursor.
	cursor      string
	more, again bool
	// crowded tells that the queue found no room, and is woken when there is.
	crowded bool
	// heldFirst tells that tasks that are tried again come before others the next time that there is room. The two take
	// turns, so that tasks that keep failing use at most half of the room that others want.
	heldFirst bool
	held      holding
}

func (t *tasks) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *actor.Started:
		t.start(ctx)
	case *tasksChanged:
		t.changed(m)
	case runTasks:
		t.run(m.kind)
	case ran:
		t.ran(m)
	case *actor.Restarting:
		t.end()
	case *actor.Stopping:
		t.mailbox.closed.Store(true)
		t.end()
	}
}

func (t *tasks) start(ctx actor.Context) {
	t.self = ctx.Self()
	t.queues = map[string]*taskQueue{}
	for kind, e := range t.node.executors {
		t.queues[kind] = &taskQueue{kind: kind, executor: e, more: true}
	}
	t.run("")
}

func (t *tasks) end() {
	if t.next != nil {
		t.next.Stop()
	}
	for _, q := range t.queues {
		q.executor.leave(t.self)
	}
}

func (t *tasks) changed(m *tasksChanged) {
	for _, value := range m.removed {
		t.node.runs.cancel(value)
	}
	for _, kind := range m.opened {
		q := t.queues[kind]
		if q == nil {
			t.node.log.Error("no executor runs tasks of this kind", slog.String("task", kind))
			continue
		}
		if q.more {
			q.again = true
			continue
		}
		q.more, q.cursor = true, ""
		t.fill(q)
	}
	t.arm()
}

// run runs tasks as far as there is room.
func (t *tasks) run(kind string) {
	for _, q := range t.queues {
		if kind == "" || kind == q.kind {
			t.fill(q)
		}
	}
	t.arm()
}

// arm wakes the actor when the next held task is ready.
func (t *tasks) arm() {
	pause := time.Duration(math.MaxInt64)
	for _, q := range t.queues {
		if !q.crowded {
			pause = min(pause, q.held.untilNext())
		}
	}
	if t.next != nil {
		t.next.Stop()
		t.next = nil
	}
	if pause < math.MaxInt64 {
		self := t.self
		t.next = time.AfterFunc(pause, func() { t.node.root.Send(self, runTasks{}) })
	}
}

// fill starts tasks of one kind while there are some, and room for them.
func (t *tasks) fill(q *taskQueue) {
	if t.effects.ctx.Err() != nil {
		return // the term has ended: the next one begins anew
	}
	q.crowded = false
	if q.held.rescan() {
		q.more, q.again, q.cursor = true, false, ""
	}
	ready := q.held.ready()
	if !q.more && len(ready) == 0 {
		q.executor.pass(t.self) // this actor may have been woken for room that another waits for
		return
	}
	if q.crowded = !q.executor.enter(t.self); q.crowded {
		return // the end of another task makes room
	}
	free := true // whether the room that was entered is to be used
	defer func() {
		if free {
			q.executor.exit()
		}
	}()
	begin := func(value string, data []byte) bool {
		if q.crowded = !free && !q.executor.enter(t.self); q.crowded {
			return false
		}
		free = !t.begin(q, value, data)
		return true
	}
	if err := t.read(q, ready, begin); err != nil && !errors.Is(err, persistence.ErrClosed) {
		t.node.log.Error("tasks cannot be read", slog.Int("partition", int(t.partition)), slog.Any("error", err))
		self := t.self
		time.AfterFunc(firstRedelivery, func() { t.node.root.Send(self, runTasks{q.kind}) })
	}
}

// read calls begin with the rows that are to be run, until it returns false.
func (t *tasks) read(q *taskQueue, ready []string, begin func(value string, data []byte) bool) error {
	v, err := t.node.journal.View()
	if err != nil {
		return err
	}
	defer v.Close()
	held := func() (bool, error) { return t.readHeld(v, q, ready, begin) }
	others := func() (bool, error) { return t.readOn(v, q, begin) }
	first, second := others, held
	if q.heldFirst {
		first, second = held, others
	}
	q.heldFirst = !q.heldFirst
	if room, err := first(); err != nil || !room {
		return err
	}
	_, err = second()
	return err
}

// readHeld begins the tasks that are ready to be tried again, and reports whether there is room for more.
func (t *tasks) readHeld(v persistence.View, q *taskQueue, ready []string, begin func(string, []byte) bool) (room bool, err error) {
	for _, value := range ready {
		data, ok, err := v.Lookup(t.partition, taskIndex, value, 0)
		switch {
		case err != nil:
			return false, err
		case !ok:
			delete(q.held.rows, value)
		case !begin(value, data):
			return false, nil
		}
	}
	return true, nil
}

// readOn begins the tasks from the cursor on, and reports whether there is room for more.
func (t *tasks) readOn(v persistence.View, q *taskQueue, begin func(string, []byte) bool) (room bool, err error) {
	for q.more {
		for row, err := range v.Index(t.partition, persistence.Query{Index: taskIndex, Value: taskPrefix(q.kind), Prefix: true, After: q.cursor}) {
			if err != nil {
				return false, err
			}
			if !q.held.has(row.Value) && !t.node.runs.isRunning(row.Value, t.effects) && !begin(row.Value, row.Data) {
				return false, nil
			}
			q.cursor = row.Value
		}
		q.more, q.again, q.cursor = q.again, false, ""
	}
	return true, nil
}

// begin starts a run and reports whether it has started. data is the journal's and is not kept.
func (t *tasks) begin(q *taskQueue, value string, data []byte) bool {
	value = strings.Clone(value)
	var row runtimev1.Task
	if err := proto.Unmarshal(data, &row); err != nil {
		t.hold(q, value, err)
		return false
	}
	ctx, cancel := context.WithCancel(t.effects.ctx)
	if !t.node.runs.begin(value, &taskRun{t.effects, cancel}) {
		cancel()
		t.hold(q, value, errStillRunning)
		return false
	}
	attempt := 1
	if h := q.held.rows[value]; h != nil {
		attempt = h.attempts + 1
	}
	q.held.begin(value)
	self := t.self
	begun := t.node.background(func() {
		remains, err := t.execute(ctx, q.executor, value, &row, attempt)
		cancel()
		t.node.runs.end(value)
		q.executor.exit()
		t.node.root.Send(self, ran{q.kind, value, attempt, remains, err})
	})
	if !begun { // the process ends
		cancel()
		t.node.runs.end(value)
	}
	return begun
}

var (
	errStillRunning = errors.New("a run of an earlier term has not ended")
	errTaskRemains  = errors.New("the task is open after it was completed")
)

// execute runs a task once and sends its completion. It reports whether the task is still open.
func (t *tasks) execute(ctx context.Context, e *executor, value string, row *runtimev1.Task, attempt int) (remains bool, err error) {
	// The row may come from a view that is older than the end of an earlier run.
	if remains, err := t.node.remains(t.partition, taskIndex, value); err != nil || !remains {
		return err != nil, err
	}
	m := t.node.metrics.tasks[row.GetTaskKind()]
	m.running.Inc()
	began := time.Now()
	defer func() {
		m.running.Dec()
		m.seconds.Observe(time.Since(began).Seconds())
		switch {
		case err == nil && !remains:
			m.done.Inc()
		case ctx.Err() != nil && t.effects.ctx.Err() == nil:
			m.cancelled.Inc()
		case ctx.Err() != nil:
			m.interrupted.Inc()
		default:
			m.retried.Inc()
		}
	}()
	completion, err := e.attempt(ctx, row, attempt, t.node.log)
	if err == nil && completion != nil {
		err = t.report(ctx, e, row, completion)
	}
	remains, failed := t.node.remains(t.partition, taskIndex, value)
	switch {
	case failed != nil:
		return true, failed
	case remains && err == nil:
		return true, errTaskRemains
	case !remains && ctx.Err() == nil:
		return false, nil // also where the completion was carried out and its answer was lost
	}
	return remains, err
}

// report sends a completion until it is answered, the task is removed, or the term ends: what took long to do is not
// done again because its entity could not be reached.
func (t *tasks) report(ctx context.Context, e *executor, row *runtimev1.Task, completion proto.Message) error {
	for pause := e.FirstPause; ; pause = min(2*pause, e.LongestPause) {
		asking, cancel := context.WithTimeout(t.effects.ctx, deliveryTimeout)
		_, err := t.node.ask(asking, entity.Command{
			Kind: row.GetKind(), Identity: row.GetIdentity(), Principal: entity.Platform(), Message: completion,
		})
		cancel()
		if err == nil || entity.IsRefusal(err) || ctx.Err() != nil {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}

func (t *tasks) ran(m ran) {
	q := t.queues[m.kind]
	if q == nil || t.effects.ctx.Err() != nil {
		return
	}
	if m.remains {
		t.hold(q, m.value, m.err)
	} else {
		delete(q.held.rows, m.value)
	}
	t.fill(q)
	t.arm()
}

// hold has a task tried again later.
func (t *tasks) hold(q *taskQueue, value string, err error) {
	attempts := q.held.hold(value, q.executor.FirstPause, q.executor.LongestPause)
	t.node.log.Warn("a task is tried again", slog.String("task", printable(value)), slog.Int("attempts", attempts), slog.Any("error", err))
}
