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
	// reactionTimeout bounds the reaction to one row of a Trail, and one attempt of one command.
	reactionTimeout = 10 * time.Second
	// batchEvents, batchBytes and batchRows bound what a lane does before it lets others run: the events that are reacted
	// to, their bytes, and the events read.
	batchEvents = 32
	batchBytes  = 256 << 10
	batchRows   = 1024
	// laneCommands bounds the commands in flight of one lane: a change of a person may concern every workspace that they
	// belong to. allCommands bounds those of all lanes.
	laneCommands = 32
	allCommands  = 512
)

// run is what a lane's goroutine knows: it reacts to the events of a stream from a version to another.
type run struct {
	node      *System
	partition persistence.Partition
	stream    persistence.Stream
	from, to  uint64
	low       uint64
	progress  *progress
}

// batch is what a run reads at once: events that are reacted to, and up to where it has read.
type batch struct {
	events        []persistence.Event
	end, sequence uint64
	// err is why the event after end could not be read.
	err error
}

func (r *run) carryOut(ctx context.Context) *laneEnded {
	ended := &laneEnded{done: r.from - 1, low: r.low}
	c := r.load()
	for _, event := range c.events {
		if ended.err = r.react(ctx, event); ended.err != nil {
			ended.done, ended.low, ended.event, ended.progress = event.Version-1, event.Sequence, event.Name, r.progress
			return ended
		}
		r.progress = nil
		ended.reacted++
		r.node.metrics.reactions.WithLabelValues("done").Inc()
	}
	if c.end >= r.from {
		ended.done, ended.low = c.end, c.sequence+1
	}
	ended.err = c.err
	return ended
}

// load reads the next events of the stream. They are copied, so that nothing of the journal is held while they are
// reacted to.
func (r *run) load() (c batch) {
	c.end = r.from - 1
	v, err := r.node.journal.View()
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
		if r.node.reacts(event) {
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

// react carries out one event's reactions. A panic is an error like others.
func (r *run) react(ctx context.Context, event persistence.Event) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			r.node.log.Error("a reaction panicked", slog.String("stream", string(r.stream)), slog.Uint64("version", event.Version),
				slog.Any("panic", reason), slog.String("stack", string(debug.Stack())))
			err = fmt.Errorf("the reaction panicked: %v", reason)
		}
	}()
	limited, cancel := context.WithTimeout(ctx, reactionTimeout)
	defer cancel()
	kind, identity, _ := strings.Cut(string(r.stream), "/")
	if kind == entity.KindActivity {
		return r.node.trail.React(limited, identity, event.Payload)
	}
	reactions, err := r.node.reactionsTo(kind, identity, event)
	if err != nil {
		return err
	}
	return r.sendAll(ctx, event, reactions)
}

// numbered is a reaction with the number of its command; that of Otherwise is one higher.
type numbered struct {
	entity.Reaction
	index uint32
}

// sendAll sends the commands of an event: those of one target in their order, those of different targets side by side.
// A target that fails does not keep the others from their commands.
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

// byTarget groups reactions by the entity that they are for. Where one depends on another's outcome all are one group:
// what a refusal leads to may be for a target that has other commands, and a target takes commands in their order only.
func byTarget(reactions []entity.Reaction) [][]numbered {
	var all [][]numbered
	place := map[string]int{}
	together := false
	for _, x := range reactions {
		together = together || x.Otherwise != nil || x.Condition != nil
	}
	for i, x := range reactions {
		target := ""
		if !together {
			target = key(x.Kind, x.Identity)
		}
		n, ok := place[target]
		if !ok {
			n = len(all)
			place[target], all = n, append(all, nil)
		}
		all[n] = append(all[n], numbered{x, uint32(2 * i)})
	}
	return all
}

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

func (r *run) source(event persistence.Event, index uint32) *entity.Source {
	return &entity.Source{
		Partition: uint16(r.partition), Stream: string(event.Stream), Version: event.Version, Sequence: event.Sequence, Index: index,
	}
}

// send sends one command, and returns the error with which its target refused it for good apart from others.
func (r *run) send(ctx context.Context, event persistence.Event, c entity.Command, source *entity.Source) (refused, err error) {
	select {
	case r.node.commands <- struct{}{}:
		defer func() { <-r.node.commands }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, reactionTimeout)
	defer cancel()
	if c.Principal == nil {
		c.Principal = entity.Platform()
	}
	c.RequestID, c.Source = event.RequestID, source
	if _, err = r.node.ask(ctx, c); entity.IsRefusal(err) {
		return err, nil
	}
	return nil, err
}

func (r *run) logRefusal(event persistence.Event, c entity.Command, refused error) {
	r.node.metrics.reactions.WithLabelValues("refused").Inc()
	r.node.log.Error("a reaction was refused", slog.String("stream", string(event.Stream)), slog.String("event", event.Name),
		slog.String("command", entity.MessageName(c.Message)), slog.Any("error", refused))
}
