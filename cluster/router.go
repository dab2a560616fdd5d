// Package cluster finds the member that leads an entity's partition and asks it there.
//
// Partition to leader to member is the routing table. On one machine every partition is led here; nothing above this
// package knows the difference.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/actors"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/activity"
	"github.com/atelier-run/atelier/persistence"
)

const (
	// DefaultDeadline is a router's Deadline unless another is set.
	DefaultDeadline = 10 * time.Second
	firstPause      = time.Millisecond
	longestPause    = 50 * time.Millisecond
)

// Router asks entities by kind and identity, wherever they live.
type Router struct {
	partitions int
	members    []*actors.System
	// wire sends every command and reply through the codec, as if the entity lived on another member.
	wire bool
	// Deadline ends an Ask, or the admission of a stream, whose context has none. It is set before the first of them.
	Deadline time.Duration
}

// NewRouter makes a router over a fixed number of partitions. With wire, messages cross the wire codec even when both
// sides are local.
func NewRouter(partitions int, wire bool) *Router {
	return &Router{partitions: partitions, wire: wire, Deadline: DefaultDeadline}
}

// Attach names the systems that run the partitions, this process's own first. It comes before the first Ask. More than
// one system in a process is the split mode of tests.
func (r *Router) Attach(members ...*actors.System) { r.members = members }

// leader returns the system that leads a partition now. Errors: actors.ErrRetry where none does.
func (r *Router) leader(p persistence.Partition) (*actors.System, error) {
	for _, member := range r.members {
		if member.Leads(p) {
			return member, nil
		}
	}
	return nil, actors.ErrRetry
}

// onLeader calls fn with the system that leads a partition, again after a pause where that did not take effect.
func (r *Router) onLeader(ctx context.Context, p persistence.Partition, fn func(context.Context, *actors.System) error) error {
	return r.retry(ctx, func(ctx context.Context) error {
		leader, err := r.leader(p)
		if err != nil {
			return err
		}
		return fn(ctx, leader)
	})
}

// Partition is where an entity lives. What belongs to a workspace has an identity that begins with the workspace's, and
// lies with it.
func (r *Router) Partition(identity string) persistence.Partition {
	owner, _, _ := strings.Cut(identity, "/")
	h := fnv.New64a()
	h.Write([]byte(owner))
	return persistence.Partition(h.Sum64() % uint64(r.partitions))
}

// Ask sends a command to the entity that it names and waits for the reply. What did not reach the entity is sent again
// until the deadline. Errors: *entity.Error.
func (r *Router) Ask(ctx context.Context, c entity.Command) (proto.Message, error) {
	if r.wire {
		return overWire(c, func(c entity.Command) (proto.Message, error) { return r.send(ctx, c) })
	}
	return r.send(ctx, c)
}

func (r *Router) send(ctx context.Context, c entity.Command) (proto.Message, error) {
	var reply proto.Message
	p := r.Partition(c.Identity)
	err := r.onLeader(ctx, p, func(ctx context.Context, leader *actors.System) (err error) {
		reply, err = leader.Ask(ctx, p, c)
		return err
	})
	return reply, err
}

// Settle waits until every reaction to what the entity recorded so far is done; see actors.System.Settle.
// Errors: *entity.Error; unavailable also if the entity's reactions are parked.
func (r *Router) Settle(ctx context.Context, kind, identity string) error {
	p := r.Partition(identity)
	return r.onLeader(ctx, p, func(ctx context.Context, leader *actors.System) error {
		return leader.Settle(ctx, p, kind, identity)
	})
}

// SettleAll waits until every reaction to what a partition recorded so far is done; see actors.System.SettleAll.
// Errors: *entity.Error.
func (r *Router) SettleAll(ctx context.Context, p persistence.Partition) error {
	return r.onLeader(ctx, p, func(ctx context.Context, leader *actors.System) error { return leader.SettleAll(ctx, p) })
}

// Subscribe opens a stream of a workspace's activity; see actors.System.Subscribe. The admission has a deadline as every
// Ask has, the stream itself has none: it goes on where the workspace runs next when its actor ends.
// Errors: *entity.Error.
func (r *Router) Subscribe(ctx context.Context, s activity.Subscription) (follow func(context.Context) error, err error) {
	part, err := r.subscribe(ctx, s)
	if err != nil {
		return nil, err
	}
	return func(following context.Context) error {
		for {
			next, err := part(following)
			if !errors.Is(err, actors.ErrRetry) {
				return err
			}
			s.After = next - 1
			if part, err = r.subscribe(following, s); err != nil {
				return err
			}
		}
	}, nil
}

func (r *Router) subscribe(ctx context.Context, s activity.Subscription) (actors.Follow, error) {
	p := r.Partition(s.WorkspaceID)
	stream, end := context.WithCancel(ctx)
	var admitted actors.Follow
	err := r.onLeader(ctx, p, func(attempt context.Context, leader *actors.System) (err error) {
		inTime := context.AfterFunc(attempt, end)
		if admitted, err = leader.Subscribe(stream, p, s); err != nil && attempt.Err() != nil {
			return attempt.Err()
		}
		if !inTime() && err == nil { // the deadline came with the admission, and has ended the stream
			return attempt.Err()
		}
		return err
	})
	if err != nil {
		end()
		return nil, err
	}
	return func(ctx context.Context) (uint64, error) {
		defer end()
		return admitted(ctx)
	}, nil
}

// retry repeats what did not take effect, with pauses that grow and are jittered.
func (r *Router) retry(ctx context.Context, attempt func(context.Context) error) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.Deadline)
		defer cancel()
	}
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		err := attempt(ctx)
		if !errors.Is(err, actors.ErrRetry) {
			return answered(err)
		}
		timer := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return answered(ctx.Err())
		}
	}
}

// answered turns what ended an attempt into the one error type.
func answered(err error) error {
	var refusal *entity.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refusal):
		return refusal
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return &entity.Error{Code: entity.Unavailable, Message: "the answer took too long", RetryAfter: time.Second}
	default:
		return entity.Errorf(entity.Internal, "%s", fmt.Sprint(err))
	}
}
