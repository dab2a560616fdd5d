package persistence

import (
	"bytes"
	"errors"
	"fmt"
	"iter"

	"github.com/cockroachdb/pebble/v2"
)

// passing is how many unwanted rows of a feed make one notice of progress.
const passing = 1024

// Feed walks the feed's rows, and beside it the events that they name.
func (v *view) Feed(p Partition, from uint64, want func(Stream) bool) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		w := within(appendHeader(nil, p, tagFeed), from, Ascending)
		f := &follower{view: v, partition: p, known: make(map[string]*followed)}
		if err := v.begin(); err != nil {
			yield(Event{}, err)
			return
		}
		defer v.end()
		defer f.close()
		passed := 0
		err := v.rows(w, func(key, value []byte) (bool, error) {
			sequence, err := keyNumber(key)
			if err != nil {
				return false, err
			}
			version, name, err := decodePosition(value)
			if err != nil {
				return false, fmt.Errorf("feed %d: %w", sequence, err)
			}
			s := f.stream(name)
			if want != nil && !want(s.stream) {
				if passed++; passed%passing == 0 {
					return yield(Event{Stream: s.stream, Sequence: sequence}, nil), nil
				}
				return true, nil
			}
			passed = 0
			if err := f.find(s, version); errors.Is(err, errRecord) {
				return yield(Event{Stream: s.stream, Version: version, Sequence: sequence}, nil), nil
			} else if err != nil {
				return false, fmt.Errorf("feed %d: %w", sequence, err)
			}
			return yield(f.event, nil), nil
		})
		if err != nil {
			yield(Event{}, err)
		}
	}
}

// maxFollowed bounds what a walk remembers of the streams that it has met.
const maxFollowed = 4096

type followed struct {
	stream Stream
	prefix []byte
}

// follower finds the events of a feed's rows.
type follower struct {
	view      *view
	partition Partition
	known     map[string]*followed

	events  *pebble.Iterator
	at      *followed // whose event the iterator is on
	version uint64
	key     []byte
	decoder decoder
	event   Event
}

func (f *follower) stream(name []byte) *followed {
	if s, ok := f.known[string(name)]; ok {
		return s
	}
	if len(f.known) == maxFollowed {
		clear(f.known)
	}
	s := &followed{stream: Stream(name)}
	s.prefix = appendEventPrefix(nil, f.partition, s.stream)
	f.known[string(s.stream)] = s
	return s
}

// find leaves the event in f.event. The next of the same stream is one step away; another stream is a seek.
func (f *follower) find(s *followed, version uint64) error {
	if err := f.open(); err != nil {
		return err
	}
	f.key = appendNumber(append(f.key[:0], s.prefix...), version)
	var ok bool
	if f.at == s && f.version+1 == version {
		ok = f.events.Next()
	} else {
		ok = f.events.SeekGE(f.key)
	}
	f.at, f.version = s, version
	if !ok || !bytes.Equal(f.events.Key(), f.key) {
		if err := f.events.Error(); err != nil {
			return err
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

func (f *follower) open() error {
	if f.events != nil {
		return nil
	}
	lower := appendHeader(nil, f.partition, tagEvent)
	bounds := &pebble.IterOptions{LowerBound: lower, UpperBound: successor(nil, lower)}
	var err error
	f.events, err = f.view.shown.snapshot.NewIter(bounds)
	return err
}

func (f *follower) close() {
	if f.events != nil {
		_ = f.events.Close()
	}
}
