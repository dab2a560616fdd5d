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

// logs reads the logs that Pebble is going to replay, and raises shares to what they hold. Like Pebble, it refuses every
// record that cannot be read but the end of the last log, which a crash may have torn.
func (v *verifier) logs(shares []mark) error {
	logs := v.trial.logs.Finish()
	for i, l := range logs {
		if err := readLog(l, i == len(logs)-1, shares); err != nil {
			return fmt.Errorf("log %s: %w", l, err)
		}
	}
	return nil
}

// readLog reads one log to its end, and raises shares to what it holds.
func readLog(l wal.LogicalLog, mayBeTorn bool, shares []mark) error {
	reader := l.OpenForRead()
	defer reader.Close()
	var batch bytes.Buffer
	for {
		r, at, err := reader.NextRecord()
		if err == nil {
			batch.Reset()
			_, err = batch.ReadFrom(r)
		}
		if errors.Is(err, io.EOF) || mayBeTorn && errors.Is(err, record.ErrUnexpectedEOF) {
			return nil
		}
		if err == nil {
			err = readBatch(batch.Bytes(), shares)
		}
		if err != nil {
			return fmt.Errorf("record at %s: %w", at, err)
		}
	}
}

// readBatch reads the rows of one record of a log, and raises shares to what they hold. Rows of feeds and terms are never
// removed.
func readBatch(batch []byte, shares []mark) error {
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
		if err := raise(shares, key, value); err != nil {
			return fmt.Errorf("row %q: %w", key, err)
		}
	}
	if rows != header.Count {
		return fmt.Errorf("it has %d rows, not %d: %w", rows, header.Count, batchrepr.ErrInvalidBatch)
	}
	return nil
}

// raise takes a row of a feed or a term into its partition's share.
func raise(shares []mark, key, value []byte) error {
	if len(key) < keyHeader || int(binary.BigEndian.Uint16(key)) >= len(shares) {
		return nil
	}
	share := &shares[binary.BigEndian.Uint16(key)]
	switch key[keyHeader-1] {
	case tagFeed:
		sequence, err := keyNumber(key)
		share.sequence = max(share.sequence, sequence)
		return err
	case tagTerm:
		epoch, err := decodeNumber(value)
		share.epoch = max(share.epoch, epoch)
		return err
	}
	return nil
}
