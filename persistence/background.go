package persistence

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// maxBackgroundErrors in a row are more than a passing trouble.
const maxBackgroundErrors = 16

// background judges the errors of flushes and compactions, which Pebble tries again by itself. A full disk may get room
// again, and until then the writer refuses; any other error that does not pass is the end.
type background struct {
	failure *failure
	metrics *metrics
	// errors in a row, and those among them that were not for want of room.
	errors atomic.Int32
	broken atomic.Int32
}

// failed is called with Pebble's locks held.
func (b *background) failed(err error) {
	b.metrics.backgroundErrors.Inc()
	b.failure.logger.Error("pebble in the background", "error", err)
	b.errors.Add(1)
	if errors.Is(err, syscall.ENOSPC) {
		return
	}
	if b.broken.Add(1) == maxBackgroundErrors {
		b.failure.fail(fmt.Errorf("background: %w", err))
	}
}

func (b *background) flushed(info pebble.FlushInfo) {
	if info.Err == nil {
		b.errors.Store(0)
		b.broken.Store(0)
	}
}

func (b *background) listener() *pebble.EventListener {
	return &pebble.EventListener{
		BackgroundError: b.failed,
		FlushEnd:        b.flushed,
		WriteStallBegin: func(pebble.WriteStallBeginInfo) { b.metrics.stalls.Inc() },
	}
}

// paced slows down the making of tables after errors, since Pebble tries again without a pause, and has its locks held
// wherever else it could be slowed.
type paced struct {
	vfs.FS
	background *background
}

const (
	pace    = 5 * time.Millisecond // for each error in a row
	maxPace = 50 * pace
)

func (p paced) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if n := p.background.errors.Load(); n > 0 && strings.HasSuffix(name, ".sst") {
		time.Sleep(min(time.Duration(n)*pace, maxPace))
	}
	return p.FS.Create(name, category)
}

func (p paced) Unwrap() vfs.FS { return p.FS }
