package persistence

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// recounting counts the events of one partition, and writes the counters of its workspaces and the bytes of their streams. It happens once
// for a partition from before format 3, while the journal opens, and takes these steps:
//
//  1. countEvents reads the events of workspaces in the order of their keys, and adds the head of each stream to the batch (endStream).
//  2. countFeed reads the rows of the feed.
//  3. After limit rows, or 1 MiB of heads, commit adds the counted bytes to the stored counters, and makes them durable together with
//     progress: the last key that was counted. So the memory is bounded by limit, and a start after a kill continues behind this key.
//  4. The last batch removes progress, and has the row without an id, which says that the partition has counters.
type recounting struct {
	db        *pebble.DB
	partition Partition
	limit     int
	logger    *slog.Logger
	batch     *pebble.Batch
	// totals are the bytes of each workspace since the last commit, and uncommitted the rows.
	totals      map[string]uint64
	uncommitted int
	// last is the key of the last row that was counted.
	last []byte
	// prefix is the prefix of the keys of the events that are being counted, and streamBytes the bytes of these so far.
	prefix      []byte
	streamBytes uint64
	// counted are the rows that this process has counted.
	counted  uint64
	reported time.Time
}

const (
	// defaultRecountRows bounds the rows between two commits of a recount.
	defaultRecountRows = 1 << 18
	// recountBatchBytes bounds the heads that a recount commits at once.
	recountBatchBytes = 1 << 20
	// recountReports is the time between two reports of the progress of a recount.
	recountReports = 10 * time.Second
)

// recount counts the events of a partition. If it is interrupted, the next call continues.
func recount(db *pebble.DB, p Partition, limit int, logger *slog.Logger) error {
	start := time.Now()
	r := &recounting{
		db: db, partition: p, limit: limit, logger: logger.With(slog.Int("partition", int(p))), batch: db.NewBatch(),
		totals: make(map[string]uint64), reported: start,
	}
	defer func() { r.batch.Close() }()
	if err := r.resume(); err != nil {
		return err
	}
	for _, step := range []func() error{r.countEvents, r.countFeed, r.end} {
		if err := step(); err != nil {
			return err
		}
	}
	if r.counted > 0 {
		r.logger.Info("counted the bytes of workspaces in the journal, which happens once", slog.Uint64("rows", r.counted),
			slog.Duration("duration", time.Since(start)))
	}
	return nil
}

// resume reads the progress of an earlier process: the bytes of the events of the stream of the last key, and this key.
func (r *recounting) resume() error {
	value, closer, err := r.db.Get(appendHeader(nil, r.partition, tagRecount))
	if err == pebble.ErrNotFound {
		return nil
	}
	if err != nil {
		return err
	}
	defer closer.Close()
	streamBytes, n := binary.Uvarint(value)
	if n <= 0 || len(value) < n+keyHeader {
		return errMalformedRecord
	}
	r.streamBytes, r.last = streamBytes, bytes.Clone(value[n:])
	if r.last[keyHeader-1] == tagEvent {
		r.prefix = bytes.Clone(r.last[:splitKey(r.last)])
	}
	r.logger.Info("continuing to count the bytes of workspaces in the journal")
	return nil
}

// iterator returns an iterator of the rows with a tag, at the first row that was not counted.
func (r *recounting) iterator(tag byte) (it *pebble.Iterator, ok bool, err error) {
	lower := appendHeader(nil, r.partition, tag)
	upper := successor(nil, lower)
	if bytes.Compare(r.last, lower) > 0 {
		lower = append(bytes.Clone(r.last), 0)
	}
	if bytes.Compare(lower, upper) > 0 {
		lower = upper // all rows with the tag were counted
	}
	if it, err = r.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper}); err != nil {
		return nil, false, err
	}
	return it, it.First(), nil
}

// countEvents counts the rows of events, stream by stream.
func (r *recounting) countEvents() error {
	it, ok, err := r.iterator(tagEvent)
	if err != nil {
		return err
	}
	defer it.Close()
	for ok {
		if !bytes.HasPrefix(it.Key(), r.prefix) || r.prefix == nil {
			if err := r.endStream(); err != nil {
				return err
			}
			prefix := it.Key()[:splitKey(it.Key())]
			stream, err := streamOf(prefix)
			if err != nil {
				return err
			}
			if workspaceOf(stream) == "" {
				ok = it.SeekGE(successor(nil, prefix))
				continue
			}
			r.prefix = bytes.Clone(prefix)
		}
		value, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		r.streamBytes += uint64(len(it.Key()) + len(value))
		if err := r.advance(it.Key()); err != nil {
			return err
		}
		ok = it.Next()
	}
	if err := it.Error(); err != nil {
		return err
	}
	return r.endStream()
}

// streamOf returns the name of a stream from the prefix of the keys of its events.
func streamOf(prefix []byte) (Stream, error) {
	name, err := unescape(prefix[keyHeader : len(prefix)-1])
	return Stream(name), err
}

// endStream adds the head of the counted stream to the batch, with the bytes of the events. It does nothing if there is no such stream.
func (r *recounting) endStream() error {
	if r.prefix == nil {
		return nil
	}
	stream, err := streamOf(r.prefix)
	if err != nil {
		return err
	}
	stored, err := readHead(r.db, r.partition, stream)
	if err != nil {
		return err
	}
	stored.bytes = r.streamBytes
	h := &streamHead{key: streamKey{r.partition, stream}, headRow: stored, eventPrefix: r.prefix}
	if err := setHead(r.batch, h); err != nil {
		return err
	}
	r.totals[workspaceOf(stream)] += r.streamBytes
	r.prefix, r.streamBytes = nil, 0
	return nil
}

// countFeed counts the rows of the feed.
func (r *recounting) countFeed() error {
	it, ok, err := r.iterator(tagFeed)
	if err != nil {
		return err
	}
	defer it.Close()
	for ; ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		_, stream, err := decodePosition(value)
		if err != nil {
			return err
		}
		if id := workspaceOf(Stream(stream)); id != "" {
			r.totals[id] += uint64(len(it.Key()) + len(value))
		}
		if err := r.advance(it.Key()); err != nil {
			return err
		}
	}
	return it.Error()
}

// advance records that the row of a key was counted, and commits if enough was.
func (r *recounting) advance(key []byte) error {
	r.last = append(r.last[:0], key...)
	r.uncommitted++
	r.counted++
	if r.uncommitted < r.limit && r.batch.Len() < recountBatchBytes {
		return nil
	}
	progress := append(binary.AppendUvarint(nil, r.streamBytes), r.last...)
	if err := r.batch.Set(appendHeader(nil, r.partition, tagRecount), progress, nil); err != nil {
		return err
	}
	return r.commit()
}

// commit makes the batch durable, with the counters of the workspaces that rows were counted for since the last commit.
func (r *recounting) commit() error {
	for id, n := range r.totals {
		c := &workspaceCounter{key: appendWorkspaceKey(nil, r.partition, id)}
		stored, err := readNumber(r.db, c.key)
		if err != nil {
			return err
		}
		c.bytes.Store(stored + n)
		if err := setCounter(r.batch, c); err != nil {
			return err
		}
	}
	if err := r.db.Apply(r.batch, pebble.Sync); err != nil {
		return err
	}
	r.batch.Reset()
	clear(r.totals)
	r.uncommitted = 0
	if time.Since(r.reported) >= recountReports {
		r.reported = time.Now()
		r.logger.Info("counting the bytes of workspaces in the journal, which happens once; the node is not ready before", slog.Uint64("rows", r.counted))
	}
	return nil
}

// end makes the last counters durable. From then on the partition has counters.
func (r *recounting) end() error {
	if err := r.batch.Set(appendWorkspaceKey(nil, r.partition, ""), []byte{0}, nil); err != nil {
		return err
	}
	if err := r.batch.Delete(appendHeader(nil, r.partition, tagRecount), nil); err != nil {
		return err
	}
	return r.commit()
}
