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
	// tasksChanged has the kinds of tasks that were opened, and the values of rows that were removed. durable is false if the proposal
	// of these changes failed: then they may have happened or not.
	tasksChanged struct {
		opened, removed []string
		durable         bool
	}
	// runTasks makes the tasks actor start tasks of a kind; of all kinds if it is empty.
	runTasks struct{ kind string }
	// ran is the result of an attempt.
	ran struct {
		kind, value string
		run         *taskRun
		// remains is set if the task is still open.
		remains bool
		err     error
	}
)

// A tasks actor runs the open tasks of a partition. It has in memory the running tasks, and a bounded number of failed tasks. When a slot is
// free, it reads a task that waits for a slot from the index, in rounds from the first row to the last row, so that each task gets its turn.
type tasks struct {
	system    *System
	partition persistence.Partition
	effects   *effects
	mailbox   *mailbox

	self   *actor.PID
	queues map[string]*taskQueue
	// begun has the last attempt of each task, by the value of its row, until the actor knows its result.
	begun map[string]*taskRun
	// next wakes the actor for tasks to retry.
	next *time.Timer
}

// A taskQueue is the state of the tasks of one kind.
type taskQueue struct {
	kind     string
	executor *executor
	// cursor is the value of the last row that was read in this round. more is set while the round goes on, again if tasks
	// were opened during it, perhaps before the cursor, so that another round must follow.
	cursor      string
	more, again bool
	// awaitsSlot is set while the queue waits for a slot; the executor wakes it.
	awaitsSlot bool
	// retriesFirst is set if tasks to retry come before others when the next slot is free. It alternates, so that tasks that
	// keep failing use at most half of the slots that others want.
	retriesFirst bool
	retries      retries
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
	t.queues, t.begun = map[string]*taskQueue{}, map[string]*taskRun{}
	for kind, e := range t.system.executors {
		t.queues[kind] = &taskQueue{kind: kind, executor: e, more: true}
	}
	t.run("")
}

func (t *tasks) end() {
	if t.next != nil {
		t.next.Stop()
	}
	for _, q := range t.queues {
		q.executor.forget(t.self)
	}
}

// changed cancels the tasks that were removed and starts the tasks that were opened.
func (t *tasks) changed(m *tasksChanged) {
	for _, value := range m.removed {
		t.system.runs.cancel(value)
		if m.durable {
			t.forget(value)
		}
	}
	for _, kind := range m.opened {
		q := t.queues[kind]
		if q == nil {
			t.system.log.Error("no executor is registered for a kind of tasks", slog.String("task", kind))
			continue
		}
		if q.readAgain() {
			t.fill(q)
		}
	}
	t.arm()
}

// forget ends the effect of the attempts of a task that was removed. If the task is opened again, it does not wait for a pause after
// their failures, among which is the end of an attempt that was cancelled.
func (t *tasks) forget(value string) {
	if run := t.begun[value]; run != nil {
		run.removed = true
	}
	kind, _, _ := strings.Cut(value, "\x00")
	if q := t.queues[kind]; q != nil {
		delete(q.retries.rows, value)
	}
}

// run starts tasks of a kind, or of all kinds, while slots are free.
func (t *tasks) run(kind string) {
	for _, q := range t.queues {
		if kind == "" || kind == q.kind {
			t.fill(q)
		}
	}
	t.arm()
}

// arm arms the timer for the next task to retry.
func (t *tasks) arm() {
	pause := time.Duration(math.MaxInt64)
	for _, q := range t.queues {
		if !q.awaitsSlot {
			pause = min(pause, q.retries.untilNext())
		}
	}
	if t.next != nil {
		t.next.Stop()
		t.next = nil
	}
	if pause < math.MaxInt64 {
		self := t.self
		t.next = time.AfterFunc(pause, func() { t.system.root.Send(self, runTasks{}) })
	}
}

// fill starts tasks of one kind while tasks of the kind are open and slots are free.
func (t *tasks) fill(q *taskQueue) {
	if t.effects.ctx.Err() != nil {
		return // the term has ended
	}
	q.awaitsSlot = false
	if q.retries.takeRescan() {
		q.more, q.again, q.cursor = true, false, ""
	}
	ready := q.retries.ready()
	if !q.more && len(ready) == 0 {
		q.executor.decline(t.self) // a slot may be reserved for this actor
		return
	}
	if q.awaitsSlot = !q.executor.acquire(t.self); q.awaitsSlot {
		return // the end of another task wakes this actor
	}
	free := true // whether the slot that was acquired is unused
	defer func() {
		if free {
			q.executor.release()
		}
	}()
	begin := func(value string, data []byte) bool {
		if q.awaitsSlot = !free && !q.executor.acquire(t.self); q.awaitsSlot {
			return false
		}
		free = !t.begin(q, value, data)
		return true
	}
	if err := t.read(q, ready, begin); err != nil && !errors.Is(err, persistence.ErrClosed) {
		t.system.log.Error("cannot read the rows of tasks; trying again", slog.Int("partition", int(t.partition)), slog.Any("error", err))
		self := t.self
		time.AfterFunc(redelivering.After(1), func() { t.system.root.Send(self, runTasks{q.kind}) })
	}
}

// read calls begin with the rows of tasks to run, until begin returns false.
func (t *tasks) read(q *taskQueue, ready []string, begin func(value string, data []byte) bool) error {
	v, err := t.system.journal.View()
	if err != nil {
		return err
	}
	defer v.Close()
	retries := func() (bool, error) { return t.readRetries(v, q, ready, begin) }
	others := func() (bool, error) { return t.readOn(v, q, begin) }
	first, second := others, retries
	if q.retriesFirst {
		first, second = retries, others
	}
	q.retriesFirst = !q.retriesFirst
	if hasSlot, err := first(); err != nil || !hasSlot {
		return err
	}
	_, err = second()
	return err
}

// readRetries starts the tasks that are ready to be retried, and reports whether slots are left.
func (t *tasks) readRetries(v persistence.View, q *taskQueue, ready []string, begin func(string, []byte) bool) (hasSlot bool, err error) {
	for _, value := range ready {
		data, ok, err := v.Lookup(t.partition, taskIndex, value, 0)
		switch {
		case err != nil:
			return false, err
		case !ok:
			delete(q.retries.rows, value)
		case !begin(value, data):
			return false, nil
		}
	}
	return true, nil
}

// readOn starts the tasks after the cursor, and reports whether slots are left.
func (t *tasks) readOn(v persistence.View, q *taskQueue, begin func(string, []byte) bool) (hasSlot bool, err error) {
	for q.more {
		for row, err := range v.Index(t.partition, persistence.Query{Index: taskIndex, Value: taskPrefix(q.kind), Prefix: true, After: q.cursor}) {
			if err != nil {
				return false, err
			}
			if !t.isKnown(q, row.Value) && !begin(row.Value, row.Data) {
				return false, nil
			}
			q.cursor = row.Value
		}
		q.more, q.again, q.cursor = q.again, false, ""
	}
	return true, nil
}

// isKnown reports whether an attempt of a task was begun in this term, and the result is not known yet or the task waits for the next attempt.
func (t *tasks) isKnown(q *taskQueue, value string) bool {
	return q.retries.has(value) || t.begun[value] != nil || t.system.runs.isRunning(value, t.effects)
}

// begin starts an attempt of a task, and reports whether it has started. data belongs to the view and is only valid during the
// call.
func (t *tasks) begin(q *taskQueue, value string, data []byte) bool {
	value = strings.Clone(value)
	var row runtimev1.Task
	if err := proto.Unmarshal(data, &row); err != nil {
		t.retryLater(q, value, err)
		return false
	}
	ctx, cancel := context.WithCancel(t.effects.ctx)
	run := &taskRun{effects: t.effects, cancel: cancel}
	if !t.system.runs.begin(value, run) {
		cancel()
		t.retryLater(q, value, errStillRunning)
		return false
	}
	attempt := 1
	if h := q.retries.rows[value]; h != nil {
		attempt = h.attempts + 1
	}
	q.retries.begin(value)
	t.begun[value] = run
	self := t.self
	begun := t.system.launchWork(func() {
		remains, err := t.execute(ctx, q.executor, value, &row, attempt)
		cancel()
		t.system.runs.end(value)
		q.executor.release()
		t.system.root.Send(self, ran{q.kind, value, run, remains, err})
	})
	if !begun { // the process is stopping
		cancel()
		t.system.runs.end(value)
	}
	return begun
}

var (
	errStillRunning = errors.New("an attempt of an earlier term has not ended")
	errTaskRemains  = errors.New("the completion was applied and the task is still open")
)

// execute runs an attempt of a task and sends its completion. It reports whether the task is still open.
func (t *tasks) execute(ctx context.Context, e *executor, value string, row *runtimev1.Task, attempt int) (remains bool, err error) {
	// The row may come from a view that is older than the end of an earlier run.
	if remains, err := t.system.rowExists(t.partition, taskIndex, value); err != nil || !remains {
		return err != nil, err
	}
	m := t.system.metrics.tasks[row.GetTaskKind()]
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
	completion, err := e.attempt(ctx, row, attempt, t.system.log)
	if err == nil && completion != nil {
		err = t.report(ctx, e, row, completion)
	}
	remains, failed := t.system.rowExists(t.partition, taskIndex, value)
	switch {
	case failed != nil:
		return true, failed
	case remains && err == nil:
		return true, errTaskRemains
	case !remains && ctx.Err() == nil:
		return false, nil // even after an error: the completion was applied, and its answer was lost
	}
	return remains, err
}

// report sends a completion until it is answered, the task is removed or the term ends, so that a long task does not run again
// because its entity could not be reached.
func (t *tasks) report(ctx context.Context, e *executor, row *runtimev1.Task, completion proto.Message) error {
	var err error
	for range e.pauses().Attempts(ctx) {
		asking, cancel := context.WithTimeout(t.effects.ctx, deliveryTimeout)
		_, err = t.system.ask(asking, entity.Command{
			Kind: row.GetKind(), Identity: row.GetIdentity(), Principal: entity.Platform(), Message: completion,
		})
		cancel()
		if err == nil || entity.IsRefusal(err) {
			return err
		}
	}
	return err
}

// ran handles the end of an attempt.
func (t *tasks) ran(m ran) {
	q := t.queues[m.kind]
	if q == nil || t.effects.ctx.Err() != nil {
		return
	}
	if t.begun[m.value] == m.run {
		delete(t.begun, m.value)
	}
	if m.remains && !m.run.removed {
		t.retryLater(q, m.value, m.err)
	} else {
		delete(q.retries.rows, m.value)
		t.findAgain(q, m.value)
	}
	t.fill(q)
	t.arm()
}

// findAgain has the rows read once more if a task that has ended was opened again. It may have been opened after its attempt saw its end,
// and passed over by readOn because that attempt was still running.
func (t *tasks) findAgain(q *taskQueue, value string) {
	exists, err := t.system.rowExists(t.partition, taskIndex, value)
	if err != nil || exists && !t.system.runs.isRunning(value, t.effects) {
		q.readAgain()
	}
}

// readAgain begins a round, and reports whether it could. If one goes on, another follows it, so that tasks after the cursor are not
// delayed.
func (q *taskQueue) readAgain() bool {
	if q.more {
		q.again = true
		return false
	}
	q.more, q.cursor = true, ""
	return true
}

// retryLater retries a task after a pause.
func (t *tasks) retryLater(q *taskQueue, value string, err error) {
	attempts := q.retries.add(value, q.executor.pauses())
	t.system.log.Warn("a task failed; trying again", slog.String("task", printable(value)), slog.Int("attempts", attempts), slog.Any("error", err))
}
