package persistence

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"math"

	"github.com/cockroachdb/pebble/v2"
)

func (v *view) Head(p Partition, s Stream) (uint64, error) {
	if err := v.beginRead(); err != nil {
		return 0, err
	}
	defer v.endRead()
	h, err := readHead(v.shared.snapshot, p, s)
	return h.version, err
}

func (v *view) Revision(p Partition, s Stream) (uint64, error) {
	if err := v.beginRead(); err != nil {
		return 0, err
	}
	defer v.endRead()
	h, err := readHead(v.shared.snapshot, p, s)
	return h.revision, err
}

func (v *view) Snapshot(p Partition, s Stream) (Snapshot, error) {
	if err := v.beginRead(); err != nil {
		return Snapshot{}, err
	}
	defer v.endRead()
	value, closer, err := v.shared.snapshot.Get(appendSnapshotKey(nil, p, s))
	if errors.Is(err, pebble.ErrNotFound) {
		return Snapshot{}, nil
	}
	if err != nil {
		return Snapshot{}, err
	}
	defer closer.Close()
	version, state, err := decodePosition(value)
	if err != nil {
		return Snapshot{}, fmt.Errorf("snapshot of %s: %w", s, err)
	}
	return Snapshot{Version: version, State: bytes.Clone(state)}, nil
}

// Lookup reads one entry. Bloom filters make it cheap if the entry does not exist.
func (v *view) Lookup(p Partition, index, value string, order uint64) (data []byte, ok bool, err error) {
	var buf [256]byte
	ok, err = v.readRow(appendEntryKey(buf[:0], p, index, value, order), func(value []byte) error {
		data = bytes.Clone(value)
		return nil
	})
	return data, ok, err
}

func (v *view) Payload(p Partition, s Stream, version uint64) (payload []byte, ok bool, err error) {
	var buf [128]byte
	key := appendNumber(appendEventPrefix(buf[:0], p, s), version)
	ok, err = v.readRow(key, func(record []byte) error {
		_, _, bare, err := splitRecord(record)
		payload = bytes.Clone(bare)
		return err
	})
	return payload, ok, err
}

// readRow calls row with the value of one row, which is valid until row returns. found is false if the row does not
// exist.
func (v *view) readRow(key []byte, row func(value []byte) error) (found bool, err error) {
	if err := v.beginRead(); err != nil {
		return false, err
	}
	defer v.endRead()
	value, closer, err := v.shared.snapshot.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer closer.Close()
	return true, row(value)
}

// rowRange is a range of keys, from lower up to but excluding upper, and the direction in which it is read. If onePrefix,
// all keys of the range have the same prefix (see splitKey), and bloom filters are used.
type rowRange struct {
	lower, upper []byte
	direction    Direction
	onePrefix    bool
}

// scan calls row for each row in the range until row returns false or an error. Keys and values are valid until row
// returns. scan returns the error of row or of the store, or ErrClosed if the journal is closed meanwhile.
func (v *view) scan(w rowRange, row func(key, value []byte) (bool, error)) error {
	if err := v.beginRead(); err != nil {
		return err
	}
	defer v.endRead()
	it, err := v.shared.snapshot.NewIter(&pebble.IterOptions{LowerBound: w.lower, UpperBound: w.upper})
	if err != nil {
		return err
	}
	defer it.Close()
	step := it.Next
	var ok bool
	switch {
	case w.direction == Descending:
		ok, step = it.Last(), it.Prev
	case w.onePrefix:
		ok = it.SeekPrefixGE(w.lower)
	default:
		ok = it.First()
	}
	for ; ok; ok = step() {
		value, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		if more, err := row(it.Key(), value); err != nil || !more {
			return err
		}
		if v.views.closing.Load() {
			return ErrClosed
		}
	}
	return it.Error()
}

// Read yields the events of a stream; see View.
func (v *view) Read(p Partition, s Stream, from uint64, d Direction) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		prefix := appendEventPrefix(nil, p, s)
		w := rangeFrom(prefix, from, d)
		var dec decoder
		e := Event{Stream: s}
		err := v.scan(w, func(key, value []byte) (bool, error) {
			var err error
			if e.Version, err = keyNumber(key); err != nil {
				return false, err
			}
			if err := dec.decode(value, &e); err != nil {
				return false, fmt.Errorf("event %d of %s: %w", e.Version, s, err)
			}
			return yield(e, nil), nil
		})
		if err != nil {
			yield(Event{}, err)
		}
	}
}

// Payloads yields the payloads of a stream's events; see View.
func (v *view) Payloads(p Partition, s Stream, from uint64, d Direction) iter.Seq2[Payload, error] {
	return func(yield func(Payload, error) bool) {
		err := v.scan(rangeFrom(appendEventPrefix(nil, p, s), from, d), func(key, value []byte) (bool, error) {
			version, err := keyNumber(key)
			if err != nil {
				return false, err
			}
			_, _, payload, err := splitRecord(value)
			if err != nil {
				return false, fmt.Errorf("event %d of %s: %w", version, s, err)
			}
			return yield(Payload{version, payload}, nil), nil
		})
		if err != nil {
			yield(Payload{}, err)
		}
	}
}

// rangeFrom returns the range of the keys that consist of prefix and a number of at least from, or of at most from if d
// is Descending.
func rangeFrom(prefix []byte, from uint64, d Direction) rowRange {
	numbered := appendNumber(bytes.Clone(prefix), from)
	if d == Ascending {
		return rowRange{lower: numbered, upper: successor(nil, prefix), onePrefix: true}
	}
	return rowRange{lower: prefix, upper: append(numbered, 0), direction: Descending}
}

// Index yields the entries that a query selects; see View.
func (v *view) Index(p Partition, q Query) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		before := len(appendValuesPrefix(nil, p, q.Index, ""))
		w := rangeOfQuery(p, q)
		entry := Entry{Index: q.Index, Value: q.Value}
		var last []byte
		err := v.scan(w, func(key, value []byte) (bool, error) {
			if q.Prefix {
				escaped, err := entryValue(key, before)
				if err != nil {
					return false, err
				}
				if last == nil || !bytes.Equal(escaped, last) {
					if entry.Value, err = unescape(escaped); err != nil {
						return false, err
					}
					last = append(last[:0], escaped...)
				}
			}
			var err error
			entry.Order, err = keyNumber(key)
			entry.Data = value
			return err == nil && yield(entry, nil), err
		})
		if err != nil {
			yield(Entry{}, err)
		}
	}
}

// rangeOfQuery returns the range of the entries that a query selects.
func rangeOfQuery(p Partition, q Query) rowRange {
	prefix := appendValuesPrefix(nil, p, q.Index, q.Value)
	if q.Prefix {
		w := rowRange{lower: prefix, upper: successor(nil, prefix), direction: q.Direction}
		if q.After != "" && q.Direction == Ascending && q.After >= q.Value {
			// Longer values that begin with After sort after its terminator and order.
			last := append(appendValuesPrefix(nil, p, q.Index, q.After), 0)
			w.lower = appendNumber(last, math.MaxUint64)
			w.lower = append(w.lower, 0)
		}
		return w
	}
	return rangeFrom(append(prefix, 0), q.From, q.Direction)
}

// progressInterval is the number of rows of unwanted and erased events after which Feed yields an event without content, as a sign of
// progress.
const progressInterval = 1024

// Feed iterates over the rows of the feed, and reads the event of each row from its stream.
func (v *view) Feed(p Partition, from uint64, want func(Stream) bool) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		w := rangeFrom(appendHeader(nil, p, tagFeed), from, Ascending)
		f := &feedReader{view: v, partition: p, streams: make(map[string]*feedStream)}
		if err := v.beginRead(); err != nil {
			yield(Event{}, err)
			return
		}
		defer v.endRead()
		defer f.close()
		passed := 0
		err := v.scan(w, func(key, value []byte) (bool, error) {
			sequence, err := keyNumber(key)
			if err != nil {
				return false, err
			}
			version, name, err := decodePosition(value)
			if err != nil {
				return false, fmt.Errorf("feed %d: %w", sequence, err)
			}
			s := f.lookUpStream(name)
			if want == nil || want(s.stream) {
				err := f.readEvent(s, version)
				switch {
				case errors.Is(err, errErased):
				case errors.Is(err, errMalformedRecord):
					passed = 0
					return yield(Event{Stream: s.stream, Version: version, Sequence: sequence}, nil), nil
				case err != nil:
					return false, fmt.Errorf("feed %d: %w", sequence, err)
				default:
					passed = 0
					return yield(f.event, nil), nil
				}
			}
			if passed++; passed%progressInterval == 0 {
				return yield(Event{Stream: s.stream, Sequence: sequence}, nil), nil
			}
			return true, nil
		})
		if err != nil {
			yield(Event{}, err)
		}
	}
}

// errErased means that the event of a row of the feed was erased.
var errErased = errors.New("the event was erased")

// maxFeedStreams bounds the streams that an iteration remembers.
const maxFeedStreams = 4096

// feedStream is a stream and the prefix of its event keys. erased is the last version that is known to be erased.
type feedStream struct {
	stream Stream
	prefix []byte
	erased uint64
}

// feedReader reads the events that the rows of a feed name.
type feedReader struct {
	view      *view
	partition Partition
	streams   map[string]*feedStream

	events *pebble.Iterator
	// current is the stream, and version the version, of the event at the iterator's position.
	current *feedStream
	version uint64
	key     []byte
	decoder decoder
	event   Event
}

// lookUpStream returns the remembered stream with this name, and remembers it if it is new.
func (f *feedReader) lookUpStream(name []byte) *feedStream {
	if s, ok := f.streams[string(name)]; ok {
		return s
	}
	if len(f.streams) == maxFeedStreams {
		clear(f.streams)
	}
	s := &feedStream{stream: Stream(name)}
	s.prefix = appendEventPrefix(nil, f.partition, s.stream)
	f.streams[string(s.stream)] = s
	return s
}

// readEvent decodes an event into f.event. It returns errErased if the event was erased. The next event of the same stream costs one step of the iterator, any other
// event a seek.
func (f *feedReader) readEvent(s *feedStream, version uint64) error {
	if err := f.openEvents(); err != nil {
		return err
	}
	if version <= s.erased {
		return errErased
	}
	f.key = appendNumber(append(f.key[:0], s.prefix...), version)
	var ok bool
	if f.current == s && f.version+1 == version {
		ok = f.events.Next()
	} else {
		ok = f.events.SeekGE(f.key)
	}
	f.current, f.version = s, version
	if !ok || !bytes.Equal(f.events.Key(), f.key) {
		if err := f.events.Error(); err != nil {
			return err
		}
		f.current = nil // the iterator is at another event
		h, err := readHead(f.view.shared.snapshot, f.partition, s.stream)
		if err != nil {
			return err
		}
		if s.erased = h.erased; version <= s.erased {
			return errErased
		}
		return fmt.Errorf("event %d of %s is missing", version, s.stream)
	}
	value, err := f.events.ValueAndErr()
	if err != nil {
		return err
	}
	f.event.Stream, f.event.Version = s.stream, version
	return f.decoder.decode(value, &f.event)
}

// openEvents opens the iterator over the events of the partition, if it is not open yet.
func (f *feedReader) openEvents() error {
	if f.events != nil {
		return nil
	}
	lower := appendHeader(nil, f.partition, tagEvent)
	bounds := &pebble.IterOptions{LowerBound: lower, UpperBound: successor(nil, lower)}
	var err error
	f.events, err = f.view.shared.snapshot.NewIter(bounds)
	return err
}

func (f *feedReader) close() {
	if f.events != nil {
		_ = f.events.Close()
	}
}
