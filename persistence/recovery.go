package persistence

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

const (
	// firstRecovery and longestRecovery bound the pause before a partition that has failed is given an owner again. It
	// doubles with each failure, and begins anew once the partition has lived for healthyAfter.
	firstRecovery   = 100 * time.Millisecond
	longestRecovery = 30 * time.Second
	healthyAfter    = 5 * time.Minute
)

// Recover gives each partition that fails back to DefaultMember, after a pause, for as long as ctx and the journal last.
// It is for a journal whose only member that is, and is called once. It returns at once.
func (s *Store) Recover(ctx context.Context) {
	r := &recovery{store: s, attempts: make([]attempts, s.Partitions()), failed: make(chan Partition, 2*s.Partitions())}
	ctx, cancel := context.WithCancel(ctx)
	s.local.Watch(ctx, func(n Notice) {
		if !n.Owned {
			r.note(n.Partition)
		}
	})
	go func() {
		defer cancel()
		r.run(ctx)
	}()
}

type recovery struct {
	store    *Store
	attempts []attempts
	failed   chan Partition
}

// attempts are those to recover one partition.
type attempts struct {
	failures int
	last     time.Time
}

func (r *recovery) run(ctx context.Context) {
	due := make(chan Partition, len(r.attempts))
	for {
		select {
		case p := <-r.failed:
			pause := r.pause(p, time.Now())
			r.store.options.Logger.Warn("a partition that has failed is given an owner again after a pause",
				slog.Int("partition", int(p)), slog.Int("failures", r.attempts[p].failures), slog.Duration("pause", pause))
			time.AfterFunc(pause, func() {
				select {
				case due <- p:
				case <-ctx.Done():
				}
			})
		case p := <-due:
			r.recover(ctx, p)
		case <-r.store.writer.finished:
			return
		case <-r.store.failure.ended:
			return
		case <-ctx.Done():
			return
		}
	}
}

// pause counts a failure, and returns for how long the partition is left alone.
func (r *recovery) pause(p Partition, now time.Time) time.Duration {
	a := &r.attempts[p]
	if now.Sub(a.last) > healthyAfter {
		a.failures = 0
	}
	a.failures, a.last = a.failures+1, now
	return min(firstRecovery<<min(a.failures-1, 20), longestRecovery)
}

// recover moves a partition to its owner. Where that fails, the next attempt follows after a longer pause.
func (r *recovery) recover(ctx context.Context, p Partition) {
	if !r.store.queue.hasFailed(p) {
		return
	}
	epoch, err := r.store.Move(ctx, p, DefaultMember)
	switch {
	case err == nil:
		r.store.options.Logger.Info("a partition that had failed is led again", slog.Int("partition", int(p)), slog.Uint64("epoch", epoch))
	case errors.Is(err, ErrClosed) || ctx.Err() != nil:
	default:
		r.store.options.Logger.Error("a partition that has failed cannot be given an owner", slog.Int("partition", int(p)), slog.Any("error", err))
		r.note(p)
	}
}

// note has a partition recovered. It does not block, since the journal may be calling: there is room for each partition
// twice, and one fails again only after its recovery has begun.
func (r *recovery) note(p Partition) {
	select {
	case r.failed <- p:
	default:
	}
}
