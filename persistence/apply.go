package persistence

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// share is what the applier knows of a partition.
type share struct {
	epoch    uint64
	sequence uint64
	// advanced tells that the batch being applied has moved sequence.
	advanced bool
}

// applier turns proposals into rows. It is deterministic: on every member, the same proposals in the same order give
// the same rows and the same results, whatever the batches. It belongs to one goroutine.
type applier struct {
	db     *pebble.DB
	shares []share
	heads  *heads

	moved    []*head
	advanced []Partition
}

func newApplier(db *pebble.DB, shares []share, cached int) *applier {
	return &applier{db: db, shares: shares, heads: newHeads(cached)}
}

// apply adds the rows of the proposals to b and writes what came of each to results. An error is the store's: the
// caller then removes the rows, calls forget for the partitions of the proposals, and applies nothing more to them before
// renew has read them again. A proposal that is refused is a result, and leaves no trace.
func (a *applier) apply(b *pebble.Batch, proposals []Proposal, results []Result) error {
	a.moved, a.advanced = a.moved[:0], a.advanced[:0]
	for i := range proposals {
		var err error
		if results[i], err = a.one(b, &proposals[i]); err != nil {
			return err
		}
	}
	return a.finish(b)
}

func (a *applier) one(b *pebble.Batch, p *Proposal) (Result, error) {
	if int(p.Partition) >= len(a.shares) {
		return Result{Err: &NotLeaderError{}}, nil
	}
	s := &a.shares[p.Partition]
	if p.Epoch != s.epoch {
		return Result{Err: &NotLeaderError{Epoch: s.epoch}}, nil
	}
	h, err := a.head(streamKey{p.Partition, p.Stream})
	if err != nil {
		return Result{}, err
	}
	if p.Expected != h.version || p.Revision != 0 && p.Revision != h.revision+1 {
		return Result{Err: &ConflictError{Actual: h.version}}, nil
	}
	for i := range p.Events {
		s.sequence++
		h.version++
		if err := setEvent(b, h, s.sequence, &p.Events[i]); err != nil {
			return Result{}, err
		}
	}
	if p.Revision != 0 {
		h.revision = p.Revision
		a.move(h)
	}
	if len(p.Events) > 0 {
		a.move(h)
		a.advance(p.Partition, s)
	}
	for i := range p.Entries {
		if err := setEntry(b, p.Partition, &p.Entries[i]); err != nil {
			return Result{}, err
		}
	}
	return Result{Version: h.version}, nil
}

func (a *applier) head(k streamKey) (*head, error) {
	if h := a.heads.find(k); h != nil {
		return h, nil
	}
	version, revision, err := readHead(a.db, k.partition, k.stream)
	if err != nil {
		return nil, err
	}
	return a.heads.add(k, version, revision), nil
}

func (a *applier) move(h *head) {
	if !h.dirty {
		h.dirty = true
		a.moved = append(a.moved, h)
	}
}

func (a *applier) advance(p Partition, s *share) {
	if !s.advanced {
		s.advanced = true
		a.advanced = append(a.advanced, p)
	}
}

// renew begins a new term of a partition. A partition that has failed is read again first.
func (a *applier) renew(b *pebble.Batch, p Partition, recovers bool) (epoch uint64, err error) {
	s := &a.shares[p]
	key := appendHeader(nil, p, tagTerm)
	if recovers {
		stored, err := readNumber(a.db, key)
		if err != nil {
			return 0, err
		}
		s.epoch = max(s.epoch, stored)
		if s.sequence, err = lastSequence(a.db, p); err != nil {
			return 0, err
		}
		a.heads.forget(p)
	}
	s.epoch++
	return s.epoch, b.Set(key, binary.AppendUvarint(nil, s.epoch), nil)
}

// forget drops what the applier knows of a partition's streams, after an error of apply.
func (a *applier) forget(p Partition) {
	a.moved, a.advanced = a.moved[:0], a.advanced[:0]
	a.shares[p].advanced = false
	a.heads.forget(p)
}

// finish writes one head row a stream, however many proposals have moved it.
func (a *applier) finish(b *pebble.Batch) error {
	for _, h := range a.moved {
		h.dirty = false
		if err := setHead(b, h); err != nil {
			return err
		}
	}
	for _, p := range a.advanced {
		a.shares[p].advanced = false
	}
	return nil
}

func setHead(b *pebble.Batch, h *head) error {
	var value [2 * binary.MaxVarintLen64]byte
	n := binary.PutUvarint(value[:], h.version)
	n += binary.PutUvarint(value[n:], h.revision)
	// Without its terminator, an event prefix is a head's key but for the tag.
	op := b.SetDeferred(len(h.events)-1, n)
	copy(op.Key, h.events)
	op.Key[keyHeader-1] = tagHead
	copy(op.Value, value[:n])
	return op.Finish()
}

func setEvent(b *pebble.Batch, h *head, sequence uint64, e *Event) error {
	metadata := metadataSize(e)
	op := b.SetDeferred(len(h.events)+numberLen, recordSize(e, sequence, metadata))
	copy(op.Key, h.events)
	binary.BigEndian.PutUint64(op.Key[len(h.events):], h.version)
	appendRecord(op.Value[:0], e, sequence, metadata)
	if err := op.Finish(); err != nil {
		return err
	}
	op = b.SetDeferred(keyHeader+numberLen, positionSize(h.version, h.key.stream))
	appendFeedKey(op.Key[:0], h.key.partition, sequence)
	appendPosition(op.Value[:0], h.version, h.key.stream)
	return op.Finish()
}

func setEntry(b *pebble.Batch, p Partition, c *Change) error {
	var buf [256]byte
	key := appendEntryKey(buf[:0], p, c.Index, c.Value, c.Order)
	if c.Remove {
		return b.Delete(key, nil)
	}
	return b.Set(key, c.Data, nil)
}

func readHead(r pebble.Reader, p Partition, s Stream) (version, revision uint64, err error) {
	var buf [128]byte
	key := appendHeadKey(buf[:0], p, s)
	value, closer, err := r.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	defer closer.Close()
	version, n := binary.Uvarint(value)
	revision, m := binary.Uvarint(value[max(n, 0):])
	if n <= 0 || m <= 0 || n+m != len(value) {
		return 0, 0, fmt.Errorf("head %q is damaged", key)
	}
	return version, revision, nil
}

// readNumber is a row's uvarint; 0: no row.
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
