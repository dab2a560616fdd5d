package actors

import (
	"math"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

// backoff restarts a failing child after a pause that doubles from first to longest, and stops it for good when it fails
// more than retries times in a row. A child that lived longer than healthy starts the count anew.
type backoff struct {
	first, longest, healthy time.Duration
	retries                 int
	restarted               func(child *actor.PID, reason any, stopped bool)
}

func newBackoff(restarted func(child *actor.PID, reason any, stopped bool)) *backoff {
	return &backoff{
		first: 10 * time.Millisecond, longest: 5 * time.Second, healthy: time.Minute, retries: 10,
		restarted: restarted,
	}
}

// supervision is how failing children are treated: an entity that keeps failing is stopped, and activated anew by the
// next command for it; a shard's own workers are restarted for ever. protoactor takes it from the supervisor's props.
type supervision struct{ entities, workers *backoff }

func newSupervision(restarted func(child *actor.PID, reason any, stopped bool)) supervision {
	return supervision{newBackoff(restarted), tireless(restarted)}
}

func (s supervision) HandleFailure(system *actor.ActorSystem, supervisor actor.Supervisor, child *actor.PID, rs *actor.RestartStatistics, reason, message any) {
	strategy := s.entities
	switch kindOf(child.Id) {
	case reactorKind, timersKind, tasksKind:
		strategy = s.workers
	}
	strategy.HandleFailure(system, supervisor, child, rs, reason, message)
}

// tireless never gives a child up: without its shard, a partition would be out of reach until the next term.
func tireless(restarted func(child *actor.PID, reason any, stopped bool)) *backoff {
	b := newBackoff(restarted)
	b.retries = math.MaxInt
	return b
}

func (b *backoff) HandleFailure(_ *actor.ActorSystem, supervisor actor.Supervisor, child *actor.PID, rs *actor.RestartStatistics, reason any, _ any) {
	rs.Fail()
	failures := rs.NumberOfFailures(b.healthy)
	if failures > b.retries {
		b.restarted(child, reason, true)
		supervisor.StopChildren(child)
		return
	}
	b.restarted(child, reason, false)
	time.AfterFunc(b.pause(failures), func() { supervisor.RestartChildren(child) })
}

// pause is the wait before the restart that follows the nth failure.
func (b *backoff) pause(n int) time.Duration {
	pause := b.first << min(max(n-1, 0), 20)
	return min(pause, b.longest)
}
