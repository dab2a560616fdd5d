package persistence

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/cockroachdb/errors/oserror"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// syncedLogs is the file SYNCED of a data directory. It promises the beginning of each log: the bytes that were durable when Pebble's
// last sync of the log returned, and therefore every acknowledged proposal. The marks promise the logs of a closed journal only, and a log
// itself does not say where it ended.
//
// A promise is written after the sync of the log and before the proposals are answered, without a sync of its own. After the end of the
// process, the file has the last promise. After a loss of power it may have an earlier promise, which promises less, but not less than the
// promise at the last call of sync, which marksWriter.writePeriodically makes. A log is removed or reused only when a file without its
// promise is durable.
//
// So a start does not notice a loss of the end of the last log only if all of these are true: the machine has lost power, the disk has
// lost bytes that it had reported as durable, and these were written after the last sync of the file. Nothing on the disk tells such a log
// from a log without later bytes.
//
// The file has two slots. All promises are written to one slot until that slot is durable; then the other slot is written. A loss of power
// can tear only the slot that is written, even if it is written while a sync stores it, and leaves the promise of the durable slot. Of two
// legible slots the slot with the higher number counts. A slot is text with a checksum, and zeros up to its end.
type syncedLogs struct {
	disk   string
	logger *slog.Logger

	// mu guards the fields below.
	mu     sync.Mutex
	file   vfs.File
	number uint64
	logs   []extent
	buffer []byte
	// slot is the slot that is written, 0 or 1. The other slot is durable.
	slot int64
	// isUnsynced reports that slot was written since it became the slot that is written.
	isUnsynced bool
	// isFailing reports that the last write has failed.
	isFailing bool
}

const (
	syncedName   = "SYNCED"
	syncedHeader = "atelier synced 1\n"
	slotBytes    = 4096
	// maxSyncedLogs bounds the logs of a slot; each log takes less than 80 bytes. The journal has at most ten logs, and half of them
	// wait for being reused.
	maxSyncedLogs = 48
)

// createSynced replaces the file durably and atomically, with promises for logs that exist, and opens it.
func createSynced(d *directory, logs []extent, logger *slog.Logger) (*syncedLogs, error) {
	path := d.join(syncedName)
	file, err := d.fs.Create(path+".new", vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, err
	}
	s := &syncedLogs{disk: d.format.disk, logger: logger, file: file, logs: slices.Clone(logs)}
	err = s.write()
	s.beginOtherSlot() // one sync stores both slots before the file has its name
	err = errors.Join(err, s.write(), s.syncSlot())
	if err == nil {
		err = d.fs.Rename(path+".new", path)
	}
	if err == nil {
		err = syncDirectory(d.fs, d.path)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return s, nil
}

// promise records that the bytes of an extent are durable. If the file cannot be written, its last promise remains valid.
func (s *syncedLogs) promise(e extent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.IndexFunc(s.logs, func(other extent) bool { return other.name == e.name })
	if at < 0 {
		if len(s.logs) == maxSyncedLogs {
			return // the promises before remain valid
		}
		at = len(s.logs)
		s.logs = append(s.logs, extent{})
	}
	s.logs[at] = e
	err := s.write()
	if err != nil && !s.isFailing {
		s.logger.Warn("cannot record the end of the journal's log: a start would not notice the loss of its end", "error", err)
	}
	s.isFailing = err != nil
}

// sync makes the promises durable. Promises are not held up, unless promises were written meanwhile: the slot may then be torn on the disk,
// and is synced again without a write.
func (s *syncedLogs) sync() error {
	s.mu.Lock()
	isUnsynced, number := s.isUnsynced, s.number
	s.mu.Unlock()
	if !isUnsynced {
		return nil
	}
	err := s.file.SyncData()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil:
		return errors.Join(err, s.write()) // a sync after an error stores only bytes that are written again
	case s.number == number:
		s.beginOtherSlot()
		return nil
	}
	return s.syncSlot()
}

// syncSlot makes the slot that is written durable, and lets the other slot be written.
func (s *syncedLogs) syncSlot() error {
	if !s.isUnsynced {
		return nil
	}
	if err := s.file.SyncData(); err != nil {
		return errors.Join(err, s.write())
	}
	s.beginOtherSlot()
	return nil
}

// beginOtherSlot lets the other slot be written, after the slot that was written has become durable.
func (s *syncedLogs) beginOtherSlot() { s.slot, s.isUnsynced = 1-s.slot, false }

// forget durably removes the promise for a log from both slots, before the log is removed or reused: a torn write of the newer slot
// leaves the older one. After an error the promise remains, as does the log.
func (s *syncedLogs) forget(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.IndexFunc(s.logs, func(e extent) bool { return e.name == name })
	if at < 0 {
		return nil
	}
	before := s.logs
	s.logs = slices.Delete(slices.Clone(s.logs), at, at+1)
	for range 2 {
		if err := errors.Join(s.write(), s.syncSlot()); err != nil {
			s.logs = before
			return err
		}
	}
	return nil
}

// write writes the promises to the slot that is not durable.
func (s *syncedLogs) write() error {
	s.number++
	s.isUnsynced = true
	s.buffer = appendSlot(s.buffer[:0], s.disk, s.number, s.logs)
	_, err := s.file.WriteAt(s.buffer, s.slot*slotBytes)
	return err
}

// close closes the file.
func (s *syncedLogs) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.file.Close()
}

// appendSlot appends the content of a slot.
func appendSlot(dst []byte, disk string, number uint64, logs []extent) []byte {
	dst = append(append(append(dst, syncedHeader+"disk "...), disk...), "\nnumber "...)
	dst = append(strconv.AppendUint(dst, number, 10), '\n')
	for _, e := range logs {
		dst = append(append(append(dst, "log "...), e.name...), ' ')
		dst = append(strconv.AppendInt(dst, e.length, 10), ' ')
		dst = append(strconv.AppendUint(dst, uint64(e.sum), 16), '\n')
	}
	dst = append(strconv.AppendUint(append(dst, "checksum "...), uint64(crc32.Checksum(dst, castagnoli)), 16), '\n')
	return append(dst, make([]byte, max(0, slotBytes-len(dst)))...)
}

// parseSlot decodes a slot. ok is false if it is illegible.
func parseSlot(slot, disk string) (number uint64, logs []extent, ok bool) {
	text, zeros, _ := strings.Cut(slot, "\x00")
	at := strings.LastIndex(strings.TrimSuffix(text, "\n"), "\n") + 1
	if strings.Trim(zeros, "\x00") != "" || text[at:] != fmt.Sprintf("checksum %x\n", crc32.Checksum([]byte(text[:at]), castagnoli)) {
		return 0, nil, false
	}
	body, ok := strings.CutPrefix(text[:at], syncedHeader+"disk "+disk+"\n")
	if !ok {
		return 0, nil, false
	}
	for line := range strings.Lines(body) {
		var e extent
		if _, err := fmt.Sscanf(line, "number %d\n", &number); err == nil {
			continue
		}
		if _, err := fmt.Sscanf(line, "log %s %d %x\n", &e.name, &e.length, &e.sum); err != nil {
			return 0, nil, false
		}
		logs = append(logs, e)
	}
	return number, logs, true
}

// readSynced returns the promises in the file. It returns ErrDamaged if the file is illegible, or if it is missing although the directory
// has had it.
func (d *directory) readSynced() ([]extent, error) {
	path := d.join(syncedName)
	file, err := d.fs.Open(path)
	if oserror.IsNotExist(err) {
		if d.format.version >= formatSynced && d.format.marked && d.marks != nil && d.marks.hasHistory() {
			return nil, damaged("%s is missing", path)
		}
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, 2*slotBytes+1))
	if err != nil {
		return nil, err
	}
	var newest uint64
	var logs []extent
	for slot := range slices.Chunk(text, slotBytes) {
		if number, promised, ok := parseSlot(string(slot), d.format.disk); ok && number > newest {
			newest, logs = number, promised
		}
	}
	if newest == 0 || len(text) != 2*slotBytes {
		return nil, damaged("%s is illegible, or does not belong to this journal", path)
	}
	return logs, nil
}
