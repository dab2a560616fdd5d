// Package drivetest models the activity of a workspace for tests of drives: intents, rows, and failures where a test
// wants them.
package drivetest

import (
	"context"
	"errors"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// ErrUnknown is an error that leaves open whether the command took effect.
var ErrUnknown = errors.New("drivetest: the outcome is unknown")

// A Fault is asked before and after a command takes effect. It may block, or return an error: before, the command has
// no effect; after, it has.
type Fault func(message proto.Message, after bool) error

// An Activity is a drive.Asker of one workspace. Its zero value is ready.
type Activity struct {
	mu      sync.Mutex
	fault   Fault
	intents []*activityv1.Intent
	rows    []*activityv1.Operation
}

// Fail installs a fault; nil takes it away.
func (a *Activity) Fail(f Fault) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fault = f
}

// Rows are the operations that were recorded, reads included.
func (a *Activity) Rows() []*activityv1.Operation {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.rows)
}

// Intents are those neither completed nor abandoned.
func (a *Activity) Intents() []*activityv1.Intent {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.intents)
}

// Ask is of drive.Asker.
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
	reply, err := a.apply(c.Message)
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

func (a *Activity) apply(message proto.Message) (proto.Message, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch m := message.(type) {
	case *activityv1.Intend:
		if a.find(m.GetIntent().GetId()) < 0 {
			a.intents = append(a.intents, proto.CloneOf(m.GetIntent()))
		}
	case *activityv1.Complete:
		if i := a.find(m.GetIntentId()); i >= 0 {
			a.rows = append(a.rows, a.intents[i].GetOperation())
			a.intents = slices.Delete(a.intents, i, i+1)
		}
	case *activityv1.Abandon:
		if i := a.find(m.GetIntentId()); i >= 0 {
			a.intents = slices.Delete(a.intents, i, i+1)
		}
	case *activityv1.Record:
		a.rows = append(a.rows, m.GetOperations()...)
	case *activityv1.ListIntents:
		return &activityv1.Intents{Intents: slices.Clone(a.intents)}, nil
	default:
		return nil, entity.Errorf(entity.InvalidRequest, "unexpected command %T", message)
	}
	return &activityv1.Recorded{Seq: uint64(len(a.rows))}, nil
}

func (a *Activity) find(id string) int {
	return slices.IndexFunc(a.intents, func(i *activityv1.Intent) bool { return i.GetId() == id })
}
