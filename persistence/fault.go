package persistence

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
)

// failure is the end of a journal: the first error after which nothing may be written.
type failure struct {
	once    sync.Once
	err     error
	ended   chan struct{}
	abandon func()
	logger  *slog.Logger
}

func (f *failure) fail(err error) {
	f.once.Do(func() {
		f.err = err
		f.logger.Error("the journal has failed", "error", err)
		close(f.ended)
		if f.abandon != nil {
			f.abandon()
		}
	})
}

// cause is the error of a journal that has failed, else nil.
func (f *failure) cause() error {
	select {
	case <-f.ended:
		return f.err
	default:
		return nil
	}
}

// fatal unwinds from Pebble to guard.
type fatal struct{ err error }

// guard turns what Pebble considers the end of the process into an error. Pebble panics with the error of a write to
// its log, and calls Fatalf, which must not return, with that of a sync. The store is not to be written or closed after
// that: Pebble may have unwound with its locks held.
//
//go:noinline
func (f *failure) guard(write func() error) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
			return
		case fatal:
			err = r.err
		case runtime.Error:
			panic(r)
		case error:
			err = r
		default:
			panic(r)
		}
		f.fail(err)
	}()
	return write()
}

// guarded tells whether the caller's goroutine is inside guard.
func guarded() bool {
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs[:])])
	for {
		frame, more := frames.Next()
		if strings.HasSuffix(frame.Function, "/persistence.(*failure).guard") {
			return true
		}
		if !more {
			return false
		}
	}
}

// pebbleLogger hands Pebble's messages on, and its fatal errors to failure.
type pebbleLogger struct {
	slog    *slog.Logger
	failure *failure
}

func (l pebbleLogger) Infof(format string, args ...any) {
	l.slog.Debug("pebble", "message", fmt.Sprintf(format, args...))
}

func (l pebbleLogger) Errorf(format string, args ...any) {
	l.slog.Error("pebble", "message", fmt.Sprintf(format, args...))
}

// Fatalf does not return. A goroutine of Pebble's own ends here; its deferred calls unlock what it held, so that reads
// go on.
func (l pebbleLogger) Fatalf(format string, args ...any) {
	err := fmt.Errorf(format, args...)
	l.failure.fail(err)
	if guarded() {
		panic(fatal{err})
	}
	runtime.Goexit()
}

// maxBackgroundErrors in a row are more than a passing trouble.
const maxBackgroundErrors = 16

// background judges the errors of flushes and compactions, which Pebble tries again by itself. A full disk may get room
// again, and until then the writer refuses; any other error that does not pass is the end. Pebble calls it with its
// locks held.
type background struct {
	failure *failure
	metrics *metrics
	inARow  atomic.Int32
}

func (b *background) failed(err error) {
	b.metrics.backgroundErrors.Inc()
	b.failure.logger.Error("pebble in the background", "error", err)
	if errors.Is(err, syscall.ENOSPC) {
		return
	}
	if b.inARow.Add(1) >= maxBackgroundErrors || pebble.IsCorruptionError(err) {
		b.failure.fail(fmt.Errorf("background: %w", err))
	}
}

func (b *background) listener() *pebble.EventListener {
	return &pebble.EventListener{
		BackgroundError: b.failed,
		FlushEnd: func(info pebble.FlushInfo) {
			if info.Err == nil {
				b.inARow.Store(0)
			}
		},
		WriteStallBegin: func(pebble.WriteStallBeginInfo) { b.metrics.stalls.Inc() },
	}
}
