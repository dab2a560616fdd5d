package actors

import (
	"time"

	"github.com/atelier-run/atelier/persistence"
	"github.com/atelier-run/atelier/retry"
)

// FailShard makes the shard of a partition panic, so that its supervisor restarts it with everything below it.
func (s *System) FailShard(p persistence.Partition) {
	s.root.Send(s.terms[p].Load().shard, (*request)(nil))
}

// DelayWorkers sets the longest pause before a shard's reactor, timers or tasks are restarted for the first time after a failure.
// It comes before the first of these.
func (s *System) DelayWorkers(pause time.Duration) {
	workers := s.supervision.(supervision).workers
	workers.pauses = retry.Policy{First: pause, Longest: pause}
}

// MaxSearched limits the rows of timers that one turn searches.
const MaxSearched = maxSearched

// Sweep makes every shard passivate idle entities now.
func (s *System) Sweep() {
	for i := range s.terms {
		if t := s.terms[i].Load(); t != nil {
			s.root.Send(t.shard, sweep{})
		}
	}
}

// Tick makes the timers of all partitions read the clock now. Tests that set the clock call it.
func (s *System) Tick() {
	for i := range s.terms {
		if t := s.terms[i].Load(); t != nil {
			s.root.Send(t.shard, tick{})
		}
	}
}
