package persistence

import (
	"bytes"

	"github.com/cockroachdb/pebble/v2"
)

// comparer orders keys as bytes, and splits off versions, sequences and orders, so that a bloom filter answers for a
// whole stream, or a whole value of an index. Its name is on disk: another Split needs another name. Keys that Pebble
// shortens to separate blocks have no terminator, and are then their own prefix, which sorts as they do.
var comparer = func() *pebble.Comparer {
	c := *pebble.DefaultComparer
	c.Name = "atelier.journal.v1"
	c.Split = split
	c.Compare = bytes.Compare
	c.Equal = bytes.Equal
	c.ComparePointSuffixes = bytes.Compare
	c.CompareRangeSuffixes = bytes.Compare
	c.ImmediateSuccessor = nil // for range keys, of which there are none
	return &c
}()

// split is the length of the part before the number. It is the same for a prefix as for the keys that begin with it.
func split(key []byte) int {
	if len(key) <= keyHeader {
		return len(key)
	}
	switch key[2] {
	case tagEvent:
		return keyHeader + terminated(key[keyHeader:])
	case tagFeed:
		return keyHeader
	case tagIndex:
		name := keyHeader + terminated(key[keyHeader:])
		return name + terminated(key[name:])
	}
	return len(key)
}

// terminated is the length of b up to its first 00, with it; all of b where there is none.
func terminated(b []byte) int {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		return i + 1
	}
	return len(b)
}
