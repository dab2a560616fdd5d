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
//	P h stream              head: the stream's last version, see headRow
//	P g sequence            feed: the stream and version of the event with this sequence
//	P x name 00 value 00 order   index entry
//	P s stream              snapshot of an entity's state
//	P t                     term (epoch)
//	P r                     progress of counting these bytes, see recounting
//	P u workspace           bytes of a workspace; without an id: the partition has these rows
//	P a                     applied index of a replicated log
//	P c                     configuration of a replicated log
//
// Streams, names and values are escaped so that 00 terminates them and their order is preserved: 00 is encoded as 01 01, and
// 01 as 01 02.
// Versions, sequences and orders are 8 bytes, big endian.
const (
	tagApplied       = 'a'
	tagConfiguration = 'c'
	tagEvent         = 'e'
	tagFeed          = 'g'
	tagHead          = 'h'
	tagRecount       = 'r'
	tagSnapshot      = 's'
	tagTerm          = 't'
	tagWorkspace     = 'u'
	tagIndex         = 'x'

	keyHeader = 3 // partition and tag
	numberLen = 8
)

var errMalformedKey = errors.New("malformed key")

// appendHeader appends the beginning of every key: the partition and the tag.
func appendHeader(dst []byte, p Partition, tag byte) []byte {
	return append(dst, byte(p>>8), byte(p), tag)
}

// appendEscaped appends s so that it contains no 00 and sorts as s does.
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

// unescape reverses appendEscaped.
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

// appendNumber appends a version, sequence or order.
func appendNumber(dst []byte, n uint64) []byte {
	return binary.BigEndian.AppendUint64(dst, n)
}

// appendEventPrefix appends the common prefix of the keys of a stream's events.
func appendEventPrefix(dst []byte, p Partition, s Stream) []byte {
	return append(appendEscaped(appendHeader(dst, p, tagEvent), string(s)), 0)
}

// appendHeadKey appends the key of a stream's head.
func appendHeadKey(dst []byte, p Partition, s Stream) []byte {
	return appendEscaped(appendHeader(dst, p, tagHead), string(s))
}

// appendSnapshotKey appends the key of a stream's snapshot.
func appendSnapshotKey(dst []byte, p Partition, s Stream) []byte {
	return appendEscaped(appendHeader(dst, p, tagSnapshot), string(s))
}

// appendFeedKey appends the key of a feed row.
func appendFeedKey(dst []byte, p Partition, sequence uint64) []byte {
	return appendNumber(appendHeader(dst, p, tagFeed), sequence)
}

// appendValuesPrefix appends the common prefix of all entries in an index with values that begin with prefix.
func appendValuesPrefix(dst []byte, p Partition, index, prefix string) []byte {
	dst = append(appendEscaped(appendHeader(dst, p, tagIndex), index), 0)
	return appendEscaped(dst, prefix)
}

// appendEntryKey appends the key of an index entry.
func appendEntryKey(dst []byte, p Partition, index, value string, order uint64) []byte {
	return appendNumber(append(appendValuesPrefix(dst, p, index, value), 0), order)
}

// successor appends the first key that is greater than all keys with this prefix. The tag in a key's header is never FF,
// so such a key exists.
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

// keyNumber returns the version, sequence or order at the end of a key.
func keyNumber(key []byte) (uint64, error) {
	if len(key) < keyHeader+numberLen {
		return 0, errMalformedKey
	}
	return binary.BigEndian.Uint64(key[len(key)-numberLen:]), nil
}

// entryValue returns the escaped value in the key of an entry. before is the length of the key up to the value.
func entryValue(key []byte, before int) ([]byte, error) {
	end := len(key) - numberLen - 1
	if end < before || key[end] != 0 {
		return nil, errMalformedKey
	}
	return key[before:end], nil
}

// Comparer sorts the keys of the store as bytes, and splits the version, sequence or order off, so that one bloom filter entry represents
// a whole stream, or a whole value of an index. Its name is stored on disk: another Split needs another name. Pebble may
// shorten keys between blocks so that they lose their terminator; such a key is its own prefix, which sorts in the same
// way.
var Comparer = func() *pebble.Comparer {
	c := *pebble.DefaultComparer
	c.Name = "atelier.journal.v1"
	c.Split = splitKey
	c.Compare = bytes.Compare
	c.Equal = bytes.Equal
	c.ComparePointSuffixes = bytes.Compare
	c.CompareRangeSuffixes = bytes.Compare
	c.ImmediateSuccessor = nextPrefix
	return &c
}()

// splitKey returns the length of a key without its number. The prefix of that length is its own prefix, as Pebble
// requires.
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

// nextPrefix appends the least key that is greater than the prefix a and its own prefix. Pebble needs it where a range is deleted.
func nextPrefix(dst, a []byte) []byte {
	from := len(dst)
	dst = append(append(dst, a...), 0)
	if splitKey(dst[from:]) < len(dst)-from { // a is terminated, or the prefix of a feed: longer keys have the same prefix
		dst = dst[:len(dst)-1]
		dst[len(dst)-1]++
	}
	return dst
}

// terminatedLen returns the length of b up to and including its first 00, or all of b if it has none.
func terminatedLen(b []byte) int {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		return i + 1
	}
	return len(b)
}
