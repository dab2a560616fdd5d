package actors

import (
	"strings"

	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// tallies remembers durable totals of one workspace, to save looking them up in the journal: two generations, of which the
// older is dropped when the younger is full. A pair of a path and an author takes about 130 bytes, a whole generation
// 1.6 MB.
type tallies struct {
	// prefix is the length of what all values of the workspace in the Seen index begin with.
	prefix     int
	young, old map[tallyKey]tally
	// authors are those of the pairs, by the part of the value that names them, and known by their numbers.
	authors map[string]uint32
	known   []*activityv1.Author
}

// tallyGeneration is the number of pairs in a generation, and that of authors at which all pairs are forgotten.
const tallyGeneration = 12 << 10

// pathBytes is the length of a path in a value of the Seen index.
const pathBytes = 16

// tallyKey is a value in the Seen index: a path and the number of an author.
type tallyKey struct {
	path   [pathBytes]byte
	author uint32
}

// tally is an activityv1.Totals without its author.
type tally struct {
	firstAt, lastAt, lastWriteAt, markedAt, recencyAt int64
	reads, writes                                     uint64
}

// find returns the totals at a value of the Seen index; false: they are not remembered.
func (t *tallies) find(value string) (*activityv1.Totals, bool) {
	author, ok := t.authors[value[t.prefix+pathBytes:]]
	if !ok {
		return nil, false
	}
	key := tallyKey{author: author}
	copy(key.path[:], value[t.prefix:])
	found, ok := t.young[key]
	if !ok {
		if found, ok = t.old[key]; !ok {
			return nil, false
		}
	}
	return &activityv1.Totals{
		Author: t.known[author], FirstAt: found.firstAt, LastAt: found.lastAt, ReadCount: found.reads, WriteCount: found.writes,
		LastWriteAt: found.lastWriteAt, MarkedAt: found.markedAt, RecencyAt: found.recencyAt,
	}, true
}

// put remembers the totals at a value of the Seen index.
func (t *tallies) put(value string, totals *activityv1.Totals) {
	if len(t.young) >= tallyGeneration {
		t.old, t.young = t.young, nil
	}
	if len(t.known) >= tallyGeneration {
		*t = tallies{prefix: t.prefix}
	}
	if t.young == nil {
		t.young = map[tallyKey]tally{}
	}
	key := tallyKey{author: t.number(value[t.prefix+pathBytes:], totals.GetAuthor())}
	copy(key.path[:], value[t.prefix:])
	t.young[key] = tally{
		firstAt: totals.GetFirstAt(), lastAt: totals.GetLastAt(), lastWriteAt: totals.GetLastWriteAt(),
		markedAt: totals.GetMarkedAt(), recencyAt: totals.GetRecencyAt(), reads: totals.GetReadCount(), writes: totals.GetWriteCount(),
	}
}

// number returns the number of an author, which is given out where there is none.
func (t *tallies) number(name string, author *activityv1.Author) uint32 {
	if n, ok := t.authors[name]; ok {
		return n
	}
	if t.authors == nil {
		t.authors = map[string]uint32{}
	}
	n := uint32(len(t.known))
	t.authors[strings.Clone(name)] = n // the name alone, and not the whole value, stays in memory
	t.known = append(t.known, author)
	return n
}
