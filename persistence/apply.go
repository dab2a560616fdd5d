package persistence

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/atelier-run/atelier/lru"
)

// partitionState is the state of a partition in memory.
type partitionState struct {
	epoch    uint64
	sequence uint64
	// inBatch reports that the current batch has advanced the feed.
	inBatch bool
}

// applier turns proposals into rows. It is deterministic: on every member, the same proposals in the same order produce
// the same rows and results, regardless of how they are divided into batches. It is used by one goroutine.
type applier struct {
	db         *pebble.DB
	partitions []partitionState
	heads      *lru.Cache[streamKey, *streamHead]
	workspaces *workspaceBytes

	// changedHeads, changedCounters and advancedPartitions belong to the current batch.
	changedHeads       []*streamHead
	changedCounters    []*workspaceCounter
	advancedPartitions []Partition
}

// newApplier returns an applier that caches at least the given number of heads. The cache is larger than the number of streams in a batch: the
// batch relies on finding the heads that it has changed itself, which cannot be read from the store yet.
func newApplier(db *pebble.DB, states []partitionState, cached int, w *workspaceBytes) *applier {
	heads := lru.New[streamKey, *streamHead](max(cached, 2*maxBatchProposals))
	return &applier{db: db, partitions: states, heads: heads, workspaces: w}
}

// apply adds the rows of the proposals to b, and sets the result of each. A refused proposal is a result and adds no
// rows. An error means that the store cannot be read: the caller must then remove the rows from b, call forgetPartition
// for the partitions of the proposals, and apply nothing more to them before beginTerm has read their state again.
func (a *applier) apply(b *pebble.Batch, proposals []Proposal, results []Result) error {
	a.resetBatch()
	for i := range proposals {
		var err error
		if results[i], err = a.applyOne(b, &proposals[i]); err != nil {
			return err
		}
	}
	return a.writeHeads(b)
}

// applyOne adds the rows of one proposal, except for the row of the stream's head.
func (a *applier) applyOne(b *pebble.Batch, p *Proposal) (Result, error) {
	if int(p.Partition) >= len(a.partitions) {
		return Result{Err: &NotLeaderError{}}, nil
	}
	s := &a.partitions[p.Partition]
	if p.Epoch != s.epoch {
		return Result{Err: &NotLeaderError{Epoch: s.epoch}}, nil
	}
	h, err := a.loadHead(streamKey{p.Partition, p.Stream})
	if err != nil {
		return Result{}, err
	}
	if p.Expected != h.version || p.Revision != 0 && p.Revision != h.revision+1 {
		return Result{Err: &ConflictError{Actual: h.version}}, nil
	}
	if p.Erase {
		if err := a.eraseEvents(b, h); err != nil {
			return Result{}, err
		}
	}
	for i := range p.Events {
		s.sequence++
		h.version++
		n, err := setEvent(b, h, s.sequence, &p.Events[i])
		if err != nil {
			return Result{}, err
		}
		a.countEvent(h, n)
	}
	if p.Revision != 0 {
		h.revision = p.Revision
		a.markChanged(h)
	}
	if len(p.Events) > 0 {
		a.markChanged(h)
		a.markAdvanced(p.Partition, s)
	}
	for i := range p.Entries {
		if err := setEntry(b, p.Partition, &p.Entries[i]); err != nil {
			return Result{}, err
		}
	}
	return Result{Version: h.version}, nil
}

// loadHead returns the head of a stream, from the cache or the store.
func (a *applier) loadHead(k streamKey) (*streamHead, error) {
	if h, found := a.heads.Get(k); found {
		return h, nil
	}
	stored, err := readHead(a.db, k.partition, k.stream)
	if err != nil {
		return nil, err
	}
	h := &streamHead{
		key: k, headRow: stored, counter: a.workspaces.ofStream(k), eventPrefix: appendEventPrefix(nil, k.partition, k.stream),
	}
	a.heads.Put(k, h)
	return h, nil
}

// eraseEvents removes the events that a stream has, and its snapshot.
func (a *applier) eraseEvents(b *pebble.Batch, h *streamHead) error {
	if h.erased == h.version {
		return nil
	}
	first, end := appendNumber(bytes.Clone(h.eventPrefix), 0), appendNumber(bytes.Clone(h.eventPrefix), h.version+1)
	if err := b.DeleteRange(first, end, nil); err != nil {
		return err
	}
	if err := b.Delete(appendSnapshotKey(nil, h.key.partition, h.key.stream), nil); err != nil {
		return err
	}
	if h.counter != nil {
		a.addBytes(h.counter, -h.bytes)
	}
	h.erased, h.bytes = h.version, 0
	a.markChanged(h)
	return nil
}

// countEvent counts an event with a row of n bytes.
func (a *applier) countEvent(h *streamHead, n int) {
	if h.counter != nil {
		h.bytes += uint64(n)
		a.addBytes(h.counter, uint64(n)+feedRowBytes(h.version, h.key.stream))
	}
}

// addBytes adds n to a counter, modulo 1<<64, and has writeHeads write its row.
func (a *applier) addBytes(c *workspaceCounter, n uint64) {
	c.bytes.Add(n)
	if !c.changed {
		c.changed = true
		a.changedCounters = append(a.changedCounters, c)
	}
}

// resetBatch forgets the changes of the previous batch.
func (a *applier) resetBatch() {
	a.changedHeads, a.changedCounters, a.advancedPartitions = a.changedHeads[:0], a.changedCounters[:0], a.advancedPartitions[:0]
}

// markChanged has writeHeads write the row of a head.
func (a *applier) markChanged(h *streamHead) {
	if !h.changed {
		h.changed = true
		a.changedHeads = append(a.changedHeads, h)
	}
}

// markAdvanced records that the feed of a partition has advanced.
func (a *applier) markAdvanced(p Partition, s *partitionState) {
	if !s.inBatch {
		s.inBatch = true
		a.advancedPartitions = append(a.advancedPartitions, p)
	}
}

// beginTerm adds the row of a new term of a partition, and returns its epoch. After a failure of the partition it first
// reads its state from the store.
func (a *applier) beginTerm(b *pebble.Batch, p Partition, afterFailure bool) (epoch uint64, err error) {
	s := &a.partitions[p]
	key := appendHeader(nil, p, tagTerm)
	if afterFailure {
		stored, err := readNumber(a.db, key)
		if err != nil {
			return 0, err
		}
		s.epoch = max(s.epoch, stored)
		if s.sequence, err = lastSequence(a.db, p); err != nil {
			return 0, err
		}
		a.forgetHeads(p)
		if err := a.workspaces.load(a.db, p); err != nil {
			return 0, err
		}
	}
	s.epoch++
	return s.epoch, b.Set(key, binary.AppendUvarint(nil, s.epoch), nil)
}

// forgetPartition drops the state of the current batch and the cached heads of a partition after an error of apply.
func (a *applier) forgetPartition(p Partition) {
	a.resetBatch()
	a.partitions[p].inBatch = false
	a.forgetHeads(p)
}

// forgetHeads removes the cached heads of a partition.
func (a *applier) forgetHeads(p Partition) {
	a.heads.DeleteFunc(func(k streamKey) bool { return k.partition == p })
}

// writeHeads adds one row for each changed head and counter, however many proposals have changed it.
func (a *applier) writeHeads(b *pebble.Batch) error {
	for _, h := range a.changedHeads {
		h.changed = false
		if err := setHead(b, h); err != nil {
			return err
		}
	}
	for _, c := range a.changedCounters {
		c.changed = false
		if err := setCounter(b, c); err != nil {
			return err
		}
	}
	for _, p := range a.advancedPartitions {
		a.partitions[p].inBatch = false
	}
	return nil
}

// setHead adds the row of a stream's head to b.
func setHead(b *pebble.Batch, h *streamHead) error {
	var value [4 * binary.MaxVarintLen64]byte
	n := binary.PutUvarint(value[:], h.version)
	n += binary.PutUvarint(value[n:], h.revision)
	if h.bytes > 0 || h.erased > 0 {
		n += binary.PutUvarint(value[n:], h.bytes)
		n += binary.PutUvarint(value[n:], h.erased)
	}
	// The key of a head is the prefix of its events without the terminator, and with another tag.
	op := b.SetDeferred(len(h.eventPrefix)-1, n)
	copy(op.Key, h.eventPrefix)
	op.Key[keyHeader-1] = tagHead
	copy(op.Value, value[:n])
	return op.Finish()
}

// setEvent adds the row of an event and its row in the feed to b. It returns the bytes of the row of the event.
func setEvent(b *pebble.Batch, h *streamHead, sequence uint64, e *Event) (int, error) {
	metadata := metadataSize(e)
	op := b.SetDeferred(len(h.eventPrefix)+numberLen, recordSize(e, sequence, metadata))
	size := len(op.Key) + len(op.Value)
	copy(op.Key, h.eventPrefix)
	binary.BigEndian.PutUint64(op.Key[len(h.eventPrefix):], h.version)
	appendRecord(op.Value[:0], e, sequence, metadata)
	if err := op.Finish(); err != nil {
		return 0, err
	}
	op = b.SetDeferred(keyHeader+numberLen, positionSize(h.version, h.key.stream))
	appendFeedKey(op.Key[:0], h.key.partition, sequence)
	appendPosition(op.Value[:0], h.version, h.key.stream)
	return size, op.Finish()
}

// setEntry adds or deletes the row of an index entry.
func setEntry(b *pebble.Batch, p Partition, c *Change) error {
	var buf [256]byte
	key := appendEntryKey(buf[:0], p, c.Index, c.Value, c.Order)
	if c.Remove {
		return b.Delete(key, nil)
	}
	return b.Set(key, c.Data, nil)
}

// headRow is the stored part of a stream's head. bytes and erased are stored for streams of workspaces, and for streams with erased
// events.
type headRow struct {
	// version and revision are the version and the revision of the stream.
	version, revision uint64
	// bytes are the bytes of the rows of the stream's events. Events up to version erased have no rows any more.
	bytes, erased uint64
}

// readHead reads the head of a stream, which is zero if the stream has none.
func readHead(r pebble.Reader, p Partition, s Stream) (headRow, error) {
	var buf [128]byte
	key := appendHeadKey(buf[:0], p, s)
	value, closer, err := r.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return headRow{}, nil
	}
	if err != nil {
		return headRow{}, err
	}
	defer closer.Close()
	h, err := decodeHead(value)
	if err != nil {
		return headRow{}, fmt.Errorf("malformed head %q", key)
	}
	return h, nil
}

// decodeHead decodes the row of a head.
func decodeHead(value []byte) (headRow, error) {
	var numbers [4]uint64
	fields := 0
	for ; fields < len(numbers) && len(value) > 0; fields++ {
		v, n := binary.Uvarint(value)
		if n <= 0 {
			return headRow{}, errMalformedRecord
		}
		numbers[fields], value = v, value[n:]
	}
	if len(value) > 0 || fields != 2 && fields != 4 {
		return headRow{}, errMalformedRecord
	}
	return headRow{numbers[0], numbers[1], numbers[2], numbers[3]}, nil
}

// readNumber reads a row that is one uvarint, or returns 0 if the row does not exist.
func readNumber(r pebble.Reader, key []byte) (uint64, error) {
	value, closer, err := r.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer closer.Close()
	n, err := decodeNumber(value)
	if err != nil {
		return 0, fmt.Errorf("row %q: %w", key, err)
	}
	return n, nil
}

// streamKey identifies a stream.
type streamKey struct {
	partition Partition
	stream    Stream
}

// streamHead is the current state of a stream, including the changes of the current batch.
type streamHead struct {
	key streamKey
	headRow
	// counter is the counter of the stream's workspace, or nil.
	counter *workspaceCounter
	// eventPrefix is the prefix of the keys of the stream's events.
	eventPrefix []byte
	// changed reports that the current batch has changed the head, and that its row is not written yet.
	changed bool
}
