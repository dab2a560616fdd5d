package actors

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	runtimev1 "github.com/atelier-run/atelier/messages/runtime/v1"
	"github.com/atelier-run/atelier/persistence"
)

// Timers and tasks are rows of two indexes, which are written in one batch with the events that set or remove them. The steps
// of both, from the decision to the end:
//
//  1. ruled.decide compares the timers and tasks of the state before and after the events (effectChanges), and adds the rows
//     that appear or disappear to the decision.
//  2. pipeline.propose appends events and rows as one proposal, and passes the outcome to effects.committed.
//  3. effects.committed notifies the partition's timers actor of a timer that is due earlier than all timers that the actor
//     knows, and the tasks actor of tasks that were opened or removed.
//  4. The timers actor (timers.go) sends the command of each row that is due. The tasks actor (tasks.go) has an executor run
//     each task, and sends the command that it returns.
//  5. That command's events remove the row, by steps 1 and 2.
//
// States that were recorded before their kind declared timers and tasks have no rows; declare.go writes them.
//
// A notification that is lost with a crash is not needed: the actors of the next term read the indexes from the beginning.
const (
	timerIndex = "timer"
	taskIndex  = "task"
)

// timerValue returns the value of a timer's row. Rows are ordered by due time.
func timerValue(kind, identity string, t entity.Timer) string {
	return dueValue(t.At) + key(kind, identity) + "\x00" + t.ID
}

// dueValue returns the common beginning of the values of timers with a due time, in milliseconds since the Unix epoch.
func dueValue(at int64) string {
	return string(binary.BigEndian.AppendUint64(nil, uint64(max(at, 0))))
}

// dueAt returns the due time of the timer with a value.
func dueAt(value string) (int64, error) {
	if len(value) < 8 {
		return 0, fmt.Errorf("the timer's value %q is too short", value)
	}
	return int64(min(binary.BigEndian.Uint64([]byte(value[:8])), math.MaxInt64)), nil
}

// taskValue returns the value of a task's row. Rows are ordered by the kind of the task.
func taskValue(kind, identity string, t entity.Task) string {
	return taskPrefix(t.Kind) + key(kind, identity) + "\x00" + t.ID
}

func taskPrefix(taskKind string) string { return taskKind + "\x00" }

// timerChange returns the change that writes or, with remove, removes the row of a timer.
func timerChange(kind, identity string, t entity.Timer, remove bool) (persistence.Change, error) {
	c := persistence.Change{Entry: persistence.Entry{Index: timerIndex, Value: timerValue(kind, identity, t)}, Remove: remove}
	if remove {
		return c, nil
	}
	payload, err := encodePayload(t.Message)
	if err != nil {
		return c, fmt.Errorf("timer %s of %s: %w", t.ID, key(kind, identity), err)
	}
	c.Data, err = proto.Marshal(&runtimev1.Timer{Kind: kind, Identity: identity, Id: t.ID, At: t.At, Command: payload})
	return c, err
}

// taskChange returns the change that writes or, with remove, removes the row of a task. at is the time at which it was opened,
// in milliseconds since the Unix epoch.
func taskChange(kind, identity string, t entity.Task, at int64, remove bool) (persistence.Change, error) {
	c := persistence.Change{Entry: persistence.Entry{Index: taskIndex, Value: taskValue(kind, identity, t)}, Remove: remove}
	if remove {
		return c, nil
	}
	payload, err := encodePayload(t.Message)
	if err != nil {
		return c, fmt.Errorf("task %s of %s: %w", t.ID, key(kind, identity), err)
	}
	c.Data, err = proto.Marshal(&runtimev1.Task{
		Kind: kind, Identity: identity, TaskKind: t.Kind, Id: t.ID, OpenedAt: at, Message: payload,
	})
	return c, err
}

func encodePayload(m proto.Message) (*runtimev1.Payload, error) {
	encoded, err := proto.Marshal(m)
	if err != nil {
		return nil, err
	}
	return &runtimev1.Payload{Name: entity.MessageName(m), Encoded: encoded}, nil
}

func decodePayload(p *runtimev1.Payload) (proto.Message, error) {
	return entity.Message(p.GetName(), p.GetEncoded())
}

// stateEffects are the timers and tasks of one state.
type stateEffects struct {
	timers []entity.Timer
	tasks  []entity.Task
}

// withoutUnstored returns the timers and tasks that have a row. A timer or task without a row belongs to a state that was recorded by rules
// that did not declare it yet: the next decision with events writes the row, or DeclareEffects does (declare.go).
func (s *stateEffects) withoutUnstored(kind, identity string, v persistence.View, p persistence.Partition) (*stateEffects, error) {
	stored := &stateEffects{}
	for _, t := range s.timers {
		if _, ok, err := v.Lookup(p, timerIndex, timerValue(kind, identity, t), 0); err != nil {
			return nil, err
		} else if ok {
			stored.timers = append(stored.timers, t)
		}
	}
	for _, t := range s.tasks {
		if _, ok, err := v.Lookup(p, taskIndex, taskValue(kind, identity, t), 0); err != nil {
			return nil, err
		} else if ok {
			stored.tasks = append(stored.tasks, t)
		}
	}
	return stored, nil
}

func sameTimer(a, b entity.Timer) bool {
	return a.ID == b.ID && a.At == b.At && proto.Equal(a.Message, b.Message)
}

func sameTask(a, b entity.Task) bool {
	return a.Kind == b.Kind && a.ID == b.ID && proto.Equal(a.Message, b.Message)
}

// effectChanges returns the changes of rows from the timers and tasks of a state to the timers and tasks of the next state. at is the time of
// new tasks.
func effectChanges(kind, identity string, at int64, before, after *stateEffects) ([]persistence.Change, error) {
	var all []persistence.Change
	if !slices.EqualFunc(before.timers, after.timers, sameTimer) { // most decisions change no timer
		changes, err := rowChanges(before.timers, after.timers, sameTimer,
			func(t entity.Timer) string { return timerValue(kind, identity, t) },
			func(t entity.Timer, remove bool) (persistence.Change, error) {
				return timerChange(kind, identity, t, remove)
			})
		if err != nil {
			return nil, err
		}
		all = changes
	}
	if slices.EqualFunc(before.tasks, after.tasks, sameTask) {
		return all, nil
	}
	changes, err := rowChanges(before.tasks, after.tasks, sameTask,
		func(t entity.Task) string { return taskValue(kind, identity, t) },
		func(t entity.Task, remove bool) (persistence.Change, error) {
			return taskChange(kind, identity, t, at, remove)
		})
	return append(all, changes...), err
}

// rowChanges returns the changes from the rows of the timers or tasks before to the rows of the timers or tasks after. value returns the value
// of a row.
func rowChanges[E any](
	before, after []E, same func(a, b E) bool, value func(E) string, change func(_ E, remove bool) (persistence.Change, error),
) ([]persistence.Change, error) {
	old, current := byValue(before, value), byValue(after, value)
	var all []persistence.Change
	add := func(t E, remove bool) error {
		c, err := change(t, remove)
		all = append(all, c)
		return err
	}
	for value, t := range old {
		if _, remains := current[value]; !remains {
			if err := add(t, true); err != nil {
				return nil, err
			}
		}
	}
	for value, t := range current {
		if was, had := old[value]; !had || !same(was, t) {
			if err := add(t, false); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

func byValue[E any](list []E, value func(E) string) map[string]E {
	all := make(map[string]E, len(list))
	for _, t := range list {
		all[value(t)] = t
	}
	return all
}

// effects has the actors of timers and tasks of one term, and ends with the shard.
type effects struct {
	system *System
	// ctx is canceled when the shard ends. Until then this process owns the partition.
	ctx           context.Context
	end           context.CancelFunc
	timers, tasks *actor.PID
	// armed is the time, in milliseconds since the Unix epoch, at which the timers actor reads the index next. It is notified
	// only of timers that are due earlier; MaxInt64: of every timer.
	armed atomic.Int64
}

const (
	timersKind = "timers"
	tasksKind  = "tasks"
)

// startEffects starts the actors of a shard's timers and tasks, the declaration of missing rows, and Options.Follow.
func (s *shard) startEffects(ctx actor.Context) {
	system := s.term.system
	e := &effects{system: system}
	e.ctx, e.end = context.WithCancel(system.working)
	e.armed.Store(math.MaxInt64)
	s.term.effects = e
	e.timers = spawn(ctx, system, timersKind, system.metrics.kinds[timersKind], func(box *mailbox) actor.Actor {
		return &timers{system: system, partition: s.term.partition, effects: e, mailbox: box}
	})
	e.tasks = spawn(ctx, system, tasksKind, system.metrics.kinds[tasksKind], func(box *mailbox) actor.Actor {
		return &tasks{system: system, partition: s.term.partition, effects: e, mailbox: box}
	})
	system.launchWork(func() { system.declareEffects(e.ctx, s.term.partition, s.term.epoch) })
	if system.follow != nil {
		system.launchWork(func() { system.follow(e.ctx, system.OwnedPartition(s.term.partition)) })
	}
}

// committed notifies the actors of timers and tasks of the changes of a proposal. It runs in the journal's goroutine when the
// outcome is known, even if the outcome is the failure err: a proposal may be durable after some failures.
func (e *effects) committed(entries []persistence.Change, err error) {
	earliest := int64(math.MaxInt64)
	var changed *tasksChanged
	for i := range entries {
		c := &entries[i]
		switch c.Index {
		case timerIndex:
			if at, err := dueAt(c.Value); err == nil && !c.Remove {
				earliest = min(earliest, at)
			}
		case taskIndex:
			if changed == nil {
				changed = &tasksChanged{durable: err == nil}
			}
			if c.Remove {
				changed.removed = append(changed.removed, c.Value)
			} else {
				kind, _, _ := strings.Cut(c.Value, "\x00")
				changed.opened = append(changed.opened, kind)
			}
		}
	}
	if earliest < e.armed.Load() {
		e.system.root.Send(e.timers, timerSet{earliest})
	}
	if changed != nil {
		e.system.root.Send(e.tasks, changed)
	}
}

// hasEffects reports whether a proposal changes rows of timers or tasks.
func hasEffects(entries []persistence.Change) bool {
	for i := range entries {
		if entries[i].Index == timerIndex || entries[i].Index == taskIndex {
			return true
		}
	}
	return false
}

// tick makes a partition's timers actor read the clock.
type tick struct{}
