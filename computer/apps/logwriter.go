package apps

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// writer returns a writer for the output of a process. It replaces the secret, if there is one, with "[key]", so that an app that
// prints its key does not put it into a file. The writers of one process have the same output.
func (a *appLog) writer(stream, secret string, o *output) *lineWriter {
	w := &lineWriter{log: a, stream: stream, output: o}
	if secret != "" {
		w.secrets = []string{secret, secret[strings.LastIndex(secret, "_")+1:]}
	}
	return w
}

// partialPause is the time after which the beginning of a line is logged although its end is missing.
const partialPause = time.Second

// A lineWriter divides output into lines.
type lineWriter struct {
	log    *appLog
	stream string
	output *output
	// secrets are the key, and the part of it that is secret; nil: there is none.
	secrets []string

	// mu guards the fields below, because late runs on a goroutine of its own.
	mu   sync.Mutex
	rest []byte
	// late logs rest if nothing follows; nil: nothing was written yet.
	late *time.Timer
	// isIncomplete is set if the beginning of the present line was dropped. The rest of it is dropped as well: it may begin within
	// the secret.
	isIncomplete bool
}

// Write implements io.Writer. It never fails.
func (w *lineWriter) Write(p []byte) (int, error) {
	written := len(p)
	isDropped := w.log.dropFlood(len(p), w.output)
	w.mu.Lock()
	defer w.mu.Unlock()
	if isDropped {
		w.rest, w.isIncomplete = w.rest[:0], true
		return written, nil
	}
	if w.isIncomplete {
		_, after, found := bytes.Cut(p, []byte("\n"))
		w.log.dropped.Add(float64(len(p) - len(after)))
		p, w.isIncomplete = after, !found
	}
	for len(p) > 0 {
		line, after, found := bytes.Cut(p, []byte("\n"))
		if room := MaxLine - len(w.rest); len(line) > room {
			line, after, found = p[:room], p[room:], true
		}
		isCut := found && len(line) == MaxLine-len(w.rest) && !bytes.HasSuffix(p[:len(p)-len(after)], []byte("\n"))
		w.rest = append(w.rest, line...)
		switch {
		case isCut:
			w.cut()
		case found:
			w.flush()
		}
		p = after
	}
	switch {
	case len(w.rest) == 0:
	case w.late == nil:
		w.late = time.AfterFunc(partialPause, w.flushLate)
	default:
		w.late.Reset(partialPause)
	}
	return written, nil
}

// flushLate logs the beginning of a line, but not what may be the beginning of a secret at its end.
func (w *lineWriter) flushLate() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.rest) > w.held() {
		w.cut()
	}
}

// start consumes a stream in the background. The log stays in use until the stream ends, which may be after the end of the loop: opened
// again meanwhile, it would be another one with the same files, and number its lines beside this one.
func (w *lineWriter) start(from io.ReadCloser) {
	w.log.hold()
	go func() {
		defer w.log.release(w.log)
		w.consume(from)
	}()
}

// consume writes the output of a stream until it ends. The last line may have no end.
func (w *lineWriter) consume(from io.ReadCloser) {
	defer from.Close()
	_, _ = io.Copy(w, from)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.rest) > 0 {
		w.flush()
	}
}

// held returns the number of bytes at the end of rest with which a secret may begin.
func (w *lineWriter) held() int {
	held := 0
	for _, secret := range w.secrets {
		for n := min(len(secret), len(w.rest)); n > held; n-- {
			if n < len(secret) && strings.HasPrefix(secret, string(w.rest[len(w.rest)-n:])) {
				held = n
			}
		}
	}
	return held
}

// cut flushes a part of a line, but not the beginning of a secret at its end.
func (w *lineWriter) cut() {
	held := w.held()
	beginning := slices.Clone(w.rest[len(w.rest)-held:])
	w.rest = w.rest[:len(w.rest)-held]
	w.flush()
	w.rest = append(w.rest, beginning...)
}

func (w *lineWriter) flush() {
	text := strings.ToValidUTF8(strings.TrimSuffix(string(w.rest), "\r"), "\uFFFD")
	w.rest = w.rest[:0]
	for _, secret := range w.secrets {
		text = strings.ReplaceAll(text, secret, "[key]")
	}
	w.log.add(w.stream, text, w.output)
}
