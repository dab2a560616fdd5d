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
)

// Executor runs the tasks of one kind, outside actors and reactors.
type Executor struct {
	// Limit bounds the tasks that run at the same time in this process; 0: 1.
	Limit int
	// Timeout bounds one attempt; 0: one minute.
	Timeout time.Duration
	// FirstPause and LongestPause bound the pause between two attempts, which doubles; 0: 500 ms and one minute.
	FirstPause, LongestPause time.Duration
	// Run carries a task out and returns the command that completes it, which is sent to the entity that opened the task,
	// as the platform. After an error Run is called again; an executor that gives up returns a command that says so. Run
	// may be called again for a task that it has carried out, after a crash or a change of ownership, but never while an
	// earlier call in this process runs. It returns soon after ctx ends: at the end of Timeout, of the partition's
	// ownership or of the process, and when the entity's state no longer lists the task. A command that it returns after
	// the task was removed is sent all the same.
	Run func(ctx context.Context, t Task) (completion proto.Message, err error)
}

// Task is an open task as its executor sees it.
type Task struct {
	// EntityKind and Identity name the entity that opened the task.
	EntityKind, Identity string
	// Kind and ID are those of entity.Task.
	Kind, ID string
	// OpenedAt is when the task was recorded.
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

// executor is an Executor with the room for its tasks in this process, which the partitions share. Partitions that found no
// room get it in the order in which they asked for it: room that one of them was woken for is taken by no other.
type executor struct {
	Executor
	node *System
	kind string

	mu      sync.Mutex
	running int
	// waiting are the tasks actors that found no room, and woken those that room is kept for until they enter or pass.
	waiting, woken []*actor.PID
}

// enter takes room for a task. Where there is none, the actor is woken when there is.
func (e *executor) enter(who *actor.PID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.woken = without(e.woken, who)
	if e.running+len(e.woken) < e.Limit {
		e.running++
		return true
	}
	if !slices.ContainsFunc(e.waiting, who.Equal) {
		e.waiting = append(e.waiting, who)
	}
	return false
}

// exit gives room back, and wakes who waits for it.
func (e *executor) exit() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running--
	e.wake()
}

// pass gives up the room that an actor may have been woken for, which goes to the next.
func (e *executor) pass(who *actor.PID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.woken = without(e.woken, who)
	e.wake()
}

// leave forgets an actor that ends.
func (e *executor) leave(who *actor.PID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.waiting, e.woken = without(e.waiting, who), without(e.woken, who)
	e.wake()
}

// wake keeps free room for the actors that wait, in their order, and wakes them. The caller holds mu.
func (e *executor) wake() {
	for e.running+len(e.woken) < e.Limit && len(e.waiting) > 0 {
		next := e.waiting[0]
		e.waiting = e.waiting[1:]
		e.woken = append(e.woken, next)
		e.node.root.Send(next, runTasks{e.kind})
	}
}

func without(all []*actor.PID, who *actor.PID) []*actor.PID {
	if i := slices.IndexFunc(all, func(other *actor.PID) bool { return other.Equal(who) }); i >= 0 {
		return slices.Concat(all[:i], all[i+1:])
	}
	return all
}

// attempt calls Run.
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
			completion, err = nil, errPanicked
		}
	}()
	return e.Run(ctx, Task{
		EntityKind: row.GetKind(), Identity: row.GetIdentity(), Kind: row.GetTaskKind(), ID: row.GetId(),
		OpenedAt: time.UnixMilli(row.GetOpenedAt()), Attempt: attempt, Message: message,
	})
}

var errPanicked = errors.New("the executor panicked")

// runs are the tasks that run in this process, by the value of their row. They outlive the actor that began them: a task
// never runs twice at the same time, also where its partition is lost and gained again.
type runs struct {
	mu  sync.Mutex
	all map[string]*taskRun
}

type taskRun struct {
	effects *effects
	cancel  context.CancelFunc
}

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

// isRunning reports whether a task is running that was started in the given term.
func (r *runs) isRunning(value string, in *effects) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := r.all[value]
	return found != nil && found.effects == in
}

func (r *runs) cancel(value string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if found := r.all[value]; found != nil {
		found.cancel()
	}
}
