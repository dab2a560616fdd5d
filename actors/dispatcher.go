package actors

import (
	"sync"
	"sync/atomic"
)

const (
	// throughput is how many messages an actor takes before it lets others run.
	throughput = 300
	// keptGoroutines bounds those that wait for work.
	keptGoroutines = 64
)

// dispatcher runs actors on goroutines that it keeps for the next: a new one would first grow its stack, by copying it,
// to the depth of rules and store.
type dispatcher struct {
	work    chan func()
	waiting atomic.Int64
	ended   chan struct{}
	once    sync.Once
}

func newDispatcher() *dispatcher {
	return &dispatcher{work: make(chan func()), ended: make(chan struct{})}
}

func (d *dispatcher) Throughput() int { return throughput }

func (d *dispatcher) Schedule(fn func()) {
	select {
	case d.work <- fn:
	default:
		go d.run(fn)
	}
}

func (d *dispatcher) run(fn func()) {
	for {
		fn()
		if d.waiting.Add(1) > keptGoroutines {
			d.waiting.Add(-1)
			return
		}
		select {
		case fn = <-d.work:
			d.waiting.Add(-1)
		case <-d.ended:
			return
		}
	}
}

// end lets go of the goroutines that wait. What is scheduled later still runs.
func (d *dispatcher) end() { d.once.Do(func() { close(d.ended) }) }
