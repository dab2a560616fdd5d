package persistence

import (
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
)

// failure records the first error that ends the journal. Nothing is written after it.
type failure struct {
	logger *slog.Logger
	// ended is closed when the journal has failed and all its callers are being answered.
	ended chan struct{}

	mu        sync.Mutex
	err       error
	answerAll func()
}

func newFailure(logger *slog.Logger) *failure {
	return &failure{logger: logger, ended: make(chan struct{})}
}

// onFailure sets the function that fail calls to answer all callers. It calls the function at once if the journal has
// already failed.
func (f *failure) onFailure(abandon func()) {
	f.mu.Lock()
	f.answerAll = abandon
	failed := f.err != nil
	f.mu.Unlock()
	if failed {
		abandon()
	}
}

// fail ends the journal. Only the first call has an effect. Callers are answered before ended is closed, so that a
// process that exits on Failed has answered them.
func (f *failure) fail(err error) {
	f.mu.Lock()
	first, abandon := f.err == nil, f.answerAll
	if first {
		f.err = err
	}
	f.mu.Unlock()
	if !first {
		return
	}
	f.logger.Error("the journal has failed and writes nothing more: restart the process", "error", err)
	if abandon != nil {
		abandon()
	}
	close(f.ended)
}

// cause returns the error that ended the journal, or nil.
func (f *failure) cause() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// pebbleFatal is the panic that Fatalf raises to leave Pebble. guard recovers it.
type pebbleFatal struct{ err error }

// guard calls write, which calls Pebble, and turns a panic or a fatal error of Pebble into an error that ends the
// journal. Runtime errors panic again. After a failure the store must be neither written nor closed, because the panic
// may have left Pebble's locks held. Errors of the log never reach guard (see disk).
//
//go:noinline
func (f *failure) guard(write func() error) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
			return
		case pebbleFatal:
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

// isGuarded reports whether the calling goroutine is inside guard.
func isGuarded() bool {
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

// pebbleLogger passes Pebble's messages to slog, and its fatal errors to failure.
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

// Fatalf ends the journal. It does not return: inside guard it panics, and otherwise it ends the goroutine, which belongs
// to Pebble. Its deferred calls release the locks that it holds, so that reads continue.
func (l pebbleLogger) Fatalf(format string, args ...any) {
	err := fmt.Errorf(format, args...)
	l.failure.fail(err)
	if isGuarded() {
		panic(pebbleFatal{err})
	}
	runtime.Goexit()
}
