// Package drivetest provides a model of a workspace's activity for tests of drives. It has intents and rows, and fails
// commands on request.
package drivetest

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/activity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// ErrUnknown is an error after which it is unknown whether the command took effect.
var ErrUnknown = errors.New("drivetest: the outcome is unknown")

// A Fault is called before and after each command takes effect. It may block. If it returns an error, the command fails with
// that error: before, without effect; after, with its effect.
type Fault func(message proto.Message, after bool) error

// An Activity is an entity.Asker for one workspace. Its zero value is ready to use.
type Activity struct {
	mu      sync.Mutex
	fault   Fault
	intents []*activityv1.Intent
	rows    []*activityv1.Operation
	times   []int64
	// commands are the ids of the commands that have taken effect.
	commands map[string]bool
}

// Fail installs a fault, or removes it if f is nil.
func (a *Activity) Fail(f Fault) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fault = f
}

// Rows returns the recorded operations, reads included.
func (a *Activity) Rows() []*activityv1.Operation {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.rows)
}

// Forget removes the first rows.
func (a *Activity) Forget(rows int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rows, a.times = slices.Clone(a.rows[rows:]), slices.Clone(a.times[rows:])
}

// Intents returns the intents that were neither completed nor abandoned.
func (a *Activity) Intents() []*activityv1.Intent {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.intents)
}

// Ask implements entity.Asker. Like the real activity it accepts only the platform's commands, except Intend.
func (a *Activity) Ask(ctx context.Context, c entity.Command) (proto.Message, error) {
	_, intends := c.Message.(*activityv1.Intend)
	if c.Kind != entity.KindActivity || !intends && !entity.IsPlatform(c.Principal) {
		return nil, entity.Errorf(entity.Forbidden, "not the platform's command for an activity")
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	fault := a.current()
	if fault != nil {
		if err := fault(c.Message, false); err != nil {
			return nil, err
		}
	}
	reply, err := a.applyOnce(c.ID, c.Message)
	if err == nil && fault != nil {
		err = fault(c.Message, true)
	}
	return reply, err
}

func (a *Activity) current() Fault {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.fault
}

// applyOnce applies a command, unless a command with the same id was applied before.
func (a *Activity) applyOnce(id string, message proto.Message) (proto.Message, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if id != "" && a.commands[id] {
		return &activityv1.Recorded{Seq: uint64(len(a.rows))}, nil
	}
	reply, err := a.apply(message)
	if err == nil && id != "" {
		if a.commands == nil {
			a.commands = map[string]bool{}
		}
		a.commands[id] = true
	}
	return reply, err
}

func (a *Activity) apply(message proto.Message) (proto.Message, error) {
	switch m := message.(type) {
	case *activityv1.Intend:
		if a.find(m.GetIntent().GetId()) < 0 {
			a.intents = append(a.intents, proto.CloneOf(m.GetIntent()))
		}
	case *activityv1.Complete:
		if i := a.find(m.GetIntentId()); i >= 0 {
			a.append(a.intents[i].GetOperation())
			a.intents = slices.Delete(a.intents, i, i+1)
		}
	case *activityv1.Abandon:
		if i := a.find(m.GetIntentId()); i >= 0 {
			a.intents = slices.Delete(a.intents, i, i+1)
		}
	case *activityv1.Record:
		a.append(m.GetOperations()...)
	case *activityv1.ListIntents:
		return &activityv1.Intents{Intents: slices.Clone(a.intents)}, nil
	case *activityv1.ReadFeed:
		return a.feed(m), nil
	case *activityv1.ReadNames:
		return a.names(m), nil
	default:
		return nil, entity.Errorf(entity.InvalidRequest, "unexpected command %T", message)
	}
	return &activityv1.Recorded{Seq: uint64(len(a.rows))}, nil
}

func (a *Activity) append(operations ...*activityv1.Operation) {
	for _, op := range operations {
		a.rows = append(a.rows, op)
		a.times = append(a.times, time.Now().UnixMilli())
	}
}

// feed answers a query with the rows that are not in generated folders.
func (a *Activity) feed(q *activityv1.ReadFeed) *activityv1.Page {
	page, n := &activityv1.Page{}, len(a.rows)
	for i := range n {
		at := i
		if q.GetDescending() {
			at = n - 1 - i
		}
		seq := uint64(at) + 1
		row := activity.Row{Seq: seq, At: a.times[at], Operation: a.rows[at]}
		beyond := seq <= q.GetPosition()
		if q.GetDescending() {
			beyond = q.GetPosition() > 0 && seq >= q.GetPosition()
		}
		kind := row.Operation.GetKind()
		if beyond || kind == activityv1.Kind_KIND_READ || row.Operation.GetTree() != "" ||
			q.GetPath() != "" && kind != activityv1.Kind_KIND_RESTORE && !row.On(q.GetPath()) {
			continue
		}
		if limit := min(max(q.GetLimit(), 1), 100); int32(bytes.Count(page.GetItems(), []byte(`{"seq":`))) == limit {
			page.Next = page.GetResume()
			break
		}
		if len(page.GetItems()) > 0 {
			page.Items = append(page.Items, ',')
		}
		page.Items = append(page.Items, activity.Encode(row).JSON()...)
		page.Resume = seq
	}
	return page
}

// names answers a query with the names in a folder that were ever written.
func (a *Activity) names(q *activityv1.ReadNames) *activityv1.Names {
	found := map[string]bool{}
	for _, op := range a.rows {
		written := op.GetKind() != activityv1.Kind_KIND_DELETE && op.GetKind() != activityv1.Kind_KIND_READ
		if name := activity.Name(op.GetPath()); written && activity.Dir(op.GetPath()) == q.GetDir() && name > q.GetAfter() {
			found[name] = true
		}
	}
	names := slices.Sorted(maps.Keys(found))
	return &activityv1.Names{Names: names[:min(len(names), max(int(q.GetLimit()), 1))]}
}

func (a *Activity) find(id string) int {
	return slices.IndexFunc(a.intents, func(i *activityv1.Intent) bool { return i.GetId() == id })
}
