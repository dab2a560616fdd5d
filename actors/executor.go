package actors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	runtimev1 "github.com/atelier-run/atelier/messages/runtime/v1"
	"github.com/atelier-run/atelier/retry"
)

// An Executor runs the tasks of one kind, outside of the actors.
type Executor struct {
	// Limit is the number of tasks of the kind that run at the same time in this process; 0: 1.
	Limit int
	// Timeout limits one attempt; 0: one minute.
	Timeout time.Duration
	// FirstPause and LongestPause are the limits of the pause between two attempts, which doubles; 0: 500 ms and one minute.
	FirstPause, LongestPause time.Duration
	// Run runs a task and returns the command that completes it, which is sent to the entity that opened the task, as the
	// platform. After an error Run is called again; an executor that gives up returns a command that reports the failure. Run
	// must be idempotent: after a crash or a move of the partition it may be called for a task that it has completed, but never
	// while an earlier call in this process runs. It returns soon after ctx is canceled: after Timeout, when the process loses
	// the partition or stops, and when the entity's state no longer has the task. A command that it returns after the task was
	// removed is sent all the same.
	Run func(ctx context.Context, t Task) (completion proto.Message, err error)
}

// A Task is an open task.
type Task struct {
	// EntityKind and Identity name the entity that opened the task.
	EntityKind, Identity string
	// Kind and ID are the fields of entity.Task.
	Kind, ID string
	// OpenedAt is the time at which the task was recorded.
	OpenedAt time.Time
	// Attempt counts the calls of Run since the partition's term began, from 1.
	Attempt int
	Message proto.Message
}

// RunTyped returns a Run of an Executor that calls run with the message of the task. It returns an error for a task with a
// message of another type than M.
func RunTyped[M proto.Message](run func(ctx context.Context, t Task, m M) (completion proto.Message, err error)) func(context.Context, Task) (proto.Message, error) {
	return func(ctx context.Context, t Task) (proto.Message, error) {
		m, ok := t.Message.(M)
		if !ok {
			return nil, fmt.Errorf("task %s of kind %s has an unexpected message %T", t.ID, t.Kind, t.Message)
		}
		return run(ctx, t, m)
	}
}

// complete returns the executor with its defaults.
func (e Executor) complete() Executor {
	e.Limit = max(e.Limit, 1)
	if e.Timeout == 0 {
		e.Timeout = time.Minute
	}
	if e.FirstPause == 0 {
		e.FirstPause = 500 * time.Millisecond
	}
	if e.LongestPause == 0 {
		e.LongestPause = max(time.Minute, e.FirstPause)
	}
	return e
}

// pauses has the pauses between the attempts at a task.
func (e *Executor) pauses() retry.Policy {
	return retry.Policy{First: e.FirstPause, Longest: e.LongestPause}
}

// An executor is an Executor with Limit slots in this process, which all partitions share. If no slot is free, the tasks actors
// of the partitions wait in a queue. A slot that becomes free is reserved for the first of them until that actor acquires or
// declines it.
type executor struct {
	Executor
	system *System
	kind   string

	mu      sync.Mutex
	running int
	// waiting has the tasks actors that wait for a slot. woken has the tasks actors with a reserved slot.
	waiting, woken []*actor.PID
}

// acquire acquires a slot and reports whether a slot was free. If no slot was free, the actor gets runTasks when a slot is reserved for it.
func (e *executor) acquire(pid *actor.PID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.woken = without(e.woken, pid)
	if e.running+len(e.woken) < e.Limit {
		e.running++
		return true
	}
	if !slices.ContainsFunc(e.waiting, pid.Equal) {
		e.waiting = append(e.waiting, pid)
	}
	return false
}

// release frees a slot.
func (e *executor) release() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running--
	e.wake()
}

// decline gives up the slot that may be reserved for an actor without tasks.
func (e *executor) decline(pid *actor.PID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.woken = without(e.woken, pid)
	e.wake()
}

// forget removes an actor that ends from the queue.
func (e *executor) forget(pid *actor.PID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.waiting, e.woken = without(e.waiting, pid), without(e.woken, pid)
	e.wake()
}

// wake reserves free slots for the first actors in the queue and wakes them. The caller holds mu.
func (e *executor) wake() {
	for e.running+len(e.woken) < e.Limit && len(e.waiting) > 0 {
		next := e.waiting[0]
		e.waiting = e.waiting[1:]
		e.woken = append(e.woken, next)
		e.system.root.Send(next, runTasks{e.kind})
	}
}

// without returns all without an actor.
func without(all []*actor.PID, pid *actor.PID) []*actor.PID {
	if i := slices.IndexFunc(all, func(other *actor.PID) bool { return other.Equal(pid) }); i >= 0 {
		return slices.Concat(all[:i], all[i+1:])
	}
	return all
}

// attempt calls Run with the task of a row. It returns an error if the row cannot be decoded or Run panics.
func (e *executor) attempt(ctx context.Context, row *runtimev1.Task, attempt int, log *slog.Logger) (completion proto.Message, err error) {
	message, err := decodePayload(row.GetMessage())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, e.Timeout)
	defer cancel()
	defer func() {
		if reason := recover(); reason != nil {
			log.Error("an executor panicked", slog.String("task", row.GetTaskKind()), slog.Any("panic", reason), slog.String("stack", string(debug.Stack())))
			completion, err = nil, errExecutorPanicked
		}
	}()
	return e.Run(ctx, Task{
		EntityKind: row.GetKind(), Identity: row.GetIdentity(), Kind: row.GetTaskKind(), ID: row.GetId(),
		OpenedAt: time.UnixMilli(row.GetOpenedAt()), Attempt: attempt, Message: message,
	})
}

var errExecutorPanicked = errors.New("the executor panicked")

// runs has the tasks that run in this process, by the value of their row. An entry outlives the actor that started the task, so
// that a task never runs twice at the same time, even if the process loses its partition and acquires it again.
type runs struct {
	mu  sync.Mutex
	all map[string]*taskRun
}

type taskRun struct {
	effects *effects
	cancel  context.CancelFunc
	// removed is set when the row of the task was removed: a row that exists afterwards belongs to a task that was opened again. Only the
	// tasks actor that began the attempt uses the field.
	removed bool
}

// begin adds a task, and reports false if the task runs already.
func (r *runs) begin(value string, begun *taskRun) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all[value] != nil {
		return false
	}
	if r.all == nil {
		r.all = map[string]*taskRun{}
	}
	r.all[value] = begun
	return true
}

func (r *runs) end(value string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all, value)
}

// isRunning reports whether a task runs that was started in a term.
func (r *runs) isRunning(value string, in *effects) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := r.all[value]
	return found != nil && found.effects == in
}

// cancel cancels the context of a task, if it runs.
func (r *runs) cancel(value string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if found := r.all[value]; found != nil {
		found.cancel()
	}
}
