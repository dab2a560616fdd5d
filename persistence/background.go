package persistence

import (
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
)

// maxBackgroundErrors in a row are more than a passing trouble.
const maxBackgroundErrors = 16

// background judges the errors of flushes and compactions, which Pebble tries again by itself. A full disk may get room
// again, and until then the writer refuses; file descriptors become free again; any other error that does not pass is the end.
type background struct {
	failure *failure
	metrics *metrics
	// errors in a row, and those among them that were not for want of room or of descriptors.
	errors atomic.Int32
	broken atomic.Int32
}

// failed is called with Pebble's locks held.
func (b *background) failed(err error) {
	b.metrics.backgroundErrors.Inc()
	b.failure.logger.Error("pebble in the background", "error", err)
	b.errors.Add(1)
	if errors.Is(err, syscall.ENOSPC) || outOfDescriptors(err) {
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

// damaged logs what Pebble found when it met bytes that are not those that were written. The read that met them returns
// an error; other reads go on. Pebble's default is to end the process.
func (b *background) damaged(info pebble.DataCorruptionInfo) {
	b.metrics.damagedReads.Inc()
	b.failure.logger.Error("a file of the journal is damaged: restore the data directory from a copy",
		"file", info.Path, "error", info.Details)
}

func (b *background) listener() *pebble.EventListener {
	return &pebble.EventListener{
		BackgroundError: b.failed,
		DataCorruption:  b.damaged,
		FlushEnd:        b.flushed,
		WriteStallBegin: func(pebble.WriteStallBeginInfo) { b.metrics.stalls.Inc() },
	}
}
