package persistence

import (
	"encoding/binary"
	"errors"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// The value of an event row consists of its sequence (uvarint), the length of its metadata (uvarint), the metadata as a
// journal.v1.Metadata message, and its payload, without a length, up to the end. The metadata is encoded and decoded by
// hand, because that is most of the cost of replaying a row. A test compares it with the generated code.
const (
	fieldName = 1 + iota
	fieldAt
	fieldActor
	fieldCommandID
	fieldRequestID
)

const (
	// maxInterned bounds the strings that a decoder shares between rows. minChunk and maxChunk bound the size of its
	// allocations.
	maxInterned = 256
	minChunk    = 128
	maxChunk    = 8 << 10
)

var errMalformedRecord = errors.New("malformed record")

// stringSize returns the encoded size of a string field.
func stringSize(s string) int {
	if s == "" {
		return 0
	}
	return 1 + protowire.SizeBytes(len(s)) // every field number fits a tag of one byte
}

// metadataSize returns the encoded size of an event's metadata.
func metadataSize(e *Event) int {
	n := stringSize(e.Name) + stringSize(e.Actor) + stringSize(e.CommandID) + stringSize(e.RequestID)
	if at := e.At.UnixMilli(); at != 0 {
		n += 1 + protowire.SizeVarint(uint64(at))
	}
	return n
}

// appendString appends a string field, or nothing if the string is empty.
func appendString(dst []byte, field protowire.Number, s string) []byte {
	if s == "" {
		return dst
	}
	return protowire.AppendString(protowire.AppendTag(dst, field, protowire.BytesType), s)
}

// appendMetadata appends the metadata of an event to dst.
func appendMetadata(dst []byte, e *Event) []byte {
	dst = appendString(dst, fieldName, e.Name)
	if at := e.At.UnixMilli(); at != 0 {
		dst = protowire.AppendVarint(protowire.AppendTag(dst, fieldAt, protowire.VarintType), uint64(at))
	}
	dst = appendString(dst, fieldActor, e.Actor)
	dst = appendString(dst, fieldCommandID, e.CommandID)
	return appendString(dst, fieldRequestID, e.RequestID)
}

// recordSize returns the size of the record that appendRecord appends. metadata is the size of the metadata.
func recordSize(e *Event, sequence uint64, metadata int) int {
	return protowire.SizeVarint(sequence) + protowire.SizeVarint(uint64(metadata)) + metadata + len(e.Payload)
}

// appendRecord appends the record of an event to dst. metadata is the size of its metadata.
func appendRecord(dst []byte, e *Event, sequence uint64, metadata int) []byte {
	dst = binary.AppendUvarint(dst, sequence)
	dst = binary.AppendUvarint(dst, uint64(metadata))
	return append(appendMetadata(dst, e), e.Payload...)
}

// decoder decodes the records of one iteration. Decoded strings may be kept; payloads are part of the record.
type decoder struct {
	interned map[string]string
	chunk    strings.Builder
	// The values of the previous row, which adjacent rows often share.
	name, actor, command, request string
}

// decode decodes a record into e, except for the stream and the version, which are in its key.
func (d *decoder) decode(record []byte, e *Event) error {
	sequence, metadata, payload, err := splitRecord(record)
	if err != nil {
		return err
	}
	e.Sequence, e.Payload = sequence, payload
	e.Name, e.Actor, e.CommandID, e.RequestID, e.At = "", "", "", "", time.UnixMilli(0).UTC()
	return d.decodeMetadata(metadata, e)
}

// splitRecord returns the parts of a record without copying them.
func splitRecord(record []byte) (sequence uint64, metadata, payload []byte, err error) {
	sequence, n := binary.Uvarint(record)
	if n <= 0 {
		return 0, nil, nil, errMalformedRecord
	}
	record = record[n:]
	length, n := binary.Uvarint(record)
	if n <= 0 || length > uint64(len(record)-n) {
		return 0, nil, nil, errMalformedRecord
	}
	record = record[n:]
	return sequence, record[:length], record[length:], nil
}

// decodeMetadata decodes the metadata of a record. Unknown fields are skipped.
func (d *decoder) decodeMetadata(b []byte, e *Event) error {
	for len(b) > 0 {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return errMalformedRecord
		}
		b = b[n:]
		switch {
		case kind == protowire.BytesType:
			var s []byte
			if s, n = protowire.ConsumeBytes(b); n >= 0 {
				d.setText(field, s, e)
			}
		case kind == protowire.VarintType && field == fieldAt:
			var at uint64
			at, n = protowire.ConsumeVarint(b)
			e.At = time.UnixMilli(int64(at)).UTC()
		default:
			n = protowire.ConsumeFieldValue(field, kind, b)
		}
		if n < 0 {
			return errMalformedRecord
		}
		b = b[n:]
	}
	return nil
}

// setText sets the string field of an event.
func (d *decoder) setText(field protowire.Number, s []byte, e *Event) {
	switch field {
	case fieldName:
		e.Name = d.intern(&d.name, s)
	case fieldActor:
		e.Actor = d.intern(&d.actor, s)
	case fieldCommandID:
		e.CommandID = d.copyText(&d.command, s)
	case fieldRequestID:
		e.RequestID = d.copyText(&d.request, s)
	}
}

// intern returns s as a string that is shared between rows. It is for fields with few different values. last is the value
// of the previous row.
func (d *decoder) intern(last *string, s []byte) string {
	if *last == string(s) {
		return *last
	}
	if known, ok := d.interned[string(s)]; ok {
		*last = known
		return known
	}
	text := d.copyText(last, s)
	if len(d.interned) < maxInterned {
		if d.interned == nil {
			d.interned = make(map[string]string)
		}
		d.interned[text] = text
	}
	return text
}

// copyText returns s as a string. Many strings share one allocation, a chunk, which is never written again once it is
// full. last is the value of the previous row.
func (d *decoder) copyText(last *string, s []byte) string {
	if *last == string(s) {
		return *last
	}
	if d.chunk.Cap()-d.chunk.Len() < len(s) {
		size := min(max(2*d.chunk.Cap(), minChunk), maxChunk)
		d.chunk = strings.Builder{}
		d.chunk.Grow(max(size, len(s)))
	}
	from := d.chunk.Len()
	d.chunk.Write(s)
	*last = d.chunk.String()[from:]
	return *last
}

// appendPosition appends the value of a feed row: the version and the stream of the event.
func appendPosition(dst []byte, version uint64, s Stream) []byte {
	return append(binary.AppendUvarint(dst, version), s...)
}

// positionSize returns the size of the value that appendPosition appends.
func positionSize(version uint64, s Stream) int {
	return protowire.SizeVarint(version) + len(s)
}

// decodePosition decodes the value of a feed row. stream is a part of b.
func decodePosition(b []byte) (version uint64, stream []byte, err error) {
	version, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, nil, errMalformedRecord
	}
	return version, b[n:], nil
}

// decodeNumber decodes a row that consists of one uvarint.
func decodeNumber(b []byte) (uint64, error) {
	v, n := binary.Uvarint(b)
	if n <= 0 || n != len(b) {
		return 0, errMalformedRecord
	}
	return v, nil
}
