package persistence

import (
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
)

// failure is the end of a journal: the first error after which nothing may be written.
type failure struct {
	logger *slog.Logger
	ended  chan struct{}

	mu      sync.Mutex
	err     error
	answerAll func()
}

func newFailure(logger *slog.Logger) *failure {
	return &failure{logger: logger, ended: make(chan struct{})}
}

// then is what is done when the journal fails; at once where it has.
func (f *failure) onFailure(abandon func()) {
	f.mu.Lock()
	f.answerAll = abandon
	failed := f.err != nil
	f.mu.Unlock()
	if failed {
		abandon()
	}
}

// fail answers what waits before it tells that the journal has failed, so that who was told is in no doubt.
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
	f.logger.Error("the journal has failed", "error", err)
	if abandon != nil {
		abandon()
	}
	close(f.ended)
}

// cause is the error of a journal that has failed, else nil.
func (f *failure) cause() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// fatal unwinds from Pebble to guard.
type pebbleFatal struct{ err error }

// guard turns what Pebble considers the end of the process into an error: panics, and Fatalf, which must not return.
// (Errors of the log do not get that far: see disk.) The store is not to be written or closed after that: Pebble may
// have unwound with its locks held.
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

// guarded tells whether the caller's goroutine is inside guard.
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
	if isGuarded() {
		panic(pebbleFatal{err})
	}
	runtime.Goexit()
}
