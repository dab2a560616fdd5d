package persistence

import (
	"bytes"
	"context"
	"log/slog"
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// reclaimer gives the space of removed index entries and erased events back to the disk while it is nearly full. Pebble by itself compacts them
// only after many more writes, which are refused meanwhile.
//
// The writer tells it the removals of each commit (reclaim). run flushes and compacts the keys between the first and the last removed entry
// of each index and each erased stream of each partition. Such a range has the rows of one index, so that a compaction needs little
// space for the rows that remain in it.
type reclaimer struct {
	db      *pebble.DB
	views   *views
	reserve *reserve
	failure *failure
	logger  *slog.Logger

	mu     sync.Mutex
	ranges map[removedFrom]keyRange
	// changed has an element if ranges may have entries.
	changed  chan struct{}
	ctx      context.Context
	cancel   context.CancelFunc
	finished chan struct{}
}

// removedFrom names an index of a partition, or a stream with erased events.
type removedFrom struct {
	partition Partition
	name      string
}

// keyRange is a range of keys, which includes both of them.
type keyRange struct{ first, last []byte }

func newReclaimer(db *pebble.DB, v *views, reserve *reserve, f *failure, logger *slog.Logger) *reclaimer {
	r := &reclaimer{
		db: db, views: v, reserve: reserve, failure: f, logger: logger, ranges: map[removedFrom]keyRange{},
		changed: make(chan struct{}, 1), finished: make(chan struct{}),
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// A removal is an index entry that a proposal removes.
type removal struct {
	from removedFrom
	key  []byte
}

// removalsOf returns the removals of the proposals of a commit. It is called before the commit, because afterwards the proposals
// belong to their callers again.
func removalsOf(lanes []*lane) (removed []removal) {
	for _, l := range lanes {
		for i := range l.round.proposals {
			for _, c := range l.round.proposals[i].Entries {
				if c.Remove {
					key := appendEntryKey(nil, l.partition, c.Index, c.Value, c.Order)
					removed = append(removed, removal{removedFrom{l.partition, c.Index}, key})
				}
			}
			if p := &l.round.proposals[i]; p.Erase {
				from, prefix := removedFrom{l.partition, string(p.Stream)}, appendEventPrefix(nil, l.partition, p.Stream)
				removed = append(removed, removal{from, appendNumber(prefix, 0)}, removal{from, appendNumber(bytes.Clone(prefix), p.Expected)})
			}
		}
	}
	return removed
}

// reclaim has the ranges of removed entries compacted. It does not wait. Entries that were not removed, because their proposal was
// refused, cost a compaction and change nothing.
func (r *reclaimer) reclaim(removed []removal) {
	if len(removed) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range removed {
		r.addKey(m.from, m.key)
	}
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// addKey extends the range of an index by a key. The caller holds mu.
func (r *reclaimer) addKey(from removedFrom, key []byte) {
	known, ok := r.ranges[from]
	if !ok || bytes.Compare(key, known.first) < 0 {
		known.first = key
	}
	if !ok || bytes.Compare(key, known.last) > 0 {
		known.last = key
	}
	r.ranges[from] = known
}

// run compacts recorded ranges until stop is called.
func (r *reclaimer) run() {
	defer close(r.finished)
	for {
		select {
		case <-r.changed:
			r.compact()
		case <-r.ctx.Done():
			return
		}
	}
}

// compact compacts the recorded ranges. Ranges are dropped if the disk lacks files for them, or if their compaction fails: Pebble
// compacts them later. A compaction without files would only flush, which uses the reserve.
func (r *reclaimer) compact() {
	r.mu.Lock()
	ranges := r.ranges
	r.ranges = map[removedFrom]keyRange{}
	r.mu.Unlock()
	if !r.reserve.isFree(2*sharedFiles, sharedBytes/2) {
		return
	}
	fresh, err := r.views.open() // replaces the shared snapshot, in which the rows still exist
	if err != nil {
		return
	}
	_ = fresh.Close()
	for from, keys := range ranges {
		end := append(bytes.Clone(keys.last), 0)
		err := r.failure.guard(func() error { return r.db.Compact(r.ctx, keys.first, end, false) })
		if err != nil && r.ctx.Err() == nil {
			r.logger.Warn("cannot compact removed rows to free space", slog.String("from", from.name), slog.Any("error", err))
		}
	}
}

// stop ends run, which does not use Pebble any more when stop returns, unless the journal has failed: a call of Pebble may then never
// return.
func (r *reclaimer) stop() {
	r.cancel()
	select {
	case <-r.finished:
	case <-r.failure.ended:
	}
}
