// Package cluster routes commands and queries to the member that leads the partition of an entity.
//
// An identity is hashed to a partition (Router.Partition), and the router looks up the actor system that leads the
// partition now. If no system leads it, because it is moving, the router retries until the deadline of the call. Today
// all partitions are led by this process; the callers of this package do not depend on that.
//
// wire.go encodes commands and replies as they are sent between members.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/actors"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/activity"
	journalv1 "github.com/atelier-run/atelier/messages/journal/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	"github.com/atelier-run/atelier/persistence"
	"github.com/atelier-run/atelier/retry"
)

// DefaultDeadline is the Deadline of a new Router.
const DefaultDeadline = 10 * time.Second

// delivering has the pauses before a command is delivered again.
var delivering = retry.Policy{First: time.Millisecond, Longest: 50 * time.Millisecond}

// Router sends commands and queries to entities by kind and identity. All errors that its methods return are *entity.Error.
type Router struct {
	partitions int
	members    []*actors.System
	// wire encodes and decodes every command and reply, as if the entity were on another member.
	wire bool
	// Deadline limits the calls that have no deadline in their context. It must be set before the first call.
	Deadline time.Duration
}

// NewRouter returns a router for a fixed number of partitions. wire makes it encode and decode all commands and replies,
// even of local entities.
func NewRouter(partitions int, wire bool) *Router {
	return &Router{partitions: partitions, wire: wire, Deadline: DefaultDeadline}
}

// Attach sets the systems that run the partitions. It must be called before the first call that needs one. Tests attach
// several systems of one process (split mode).
func (r *Router) Attach(members ...*actors.System) { r.members = members }

// leader returns the system that leads a partition now. Errors: actors.ErrRetry if none does.
func (r *Router) leader(p persistence.Partition) (*actors.System, error) {
	for _, member := range r.members {
		if member.Leads(p) {
			return member, nil
		}
	}
	return nil, actors.ErrRetry
}

// onLeader calls fn with the system that leads a partition. It retries if no system leads it or fn returns actors.ErrRetry.
func (r *Router) onLeader(ctx context.Context, p persistence.Partition, fn func(context.Context, *actors.System) error) error {
	return r.retry(ctx, func(ctx context.Context) error {
		leader, err := r.leader(p)
		if err != nil {
			return err
		}
		return fn(ctx, leader)
	})
}

// Partition returns the partition of an entity. An owned entity, with an identity of the form <owner>/<id>, is in the
// partition of its owner.
func (r *Router) Partition(identity string) persistence.Partition {
	owner, _, _ := strings.Cut(identity, "/")
	h := fnv.New64a()
	h.Write([]byte(owner))
	return persistence.Partition(h.Sum64() % uint64(r.partitions))
}

// Ask sends a command to its entity and waits for the reply. It retries until the deadline if the command did not reach the
// entity. Errors: the errors of the entity; unavailable if the deadline passes, even if the command took effect.
func (r *Router) Ask(ctx context.Context, c entity.Command) (proto.Message, error) {
	if r.wire {
		return overWire(c, func(c entity.Command) (proto.Message, error) { return r.send(ctx, c) })
	}
	return r.send(ctx, c)
}

// send sends a command to the leader of its partition.
func (r *Router) send(ctx context.Context, c entity.Command) (proto.Message, error) {
	var reply proto.Message
	p := r.Partition(c.Identity)
	err := r.onLeader(ctx, p, func(ctx context.Context, leader *actors.System) (err error) {
		reply, err = leader.Ask(ctx, p, c)
		return err
	})
	return reply, err
}

// Settle waits until all reactions to the entity's events so far are done; see actors.System.Settle. Errors: unavailable if
// the deadline passes or the reactions of the entity are parked.
func (r *Router) Settle(ctx context.Context, kind, identity string) error {
	p := r.Partition(identity)
	return r.onLeader(ctx, p, func(ctx context.Context, leader *actors.System) error {
		return leader.Settle(ctx, p, kind, identity)
	})
}

// SettleAll waits until all reactions to the events of a partition so far are done; see actors.System.SettleAll.
func (r *Router) SettleAll(ctx context.Context, p persistence.Partition) error {
	return r.onLeader(ctx, p, func(ctx context.Context, leader *actors.System) error { return leader.SettleAll(ctx, p) })
}

// Subscribe opens a stream of a workspace's activity and returns the function that runs it; see actors.System.Subscribe.
// The deadline applies to the admission of the stream, but not to the stream itself. When the actor of the workspace
// stops, for example because the partition moves, the stream continues on the next leader after the last row that it
// sent.
func (r *Router) Subscribe(ctx context.Context, s activity.Subscription) (follow func(context.Context) error, err error) {
	p := r.Partition(s.WorkspaceID)
	return r.follow(ctx, p, func(ctx context.Context, leader *actors.System, next uint64) (actors.Follow, error) {
		s := s
		if next > 0 {
			s.After = next - 1
		}
		return leader.Subscribe(ctx, p, s)
	})
}

// FollowTimeline opens a stream of an entity's timeline and returns the function that runs it; see actors.System.FollowTimeline.
// That function returns nil when its context ends, the error of Send, the refusal when the principal loses access, and nil
// when this member stops. Like Subscribe, the stream continues on the next leader after the last row that it sent.
func (r *Router) FollowTimeline(ctx context.Context, s entity.TimelineSubscription) (follow func(context.Context) error, err error) {
	p := r.Partition(s.Identity)
	return r.follow(ctx, p, func(ctx context.Context, leader *actors.System, next uint64) (actors.Follow, error) {
		s := s
		if next > 0 {
			s.After = next - 1
		}
		return leader.FollowTimeline(ctx, p, s)
	})
}

// A subscriber opens a part of a stream on a leader: the first part if next is 0, else the part that begins with that row.
type subscriber func(ctx context.Context, leader *actors.System, next uint64) (actors.Follow, error)

// follow opens a stream that consists of parts, which one leader after the other serves.
func (r *Router) follow(ctx context.Context, p persistence.Partition, open subscriber) (func(context.Context) error, error) {
	part, err := r.subscribe(ctx, p, open, 0)
	if err != nil {
		return nil, err
	}
	return func(following context.Context) error {
		for {
			next, err := part(following)
			if !errors.Is(err, actors.ErrRetry) {
				return err
			}
			if part, err = r.subscribe(following, p, open, next); err != nil {
				if following.Err() != nil {
					return nil
				}
				return err
			}
		}
	}, nil
}

// subscribe opens the part of a stream that one leader serves. It ends when follow returns or ctx ends.
func (r *Router) subscribe(ctx context.Context, p persistence.Partition, open subscriber, next uint64) (actors.Follow, error) {
	stream, end := context.WithCancel(ctx) // outlives the deadline of the admission
	var admitted actors.Follow
	err := r.onLeader(ctx, p, func(attempt context.Context, leader *actors.System) (err error) {
		inTime := context.AfterFunc(attempt, end)
		if admitted, err = open(stream, leader, next); err != nil && attempt.Err() != nil {
			return attempt.Err()
		}
		if !inTime() && err == nil { // the deadline passed during the admission and ended the stream
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

// Owners returns the identities of the entities that have rows in a list, over all partitions and in a fixed order: at most
// limit of them, after the identity after. It returns none if there are no more.
func (r *Router) Owners(ctx context.Context, list, after string, limit int) ([]string, error) {
	from := persistence.Partition(0)
	if after != "" {
		from = r.Partition(after)
	}
	var found []string
	for p := int(from); p < r.partitions && len(found) < limit; p++ {
		var more []string
		err := r.onLeader(ctx, persistence.Partition(p), func(_ context.Context, leader *actors.System) (err error) {
			more, err = leader.Owners(persistence.Partition(p), list, after, limit-len(found))
			return err
		})
		if err != nil {
			return nil, err
		}
		found, after = append(found, more...), ""
	}
	return found, nil
}

// Rows returns a page of a list of an entity; see actors.System.Rows.
func (r *Router) Rows(ctx context.Context, owner string, request *wirev1.List) (*wirev1.Page, error) {
	p := r.Partition(owner)
	var page *wirev1.Page
	err := r.onLeader(ctx, p, func(_ context.Context, leader *actors.System) (err error) {
		page, err = leader.Rows(p, owner, request)
		return err
	})
	return page, err
}

// Put writes rows of the lists of an entity without a command to the entity; see actors.System.Put.
func (r *Router) Put(ctx context.Context, owner string, rows ...entity.Row) error {
	p := r.Partition(owner)
	return r.onLeader(ctx, p, func(ctx context.Context, leader *actors.System) error {
		return leader.Put(ctx, p, owner, rows...)
	})
}

// ParkedReactions returns the streams with suspended reactions, in the order of partition and stream.
func (r *Router) ParkedReactions(ctx context.Context) ([]*journalv1.Parked, error) {
	var all []*journalv1.Parked
	for p := range r.partitions {
		var rows []*journalv1.Parked
		err := r.onLeader(ctx, persistence.Partition(p), func(_ context.Context, leader *actors.System) (err error) {
			rows, err = leader.Parked(persistence.Partition(p))
			return err
		})
		if err != nil {
			return nil, err
		}
		all = append(all, rows...)
	}
	return all, nil
}

// ResumeReactions resumes the reactions of a parked stream. skip resumes after the event that failed. Errors:
// invalid_request if stream is not the name of a stream, not_found if the stream is not parked.
func (r *Router) ResumeReactions(ctx context.Context, stream string, skip bool) error {
	_, identity, ok := strings.Cut(stream, "/")
	if !ok {
		return entity.Errorf(entity.InvalidRequest, "stream %q must have the form kind/identity", stream)
	}
	p := r.Partition(identity)
	return r.onLeader(ctx, p, func(ctx context.Context, leader *actors.System) error {
		return leader.Resume(ctx, p, stream, skip)
	})
}

// Progress returns the durable position of the reactor of a partition.
func (r *Router) Progress(ctx context.Context, p persistence.Partition) (progress actors.Progress, err error) {
	err = r.onLeader(ctx, p, func(_ context.Context, leader *actors.System) (err error) {
		progress, err = leader.Progress(p)
		return err
	})
	return progress, err
}

// retry calls attempt until it returns another error than actors.ErrRetry or the deadline passes.
func (r *Router) retry(ctx context.Context, attempt func(context.Context) error) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.Deadline)
		defer cancel()
	}
	for range delivering.Attempts(ctx) {
		err := attempt(ctx)
		if !errors.Is(err, actors.ErrRetry) {
			return asEntityError(err)
		}
	}
	return asEntityError(ctx.Err())
}

// asEntityError converts an error to an *entity.Error.
func asEntityError(err error) error {
	if err == nil {
		return nil // before refusal is allocated
	}
	var refusal *entity.Error
	switch {
	case errors.As(err, &refusal):
		return refusal
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return &entity.Error{Code: entity.Unavailable, Message: "the server did not respond in time; retry", RetryAfter: time.Second}
	default:
		return entity.Errorf(entity.Internal, "%s", fmt.Sprint(err))
	}
}
