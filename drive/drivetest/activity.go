// Package drivetest provides a model of a workspace's activity for tests of drives. It has intents and rows, and fails
// commands on request.
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

// ErrUnknown is an error after which it is unknown whether the command took effect.
var ErrUnknown = errors.New("drivetest: the outcome is unknown")

// A Fault is called before and after each command takes effect. It may block. If it returns an error, the command fails with
// that error: before, without effect; after, with its effect.
type Fault func(message proto.Message, after bool) error

// An Activity is a drive.Asker for one workspace. Its zero value is ready to use.
type Activity struct {
	mu      sync.Mutex
	fault   Fault
	intents []*activityv1.Intent
	rows    []*activityv1.Operation
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

// Intents returns the intents that were neither completed nor abandoned.
func (a *Activity) Intents() []*activityv1.Intent {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.intents)
}

// Ask implements drive.Asker. Like the real activity it accepts only the platform's commands, except Intend.
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
