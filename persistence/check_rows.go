package persistence

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// rowChecker compares the rows of a store with each other: heads with events, events with the feed, snapshots with heads. It reads one
// state of the store, and holds one row of it in memory.
type rowChecker struct {
	reader     pebble.Reader
	partitions int
	// store is the directory of the rows, which faults name.
	store  string
	report func(Fault)
	// repairs receives the rows that mend faults, and is nil in a check that changes nothing.
	repairs *pebble.Batch
	// isStopped returns an error when the check must end.
	isStopped func() error
	rows      uint64
}

// check checks all partitions. Its error is one of the store, not a fault of a row.
func (c *rowChecker) check() error {
	for i := range c.partitions {
		p := Partition(i)
		for _, part := range []func(Partition) error{c.checkEvents, c.checkHeads, c.checkFeed, c.checkSnapshots, c.checkOthers} {
			if err := part(p); err != nil {
				return err
			}
		}
	}
	return nil
}

// fault reports a fault of a row. With repair, it can be mended: mend adds the rows that mend it to repairs.
func (c *rowChecker) fault(p Partition, what, repair string, mend func(b *pebble.Batch) error) error {
	f := Fault{File: c.store, What: fmt.Sprintf("partition %d: %s", p, what), Repair: repair}
	if c.repairs != nil && mend != nil {
		if err := mend(c.repairs); err != nil {
			return err
		}
		f.Repaired = true
	}
	c.report(f)
	return nil
}

// scan calls row for each row of a partition with a tag. Keys and values are valid until row returns.
func (c *rowChecker) scan(p Partition, tag byte, row func(key, value []byte) error) error {
	lower := appendHeader(nil, p, tag)
	it, err := c.reader.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: successor(nil, lower)})
	if err != nil {
		return err
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		if err == nil {
			err = row(it.Key(), value)
		}
		if err != nil {
			return err
		}
		if c.rows++; c.rows%progressInterval == 0 {
			if err := c.isStopped(); err != nil {
				return err
			}
		}
	}
	return it.Error()
}

// get returns a copy of the value of a row, or nil if the row does not exist.
func (c *rowChecker) get(key []byte) ([]byte, error) {
	value, closer, err := c.reader.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer closer.Close()
	return append([]byte{}, value...), nil
}

// checkEvents checks that the versions of each stream are complete, that the head is the last one, and that each event is in the feed.
func (c *rowChecker) checkEvents(p Partition) error {
	var prefix []byte
	var stream Stream
	var last uint64
	err := c.scan(p, tagEvent, func(key, value []byte) error {
		version, err := keyNumber(key)
		if err != nil || len(key) < keyHeader+1+numberLen {
			return c.fault(p, fmt.Sprintf("malformed key of an event %q", key), "", nil)
		}
		if !bytes.Equal(prefix, key[:len(key)-numberLen]) {
			if err := c.checkHead(p, stream, last); err != nil {
				return err
			}
			prefix, last = append(prefix[:0], key[:len(key)-numberLen]...), 0
			name, err := unescape(prefix[keyHeader : len(prefix)-1])
			if err != nil {
				return c.fault(p, fmt.Sprintf("malformed key of an event %q", key), "", nil)
			}
			stream = Stream(name)
		}
		if version != last+1 {
			what := fmt.Sprintf("stream %s lacks the events %d to %d", stream, last+1, version-1)
			if err := c.fault(p, what, "", nil); err != nil {
				return err
			}
		}
		last = version
		return c.checkEvent(p, stream, version, value)
	})
	if err != nil {
		return err
	}
	return c.checkHead(p, stream, last)
}

// checkEvent checks the record of an event and its row in the feed.
func (c *rowChecker) checkEvent(p Partition, stream Stream, version uint64, value []byte) error {
	var d decoder
	var e Event
	if err := d.decode(value, &e); err != nil {
		return c.fault(p, fmt.Sprintf("event %d of %s: %v", version, stream, err), "", nil)
	}
	key := appendFeedKey(nil, p, e.Sequence)
	row, err := c.get(key)
	if err != nil {
		return err
	}
	expected := appendPosition(nil, version, stream)
	if bytes.Equal(row, expected) {
		return nil
	}
	if row != nil {
		return c.fault(p, fmt.Sprintf("sequence %d of the feed does not name event %d of %s, which has this sequence", e.Sequence, version, stream), "", nil)
	}
	return c.fault(p, fmt.Sprintf("the feed lacks sequence %d, event %d of %s", e.Sequence, version, stream), "add the row of the feed",
		func(b *pebble.Batch) error { return b.Set(key, expected, nil) })
}

// checkHead checks the head of a stream whose last event has the version last. It does nothing for the empty name.
func (c *rowChecker) checkHead(p Partition, stream Stream, last uint64) error {
	if stream == "" {
		return nil
	}
	version, revision, err := readHead(c.reader, p, stream)
	if errors.Is(err, pebble.ErrCorruption) {
		return err
	}
	if err == nil && version == last {
		return nil
	}
	what := fmt.Sprintf("the head of %s is version %d, but its last event is %d", stream, version, last)
	if err != nil {
		what, revision = fmt.Sprintf("the head of %s: %v; its last event is %d", stream, err, last), 0
	}
	if version > last {
		return c.fault(p, what+": later events are missing", "", nil)
	}
	return c.fault(p, what, "write the head anew from the events", func(b *pebble.Batch) error {
		return setHead(b, &streamHead{eventPrefix: appendEventPrefix(nil, p, stream), version: last, revision: revision})
	})
}

// checkHeads checks that the event of each head exists.
func (c *rowChecker) checkHeads(p Partition) error {
	return c.scan(p, tagHead, func(key, value []byte) error {
		name, err := unescape(key[keyHeader:])
		if err != nil {
			return c.fault(p, fmt.Sprintf("malformed key of a head %q", key), "", nil)
		}
		version, n := binary.Uvarint(value)
		if n <= 0 || version == 0 {
			return nil // checkHead has reported a malformed head of a stream with events
		}
		event, err := c.get(appendNumber(appendEventPrefix(nil, p, Stream(name)), version))
		if err == nil && event == nil {
			err = c.fault(p, fmt.Sprintf("the head of %s is version %d, but this event is missing", name, version), "", nil)
		}
		return err
	})
}

// checkFeed checks that the sequences of the feed are complete, and that the event of each exists.
func (c *rowChecker) checkFeed(p Partition) error {
	last := uint64(0)
	return c.scan(p, tagFeed, func(key, value []byte) error {
		sequence, err := keyNumber(key)
		if err != nil {
			return c.fault(p, fmt.Sprintf("malformed key of the feed %q", key), "", nil)
		}
		if sequence != last+1 {
			if err := c.fault(p, fmt.Sprintf("the feed lacks the sequences %d to %d", last+1, sequence-1), "", nil); err != nil {
				return err
			}
		}
		last = sequence
		version, name, err := decodePosition(value)
		if err != nil {
			return c.fault(p, fmt.Sprintf("sequence %d of the feed: %v", sequence, err), "", nil)
		}
		event, err := c.get(appendNumber(appendEventPrefix(nil, p, Stream(name)), version))
		if err == nil && event == nil {
			err = c.fault(p, fmt.Sprintf("event %d of %s, sequence %d of the feed, is missing", version, name, sequence), "", nil)
		}
		return err
	})
}

// checkSnapshots checks that no snapshot is later than its stream. A snapshot only saves replaying events.
func (c *rowChecker) checkSnapshots(p Partition) error {
	return c.scan(p, tagSnapshot, func(key, value []byte) error {
		name, err := unescape(key[keyHeader:])
		if err != nil {
			return c.fault(p, fmt.Sprintf("malformed key of a snapshot %q", key), "", nil)
		}
		saved, _, err := decodePosition(value)
		if err == nil {
			head, _, headErr := readHead(c.reader, p, Stream(name))
			if headErr != nil || saved <= head {
				return nil // checkHead has reported a malformed head
			}
			err = fmt.Errorf("version %d is later than the head, %d", saved, head)
		}
		key = bytes.Clone(key)
		return c.fault(p, fmt.Sprintf("the snapshot of %s: %v", name, err), "remove the snapshot: the events are replayed instead",
			func(b *pebble.Batch) error { return b.Delete(key, nil) })
	})
}

// checkOthers checks the epoch of a partition and the keys of its index entries.
func (c *rowChecker) checkOthers(p Partition) error {
	if _, err := readNumber(c.reader, appendHeader(nil, p, tagTerm)); err != nil {
		if errors.Is(err, pebble.ErrCorruption) {
			return err
		}
		return c.fault(p, fmt.Sprintf("the epoch: %v", err), "", nil)
	}
	return c.scan(p, tagIndex, func(key, _ []byte) error {
		name := keyHeader + terminatedLen(key[keyHeader:])
		if _, err := entryValue(key, name); err != nil {
			return c.fault(p, fmt.Sprintf("malformed key of an index entry %q", key), "", nil)
		}
		return nil
	})
}
