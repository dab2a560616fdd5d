package locks

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"slices"
)

const (
	locksFile = "locks.json"
	// minAppended is the number of bytes of changes that are appended before the file may be written anew.
	minAppended = 64 << 10
)

// A Store keeps small files beside a drive. drive.Drive implements it.
type Store interface {
	ReadState(name string) ([]byte, error)
	WriteState(name string, content []byte) error
	AppendState(name string, content []byte) error
}

// A lockFile is the file with the locks of a drive: an array of the locks at the time when the file was written, and behind it a line for
// each change since then, so that the refresh of a lock writes only a line. A change is a lock with a new token, or the token of an earlier
// lock and its new term, which is empty if the lock was released. The file is written anew when the changes are as long as the array.
type lockFile struct {
	Store
	// written is the size of the array and appended the size of the changes, in bytes.
	written, appended int
	// isWhole reports that the file exists and ends with a whole line.
	isWhole bool
}

// load reads the locks that have not expired by a clock, which are not validated. A file that ends within a change was cut off by a crash, before the
// change was acknowledged.
func (f *lockFile) load(log *slog.Logger, by clock) (stored []*Lock, err error) {
	content, err := f.ReadState(locksFile)
	if err != nil || content == nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(content))
	if err := decoder.Decode(&stored); err != nil {
		log.Error("cannot parse the lock table of a drive; its locks are lost", "error", err)
		return nil, nil
	}
	f.written = int(decoder.InputOffset())
	f.appended = len(content) - f.written
	for {
		var change *Lock
		err := decoder.Decode(&change)
		if err == io.EOF {
			f.isWhole = true
			break
		}
		if err != nil {
			if !errors.Is(err, io.ErrUnexpectedEOF) {
				log.Error("cannot parse a change in the lock table of a drive; it and later ones are lost", "error", err)
			}
			break
		}
		stored = applyChange(stored, change)
	}
	return slices.DeleteFunc(stored, func(held *Lock) bool {
		return held != nil && by.remaining(held.Term) <= 0
	}), nil
}

// applyChange returns the locks after a change. It reuses stored.
func applyChange(stored []*Lock, change *Lock) []*Lock {
	if change == nil {
		return stored
	}
	i := slices.IndexFunc(stored, func(held *Lock) bool { return held != nil && held.Token == change.Token })
	if i < 0 {
		return append(stored, change)
	}
	stored[i].Term = change.Term // an expired lock is left out in the end
	return stored
}

// save makes changes durable, after which the locks are next.
func (f *lockFile) save(next, changes []*Lock) error {
	var lines bytes.Buffer
	encoder := json.NewEncoder(&lines)
	encoder.SetEscapeHTML(false) // owners are XML
	if f.isWhole {
		for _, change := range changes {
			if err := encoder.Encode(change); err != nil {
				return err
			}
		}
		if f.appended+lines.Len() <= max(minAppended, f.written) {
			f.isWhole = false // until the lines are on the disk
			if err := f.AppendState(locksFile, lines.Bytes()); err != nil {
				return err
			}
			f.isWhole = true
			f.appended += lines.Len()
			return nil
		}
		lines.Reset()
	}
	if err := encoder.Encode(next); err != nil {
		return err
	}
	if err := f.WriteState(locksFile, lines.Bytes()); err != nil {
		return err
	}
	f.written, f.appended, f.isWhole = lines.Len(), 0, true
	return nil
}
