package persistence

import (
	"slices"
	"sync"
)

const (
	// maxBatchProposals and maxBatchBytes bound one commit.
	maxBatchProposals = 1024
	maxBatchBytes     = 1 << 20
)

// queueEntry is a proposal, a snapshot of an entity's state, or a move of the partition.
type queueEntry struct {
	proposal Proposal
	// done is called with the outcome; the Version of a move's result is the new epoch. A snapshot has no callback.
	done     func(Result)
	snapshot *snapshotSave
	// move is the new owner of the partition, or nil if the entry is not a move.
	move *Member
	// size is the approximate number of bytes.
	size int
}

// snapshotSave is a snapshot of a stream that was taken under an epoch.
type snapshotSave struct {
	stream   Stream
	epoch    uint64
	snapshot Snapshot
}

// lane is the way of one partition through the writer: its queue, its owner, its committer, its round, and whether it has
// failed.
type lane struct {
	partition Partition
	committer committer

	// The lock of the queue guards the fields from here to inFlight.

	// waiting has the queued entries, after the first taken ones, which were moved to a round.
	waiting []queueEntry
	taken   int
	load    load
	// ready reports that the lane is in queue.ready.
	ready bool
	owner *Member
	epoch uint64
	// failed reports that the term has ended by an error. The partition accepts only moves until a move is committed.
	failed bool
	// inFlight reports that the entries of round are not answered. Only the caller that resets it answers them.
	inFlight bool

	// round belongs to the writer from takeCommit to its next takeCommit.
	round round
}

// load is a number of queue entries and of their bytes.
type load struct{ count, bytes int }

// budget divides a limit among the partitions. A quarter is reserved, in equal parts that each partition can always use.
// The remainder is shared: partitions borrow from it in the order in which they need it.
type budget struct {
	reserved int // for each partition
	shared   int
	borrowed int // from shared
}

func newBudget(limit, partitions int) budget {
	reserved := limit / 4 / partitions
	return budget{reserved: reserved, shared: limit - reserved*partitions}
}

// borrowedChange returns by how much the borrowed amount changes if the use of a partition changes from before to after.
func (b *budget) borrowedChange(before, after int) int {
	return max(after-b.reserved, 0) - max(before-b.reserved, 0)
}

// fits reports whether a partition may change its use from before to after.
func (b *budget) fits(before, after int) bool {
	return b.borrowed+b.borrowedChange(before, after) <= b.shared
}

// update records that the use of a partition has changed.
func (b *budget) update(before, after int) { b.borrowed += b.borrowedChange(before, after) }

// queue has the queued entries of all partitions that share a writer. Each partition has its own order, and its own part
// of the bounds.
type queue struct {
	mu     sync.Mutex
	filled sync.Cond
	lanes  []*lane
	// ready has the lanes with queued entries. The first one has waited longest for its turn. nextReady is empty, and
	// becomes ready in takeCommit.
	ready, nextReady []*lane
	// load is the total of all lanes; count and bytes are the budgets.
	load         load
	count, bytes budget
	closed       bool
}

func newQueue(lanes []*lane, maxCount, maxBytes int) *queue {
	q := &queue{lanes: lanes, count: newBudget(maxCount, len(lanes)), bytes: newBudget(maxBytes, len(lanes))}
	q.filled.L = &q.mu
	return q
}

// enqueue adds an entry to the queue of a partition for its owner m. It returns reasonNone or the reason for a refusal,
// and the epoch of the partition. An empty lane accepts an entry of any size. Moves are always accepted unless the queue
// is closed.
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

// fits reports whether the budgets admit another entry of this size.
func (q *queue) fits(l *lane, size int) bool {
	return q.count.fits(l.load.count, l.load.count+1) && q.bytes.fits(l.load.bytes, l.load.bytes+size)
}

// updateLoad changes the load of a lane and the totals.
func (q *queue) updateLoad(l *lane, by load) {
	q.count.update(l.load.count, l.load.count+by.count)
	q.bytes.update(l.load.bytes, l.load.bytes+by.bytes)
	l.load = load{l.load.count + by.count, l.load.bytes + by.bytes}
	q.load = load{q.load.count + by.count, q.load.bytes + by.bytes}
}

// takeCommit waits for entries, and moves as many as fit into one commit to the rounds of their lanes, which are then in
// flight. It appends these lanes to lanes and returns the result; no lanes means that the queue is closed and empty. Each
// lane gets an equal part of the commit first; the remainder goes to lanes with more entries.
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
			q.nextReady = append(q.nextReady, l) // ahead of the lanes that are in this commit
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

// fillRound moves entries of a lane to its round: at most part, and only until the commit is full. A move is a round of its
// own, so that the proposals of a round all have the same epoch. total is the load of the commit, which fillRound increases.
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

// moveToRound moves the first n entries of a lane to its round.
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

// takeRefused removes the entries that admits refuses from the round of a lane, and returns the refused entries for the caller to answer.
// remains reports whether the round has other entries; if not, the round is no longer in flight. takeRefused removes nothing if failLane or
// closeAndTakeAll has already returned the entries.
func (q *queue) takeRefused(l *lane, admits func(*queueEntry) bool) (refused []queueEntry, remains bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !l.inFlight {
		return nil, false
	}
	admitted := l.round.pending[:0]
	for i := range l.round.pending {
		if entry := &l.round.pending[i]; admits(entry) {
			admitted = append(admitted, *entry)
		} else {
			refused = append(refused, *entry)
		}
	}
	clear(l.round.pending[len(admitted):])
	l.round.pending = admitted
	l.inFlight = len(admitted) > 0
	return refused, l.inFlight
}

// claimRound reports whether the caller has to answer the round of a lane; it is false if failLane or closeAndTakeAll has
// already returned the entries. If the round is a move and was committed, the new owner and epoch take effect.
func (q *queue) claimRound(l *lane, isCommitted bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	landed := l.inFlight
	l.inFlight = false
	if landed && isCommitted && l.round.isMove() {
		l.owner, l.epoch, l.failed = l.round.pending[0].move, l.round.results[0].Version, false
	}
	return landed
}

// failLane ends the term of a lane by an error. It returns the epoch of the term, and the entries in flight and in the
// queue, which the caller has to answer.
func (q *queue) failLane(l *lane) (epoch uint64, inFlight, waiting []queueEntry) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l.failed = true
	inFlight, waiting = q.takeAll(l)
	return l.epoch, inFlight, waiting
}

// takeAll removes and returns all entries of a lane. The caller holds mu and has to answer them.
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

// close makes the queue refuse new entries. Queued ones are still committed.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.filled.Broadcast()
}

// closeAndTakeAll closes the queue, ends all terms and returns all entries, which the caller has to answer.
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

// depth returns the number and the bytes of the queued entries of all partitions.
func (q *queue) depth() (count, bytes int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.load.count, q.load.bytes
}

// hasFailed reports whether the term of a partition has ended by an error and no later term has begun.
func (q *queue) hasFailed(p Partition) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.lanes[p].failed
}

// failedCount returns the number of partitions that have failed.
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
