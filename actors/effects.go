package actors

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	runtimev1 "github.com/atelier-run/atelier/messages/runtime/v1"
	"github.com/atelier-run/atelier/persistence"
)

// Timers and tasks are rows of two indexes, written in one batch with the events that set or remove them. The way of
// each, from the decision to its end:
//
//  1. ruled.decide compares the timers and tasks of the state before and after the events (effectChanges), and adds the
//     rows that appear or disappear to the decision.
//  2. pipeline.propose appends events and rows as one proposal, and passes its outcome to effects.committed.
//  3. effects.committed tells the partition's timers actor of timers that are due before those that it knows of, and the
//     tasks actor of tasks that were opened or removed.
//  4. The timers actor (timers.go) sends the command of each row that is due; the tasks actor (tasks.go) has an executor
//     run each task, and sends the command that it returns.
//  5. That command's events remove the row, by steps 1 and 2.
//
// States that were recorded before their kind declared timers and tasks have no rows: declare.go has them written.
//
// What is lost between two steps is found again in the index when the next term of the partition begins.
const (
	timerIndex = "timer"
	taskIndex  = "task"
)

// timerValue orders the rows of timers by the time at which they are due.
func timerValue(kind, identity string, t entity.Timer) string {
	return dueValue(t.At) + key(kind, identity) + "\x00" + t.ID
}

// dueValue is what the values of timers begin with that are due at a time, in milliseconds since the Unix epoch.
func dueValue(at int64) string {
	return string(binary.BigEndian.AppendUint64(nil, uint64(max(at, 0))))
}

// dueAt returns when the timer of a row is due.
func dueAt(value string) (int64, error) {
	if len(value) < 8 {
		return 0, fmt.Errorf("the timer's value %q is too short", value)
	}
	return int64(min(binary.BigEndian.Uint64([]byte(value[:8])), math.MaxInt64)), nil
}

// taskValue orders the rows of tasks by their kind.
func taskValue(kind, identity string, t entity.Task) string {
	return taskPrefix(t.Kind) + key(kind, identity) + "\x00" + t.ID
}

func taskPrefix(taskKind string) string { return taskKind + "\x00" }

// timerChange puts the row of a timer; with remove, it removes it.
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

// taskChange puts the row of a task; with remove, it removes it.
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

// stateEffects are the timers and tasks of one state, by the value of their row.
type stateEffects struct {
	timers map[string]entity.Timer
	tasks  map[string]entity.Task
}

func effectsOf(kind, identity string, timers []entity.Timer, tasks []entity.Task) *stateEffects {
	s := &stateEffects{}
	if len(timers) > 0 {
		s.timers = make(map[string]entity.Timer, len(timers))
	}
	for _, t := range timers {
		s.timers[timerValue(kind, identity, t)] = t
	}
	if len(tasks) > 0 {
		s.tasks = make(map[string]entity.Task, len(tasks))
	}
	for _, t := range tasks {
		s.tasks[taskValue(kind, identity, t)] = t
	}
	return s
}

// keepStored drops those that have no row: of a state that was recorded by rules which listed fewer of them. The next
// decision with events writes their rows, or DeclareEffects (declare.go).
func (s *stateEffects) keepStored(v persistence.View, p persistence.Partition) error {
	for value := range s.timers {
		if _, ok, err := v.Lookup(p, timerIndex, value, 0); err != nil {
			return err
		} else if !ok {
			delete(s.timers, value)
		}
	}
	for value := range s.tasks {
		if _, ok, err := v.Lookup(p, taskIndex, value, 0); err != nil {
			return err
		} else if !ok {
			delete(s.tasks, value)
		}
	}
	return nil
}

// effectChanges are the rows that turn the timers and tasks of one state into those of another.
func effectChanges(kind, identity string, at int64, before, after *stateEffects) ([]persistence.Change, error) {
	var all []persistence.Change
	add := func(c persistence.Change, err error) error {
		all = append(all, c)
		return err
	}
	for value, t := range before.timers {
		if _, waits := after.timers[value]; !waits {
			if err := add(timerChange(kind, identity, t, true)); err != nil {
				return nil, err
			}
		}
	}
	for value, t := range after.timers {
		if was, waits := before.timers[value]; !waits || !proto.Equal(was.Message, t.Message) {
			if err := add(timerChange(kind, identity, t, false)); err != nil {
				return nil, err
			}
		}
	}
	for value, t := range before.tasks {
		if _, is := after.tasks[value]; !is {
			if err := add(taskChange(kind, identity, t, 0, true)); err != nil {
				return nil, err
			}
		}
	}
	for value, t := range after.tasks {
		if was, is := before.tasks[value]; !is || !proto.Equal(was.Message, t.Message) {
			if err := add(taskChange(kind, identity, t, at, false)); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// effects are the timers and tasks of one term of a partition. They end with the shard.
type effects struct {
	node *System
	// ctx ends with the shard: what runs under it holds the partition's lease.
	ctx           context.Context
	end           context.CancelFunc
	timers, tasks *actor.PID
	// armed is when the timers actor looks at the index next, in milliseconds since the Unix epoch; MaxInt64: it has to
	// be told of every timer that is set.
	armed atomic.Int64
}

const (
	timersKind = "timers"
	tasksKind  = "tasks"
)

// startEffects starts the actors of a shard's timers and tasks, and whatever follows the partition's ownership.
func (s *shard) startEffects(ctx actor.Context) {
	node := s.term.node
	e := &effects{node: node}
	e.ctx, e.end = context.WithCancel(node.working)
	e.armed.Store(math.MaxInt64)
	s.term.effects = e
	e.timers = spawn(ctx, node, timersKind, node.metrics.kinds[timersKind], func(box *mailbox) actor.Actor {
		return &timers{node: node, partition: s.term.partition, effects: e, mailbox: box}
	})
	e.tasks = spawn(ctx, node, tasksKind, node.metrics.kinds[tasksKind], func(box *mailbox) actor.Actor {
		return &tasks{node: node, partition: s.term.partition, effects: e, mailbox: box}
	})
	node.work.Go(func() { node.declareEffects(e.ctx, s.term.partition, s.term.epoch) })
	if node.follow != nil {
		node.background(func() { node.follow(e.ctx, node.OwnedPartition(s.term.partition)) })
	}
}

// committed tells the actors of timers and tasks of what a proposal changed. It is called in the journal's goroutine
// once the outcome is known, also where that is a failure: after some failures the proposal is durable all the same.
func (e *effects) committed(entries []persistence.Change) {
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
				changed = &tasksChanged{}
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
		e.node.root.Send(e.timers, timerSet{earliest})
	}
	if changed != nil {
		e.node.root.Send(e.tasks, changed)
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

// Tick makes the timers of all partitions look at the clock now. Tests that move the clock call it; nobody else has to.
func (s *System) Tick() {
	for i := range s.terms {
		if t := s.terms[i].Load(); t != nil {
			s.root.Send(t.shard, tick{})
		}
	}
}

// tick makes a partition's timers look at the clock.
type tick struct{}
