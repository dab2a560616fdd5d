package persistence

import (
	"encoding/binary"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/batchrepr"
)

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
	pending   []pending
	proposals []Proposal
	saves     []*save
	// results has one element for each proposal, or the one of the move.
	results []Result
	// advanced tells that the feed has grown.
	advanced bool
	// recovers tells that the move is of a partition that has failed: what the committer knows of it is not to be relied on.
	recovers bool
	// dropped counts the snapshots that were not kept because their epoch has passed.
	dropped int
}

func (r *round) isMove() bool { return len(r.pending) > 0 && r.pending[0].move != nil }

// sort divides the pending entries into proposals and snapshots.
func (r *round) sort() (bytes int) {
	r.proposals, r.saves, r.results = r.proposals[:0], r.saves[:0], r.results[:0]
	r.advanced, r.dropped = false, 0
	for i := range r.pending {
		entry := &r.pending[i]
		bytes += entry.size
		if entry.save != nil {
			r.saves = append(r.saves, entry.save)
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
	durable bool
}

func (b *localBarrier) sync() error {
	if b.batch.Empty() {
		return nil
	}
	if err := b.views.hold(); err != nil {
		return err
	}
	mode := pebble.NoSync
	if b.durable {
		mode = pebble.Sync
	}
	if err := b.failure.guard(func() error { return b.db.Apply(b.batch, mode) }); err != nil {
		return err
	}
	b.views.release()
	b.batch.Reset()
	b.durable = false
	return nil
}

// localCommitter is a partition's committer on a single machine. An error is one of reading what the partition holds.
type localCommitter struct {
	*localBarrier
	partition Partition
}

func (c *localCommitter) sequence() uint64 { return c.applier.shares[c.partition].sequence }

func (c *localCommitter) stage(r *round) error {
	length, count := c.batch.Len(), c.batch.Count()
	if err := c.rows(r); err != nil {
		c.applier.forget(c.partition)
		return errorOr(c.truncate(length, count), err)
	}
	return nil
}

func errorOr(err, otherwise error) error {
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

func (c *localCommitter) rows(r *round) error {
	before := c.batch.Len()
	if r.isMove() {
		epoch, err := c.applier.renew(c.batch, c.partition, r.recovers)
		if err != nil {
			return err
		}
		r.results[0].Version = epoch
	}
	if err := c.applier.apply(c.batch, r.proposals, r.results[:len(r.proposals)]); err != nil {
		return err
	}
	r.advanced = len(c.applier.advanced) > 0
	c.durable = c.durable || c.batch.Len() > before
	for _, s := range r.saves {
		if s.epoch != c.applier.shares[c.partition].epoch {
			r.dropped++
			continue
		}
		if err := setSave(c.batch, c.partition, s); err != nil {
			return err
		}
	}
	return nil
}

func setSave(b *pebble.Batch, p Partition, s *save) error {
	key := appendSnapshotKey(nil, p, s.stream)
	return b.Set(key, append(binary.AppendUvarint(nil, s.snapshot.Version), s.snapshot.State...), nil)
}
