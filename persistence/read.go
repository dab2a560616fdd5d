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
	if err := v.begin(); err != nil {
		return 0, err
	}
	defer v.end()
	version, _, err := readHead(v.shown.snapshot, p, s)
	return version, err
}

func (v *view) Revision(p Partition, s Stream) (uint64, error) {
	if err := v.begin(); err != nil {
		return 0, err
	}
	defer v.end()
	_, revision, err := readHead(v.shown.snapshot, p, s)
	return revision, err
}

func (v *view) Snapshot(p Partition, s Stream) (Snapshot, error) {
	if err := v.begin(); err != nil {
		return Snapshot{}, err
	}
	defer v.end()
	value, closer, err := v.shown.snapshot.Get(appendSnapshotKey(nil, p, s))
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

// Lookup is a point read, which bloom filters make cheap where there is nothing.
func (v *view) Lookup(p Partition, index, value string, order uint64) (data []byte, ok bool, err error) {
	var buf [256]byte
	ok, err = v.point(appendEntryKey(buf[:0], p, index, value, order), func(value []byte) error {
		data = bytes.Clone(value)
		return nil
	})
	return data, ok, err
}

func (v *view) Payload(p Partition, s Stream, version uint64) (payload []byte, ok bool, err error) {
	var buf [128]byte
	key := appendNumber(appendEventPrefix(buf[:0], p, s), version)
	ok, err = v.point(key, func(record []byte) error {
		_, _, bare, err := splitRecord(record)
		payload = bytes.Clone(bare)
		return err
	})
	return payload, ok, err
}

// point reads one row, which is valid until row returns.
func (v *view) point(key []byte, row func(value []byte) error) (found bool, err error) {
	if err := v.begin(); err != nil {
		return false, err
	}
	defer v.end()
	value, closer, err := v.shown.snapshot.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer closer.Close()
	return true, row(value)
}

// walk steps through the rows between lower and upper until row gives an error or false. Rows of one prefix are found
// with the help of bloom filters.
type walk struct {
	lower, upper []byte
	direction    Direction
	onePrefix    bool
}

// rows yields keys and values, valid until the next step, and at most one error, last.
func (v *view) rows(w walk, row func(key, value []byte) (bool, error)) error {
	if err := v.begin(); err != nil {
		return err
	}
	defer v.end()
	it, err := v.shown.snapshot.NewIter(&pebble.IterOptions{LowerBound: w.lower, UpperBound: w.upper})
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

// Read yields a stream's events.
func (v *view) Read(p Partition, s Stream, from uint64, d Direction) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		prefix := appendEventPrefix(nil, p, s)
		w := within(prefix, from, d)
		var dec decoder
		e := Event{Stream: s}
		err := v.rows(w, func(key, value []byte) (bool, error) {
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

// Payloads yields the payloads of a stream's events.
func (v *view) Payloads(p Partition, s Stream, from uint64, d Direction) iter.Seq2[Payload, error] {
	return func(yield func(Payload, error) bool) {
		err := v.rows(within(appendEventPrefix(nil, p, s), from, d), func(key, value []byte) (bool, error) {
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

// within is the walk over the numbers that follow prefix, from one of them on.
func within(prefix []byte, from uint64, d Direction) walk {
	numbered := appendNumber(bytes.Clone(prefix), from)
	if d == Ascending {
		return walk{lower: numbered, upper: successor(nil, prefix), onePrefix: true}
	}
	return walk{lower: prefix, upper: append(numbered, 0), direction: Descending}
}

// Index yields the entries that a query selects.
func (v *view) Index(p Partition, q Query) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		before := len(appendValuesPrefix(nil, p, q.Index, ""))
		w := selected(p, q)
		entry := Entry{Index: q.Index, Value: q.Value}
		var last []byte
		err := v.rows(w, func(key, value []byte) (bool, error) {
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

func selected(p Partition, q Query) walk {
	prefix := appendValuesPrefix(nil, p, q.Index, q.Value)
	if q.Prefix {
		w := walk{lower: prefix, upper: successor(nil, prefix), direction: q.Direction}
		if q.After != "" && q.Direction == Ascending && q.After >= q.Value {
			// The terminator and the order sort before whatever may continue the value.
			last := append(appendValuesPrefix(nil, p, q.Index, q.After), 0)
			w.lower = appendNumber(last, math.MaxUint64)
			w.lower = append(w.lower, 0)
		}
		return w
	}
	return within(append(prefix, 0), q.From, q.Direction)
}
