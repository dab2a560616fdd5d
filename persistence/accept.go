package persistence

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/cockroachdb/errors/oserror"
)

// Acceptance is the result of Accept.
type Acceptance struct {
	// Events is the number of events in the journal, according to the sequences of its feeds.
	Events uint64
	// Missing is the number of further events that the marks promise, or 0 if the marks are missing or unreadable.
	Missing uint64
	// Lost names each log that lacks acknowledged rows, or has other ones, and says why.
	Lost []string
}

// Accept lets a data directory open although it contains less than its marks promise, after its operator has restored only
// parts of it, or does without the missing events. It replaces the marks and begins a new timeline, so that older cursors are
// refused; the events stay unchanged. The journal must not be open. Accept fails if the store cannot be read. The acceptance is recorded in
// the directory first, so that the metrics of each later process have it.
func Accept(o Options) (Acceptance, error) {
	o = o.withDefaults()
	a, err := acceptStore(o)
	if err != nil {
		return a, fmt.Errorf("data directory %s: %w", o.Dir, err)
	}
	o.Logger.Error("the journal was accepted as it is", slog.String("dir", o.Dir), slog.Uint64("events", a.Events),
		slog.Uint64("missing_events", a.Missing), slog.Any("lost", a.Lost))
	return a, nil
}

// acceptStore is Accept without the name of the directory in its errors.
func acceptStore(o Options) (a Acceptance, err error) {
	d := &directory{fs: o.FS, path: o.Dir, marksPath: o.Marks}
	for _, part := range []string{formatName, storeName} {
		if has, err := d.contains(part); err != nil {
			return a, err
		} else if !has {
			return a, damaged("%s is missing", d.join(part))
		}
	}
	if d.lock, err = d.fs.Lock(d.join(lockName)); err != nil {
		return a, fmt.Errorf("in use by another process: %w", err)
	}
	defer d.lock.Close()
	text, err := d.readFormat()
	if err != nil {
		return a, err
	}
	if d.format, err = parseFormat(text); err != nil {
		return a, err
	}
	held, err := o.verifier(d).verify(nil, d.format.partitions)
	if err != nil {
		return a, err
	}
	promised, _, _ := readMarks(o.FS, o.Marks) // unreadable marks are replaced
	logs, _ := d.readSynced()                  // an illegible file is replaced
	for _, e := range logs {
		if err := o.verifier(d).checkExtent(e); err != nil {
			a.Lost = append(a.Lost, fmt.Sprintf("%s: %v", d.fs.PathJoin(d.join(storeName), e.name), err))
		}
	}
	for p, has := range held.partitions {
		a.Events += has.sequence
		if promised != nil && p < len(promised.partitions) {
			a.Missing += max(promised.partitions[p].sequence, has.sequence) - has.sequence
		}
	}
	if err := d.recordAcceptance(a); err != nil {
		return a, err
	}
	if err := d.replaceSynced(); err != nil {
		return a, err
	}
	_, err = d.writeMarksOf(held, newID())
	return a, err
}

const (
	acceptedName = "ACCEPTED"
	// maxAcceptedBytes bounds the file of acceptances.
	maxAcceptedBytes = 1 << 20
)

// accepted counts the acceptances in the file ACCEPTED, which has a JSON object for each, one a line. The file only counts: an illegible
// line counts as an acceptance, and prevents no start.
type accepted struct {
	// times is the number of acceptances, and missing the sum of the events that were known to be missing.
	times, missing uint64
}

// acceptanceLine is a line of the file.
type acceptanceLine struct {
	At      time.Time `json:"at"`
	Events  uint64    `json:"events"`
	Missing uint64    `json:"missing"`
	Lost    []string  `json:"lost,omitzero"`
}

// recordAcceptance adds a line to the file, durably. If the acceptance fails afterwards and is repeated, it counts twice.
func (d *directory) recordAcceptance(a Acceptance) error {
	before, err := d.readAccepted()
	if err != nil {
		return err
	}
	line, err := json.Marshal(acceptanceLine{time.Now().UTC(), a.Events, a.Missing, a.Lost})
	if err != nil {
		return err
	}
	return d.replace(acceptedName, append(append(before, line...), '\n'))
}

// readAccepted returns the content of the file, which is empty if there is none.
func (d *directory) readAccepted() ([]byte, error) {
	file, err := d.fs.Open(d.join(acceptedName))
	if oserror.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, maxAcceptedBytes))
}

// countAccepted counts the acceptances in the file.
func (d *directory) countAccepted() (accepted, error) {
	var sum accepted
	content, err := d.readAccepted()
	for line := range bytes.Lines(content) {
		var a acceptanceLine
		_ = json.Unmarshal(line, &a)
		sum.times, sum.missing = sum.times+1, sum.missing+a.Missing
	}
	return sum, err
}

// reportLosses logs and counts the known losses of a journal that opens: the losses that operators have accepted, and a last log that
// ends with an incomplete record.
func (s *Store) reportLosses(v *verifier) {
	log := s.options.Logger
	var err error
	if s.accepted, err = s.directory.countAccepted(); err != nil {
		log.Error("cannot read which losses of the journal were accepted", slog.String("file", s.directory.join(acceptedName)), slog.Any("error", err))
	}
	if s.accepted.times > 0 {
		log.Warn("the journal has been accepted as it was, and may lack events", slog.String("file", s.directory.join(acceptedName)),
			slog.Uint64("times", s.accepted.times), slog.Uint64("missing_events", s.accepted.missing))
	}
	if v.isTorn {
		s.metrics.tornLogs.Inc()
		log.Error("the last record of the journal's log is incomplete: if the machine has lost power, and its disk has lost what it had stored, "+
			"the last acknowledged changes may be missing", slog.String("file", v.lastLog))
	}
}
