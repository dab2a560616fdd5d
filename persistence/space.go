package persistence

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

var errDiskFull = fmt.Errorf("%w: the disk is nearly full", ErrRefused)

// space keeps the writer off a disk that is nearly full, so that Pebble has room for what it must write to go on. The
// disk is asked once in a while, or after much was written.
type space struct {
	fs    vfs.FS
	dir   string
	least uint64
	every time.Duration

	asked   time.Time
	written int
	full    atomic.Bool
}

const spaceInterval = time.Second

// check refuses a write of so many bytes when there is no room for it.
func (s *space) check(bytes int) error {
	now := time.Now()
	s.written += bytes
	if now.Sub(s.asked) >= s.every || uint64(s.written) > s.least/8 {
		s.asked, s.written = now, bytes
		usage, err := s.fs.GetDiskUsage(s.dir)
		s.full.Store(err == nil && usage.AvailBytes < s.least)
	}
	if s.full.Load() {
		return errDiskFull
	}
	return nil
}
