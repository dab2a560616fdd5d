package persistence

import (
	"bytes"
	"encoding/binary"
	"errors"

	"github.com/cockroachdb/pebble/v2"
)

// A key begins with its partition (2 bytes, big endian) and a tag:
//
//	P e stream 00 version   event
//	P h stream              head: the stream's last version
//	P g sequence            feed: which stream and version the sequence is
//	P x name 00 value 00 order   index entry
//	P s stream              snapshot of an entity's state
//	P t                     term (epoch)
//	P a                     applied index of a replicated log
//	P c                     configuration of a replicated log
//
// Streams, names and values are escaped so that 00 ends them and order is kept: 00 is written 01 01, and 01 is 01 02.
// Versions, sequences and orders are 8 bytes, big endian.
const (
	tagApplied       = 'a'
	tagConfiguration = 'c'
	tagEvent         = 'e'
	tagFeed          = 'g'
	tagHead          = 'h'
	tagSnapshot      = 's'
	tagTerm          = 't'
	tagIndex         = 'x'

	keyHeader = 3 // partition and tag
	numberLen = 8
)

var errMalformedKey = errors.New("malformed key")

func appendHeader(dst []byte, p Partition, tag byte) []byte {
	return append(dst, byte(p>>8), byte(p), tag)
}

func appendEscaped(dst []byte, s string) []byte {
	from := 0
	for i := 0; i < len(s); i++ {
		if s[i] <= 1 {
			dst = append(append(dst, s[from:i]...), 1, s[i]+1)
			from = i + 1
		}
	}
	return append(dst, s[from:]...)
}

func unescape(b []byte) (string, error) {
	if bytes.IndexByte(b, 1) < 0 {
		return string(b), nil
	}
	plain := make([]byte, 0, len(b))
	for i := 0; i < len(b); i++ {
		if b[i] != 1 {
			plain = append(plain, b[i])
			continue
		}
		if i++; i == len(b) || b[i] < 1 || b[i] > 2 {
			return "", errMalformedKey
		}
		plain = append(plain, b[i]-1)
	}
	return string(plain), nil
}

func appendNumber(dst []byte, n uint64) []byte {
	return binary.BigEndian.AppendUint64(dst, n)
}

// appendEventPrefix is what all events of a stream begin with.
func appendEventPrefix(dst []byte, p Partition, s Stream) []byte {
	return append(appendEscaped(appendHeader(dst, p, tagEvent), string(s)), 0)
}

func appendHeadKey(dst []byte, p Partition, s Stream) []byte {
	return appendEscaped(appendHeader(dst, p, tagHead), string(s))
}

func appendSnapshotKey(dst []byte, p Partition, s Stream) []byte {
	return appendEscaped(appendHeader(dst, p, tagSnapshot), string(s))
}

func appendFeedKey(dst []byte, p Partition, sequence uint64) []byte {
	return appendNumber(appendHeader(dst, p, tagFeed), sequence)
}

// appendValuesPrefix is what the entries of an index begin with whose value begins with prefix.
func appendValuesPrefix(dst []byte, p Partition, index, prefix string) []byte {
	dst = append(appendEscaped(appendHeader(dst, p, tagIndex), index), 0)
	return appendEscaped(dst, prefix)
}

func appendEntryKey(dst []byte, p Partition, index, value string, order uint64) []byte {
	return appendNumber(append(appendValuesPrefix(dst, p, index, value), 0), order)
}

// successor is the first key that does not begin with prefix. A key's header keeps it from being all FF.
func successor(dst, prefix []byte) []byte {
	n := len(prefix)
	for n > 0 && prefix[n-1] == 0xff {
		n--
	}
	dst = append(dst, prefix[:n]...)
	if n > 0 {
		dst[len(dst)-1]++
	}
	return dst
}

// keyNumber is the version, sequence or order at a key's end.
func keyNumber(key []byte) (uint64, error) {
	if len(key) < keyHeader+numberLen {
		return 0, errMalformedKey
	}
	return binary.BigEndian.Uint64(key[len(key)-numberLen:]), nil
}

// entryValue is the escaped value of an entry's key, given the length of the key up to the value.
func entryValue(key []byte, before int) ([]byte, error) {
	end := len(key) - numberLen - 1
	if end < before || key[end] != 0 {
		return nil, errMalformedKey
	}
	return key[before:end], nil
}

// comparer orders keys as bytes, and splits off versions, sequences and orders, so that a bloom filter answers for a
// whole stream, or a whole value of an index. Its name is on disk: another Split needs another name. Keys that Pebble
// shortens to separate blocks have no terminator, and are then their own prefix, which sorts as they do.
var comparer = func() *pebble.Comparer {
	c := *pebble.DefaultComparer
	c.Name = "atelier.journal.v1"
	c.Split = splitKey
	c.Compare = bytes.Compare
	c.Equal = bytes.Equal
	c.ComparePointSuffixes = bytes.Compare
	c.CompareRangeSuffixes = bytes.Compare
	c.ImmediateSuccessor = nil // for range keys, of which there are none
	return &c
}()

// split is the length of the part before the number. It is the same for a prefix as for the keys that begin with it.
func splitKey(key []byte) int {
	if len(key) <= keyHeader {
		return len(key)
	}
	switch key[2] {
	case tagEvent:
		return keyHeader + terminatedLen(key[keyHeader:])
	case tagFeed:
		return keyHeader
	case tagIndex:
		name := keyHeader + terminatedLen(key[keyHeader:])
		return name + terminatedLen(key[name:])
	}
	return len(key)
}

// terminated is the length of b up to its first 00, with it; all of b where there is none.
func terminatedLen(b []byte) int {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		return i + 1
	}
	return len(b)
}
