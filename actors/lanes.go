package actors

import (
	"log/slog"
	"time"

	"github.com/atelier-run/atelier/persistence"
	"github.com/atelier-run/atelier/retry"
)

// reacting has the pauses before a failed reaction is retried.
var reacting = retry.Policy{First: 20 * time.Millisecond, Longest: 5 * time.Second}

// A lane runs the reactions to one stream in order. It has no events in memory: each turn reads a batch from the stream.
type lane struct {
	stream persistence.Stream
	// done is a version: all reactions up to it are done. last is the last version with reactions.
	done, last uint64
	// low is a lower bound of the sequence of the first event with open reactions.
	low uint64
	// resuming is set while the stream has a durable parked row, which has the first event with open reactions. The lane then
	// does not hold back the cursor.
	resuming bool

	state laneState
	// urgent is set while a caller of Settle waits for the lane.
	urgent bool
	// attempts counts the failures since the last event that was done.
	attempts int
	timer    *time.Timer
	progress *progress
	waiting  []laneWaiter
}

type laneState int

const (
	// A queued lane waits for its turn. A running lane has a goroutine. A paused lane has failed and is retried after a pause. A parking lane
	// waits until its parked row is written or removed.
	laneQueued laneState = iota
	laneRunning
	lanePaused
	laneParking
)

// A laneWaiter is a request of Settle that waits until the reactions up to a version are done.
type laneWaiter struct {
	version uint64
	settle  *settleRequest
}

// progress records which targets have received all of their commands of an event with failed reactions, so that the next attempt sends
// commands only to the remaining targets. done has an element for each group, by its index; see byTarget.
type progress struct {
	version uint64
	done    []bool
}

type (
	// laneEnded is the result of a lane's turn.
	laneEnded struct {
		lane *lane
		// done is a version: all reactions up to it are done. low is a lower bound of the sequence of the next event. reacted is the number of
		// events with reactions in this turn.
		done, low uint64
		reacted   int
		// err is the error of the reactions to the event after done. event is its name, or empty if it could not be read.
		err      error
		event    string
		progress *progress
	}
	// laneDue is sent when a lane's pause is over.
	laneDue struct{ lane *lane }
)

// extend adds an event of the stream to a lane.
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

// answer answers the requests that wait for the given version or for an earlier version.
func (l *lane) answer(version uint64, err error) {
	rest := l.waiting[:0]
	for _, w := range l.waiting {
		if w.version <= version {
			w.settle.conclude(err)
		} else {
			rest = append(rest, w)
		}
	}
	clear(l.waiting[len(rest):])
	l.waiting = rest
}

// A queue has the lanes that wait for their turn. Urgent lanes come first.
type queue struct{ urgent, others []*lane }

func (q *queue) push(l *lane) {
	if l.urgent {
		q.urgent = append(q.urgent, l)
	} else {
		q.others = append(q.others, l)
	}
}

// pop returns the next lane, or nil. A lane that became urgent while it waited is in the queue twice; pop returns it once.
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

// enqueue makes a lane wait for its turn.
func (r *reactor) enqueue(l *lane) {
	l.state, l.urgent = laneQueued, len(l.waiting) > 0
	r.ready.push(l)
}

// prioritize makes a lane urgent.
func (r *reactor) prioritize(l *lane) {
	if l.urgent {
		return
	}
	l.urgent = true
	if l.state == laneQueued {
		r.ready.push(l)
	}
}

// startLanes starts a goroutine for each queued lane, up to runningLanes: step 2 of "The way of a reaction" in the package
// comment.
func (r *reactor) startLanes() {
	for r.started < runningLanes {
		l := r.ready.pop()
		if l == nil {
			return
		}
		l.state = laneRunning
		r.started++
		run := run{
			system: r.system, partition: r.term.partition, stream: l.stream, from: l.done + 1, to: l.last, low: l.low, progress: l.progress,
		}
		self, root, running := r.self, r.system.root, r.running
		r.system.launchLane(func() {
			ended := run.reactToBatch(running)
			ended.lane = l
			root.Send(self, ended)
		})
	}
}

// launchLane runs a goroutine that Stop waits for, unless the system is stopping.
func (s *System) launchLane(run func()) {
	s.starting.Lock()
	defer s.starting.Unlock()
	if s.running.Err() == nil {
		s.lanes.Go(run)
	}
}

// launchWork runs a goroutine that EndWork waits for. It returns false, and runs nothing, after EndWork was called.
func (s *System) launchWork(run func()) bool {
	s.starting.Lock()
	defer s.starting.Unlock()
	if s.working.Err() != nil {
		return false
	}
	s.work.Go(run)
	return true
}

// handleLaneEnded records the progress of a lane and chooses its next state: step 5 of "The way of a reaction" in the package
// comment.
func (r *reactor) handleLaneEnded(m *laneEnded) {
	l := m.lane
	if r.lanes[l.stream] != l {
		return // a lane of the actor before its restart
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
		r.retryOrPark(l, m)
	case l.done < l.last:
		r.enqueue(l)
	default:
		r.endLane(l)
	}
	if r.full {
		r.readOn()
		return
	}
	r.startLanes()
	r.answerSettleRequests()
	r.scheduleCursorWrite()
}

// retryOrPark pauses a lane that failed or, after too many attempts, parks its stream.
func (r *reactor) retryOrPark(l *lane, m *laneEnded) {
	if r.running.Err() != nil {
		return
	}
	l.attempts++
	r.system.metrics.reactions.WithLabelValues("retried").Inc()
	r.system.log.Warn("a reaction failed; trying again", slog.String("stream", string(l.stream)), slog.Uint64("version", l.done+1),
		slog.String("event", m.event), slog.Int("attempt", l.attempts), slog.Any("error", m.err))
	if l.attempts >= r.system.reactionAttempts {
		r.park(l, m)
		return
	}
	r.pauseLane(l)
}

// pauseLane retries a lane after a pause.
func (r *reactor) pauseLane(l *lane) {
	l.state = lanePaused
	l.timer = r.after(reacting.After(l.attempts), laneDue{l})
}

// requeue ends a lane's pause.
func (r *reactor) requeue(l *lane) {
	if r.lanes[l.stream] != l || l.state != lanePaused {
		return
	}
	l.timer = nil
	if l.done == l.last {
		r.endLane(l)
	} else {
		r.enqueue(l)
	}
	r.startLanes()
}

// endLane removes a lane without open reactions. If its stream is parked, the parked row is removed first.
func (r *reactor) endLane(l *lane) {
	if r.parked[l.stream] != nil {
		r.unpark(l)
		return
	}
	delete(r.lanes, l.stream)
}
