package apps

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// writer returns a writer for the output of a process. The writer replaces secret by "[key]" unless secret is empty, so that an app that prints
// its key does not write the key to a file. The writers of one process share one output.
func (a *appLog) writer(stream, secret string, o *output) *lineWriter {
	w := &lineWriter{log: a, stream: stream, output: o}
	if secret != "" {
		w.secrets = []string{secret, secret[strings.LastIndex(secret, "_")+1:]}
	}
	return w
}

// partialPause is the time without output after which the beginning of a line is logged although the line has no end yet.
const partialPause = time.Second

// A lineWriter divides output into lines.
type lineWriter struct {
	log    *appLog
	stream string
	output *output
	// secrets has the key, and the secret part of the key; nil: the process has no key.
	secrets []string

	// mu guards the fields below, because late runs on its own goroutine. rest is the beginning of the current line, which is not logged yet.
	mu   sync.Mutex
	rest []byte
	// late logs rest if no output follows within partialPause; nil before the first write.
	late *time.Timer
	// isIncomplete is set if the beginning of the current line was dropped. The end of the line is then dropped as well, because it may begin
	// within the secret.
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

// flushLate logs rest, except a possible beginning of a secret at the end of rest.
func (w *lineWriter) flushLate() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.rest) > w.held() {
		w.cut()
	}
}

// start consumes a stream in the background. It holds the log until the stream ends, which may be after the end of the loop: otherwise acquire
// could open a second log with the same files, and both logs would give the same numbers to different lines.
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

// held returns the length of the longest beginning of a secret at the end of rest.
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

// cut logs rest as a line, except a possible beginning of a secret at the end of rest, which begins the next line.
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
