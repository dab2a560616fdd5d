package persistence

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// Checkpoint makes dir a data directory of its own, with a disk id of its own: a copy that went by the same would be
// taken for the original by whoever has its votes or its log counted. It has no marks: they are made, with a timeline of
// their own, when it is first opened. Its format file is written last, so that one that was cut off does not open. Files that Pebble does not change any more are linked, not copied, where dir lies on the
// same file system.
func (s *Store) Checkpoint(dir string) error {
	if err := s.checkpoint(dir); err != nil {
		return fmt.Errorf("checkpoint %s: %w", dir, err)
	}
	return nil
}

func (s *Store) checkpoint(dir string) error {
	if err := s.views.enter(); err != nil {
		return err
	}
	defer s.views.exit()
	if s.failure.cause() != nil {
		return ErrClosed
	}
	fs := s.options.FS
	if _, err := fs.Stat(dir); err == nil {
		return fmt.Errorf("it exists")
	}
	copied := &directory{fs: fs, path: dir, format: s.directory.format}
	copied.format.disk, copied.format.marked = newID(), false
	if err := s.copyStore(copied.name(storeName)); err != nil {
		return err
	}
	return copied.write()
}

// copyStore does not outlast the journal: Pebble writes to its log first, and may stay there.
func (s *Store) copyStore(dir string) error {
	done := make(chan error, 1)
	go func() {
		done <- s.failure.guard(func() error { return s.db.Checkpoint(dir, pebble.WithFlushedWAL()) })
	}()
	select {
	case err := <-done:
		return err
	case <-s.failure.ended:
		return ErrClosed
	}
}
