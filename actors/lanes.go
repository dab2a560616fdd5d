package actors

import (
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/atelier-run/atelier/persistence"
)

const (
	// firstRetry and longestRetry bound the pause before a failed reaction is tried again, which doubles.
	firstRetry   = 20 * time.Millisecond
	longestRetry = 5 * time.Second
)

// lane carries out the reactions to one stream in their order. It holds no events: it reads them from the stream.
type lane struct {
	stream persistence.Stream
	// done is the version up to which all reactions are done, last the last version that is to be reacted to.
	done, last uint64
	// low is a lower bound of the sequence of the first event that is not done.
	low uint64
	// resuming tells that the stream's parked row is in the journal and says from where its reactions are not done, so
	// that the lane does not hold the cursor back.
	resuming bool

	state laneState
	// urgent tells that a caller waits for the lane.
	urgent bool
	// attempts counts the failures since an event was last done.
	attempts int
	timer    *time.Timer
	progress *progress
	waiting  []settling
}

type laneState int

const (
	// laneQueued lanes wait for their turn, laneRunning ones have a goroutine, lanePaused ones failed and are tried again
	// after a pause, laneParking ones wait for the journal to store or to remove their parked row.
	laneQueued laneState = iota
	laneRunning
	lanePaused
	laneParking
)

// settling is a caller of Settle that waits for a version to be done.
type settling struct {
	version uint64
	settle  *settle
}

// progress remembers which targets have taken all of their commands of an event that failed, so that an attempt repeats
// only the others.
type progress struct {
	version uint64
	done    []bool
}

type (
	// laneEnded tells the reactor how far a lane's goroutine has come.
	laneEnded struct {
		lane *lane
		// done is the last version that is done, and low a lower bound of the sequence of the next event; reacted counts
		// the events that were reacted to.
		done, low uint64
		reacted   int
		// err is what failed of the reactions to the event after done, whose name is event if it could be read.
		err      error
		event    string
		progress *progress
	}
	// laneDue tells the reactor that a lane's pause is over.
	laneDue struct{ lane *lane }
)

// extend has a lane react to a further event of its stream.
func (l *lane) extend(event persistence.Event) {
	if event.Version <= l.last {
		return
	}
	if l.done == l.last {
		l.low = event.Sequence
	}
	l.last = event.Version
}

func (l *lane) stop() {
	if l.timer != nil {
		l.timer.Stop()
	}
	l.answer(l.last, ErrRetry)
}

// answer answers the callers that wait for a version or an earlier one.
func (l *lane) answer(version uint64, err error) {
	rest := l.waiting[:0]
	for _, w := range l.waiting {
		if w.version <= version {
			w.settle.end(err)
		} else {
			rest = append(rest, w)
		}
	}
	clear(l.waiting[len(rest):])
	l.waiting = rest
}

// queue holds the lanes that wait for their turn. Those that a caller waits for come first.
type queue struct{ urgent, others []*lane }

func (q *queue) push(l *lane) {
	if l.urgent {
		q.urgent = append(q.urgent, l)
	} else {
		q.others = append(q.others, l)
	}
}

// pop returns the next lane; nil: none waits. A lane that became urgent while it waited is in the queue twice.
func (q *queue) pop() *lane {
	for _, from := range []*[]*lane{&q.urgent, &q.others} {
		for len(*from) > 0 {
			l := (*from)[0]
			(*from)[0] = nil
			*from = (*from)[1:]
			if l.state == laneQueued {
				return l
			}
		}
	}
	return nil
}

func (r *reactor) enqueue(l *lane) {
	l.state, l.urgent = laneQueued, len(l.waiting) > 0
	r.ready.push(l)
}

// hasten lets a lane that a caller waits for run before others.
func (r *reactor) hasten(l *lane) {
	if l.urgent {
		return
	}
	l.urgent = true
	if l.state == laneQueued {
		r.ready.push(l)
	}
}

func (r *reactor) startLanes() {
	for r.started < runningLanes {
		l := r.ready.pop()
		if l == nil {
			return
		}
		l.state = laneRunning
		r.started++
		run := run{
			node: r.node, partition: r.term.partition, stream: l.stream, from: l.done + 1, to: l.last, low: l.low, progress: l.progress,
		}
		self, root, running := r.self, r.node.root, r.running
		r.node.launch(func() {
			ended := run.carryOut(running)
			ended.lane = l
			root.Send(self, ended)
		})
	}
}

// launch runs a goroutine that Stop waits for, unless the system is stopping.
func (s *System) launch(run func()) {
	s.starting.Lock()
	defer s.starting.Unlock()
	if s.running.Err() == nil {
		s.lanes.Go(run)
	}
}

// background runs a goroutine that EndWork waits for, unless work has ended; it reports whether it does.
func (s *System) background(run func()) bool {
	s.starting.Lock()
	defer s.starting.Unlock()
	if s.working.Err() != nil {
		return false
	}
	s.work.Go(run)
	return true
}

// ended takes note of how far a lane has come.
func (r *reactor) ended(m *laneEnded) {
	l := m.lane
	if r.lanes[l.stream] != l {
		return // of the actor before a restart
	}
	r.started--
	if m.done > l.done {
		l.done, l.attempts = m.done, 0
	}
	l.low = max(l.low, m.low)
	l.progress = m.progress
	r.cursor.reacted += m.reacted
	l.answer(l.done, nil)
	switch {
	case m.err != nil:
		r.failed(l, m)
	case l.done < l.last:
		r.enqueue(l)
	default:
		r.finish(l)
	}
	if r.full {
		r.follow()
		return
	}
	r.startLanes()
	r.answerSettled()
	r.advance()
}

// failed has a lane try again after a pause, or parks its stream after too many attempts.
func (r *reactor) failed(l *lane, m *laneEnded) {
	if r.running.Err() != nil {
		return
	}
	l.attempts++
	r.node.metrics.reactions.WithLabelValues("retried").Inc()
	r.node.log.Warn("a reaction failed and is tried again", slog.String("stream", string(l.stream)), slog.Uint64("version", l.done+1),
		slog.String("event", m.event), slog.Int("attempt", l.attempts), slog.Any("error", m.err))
	if l.attempts >= r.node.reactionAttempts {
		r.park(l, m)
		return
	}
	r.pauseLane(l)
}

func (r *reactor) pauseLane(l *lane) {
	pause := min(firstRetry<<min(max(l.attempts-1, 0), 20), longestRetry)
	l.state = lanePaused
	l.timer = r.after(pause/2+rand.N(pause/2+1), laneDue{l})
}

func (r *reactor) due(l *lane) {
	if r.lanes[l.stream] != l || l.state != lanePaused {
		return
	}
	l.timer = nil
	if l.done == l.last {
		r.finish(l)
	} else {
		r.enqueue(l)
	}
	r.startLanes()
}

// finish ends a lane that has nothing more to do.
func (r *reactor) finish(l *lane) {
	if r.parked[l.stream] != nil {
		r.unpark(l)
		return
	}
	delete(r.lanes, l.stream)
}
