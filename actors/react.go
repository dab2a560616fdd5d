package actors

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/persistence"
)

const (
	// reactionTimeout limits the reaction to one event or row, and each attempt of one command.
	reactionTimeout = 10 * time.Second
	// batchEvents, batchBytes and batchRows limit the batch of a lane's turn: the events with reactions, their bytes, and the
	// events that are read.
	batchEvents = 32
	batchBytes  = 256 << 10
	batchRows   = 1024
	// laneCommands limits the commands in flight of one lane: a change of a user may concern every workspace that the user is a
	// member of. allCommands limits the commands in flight of all lanes.
	laneCommands = 32
	allCommands  = 512
)

// A run is one turn of a lane, in a separate goroutine: the reactions to the events of a stream from a version to a later version.
type run struct {
	system    *System
	partition persistence.Partition
	stream    persistence.Stream
	from, to  uint64
	low       uint64
	progress  *progress
}

// A batch is the events with reactions that a run has read, and the version and sequence where the run has stopped reading.
type batch struct {
	events        []persistence.Event
	end, sequence uint64
	// err is the reason why the event after end could not be read; nil: the batch is complete.
	err error
}

// reactToBatch reads a batch and runs its reactions in order, up to the first that fails.
func (r *run) reactToBatch(ctx context.Context) *laneEnded {
	ended := &laneEnded{done: r.from - 1, low: r.low}
	c := r.load()
	for _, event := range c.events {
		if ended.err = r.react(ctx, event); ended.err != nil {
			ended.done, ended.low, ended.event, ended.progress = event.Version-1, event.Sequence, event.Name, r.progress
			return ended
		}
		r.progress = nil
		ended.reacted++
		r.system.metrics.reactions.WithLabelValues("done").Inc()
	}
	if c.end >= r.from {
		ended.done, ended.low = c.end, c.sequence+1
	}
	ended.err = c.err
	return ended
}

// load reads the next batch of the stream. It copies the events, so that no view is open while their reactions run.
func (r *run) load() (c batch) {
	c.end = r.from - 1
	v, err := r.system.journal.View()
	if err != nil {
		c.err = err
		return c
	}
	defer v.Close()
	rows, size := 0, 0
	for event, err := range v.Read(r.partition, r.stream, r.from, persistence.Ascending) {
		if err == nil && event.Version != c.end+1 {
			err = fmt.Errorf("event %d of %s is missing", c.end+1, r.stream)
		}
		if err != nil {
			c.err = err
			return c
		}
		if event.Version > r.to || len(c.events) == batchEvents || size >= batchBytes || rows == batchRows {
			return c
		}
		if r.system.reacts(event) {
			event.Payload = bytes.Clone(event.Payload)
			c.events = append(c.events, event)
			size += len(event.Payload)
		}
		c.end, c.sequence = event.Version, event.Sequence
		rows++
	}
	if c.end < r.to {
		c.err = fmt.Errorf("event %d of %s is missing", c.end+1, r.stream)
	}
	return c
}

// react runs the reactions to one event: step 3 of "The way of a reaction" in the package comment. It returns a panic as an
// error.
func (r *run) react(ctx context.Context, event persistence.Event) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			r.system.log.Error("a reaction panicked", slog.String("stream", string(r.stream)), slog.Uint64("version", event.Version),
				slog.Any("panic", reason), slog.String("stack", string(debug.Stack())))
			err = fmt.Errorf("the reaction panicked: %v", reason)
		}
	}()
	limited, cancel := context.WithTimeout(ctx, reactionTimeout)
	defer cancel()
	kind, identity, _ := strings.Cut(string(r.stream), "/")
	if kind == entity.KindActivity {
		return r.system.trail.React(limited, identity, event.Payload)
	}
	reactions, err := r.system.reactionsTo(kind, identity, event)
	if err != nil {
		return err
	}
	return r.sendAll(ctx, event, reactions)
}

// numbered is a reaction with the number of its command in the event's reactions. The target's mark identifies the command by this
// number. The command Otherwise has the next number.
type numbered struct {
	entity.Reaction
	index uint32
}

// sendAll sends the commands of an event: in order to each target, concurrently to different targets. If a target fails, the
// others still get their commands; the next attempt repeats only the failed ones.
func (r *run) sendAll(ctx context.Context, event persistence.Event, reactions []entity.Reaction) error {
	all := byTarget(reactions)
	if r.progress == nil || r.progress.version != event.Version || len(r.progress.done) != len(all) {
		r.progress = &progress{version: event.Version, done: make([]bool, len(all))}
	}
	done := r.progress.done
	var group errgroup.Group
	group.SetLimit(laneCommands)
	for i, target := range all {
		if done[i] {
			continue
		}
		group.Go(func() error {
			err := r.sendInOrder(ctx, event, target)
			done[i] = err == nil
			return err
		})
	}
	return group.Wait()
}

// byTarget groups reactions by their target. If a reaction depends on the outcome of another command, all reactions are one
// group, because the command after a refusal may be for a target with other commands, and each target gets its commands in
// order.
func byTarget(reactions []entity.Reaction) [][]numbered {
	var all [][]numbered
	groupOf := map[string]int{}
	isDependent := false
	for _, x := range reactions {
		isDependent = isDependent || x.Otherwise != nil || x.Condition != nil
	}
	for i, x := range reactions {
		target := ""
		if !isDependent {
			target = key(x.Kind, x.Identity)
		}
		n, ok := groupOf[target]
		if !ok {
			n = len(all)
			groupOf[target], all = n, append(all, nil)
		}
		all[n] = append(all[n], numbered{x, uint32(2 * i)})
	}
	return all
}

// sendInOrder sends the commands of one group. It returns the first error that is not a refusal.
func (r *run) sendInOrder(ctx context.Context, event persistence.Event, reactions []numbered) error {
	for _, x := range reactions {
		if x.Condition != nil {
			if refused, err := r.send(ctx, event, *x.Condition, nil); err != nil {
				return err
			} else if refused != nil {
				continue
			}
		}
		refused, err := r.send(ctx, event, x.Command, r.source(event, x.index))
		switch {
		case err != nil:
			return err
		case refused == nil:
			continue
		case x.Otherwise == nil:
			r.logRefusal(event, x.Command, refused)
			continue
		}
		refused, err = r.send(ctx, event, *x.Otherwise, r.source(event, x.index+1))
		if err != nil {
			return err
		}
		if refused != nil {
			r.logRefusal(event, *x.Otherwise, refused)
		}
	}
	return nil
}

// source returns the source that identifies a command to its target.
func (r *run) source(event persistence.Event, index uint32) *entity.Source {
	return &entity.Source{
		Partition: uint16(r.partition), Stream: string(event.Stream), Version: event.Version, Sequence: event.Sequence, Index: index,
	}
}

// send sends one command. It returns the error of a refusal, which a retry would not change, as refused, and any other error as
// err.
func (r *run) send(ctx context.Context, event persistence.Event, c entity.Command, source *entity.Source) (refused, err error) {
	select {
	case r.system.commands <- struct{}{}:
		defer func() { <-r.system.commands }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, reactionTimeout)
	defer cancel()
	if c.Principal == nil {
		c.Principal = entity.Platform()
	}
	c.RequestID, c.Source = event.RequestID, source
	if _, err = r.system.ask(ctx, c); entity.IsRefusal(err) {
		return err, nil
	}
	return nil, err
}

func (r *run) logRefusal(event persistence.Event, c entity.Command, refused error) {
	r.system.metrics.reactions.WithLabelValues("refused").Inc()
	r.system.log.Error("a reaction was refused", slog.String("stream", string(event.Stream)), slog.String("event", event.Name),
		slog.String("command", entity.MessageName(c.Message)), slog.Any("error", refused))
}
