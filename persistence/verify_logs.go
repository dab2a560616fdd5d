package persistence

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/batchrepr"
	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/wal"
)

// readLogs reads the logs that Pebble is going to replay, and raises reached to their epochs and sequences. As Pebble
// does, it accepts an unreadable record only at the end of the last log, where a crash may have torn it.
func (v *verifier) readLogs(reached []partitionMark) error {
	logs := v.readOnly.logs.Finish()
	for i, l := range logs {
		var err error
		v.lastLog = v.pathOfLog(l)
		if v.isTorn, err = readLog(l, i == len(logs)-1, reached); err != nil {
			return fmt.Errorf("log %s: %w", v.lastLog, err)
		}
	}
	return nil
}

// readLog reads one log to its end, and raises reached to the epochs and sequences in it. isTorn reports that its last record is
// incomplete, which is an error unless it may be.
func readLog(l wal.LogicalLog, mayBeTorn bool, reached []partitionMark) (isTorn bool, err error) {
	reader := l.OpenForRead()
	defer reader.Close()
	var batch bytes.Buffer
	for {
		r, at, err := reader.NextRecord()
		if err == nil {
			batch.Reset()
			_, err = batch.ReadFrom(r)
		}
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if mayBeTorn && errors.Is(err, record.ErrUnexpectedEOF) {
			return beginsRecord(l, at.Physical)
		}
		if err == nil {
			err = readBatch(batch.Bytes(), reached)
		}
		if err != nil {
			return false, fmt.Errorf("record at %s: %w", at, err)
		}
	}
}

const (
	// logBlock is the size of the blocks of a log. A chunk does not exceed its block, and each block begins with a chunk.
	logBlock = 32 << 10
	// logHeader is the size of a chunk's header. Zeros fill the end of a block that is too short for a header.
	logHeader = 19
	// logNumberAt and logNumberEnd bound the number of the log, of 32 bits, in a chunk's header.
	logNumberAt, logNumberEnd = 7, 11
)

// beginsRecord reports whether the unreadable bytes of a log at an offset, which follow its last whole record, are an incomplete record:
// they begin with a chunk of this log, or with less than a header, or were never stored. Otherwise they are of an older log, because
// Pebble has reused its file: the remainder of the older log follows the last record whenever a process was killed.
func beginsRecord(l wal.LogicalLog, at int64) (bool, error) {
	if left := logBlock - at%logBlock; left < logHeader {
		at += left
	}
	fs, path := l.SegmentLocation(0)
	file, err := fs.Open(path)
	if err != nil {
		return false, err
	}
	defer file.Close()
	start := make([]byte, logBlock)
	n, err := file.ReadAt(start, at)
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	start = start[:n]
	if n < logNumberEnd {
		return n > 0, nil
	}
	isOwn := binary.LittleEndian.Uint32(start[logNumberAt:logNumberEnd]) == uint32(l.Num)
	return isOwn || len(bytes.Trim(start, "\x00")) == 0, nil
}

// readBatch decodes one record of a log, which is a batch, and raises reached to its epochs and sequences. Deletions
// are ignored, since rows of feeds and terms are never deleted.
func readBatch(batch []byte, reached []partitionMark) error {
	header, ok := batchrepr.ReadHeader(batch)
	if !ok {
		return batchrepr.ErrInvalidBatch
	}
	rows := uint32(0)
	for r := batchrepr.Read(batch); ; rows++ {
		kind, key, value, ok, err := r.Next()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		if kind != pebble.InternalKeyKindSet {
			continue
		}
		if err := addRow(reached, key, value); err != nil {
			return fmt.Errorf("row %q: %w", key, err)
		}
	}
	if rows != header.Count {
		return fmt.Errorf("the batch has %d rows, not %d: %w", rows, header.Count, batchrepr.ErrInvalidBatch)
	}
	return nil
}

// addRow raises the mark of a partition to the sequence or epoch in a row. Other rows are ignored.
func addRow(reached []partitionMark, key, value []byte) error {
	if len(key) < keyHeader || int(binary.BigEndian.Uint16(key)) >= len(reached) {
		return nil
	}
	state := &reached[binary.BigEndian.Uint16(key)]
	switch key[keyHeader-1] {
	case tagFeed:
		sequence, err := keyNumber(key)
		state.sequence = max(state.sequence, sequence)
		return err
	case tagTerm:
		epoch, err := decodeNumber(value)
		state.epoch = max(state.epoch, epoch)
		return err
	}
	return nil
}
