package persistence

import (
	"slices"
	"sync"
)

const (
	maxBatchProposals = 1024
	maxBatchBytes     = 1 << 20
)

// pending is one thing to be written: a proposal, a snapshot of an entity's state, or a move of the partition.
type queueEntry struct {
	proposal Proposal
	// done is called with the outcome; for a move, Result.Version is the new epoch. A snapshot has none.
	done func(Result)
	snapshot *snapshotSave
	// move is the member that the partition moves to.
	move *Member
	size int
}

type snapshotSave struct {
	stream   Stream
	epoch    uint64
	snapshot Snapshot
}

// lane is one partition's path through the writer: its queue, its committer, its round and whether it has failed.
type lane struct {
	partition Partition
	committer committer

	// The queue's lock guards the fields from here to inFlight.

	waiting []queueEntry
	taken    int // the entries of waiting before it have been taken
	load    load
	// ready tells that the lane is in queue.ready.
	ready bool
	owner *Member
	epoch uint64
	// failed tells that the partition's term has ended by an error. The partition takes no proposals until it is moved.
	failed bool
	// inFlight tells that the entries of round are not answered yet. Only the caller that resets it answers them.
	inFlight bool

	// round belongs to the writer from take to the next take.
	round round
}

// load is a number of pending entries and their bytes.
type load struct{ count, bytes int }

// budget bounds what all partitions use together. A quarter of the limit is divided among the partitions, each of which
// can always use its part; the rest goes to the partitions that ask for it first.
type budget struct {
	reserved int // for each partition
	shared   int
	borrowed int // of shared
}

func newBudget(limit, partitions int) budget {
	reserved := limit / 4 / partitions
	return budget{reserved: reserved, shared: limit - reserved*partitions}
}

// borrowing returns what a partition borrows more when its use changes.
func (b *budget) borrowedChange(before, after int) int {
	return max(after-b.reserved, 0) - max(before-b.reserved, 0)
}

func (b *budget) fits(before, after int) bool {
	return b.borrowed+b.borrowedChange(before, after) <= b.shared
}

func (b *budget) update(before, after int) { b.borrowed += b.borrowedChange(before, after) }

// queue holds the pending entries of all partitions that share a writer. Each partition has its own order and its own
// part of the bounds.
type queue struct {
	mu     sync.Mutex
	filled sync.Cond
	lanes  []*lane
	// ready holds the lanes with entries that wait. The first is the one that has waited longest for its turn.
	ready, nextReady []*lane
	load         load
	count, bytes budget
	closed       bool
}

func newQueue(lanes []*lane, maxCount, maxBytes int) *queue {
	q := &queue{lanes: lanes, count: newBudget(maxCount, len(lanes)), bytes: newBudget(maxBytes, len(lanes))}
	q.filled.L = &q.mu
	return q
}

// put appends to a partition's queue for a member, and returns why it did not, with the partition's epoch. An empty
// queue takes an entry of any size, and moves are taken whatever waits.
func (q *queue) enqueue(p Partition, m *Member, entry queueEntry) (reason, uint64) {
	if int(p) >= len(q.lanes) {
		return reasonNotLeader, 0
	}
	l := q.lanes[p]
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return reasonClosed, 0
	}
	if entry.move == nil {
		switch {
		case l.failed:
			return reasonNotLeader, 0
		case l.owner != m:
			return reasonNotLeader, l.epoch
		case l.load.count > 0 && !q.fits(l, entry.size):
			return reasonQueueFull, l.epoch
		}
	}
	l.waiting = append(l.waiting, entry)
	q.updateLoad(l, load{1, entry.size})
	if !l.ready {
		l.ready = true
		q.ready = append(q.ready, l)
	}
	if q.load.count == 1 {
		q.filled.Signal()
	}
	return reasonNone, l.epoch
}

func (q *queue) fits(l *lane, size int) bool {
	return q.count.fits(l.load.count, l.load.count+1) && q.bytes.fits(l.load.bytes, l.load.bytes+size)
}

func (q *queue) updateLoad(l *lane, by load) {
	q.count.update(l.load.count, l.load.count+by.count)
	q.bytes.update(l.load.bytes, l.load.bytes+by.bytes)
	l.load = load{l.load.count + by.count, l.load.bytes + by.bytes}
	q.load = load{q.load.count + by.count, q.load.bytes + by.bytes}
}

// take waits for entries and moves as many as one commit carries into the rounds of their lanes, which are then in
// flight. It appends these lanes to lanes; none: the queue is closed and empty. Each lane gets an equal part of the
// commit first; what others leave goes to the lanes with more.
func (q *queue) takeCommit(lanes []*lane) []*lane {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.ready) == 0 && !q.closed {
		q.filled.Wait()
	}
	if len(q.ready) == 0 {
		return lanes
	}
	most := load{maxBatchProposals, maxBatchBytes}
	part := load{max(1, most.count/len(q.ready)), most.bytes / len(q.ready)}
	var total load
	for _, l := range q.ready {
		q.fillRound(l, part, &total)
	}
	if len(q.ready) > 1 {
		for _, l := range q.ready {
			q.fillRound(l, most, &total)
		}
	}
	q.nextReady = q.nextReady[:0]
	for _, l := range q.ready {
		if len(l.round.pending) == 0 {
			q.nextReady = append(q.nextReady, l) // before those that had a turn
		}
	}
	for _, l := range q.ready {
		if len(l.round.pending) == 0 {
			continue
		}
		l.inFlight = true
		lanes = append(lanes, l)
		if l.ready = l.load.count > 0; l.ready {
			q.nextReady = append(q.nextReady, l)
		}
	}
	q.ready, q.nextReady = q.nextReady, q.ready
	return lanes
}

// fill moves entries of a lane into its round: at most part, and in total at most what a commit carries. A move is a
// round of its own, so that nothing shares a round with proposals of another epoch.
func (q *queue) fillRound(l *lane, part load, total *load) {
	var own load
	for i := range l.waiting[l.taken:] {
		entry := &l.waiting[l.taken+i]
		bytes := entry.size
		switch {
		case l.round.isMove(), entry.move != nil && len(l.round.pending)+own.count > 0,
			total.count == maxBatchProposals, total.count > 0 && total.bytes+bytes > maxBatchBytes,
			own.count == part.count, own.count > 0 && own.bytes+bytes > part.bytes:
			q.moveToRound(l, own)
			return
		}
		own = load{own.count + 1, own.bytes + bytes}
		*total = load{total.count + 1, total.bytes + bytes}
		if entry.move != nil {
			l.round.afterFailure = l.failed
			break
		}
	}
	q.moveToRound(l, own)
}

// remove moves the first entries of a lane into its round.
func (q *queue) moveToRound(l *lane, n load) {
	taken := l.waiting[l.taken : l.taken+n.count]
	l.round.pending = append(l.round.pending, taken...)
	clear(taken)
	l.taken += n.count
	q.updateLoad(l, load{-n.count, -n.bytes})
	if 2*l.taken >= len(l.waiting) {
		left := copy(l.waiting, l.waiting[l.taken:])
		clear(l.waiting[left:])
		l.waiting, l.taken = l.waiting[:left], 0
	}
}

// land reports whether the caller is the one that answers a lane's round: false when the lane has failed meanwhile.
// It makes a move take effect.
func (q *queue) claimRound(l *lane) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	landed := l.inFlight
	l.inFlight = false
	if landed && l.round.isMove() {
		l.owner, l.epoch, l.failed = l.round.pending[0].move, l.round.results[0].Version, false
	}
	return landed
}

// fail ends a lane's term, and returns the term's epoch, the entries in flight and those that wait, for the caller to
// answer.
func (q *queue) failLane(l *lane) (epoch uint64, inFlight, waiting []queueEntry) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l.failed = true
	inFlight, waiting = q.takeAll(l)
	return l.epoch, inFlight, waiting
}

// empty takes what a lane holds, without waiting.
func (q *queue) takeAll(l *lane) (inFlight, waiting []queueEntry) {
	if l.inFlight {
		l.inFlight = false
		inFlight = slices.Clone(l.round.pending)
	}
	waiting = slices.Clone(l.waiting[l.taken:])
	clear(l.waiting)
	l.waiting, l.taken = l.waiting[:0], 0
	q.updateLoad(l, load{-l.load.count, -l.load.bytes})
	if l.ready {
		l.ready = false
		q.ready = slices.DeleteFunc(q.ready, func(other *lane) bool { return other == l })
	}
	return inFlight, waiting
}

// close lets nothing more in.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.filled.Broadcast()
}

// abandon closes the queue and returns everything in it, for the caller to answer.
func (q *queue) closeAndTakeAll() (inFlight, waiting []queueEntry) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.filled.Broadcast()
	for _, l := range q.lanes {
		l.failed = true
		flying, queued := q.takeAll(l)
		inFlight, waiting = append(inFlight, flying...), append(waiting, queued...)
	}
	return inFlight, waiting
}

// depth returns what waits in all partitions.
func (q *queue) depth() (count, bytes int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.load.count, q.load.bytes
}

// hasFailed reports whether a partition's term has ended by an error and no later one has begun.
func (q *queue) hasFailed(p Partition) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.lanes[p].failed
}

// failures returns the number of partitions that have failed.
func (q *queue) failedCount() (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, l := range q.lanes {
		if l.failed {
			n++
		}
	}
	return n
}
