package persistence

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"
)

// rowChecker compares the rows of a store with each other: heads with events, events with the feed, snapshots with heads, counters of
// workspaces with the rows that they count. It reads one state of the store, and holds one row and the counters of a partition in memory.
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
	// marks has the sequence that the feed of each partition has reached, or is nil.
	marks []partitionMark
	// offered are the sequences that the feed of the partition lacks, and that a repair adds from their events.
	offered []uint64
	// isCounted reports that the partition has counters of workspaces, and totals has the bytes that they should have.
	isCounted bool
	totals    map[string]uint64
}

// check checks all partitions. Its error is one of the store, not a fault of a row.
func (c *rowChecker) check() error {
	for i := range c.partitions {
		p := Partition(i)
		for _, part := range []func(Partition) error{
			c.beginCounting, c.checkEvents, c.checkHeads, c.checkFeed, c.checkCounters, c.checkSnapshots, c.checkOthers,
		} {
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

// beginCounting finds out whether a partition has counters: earlier formats have none.
func (c *rowChecker) beginCounting(p Partition) error {
	marker, err := c.get(appendWorkspaceKey(nil, p, ""))
	c.isCounted, c.totals, c.offered = marker != nil, map[string]uint64{}, nil
	return err
}

// checkedStream is the stream that is being checked: its head, the last version so far, and the bytes of the rows so far.
type checkedStream struct {
	name        Stream
	prefix      []byte
	head        headRow
	headErr     error
	last, bytes uint64
}

// checkEvents checks that the versions of each stream are complete but for the erased ones, that the head is the last one, and that each
// event is in the feed.
func (c *rowChecker) checkEvents(p Partition) error {
	var of checkedStream
	err := c.scan(p, tagEvent, func(key, value []byte) error {
		version, err := keyNumber(key)
		if err != nil || len(key) < keyHeader+1+numberLen {
			return c.fault(p, fmt.Sprintf("malformed key of an event %q", key), "", nil)
		}
		if prefix := key[:len(key)-numberLen]; !bytes.Equal(of.prefix, prefix) {
			if err := c.checkHead(p, &of); err != nil {
				return err
			}
			of = checkedStream{prefix: bytes.Clone(prefix)}
			name, err := streamOf(prefix)
			if err != nil {
				return c.fault(p, fmt.Sprintf("malformed key of an event %q", key), "", nil)
			}
			of.name = name
			if of.head, of.headErr = readHead(c.reader, p, of.name); errors.Is(of.headErr, pebble.ErrCorruption) {
				return of.headErr
			}
			of.last = of.head.erased
		}
		if version != of.last+1 {
			what := fmt.Sprintf("stream %s lacks the events %d to %d", of.name, of.last+1, version-1)
			if version <= of.last {
				what = fmt.Sprintf("stream %s has the erased event %d", of.name, version)
			}
			if err := c.fault(p, what, "", nil); err != nil {
				return err
			}
		}
		of.last = version
		of.bytes += uint64(len(key) + len(value))
		return c.checkEvent(p, of.name, version, value)
	})
	if err != nil {
		return err
	}
	return c.checkHead(p, &of)
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
	if id := workspaceOf(stream); id != "" { // the counter counts the row that is missing
		c.totals[id] += feedRowBytes(version, stream)
	}
	c.offered = append(c.offered, e.Sequence)
	return c.fault(p, fmt.Sprintf("the feed lacks sequence %d, event %d of %s", e.Sequence, version, stream), "add the row of the feed",
		func(b *pebble.Batch) error { return b.Set(key, expected, nil) })
}

// checkHead checks the head of a stream after its last event. It does nothing for the empty name.
func (c *rowChecker) checkHead(p Partition, of *checkedStream) error {
	if of.name == "" {
		return nil
	}
	isCounted := c.isCounted && workspaceOf(of.name) != ""
	if isCounted {
		c.totals[workspaceOf(of.name)] += of.bytes
	}
	h := of.head
	what := ""
	switch {
	case of.headErr != nil:
		what, h = fmt.Sprintf("the head of %s: %v; its last event is %d", of.name, of.headErr, of.last), headRow{}
	case h.version != of.last:
		what = fmt.Sprintf("the head of %s is version %d, but its last event is %d", of.name, h.version, of.last)
	case isCounted && h.bytes != of.bytes:
		what = fmt.Sprintf("the head of %s counts %d bytes, but its events have %d", of.name, h.bytes, of.bytes)
	default:
		return nil
	}
	if h.version > of.last {
		return c.fault(p, what+": later events are missing", "", nil)
	}
	h.version = of.last
	if isCounted {
		h.bytes = of.bytes
	}
	return c.fault(p, what, "write the head anew from the events", func(b *pebble.Batch) error {
		return setHead(b, &streamHead{headRow: h, eventPrefix: appendEventPrefix(nil, p, of.name)})
	})
}

// checkHeads checks that the event of each head exists, unless it was erased.
func (c *rowChecker) checkHeads(p Partition) error {
	return c.scan(p, tagHead, func(key, value []byte) error {
		name, err := unescape(key[keyHeader:])
		if err != nil {
			return c.fault(p, fmt.Sprintf("malformed key of a head %q", key), "", nil)
		}
		h, err := decodeHead(value)
		if err != nil || h.version == h.erased {
			return nil // checkHead has reported a malformed head of a stream with events
		}
		version := h.version
		event, err := c.get(appendNumber(appendEventPrefix(nil, p, Stream(name)), version))
		if err == nil && event == nil {
			err = c.fault(p, fmt.Sprintf("the head of %s is version %d, but this event is missing", name, version), "", nil)
		}
		return err
	})
}

// checkFeed checks that the sequences of the feed are complete up to the marks, but for the sequences that checkEvent has reported, and
// that the event of each sequence exists.
func (c *rowChecker) checkFeed(p Partition) error {
	slices.Sort(c.offered)
	c.offered = slices.Compact(c.offered)
	last, end := uint64(0), uint64(0)
	if len(c.offered) > 0 {
		end = c.offered[len(c.offered)-1]
	}
	if c.marks != nil {
		end = max(end, c.marks[p].sequence)
	}
	err := c.scan(p, tagFeed, func(key, value []byte) error {
		sequence, err := keyNumber(key)
		if err != nil {
			return c.fault(p, fmt.Sprintf("malformed key of the feed %q", key), "", nil)
		}
		if err := c.checkGap(p, last+1, sequence); err != nil {
			return err
		}
		last = sequence
		version, name, err := decodePosition(value)
		if err != nil {
			return c.fault(p, fmt.Sprintf("sequence %d of the feed: %v", sequence, err), "", nil)
		}
		if id := workspaceOf(Stream(name)); id != "" {
			c.totals[id] += uint64(len(key) + len(value))
		}
		event, err := c.get(appendNumber(appendEventPrefix(nil, p, Stream(name)), version))
		if err != nil || event != nil {
			return err
		}
		h, err := readHead(c.reader, p, Stream(name))
		if errors.Is(err, pebble.ErrCorruption) || err == nil && version <= h.erased {
			return err
		}
		return c.fault(p, fmt.Sprintf("event %d of %s, sequence %d of the feed, is missing", version, name, sequence), "", nil)
	})
	if err != nil {
		return err
	}
	return c.checkGap(p, last+1, end+1)
}

// checkGap reports the sequences from next up to, but without, end that the feed lacks and that no event has. It takes the sequences before
// end from offered.
func (c *rowChecker) checkGap(p Partition, next, end uint64) error {
	for next < end {
		until := end
		if len(c.offered) > 0 && c.offered[0] < end {
			until, c.offered = c.offered[0], c.offered[1:]
		}
		if next < until {
			if err := c.fault(p, fmt.Sprintf("the feed lacks the sequences %d to %d", next, until-1), "", nil); err != nil {
				return err
			}
		}
		next = until + 1
	}
	return nil
}

// checkCounters checks that the counter of each workspace is the sum of the rows that it counts.
func (c *rowChecker) checkCounters(p Partition) error {
	if !c.isCounted {
		return nil
	}
	err := c.scan(p, tagWorkspace, func(key, value []byte) error {
		id, err := unescape(key[keyHeader:])
		if err != nil {
			return c.fault(p, fmt.Sprintf("malformed key of a counter %q", key), "", nil)
		}
		total := c.totals[id]
		delete(c.totals, id)
		if stored, err := decodeNumber(value); id == "" || err == nil && stored == total {
			return nil
		}
		return c.counterFault(p, id, total)
	})
	if err != nil {
		return err
	}
	for id, total := range c.totals {
		if err := c.counterFault(p, id, total); err != nil {
			return err
		}
	}
	return nil
}

func (c *rowChecker) counterFault(p Partition, id string, total uint64) error {
	what := fmt.Sprintf("the counter of the workspace %s is not the %d bytes of its events", id, total)
	return c.fault(p, what, "count anew", func(b *pebble.Batch) error {
		counter := &workspaceCounter{key: appendWorkspaceKey(nil, p, id)}
		counter.bytes.Store(total)
		return setCounter(b, counter)
	})
}

// checkSnapshots checks that no snapshot is later than its stream, or of erased events. A snapshot only saves replaying events.
func (c *rowChecker) checkSnapshots(p Partition) error {
	return c.scan(p, tagSnapshot, func(key, value []byte) error {
		name, err := unescape(key[keyHeader:])
		if err != nil {
			return c.fault(p, fmt.Sprintf("malformed key of a snapshot %q", key), "", nil)
		}
		saved, _, err := decodePosition(value)
		if err == nil {
			head, headErr := readHead(c.reader, p, Stream(name))
			switch {
			case headErr != nil: // checkHead has reported a malformed head
				return nil
			case saved > head.version:
				err = fmt.Errorf("version %d is later than the head, %d", saved, head.version)
			case head.erased > 0 && saved <= head.erased:
				err = fmt.Errorf("the events up to its version %d were erased", saved)
			default:
				return nil
			}
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
