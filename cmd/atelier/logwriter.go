package main

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
)

const (
	// maxQueuedLog bounds the lines that wait for the reader of the log, in bytes.
	maxQueuedLog = 1 << 20
	// atomicLine is the greatest write that a pipe takes whole when poll(2) says that it is writable: PIPE_BUF of pipe(7).
	atomicLine = 4096
	// lastLines is the time in which the reader of the log can read the queued lines when the node has ended.
	lastLines = 2 * time.Second
)

// A logWriter writes the log of a node to a file without waiting for the reader of the file. A blocking write would stop each request
// that logs a line while a supervisor does not read its pipe, or while a person has stopped the terminal with Ctrl-S. If the file accepts a
// line without blocking, the line is written at once, so that the lines before a crash are not lost. Otherwise lines are queued, up to
// maxQueuedLog bytes. Lines beyond this bound are dropped and counted, and so is each line after the last reader of the file has left.
// A later line says how many lines were dropped. A logWriter is safe for concurrent use.
type logWriter struct {
	file *os.File
	// isDirect reports whether poll(2) says that the file accepts a line of atomicLine bytes whole; a terminal may accept a part of it.
	isDirect bool
	// describe returns a line of the log that says how many lines were dropped.
	describe func(dropped int) []byte
	total    prometheus.Counter

	mu      sync.Mutex
	queue   [][]byte
	bytes   int // of queue, and of the line that flush is writing
	dropped int // since the last line that said so
	// flushed is closed when flush has ended, nil while it does not run.
	flushed chan struct{}
}

// newLogWriter returns a writer of log lines in a format of newLog.
func newLogWriter(file *os.File, format string) *logWriter {
	info, err := file.Stat()
	return &logWriter{
		file: file, isDirect: err == nil && info.Mode()&os.ModeCharDevice == 0,
		describe: func(dropped int) []byte {
			var line bytes.Buffer
			if log, err := newLog(&line, "warn", format); err == nil {
				log.Warn("lines of the log were dropped, because its reader did not read them", slog.Int("lines", dropped))
			}
			return line.Bytes()
		},
		total: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "atelier_log_dropped_lines_total", Help: "Lines of the log that were dropped, because its reader did not read them.",
		}),
	}
}

// Write writes or queues a line, or drops it. It returns no error and does not block.
func (w *logWriter) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.isDirect && w.flushed == nil && w.dropped == 0 && len(line) <= atomicLine && w.isWritable():
		if _, err := w.file.Write(line); err != nil {
			w.drop()
		}
	case w.bytes+len(line) > maxQueuedLog:
		w.drop()
	default:
		w.queue = append(w.queue, bytes.Clone(line))
		w.bytes += len(line)
		if w.flushed == nil {
			w.flushed = make(chan struct{})
			go w.flush()
		}
	}
	return len(line), nil
}

func (w *logWriter) drop() {
	w.dropped++
	w.total.Inc()
}

// isWritable reports whether the file takes a line of at most atomicLine bytes at once.
func (w *logWriter) isWritable() bool {
	ready := []unix.PollFd{{Fd: int32(w.file.Fd()), Events: unix.POLLOUT}}
	n, err := unix.Poll(ready, 0)
	return err == nil && n == 1
}

// flush writes the queued lines, and then how many were dropped meanwhile.
func (w *logWriter) flush() {
	for {
		w.mu.Lock()
		var line []byte
		switch {
		case len(w.queue) > 0:
			line = w.queue[0]
			w.queue = w.queue[1:]
		case w.dropped > 0:
			line = w.describe(w.dropped)
			w.dropped = 0
			w.bytes += len(line)
		default:
			close(w.flushed)
			w.queue, w.flushed = nil, nil
			w.mu.Unlock()
			return
		}
		w.mu.Unlock()
		_, err := w.file.Write(line)
		w.mu.Lock()
		w.bytes -= len(line)
		if err != nil {
			w.total.Inc()
		}
		w.mu.Unlock()
	}
}

// Close waits until the queued lines are written, for lastLines at most: perhaps no program reads them any more. It returns nil.
func (w *logWriter) Close() error {
	w.mu.Lock()
	flushed := w.flushed
	w.mu.Unlock()
	if flushed != nil {
		select {
		case <-flushed:
		case <-time.After(lastLines):
		}
	}
	return nil
}

var _ io.WriteCloser = (*logWriter)(nil)
