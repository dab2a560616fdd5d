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
	local      *actors.System
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

// Attach names the system that runs the partitions led here. It comes before the first Ask.
func (r *Router) Attach(local *actors.System) { r.local = local }

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
	err := r.retry(ctx, func(ctx context.Context) (err error) {
		reply, err = r.local.Ask(ctx, r.Partition(c.Identity), c)
		return err
	})
	return reply, err
}

// Settle waits until every reaction to what the entity's partition recorded so far is done. Errors: *entity.Error.
func (r *Router) Settle(ctx context.Context, _, identity string) error {
	return r.retry(ctx, func(ctx context.Context) error { return r.local.Settle(ctx, r.Partition(identity)) })
}

// Subscribe opens a stream of a workspace's activity; see actors.System.Subscribe. The admission has a deadline as every Ask
// has, the stream itself has none. Errors: *entity.Error.
func (r *Router) Subscribe(ctx context.Context, s activity.Subscription) (follow func(context.Context) error, err error) {
	stream, end := context.WithCancel(ctx)
	err = r.retry(ctx, func(attempt context.Context) (err error) {
		inTime := context.AfterFunc(attempt, end)
		if follow, err = r.local.Subscribe(stream, r.Partition(s.WorkspaceID), s); err != nil && attempt.Err() != nil {
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
	admitted := follow
	return func(ctx context.Context) error {
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
