package persistence

import "sync"

const (
	maxBatchProposals = 1024
	maxBatchBytes     = 1 << 20
)

// pending is one thing to be written: a proposal, or a snapshot of an entity's state.
type pending struct {
	proposal Proposal
	done     func(Result)
	save     *save
	size     int
}

type save struct {
	partition Partition
	stream    Stream
	snapshot  Snapshot
}

// queue holds what waits for the writer, bounded in number and bytes.
type queue struct {
	mu       sync.Mutex
	filled   sync.Cond
	waiting  []pending
	from     int // what lies before it has been taken
	bytes    int
	maxCount int
	maxBytes int
	closed   bool
}

func newQueue(maxCount, maxBytes int) *queue {
	q := &queue{maxCount: maxCount, maxBytes: maxBytes}
	q.filled.L = &q.mu
	return q
}

// put tells why it did not take p; empty: it did.
func (q *queue) put(p pending) reason {
	q.mu.Lock()
	defer q.mu.Unlock()
	count := len(q.waiting) - q.from
	switch {
	case q.closed:
		return closed
	case count >= q.maxCount || count > 0 && q.bytes+p.size > q.maxBytes:
		return queueFull
	}
	q.waiting = append(q.waiting, p)
	q.bytes += p.size
	if count == 0 {
		q.filled.Signal()
	}
	return accepted
}

// take waits for something, and appends to batch as much of it as one commit carries. Nothing: the queue is closed and
// empty.
func (q *queue) take(batch []pending) []pending {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.from == len(q.waiting) && !q.closed {
		q.filled.Wait()
	}
	n, size := 0, 0
	for _, p := range q.waiting[q.from:] {
		if n == maxBatchProposals || n > 0 && size+p.size > maxBatchBytes {
			break
		}
		n++
		size += p.size
	}
	return q.move(batch, n, size)
}

func (q *queue) move(batch []pending, n, size int) []pending {
	taken := q.waiting[q.from : q.from+n]
	batch = append(batch, taken...)
	clear(taken)
	q.from += n
	q.bytes -= size
	if 2*q.from >= len(q.waiting) {
		left := copy(q.waiting, q.waiting[q.from:])
		clear(q.waiting[left:])
		q.waiting, q.from = q.waiting[:left], 0
	}
	return batch
}

// close lets nothing more in.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.filled.Broadcast()
}

// empty takes everything there is, without waiting.
func (q *queue) empty() []pending {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.move(nil, len(q.waiting)-q.from, q.bytes)
}

func (q *queue) depth() (count, bytes int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting) - q.from, q.bytes
}
