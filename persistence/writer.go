package persistence

import (
	"encoding/binary"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/batchrepr"
)

// writer commits the proposals of all partitions that share a barrier: steps 2 to 7 of a proposal in the package comment.
type writer struct {
	queue     *queue
	barrier   barrier
	callbacks *callbacks
	watchers  *watchers
	diskSpace *diskSpace
	reclaimer *reclaimer
	metrics   *metrics
	failure   *failure
	logger    *slog.Logger

	// staged has the lanes of the current commit, except failed lanes.
	staged []*lane

	// finished is closed when run has returned.
	finished chan struct{}
}

// run commits until the queue is closed and empty, or the journal has failed.
func (w *writer) run() {
	defer close(w.finished)
	var lanes []*lane
	entries := 0
	for {
		if entries > 1 {
			runtime.Gosched() // lets callers that were just answered append: a larger batch costs the same sync
		}
		if lanes = w.queue.takeCommit(lanes[:0]); len(lanes) == 0 {
			return
		}
		bytes := 0
		entries = 0
		for _, l := range lanes {
			bytes += l.round.divide()
			entries += len(l.round.pending)
		}
		admitted := lanes
		space := w.diskSpace.check(bytes)
		if space != spacious {
			admitted, bytes = w.refuse(lanes, space)
		}
		var removed []removal
		if space != spacious {
			removed = removalsOf(admitted)
		}
		if len(admitted) > 0 && !w.commitRounds(admitted, bytes) {
			return
		}
		w.reclaimer.reclaim(removed)
		for _, l := range lanes {
			l.round.reset()
		}
	}
}

// refuse answers the entries of a commit that the state of the disk does not admit with errDiskFull. It returns the lanes with
// other entries, and the bytes of these.
func (w *writer) refuse(lanes []*lane, state diskState) (admitted []*lane, bytes int) {
	for _, l := range lanes {
		refused, remains := w.queue.takeRefused(l, func(e *queueEntry) bool { return state.admits(&e.proposal) })
		bytes += l.round.divide()
		for i := range refused {
			if refused[i].snapshot == nil {
				w.metrics.countRefused(reasonDiskFull, 1)
			}
		}
		w.callbacks.enqueueResults(refused, errDiskFull)
		if remains {
			admitted = append(admitted, l)
		}
	}
	return admitted, bytes
}

// commitRounds makes the rounds of the lanes durable and answers their proposals. It returns false if the journal has
// failed: then failure answers them, and nothing more is written.
func (w *writer) commitRounds(lanes []*lane, bytes int) bool {
	if w.failure.cause() != nil {
		return false
	}
	start := time.Now()
	w.staged = w.staged[:0]
	for _, l := range lanes {
		if err := l.committer.stage(&l.round); err != nil {
			w.failPartition(l, err)
			continue
		}
		w.staged = append(w.staged, l)
	}
	if err := w.barrier.sync(); err != nil {
		w.failure.fail(err)
		return false
	}
	w.metrics.countCommit(w.staged, bytes, time.Since(start))
	w.staged = w.watchers.publishCommit(w.queue, w.staged)
	for _, l := range w.staged {
		w.callbacks.callCommitted(&l.round)
	}
	return w.failure.cause() == nil
}

// failPartition ends the term of one partition because of err; the others continue. The owner is notified, then proposals
// in flight are answered with ErrUnknown and queued ones with a NotLeaderError. Any goroutine may call it.
func (w *writer) failPartition(l *lane, err error) {
	w.logger.Error("a partition of the journal has failed and takes no proposals until it is recovered",
		slog.Int("partition", int(l.partition)), slog.Any("error", err))
	w.metrics.partitionFailures.Inc()
	epoch, inFlight, waiting := w.queue.failLane(l)
	w.callbacks.enqueueCall(func() { w.watchers.endFailedTerm(l.partition, epoch) })
	w.callbacks.enqueueResults(inFlight, ErrUnknown)
	w.callbacks.enqueueResults(waiting, &NotLeaderError{})
}

// failAll ends the terms of all partitions, and answers all proposals in flight and in the queue. failure calls it, since
// the goroutine of run may be blocked in the store.
func (w *writer) failAll() {
	inFlight, waiting := w.queue.closeAndTakeAll()
	w.callbacks.enqueueCall(w.watchers.endAllTerms)
	w.callbacks.enqueueResults(inFlight, ErrUnknown)
	w.callbacks.enqueueResults(waiting, ErrClosed)
}

// committer makes the rounds of one partition durable. The writer stages the rounds of several partitions, each with its
// own committer, and then syncs the barrier that these committers share. Partitions that share no barrier have a writer
// each.
type committer interface {
	// stage compares the entries of the round with the state of the partition, in their order, sets the results, and
	// prepares the rows that the barrier makes durable. The result of a move has the new epoch as its version. An error
	// fails this partition only: the outcome of the round is unknown, and only a move may be staged for the partition
	// afterwards. The round is unchanged until the barrier's sync returns.
	stage(r *round) error
	// sequence returns the last sequence of the partition's feed as of the last stage.
	sequence() uint64
}

// barrier makes all rows durable that committers have staged since its last sync.
type barrier interface {
	// sync returns when everything that was staged is durable and visible in views. After an error, the outcome of
	// everything staged is unknown, all partitions that share the barrier have failed, and the barrier must not be used
	// again.
	sync() error
}

// round is the part of one commit that belongs to a partition: proposals and snapshots, or one move.
type round struct {
	pending   []queueEntry
	proposals []Proposal
	saves     []*snapshotSave
	// results has an element for each proposal, or the single result of the move.
	results []Result
	// advanced reports that the feed of the partition has advanced.
	advanced bool
	// afterFailure reports that the partition has failed before this move: the committer must read its state from the
	// store.
	afterFailure bool
	// droppedSnapshots counts the snapshots that were dropped because their term has ended.
	droppedSnapshots int
}

// isMove reports whether the round is a move of the partition.
func (r *round) isMove() bool { return len(r.pending) > 0 && r.pending[0].move != nil }

// divide sets proposals, saves and empty results from the entries of the round, and returns the bytes of the entries.
func (r *round) divide() (bytes int) {
	r.proposals, r.saves, r.results = r.proposals[:0], r.saves[:0], r.results[:0]
	r.advanced, r.droppedSnapshots = false, 0
	for i := range r.pending {
		entry := &r.pending[i]
		bytes += entry.size
		if entry.snapshot != nil {
			r.saves = append(r.saves, entry.snapshot)
			continue
		}
		r.results = append(r.results, Result{})
		if entry.move == nil {
			r.proposals = append(r.proposals, entry.proposal)
		}
	}
	return bytes
}

// reset drops the references to memory of the callers.
func (r *round) reset() {
	clear(r.pending)
	clear(r.proposals)
	clear(r.saves)
	r.pending = r.pending[:0]
}

// localBarrier is the batch and the sync that all partitions of a single machine share.
type localBarrier struct {
	db      *pebble.DB
	batch   *pebble.Batch
	applier *applier
	views   *views
	failure *failure
	// mustSync reports that the batch has rows that must be durable when sync returns. Snapshots alone need no sync.
	mustSync bool
}

// sync applies the batch. It returns ErrClosed if the journal was closed after a failure.
func (b *localBarrier) sync() error {
	if b.batch.Empty() {
		return nil
	}
	if err := b.views.beginCommit(); err != nil {
		return err
	}
	mode := pebble.NoSync
	if b.mustSync {
		mode = pebble.Sync
	}
	if err := b.failure.guard(func() error { return b.db.Apply(b.batch, mode) }); err != nil {
		return err
	}
	b.views.endCommit()
	b.batch.Reset()
	b.mustSync = false
	return nil
}

// localCommitter is the committer of a partition on a single machine. Its errors are the errors of reading the
// partition's rows.
type localCommitter struct {
	*localBarrier
	partition Partition
}

// sequence returns the last sequence of the partition's feed.
func (c *localCommitter) sequence() uint64 { return c.applier.partitions[c.partition].sequence }

// stage adds the rows of the round to the batch. After an error the batch is as before.
func (c *localCommitter) stage(r *round) error {
	length, count := c.batch.Len(), c.batch.Count()
	if err := c.stageRows(r); err != nil {
		c.applier.forgetPartition(c.partition)
		return errors.Join(err, c.truncate(length, count))
	}
	return nil
}

// truncate removes the rows of a failed round from the batch. length and count are the size of the batch before the
// round.
func (c *localCommitter) truncate(length int, count uint32) error {
	rows := c.batch.Repr()[:length]
	batchrepr.SetCount(rows, count)
	return c.batch.SetRepr(rows)
}

// stageRows adds the rows of a move or of proposals, and of the snapshots of the current term.
func (c *localCommitter) stageRows(r *round) error {
	before := c.batch.Len()
	if r.isMove() {
		epoch, err := c.applier.beginTerm(c.batch, c.partition, r.afterFailure)
		if err != nil {
			return err
		}
		r.results[0].Version = epoch
	}
	if err := c.applier.apply(c.batch, r.proposals, r.results[:len(r.proposals)]); err != nil {
		return err
	}
	r.advanced = len(c.applier.advancedPartitions) > 0
	c.mustSync = c.mustSync || c.batch.Len() > before
	for _, s := range r.saves {
		if s.epoch != c.applier.partitions[c.partition].epoch {
			r.droppedSnapshots++
			continue
		}
		h, err := c.applier.loadHead(streamKey{c.partition, s.stream})
		if err != nil {
			return err
		}
		if s.snapshot.Version <= h.erased {
			continue // an erasure has overtaken the snapshot, and must leave nothing
		}
		if err := setSnapshot(c.batch, c.partition, s); err != nil {
			return err
		}
	}
	return nil
}

// setSnapshot adds the row of a snapshot to b.
func setSnapshot(b *pebble.Batch, p Partition, s *snapshotSave) error {
	key := appendSnapshotKey(nil, p, s.stream)
	return b.Set(key, append(binary.AppendUvarint(nil, s.snapshot.Version), s.snapshot.State...), nil)
}

// callbacks runs the callbacks of proposals, one at a time. The callbacks of a commit run on the goroutine of the writer.
// Refusals run on a goroutine of their own, because the caller of Append may hold locks that its callback needs, and
// because the writer may be waiting for the disk.
type callbacks struct {
	// running is held while a callback runs.
	running sync.Mutex

	// mu guards the fields below.
	mu sync.Mutex
	// waiting has the callbacks that drain has not taken. draining reports that drain is running.
	waiting  []callback
	draining bool
}

// callback is a call of done with result, or of call if that is not nil.
type callback struct {
	done   func(Result)
	result Result
	call   func()
}

// callCommitted calls done with the result of each proposal of a round, or of its move.
func (c *callbacks) callCommitted(r *round) {
	c.running.Lock()
	defer c.running.Unlock()
	next := 0
	for i := range r.pending {
		if r.pending[i].snapshot != nil {
			continue
		}
		r.pending[i].done(r.results[next])
		next++
	}
}

// enqueueResult has done called with err. It returns at once.
func (c *callbacks) enqueueResult(done func(Result), err error) {
	c.enqueue(callback{done: done, result: Result{Err: err}})
}

// enqueueCall has fn called before all callbacks that are enqueued later. It returns at once.
func (c *callbacks) enqueueCall(fn func()) { c.enqueue(callback{call: fn}) }

// enqueue adds a callback, and starts drain if it is not running.
func (c *callbacks) enqueue(one callback) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = append(c.waiting, one)
	if !c.draining {
		c.draining = true
		go c.drain()
	}
}

// enqueueResults has done called with err for each entry that has a callback.
func (c *callbacks) enqueueResults(batch []queueEntry, err error) {
	for i := range batch {
		if batch[i].snapshot == nil {
			c.enqueueResult(batch[i].done, err)
		}
	}
}

// drain runs the waiting callbacks until there are none.
func (c *callbacks) drain() {
	for {
		batch := c.takeWaiting()
		if batch == nil {
			return
		}
		c.running.Lock()
		for _, w := range batch {
			if w.call != nil {
				w.call()
			} else {
				w.done(w.result)
			}
		}
		c.running.Unlock()
	}
}

// takeWaiting returns the waiting callbacks, or nil if there are none.
func (c *callbacks) takeWaiting() []callback {
	c.mu.Lock()
	defer c.mu.Unlock()
	batch := c.waiting
	c.waiting = nil
	c.draining = batch != nil
	return batch
}
