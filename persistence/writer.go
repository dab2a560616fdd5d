package persistence

import (
	"encoding/binary"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// committer makes rounds durable. local applies and syncs; a replicated one proposes, and applies what comes back.
type committer interface {
	// commit makes the round's proposals durable in their order and sets their results. It returns the partitions whose
	// feeds have grown, valid until the next call. After an error nothing is known of the round, and no other follows.
	commit(r *round) ([]Partition, error)
	// sequence is the last durable one of a partition's feed, as of the last commit.
	sequence(p Partition) uint64
}

// round is what one commit carries.
type round struct {
	pending   []pending
	proposals []Proposal
	saves     []*save
	results   []Result
	bytes     int
}

func (r *round) fill(batch []pending) {
	r.pending = batch
	r.proposals, r.saves, r.bytes = r.proposals[:0], r.saves[:0], 0
	for i := range batch {
		r.bytes += batch[i].size
		if batch[i].save != nil {
			r.saves = append(r.saves, batch[i].save)
			continue
		}
		r.proposals = append(r.proposals, batch[i].proposal)
	}
	if cap(r.results) < len(r.proposals) {
		r.results = make([]Result, maxBatchProposals)
	}
	r.results = r.results[:len(r.proposals)]
	clear(r.results)
}

// forget lets go of what the callers own.
func (r *round) forget() {
	clear(r.pending)
	clear(r.proposals)
	clear(r.saves)
}

// local is the committer of a single machine.
type local struct {
	db      *pebble.DB
	batch   *pebble.Batch
	applier *applier
	views   *views
	failure *failure
}

func (l *local) sequence(p Partition) uint64 { return l.applier.shares[p].sequence }

func (l *local) commit(r *round) ([]Partition, error) {
	l.batch.Reset()
	if err := l.applier.apply(l.batch, r.proposals, r.results); err != nil {
		return nil, err
	}
	durable := pebble.NoSync
	if !l.batch.Empty() {
		durable = pebble.Sync
	}
	for _, s := range r.saves {
		if err := setSave(l.batch, s); err != nil {
			return nil, err
		}
	}
	if l.batch.Empty() {
		return nil, nil
	}
	if err := l.views.hold(); err != nil {
		return nil, err
	}
	if err := l.failure.guard(func() error { return l.db.Apply(l.batch, durable) }); err != nil {
		return nil, err
	}
	l.views.release()
	return l.applier.advanced, nil
}

func setSave(b *pebble.Batch, s *save) error {
	key := appendSnapshotKey(nil, s.partition, s.stream)
	return b.Set(key, append(binary.AppendUvarint(nil, s.snapshot.Version), s.snapshot.State...), nil)
}

// writer is the one goroutine that commits.
type writer struct {
	queue     *queue
	committer committer
	answers   *answers
	watchers  *watchers
	space     *space
	metrics   *metrics
	failed    func(error)

	mu sync.Mutex
	// flying is the batch in flight; who takes it answers it.
	flying []pending
	dead   bool

	finished chan struct{}
}

func (w *writer) run() {
	defer close(w.finished)
	var batch []pending
	r := &round{}
	for {
		if len(batch) > 1 {
			runtime.Gosched() // those who were just answered may have more: a fuller batch costs the same sync
		}
		batch = w.queue.take(batch[:0])
		if len(batch) == 0 {
			return
		}
		r.fill(batch)
		if err := w.space.check(r.bytes); err != nil {
			w.metrics.refuse(diskFull, len(r.proposals))
			w.answers.all(batch, err)
			continue
		}
		if !w.write(r) {
			return
		}
		r.forget()
	}
}

func (w *writer) write(r *round) bool {
	if !w.fly(r.pending) {
		w.answers.all(r.pending, ErrClosed)
		return false
	}
	start := time.Now()
	advanced, err := w.committer.commit(r)
	if err != nil {
		w.failed(err)
		return false
	}
	w.metrics.commit(r, time.Since(start))
	if w.land() == nil {
		return false
	}
	w.watchers.advance(advanced, w.committer.sequence)
	w.answers.committed(r.pending, r.results)
	return true
}

// fly tells whether the batch may be written: not once the journal has failed.
func (w *writer) fly(batch []pending) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead {
		return false
	}
	w.flying = batch
	return true
}

// land is the batch in flight, for the first who asks.
func (w *writer) land() []pending {
	w.mu.Lock()
	defer w.mu.Unlock()
	batch := w.flying
	w.flying = nil
	return batch
}

// abandon answers everything there is. The writer itself may be stuck in the store.
func (w *writer) abandon() {
	w.queue.close()
	w.mu.Lock()
	w.dead = true
	flying := slices.Clone(w.flying)
	w.flying = nil
	w.mu.Unlock()
	w.answers.all(flying, ErrUnknown)
	w.answers.all(w.queue.empty(), ErrClosed)
}
