package persistence

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/batchrepr"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// writer is the goroutine that commits for the partitions that share a barrier.
type writer struct {
	queue     *queue
	barrier   barrier
	callbacks *callbacks
	watchers  *watchers
	diskSpace *diskSpace
	metrics   *metrics
	failure   *failure
	logger    *slog.Logger

	// staged are the lanes of the commit going on, without those that have failed.
	staged []*lane

	finished chan struct{}
}

func (w *writer) run() {
	defer close(w.finished)
	var lanes []*lane
	entries := 0
	for {
		if entries > 1 {
			runtime.Gosched() // the callers that were just answered may have more: a fuller batch costs the same sync
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
		if err := w.diskSpace.check(bytes); err != nil {
			w.refuseRounds(lanes, err)
		} else if !w.commitRounds(lanes, bytes) {
			return
		}
		for _, l := range lanes {
			l.round.reset()
		}
	}
}

func (w *writer) refuseRounds(lanes []*lane, err error) {
	for _, l := range lanes {
		w.metrics.countRefused(reasonDiskFull, len(l.round.proposals))
		if w.queue.claimRound(l) {
			w.callbacks.enqueueResults(l.round.pending, err)
		}
	}
}

// write commits the rounds of the lanes. It returns false when the journal has failed: nothing more is written, and the
// entries are answered.
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

// fail ends the term of one partition and leaves the others running: the owner is told, then what is in flight is
// answered with ErrUnknown and what waits with a NotLeaderError. Any goroutine may call it.
func (w *writer) failPartition(l *lane, err error) {
	w.logger.Error("a partition of the journal has failed", slog.Int("partition", int(l.partition)), slog.Any("error", err))
	w.metrics.partitionFailures.Inc()
	epoch, inFlight, waiting := w.queue.failLane(l)
	w.callbacks.enqueueCall(func() { w.watchers.endFailedTerm(l.partition, epoch) })
	w.callbacks.enqueueResults(inFlight, ErrUnknown)
	w.callbacks.enqueueResults(waiting, &NotLeaderError{})
}

// abandon ends the terms of all partitions and answers everything there is. The writer itself may be stuck in the store.
func (w *writer) failAll() {
	inFlight, waiting := w.queue.closeAndTakeAll()
	w.callbacks.enqueueCall(w.watchers.endAllTerms)
	w.callbacks.enqueueResults(inFlight, ErrUnknown)
	w.callbacks.enqueueResults(waiting, ErrClosed)
}

// committer is one partition's way to make rounds durable. The writer stages the rounds of several partitions, each
// with its own committer, and then makes them durable together with the barrier that these committers share. Partitions
// that share nothing have a writer and a barrier each.
type committer interface {
	// stage validates the round's entries in their order, sets its results, and prepares what the barrier makes durable.
	// For a move the result is the new epoch. An error fails this partition alone: the round's outcome is unknown, and
	// nothing but a move is staged for the partition afterwards. The round stays valid until the barrier's sync returns.
	stage(r *round) error
	// sequence returns the last sequence of the partition's feed, as of the last stage.
	sequence() uint64
}

// barrier makes durable what committers have staged since the last sync.
type barrier interface {
	// sync returns when everything staged is durable and views show it. After an error nothing is known of what was
	// staged, all partitions that share the barrier have failed, and the barrier is not used again.
	sync() error
}

// round is what one commit carries of a partition: proposals and snapshots, or one move.
type round struct {
	pending   []queueEntry
	proposals []Proposal
	saves     []*snapshotSave
	// results has one element for each proposal, or the one of the move.
	results []Result
	// advanced tells that the feed has grown.
	advanced bool
	// recovers tells that the move is of a partition that has failed: what the committer knows of it is not to be relied on.
	afterFailure bool
	// dropped counts the snapshots that were not kept because their epoch has passed.
	droppedSnapshots int
}

func (r *round) isMove() bool { return len(r.pending) > 0 && r.pending[0].move != nil }

// sort divides the pending entries into proposals and snapshots.
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

// reset drops the references to what callers own.
func (r *round) reset() {
	clear(r.pending)
	clear(r.proposals)
	clear(r.saves)
	r.pending = r.pending[:0]
}

// localBarrier is the one Pebble batch and the one sync of all partitions of a single machine.
type localBarrier struct {
	db      *pebble.DB
	batch   *pebble.Batch
	applier *applier
	views   *views
	failure *failure
	// durable tells that the batch has rows that must not be lost; snapshots of entities may be.
	mustSync bool
}

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

// localCommitter is a partition's committer on a single machine. An error is one of reading what the partition holds.
type localCommitter struct {
	*localBarrier
	partition Partition
}

func (c *localCommitter) sequence() uint64 { return c.applier.partitions[c.partition].sequence }

func (c *localCommitter) stage(r *round) error {
	length, count := c.batch.Len(), c.batch.Count()
	if err := c.stageRows(r); err != nil {
		c.applier.forgetPartition(c.partition)
		return firstError(c.truncate(length, count), err)
	}
	return nil
}

func firstError(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

// truncate removes the rows that a round which failed has left in the batch.
func (c *localCommitter) truncate(length int, count uint32) error {
	rows := c.batch.Repr()[:length]
	batchrepr.SetCount(rows, count)
	return c.batch.SetRepr(rows)
}

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
		if err := setSnapshot(c.batch, c.partition, s); err != nil {
			return err
		}
	}
	return nil
}

func setSnapshot(b *pebble.Batch, p Partition, s *snapshotSave) error {
	key := appendSnapshotKey(nil, p, s.stream)
	return b.Set(key, append(binary.AppendUvarint(nil, s.snapshot.Version), s.snapshot.State...), nil)
}

// answers calls done callbacks, one at a time. Those of a commit run on the writer's goroutine; those that owe nothing
// to a commit (refusals) run on another, since the caller may hold what its callback needs, and the disk may be slow.
type callbacks struct {
	running sync.Mutex

	mu       sync.Mutex
	waiting  []callback
	draining bool
}

// answer is a call of done with result, or of call.
type callback struct {
	done   func(Result)
	result Result
	call   func()
}

// committed answers a round with its results.
func (a *callbacks) callCommitted(r *round) {
	a.running.Lock()
	defer a.running.Unlock()
	next := 0
	for i := range r.pending {
		if r.pending[i].snapshot != nil {
			continue
		}
		r.pending[i].done(r.results[next])
		next++
	}
}

// later answers soon, and returns at once.
func (a *callbacks) enqueueResult(done func(Result), err error) {
	a.enqueue(callback{done: done, result: Result{Err: err}})
}

// before calls fn soon, before the answers that are added later, and returns at once.
func (a *callbacks) enqueueCall(fn func()) { a.enqueue(callback{call: fn}) }

func (a *callbacks) enqueue(one callback) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waiting = append(a.waiting, one)
	if !a.draining {
		a.draining = true
		go a.drain()
	}
}

func (a *callbacks) enqueueResults(batch []queueEntry, err error) {
	for i := range batch {
		if batch[i].snapshot == nil {
			a.enqueueResult(batch[i].done, err)
		}
	}
}

func (a *callbacks) drain() {
	for {
		batch := a.takeWaiting()
		if batch == nil {
			return
		}
		a.running.Lock()
		for _, w := range batch {
			if w.call != nil {
				w.call()
			} else {
				w.done(w.result)
			}
		}
		a.running.Unlock()
	}
}

func (a *callbacks) takeWaiting() []callback {
	a.mu.Lock()
	defer a.mu.Unlock()
	batch := a.waiting
	a.waiting = nil
	a.draining = batch != nil
	return batch
}

var errDiskFull = fmt.Errorf("%w: the disk is nearly full", ErrRefused)

// space keeps the writer off a disk that is nearly full, so that Pebble has room for what it must write to go on. The
// disk is asked once in a while, or after much was written.
type diskSpace struct {
	fs       vfs.FS
	dir      string
	minFree  uint64
	interval time.Duration

	measured time.Time
	written  int
	full     atomic.Bool
}

const diskSpaceInterval = time.Second

// check refuses a write of so many bytes when there is no room for it.
func (s *diskSpace) check(bytes int) error {
	now := time.Now()
	s.written += bytes
	if now.Sub(s.measured) >= s.interval || uint64(s.written) > s.minFree/8 {
		s.measured, s.written = now, bytes
		usage, err := s.fs.GetDiskUsage(s.dir)
		s.full.Store(err == nil && usage.AvailBytes < s.minFree)
	}
	if s.full.Load() {
		return errDiskFull
	}
	return nil
}
