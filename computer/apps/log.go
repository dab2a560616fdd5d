package apps

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
)

// Limits of the log of an app.
const (
	// MaxLine is the greatest length of a line, in bytes. A longer one is cut into several.
	MaxLine = 8 << 10
	// maxMemory limits the text of the lines in memory, in bytes, and maxLines their number.
	maxMemory = 512 << 10
	maxLines  = 4096
	// maxFile is the size of a file, in bytes, at which the next one begins; a log has two.
	maxFile = 1 << 20
	// logRate and logBurst limit the text that a process writes, in bytes a second and at once. The rest is dropped and counted, so
	// that a flood neither stops the process nor fills the disk.
	logRate, logBurst = 1 << 20, 4 << 20
	// tailLines and tailBytes limit the part of a log that the reason of a failure has.
	tailLines, tailBytes = 10, 1200
)

// StreamPlatform is the stream of the lines that the platform writes into the log of an app. The others are install, stdout and stderr.
const StreamPlatform = "platform"

// A Line is a line of the log of an app. Its JSON is its form in the files.
type Line struct {
	// Seq is the number of the line in the log of the app, from 1. It goes on after a restart of the node.
	Seq uint64 `json:"seq"`
	// At is the time in milliseconds since the Unix epoch.
	At     int64  `json:"at"`
	Stream string `json:"stream"`
	Text   string `json:"text"`
}

// logs has the logs that are in use.
type logs struct {
	dir     string
	slog    *slog.Logger
	dropped prometheus.Counter

	mu   sync.Mutex
	open map[string]*appLog
}

func newLogs(dir string, log *slog.Logger) *logs {
	return &logs{dir: dir, slog: log, open: map[string]*appLog{}, dropped: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "atelier_app_log_dropped_bytes_total", Help: "Output of apps that was dropped, because they wrote too fast."})}
}

// An appLog is the log of an app: its last lines in memory, and somewhat more in files.
type appLog struct {
	*logs
	appID string
	// users counts the loops and readers. logs.mu guards it.
	users int

	mu    sync.Mutex
	lines []Line
	bytes int
	last  uint64
	file  *os.File
	size  int64
	// isBroken is set after a failure to write, which is logged once.
	isBroken bool
	// budget is the number of bytes that may be written, as of the time filled. skipped counts those that were dropped since.
	budget, skipped int
	filled          time.Time
	// news is closed, and made anew, when a line is added.
	news chan struct{}
}

// acquire returns the log of an app. release must follow.
func (l *logs) acquire(appID string) (*appLog, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.open[appID]
	if a == nil {
		a = &appLog{logs: l, appID: appID, budget: logBurst, filled: time.Now(), news: make(chan struct{})}
		if err := a.load(); err != nil {
			return nil, err
		}
		l.open[appID] = a
	}
	a.users++
	return a, nil
}

func (l *logs) release(a *appLog) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.users--; a.users > 0 {
		return
	}
	if l.open[a.appID] == a {
		delete(l.open, a.appID)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.file != nil {
		_ = a.file.Close()
		a.file = nil
	}
}

// remove deletes the log of an app. Lines that are added later are in memory only.
func (l *logs) remove(appID string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.open[appID]; a != nil {
		a.mu.Lock()
		a.isBroken = true
		a.mu.Unlock()
	}
	return os.RemoveAll(l.folder(appID))
}

func (l *logs) folder(appID string) string { return filepath.Join(l.dir, appID) }

// path returns the path of the file that is written to, and of the one before it.
func (a *appLog) path() string         { return filepath.Join(a.folder(a.appID), "log") }
func (a *appLog) previousPath() string { return a.path() + ".1" }

// load reads the lines of the files. A line that was cut off by the end of the node is left out.
func (a *appLog) load() error {
	for _, path := range []string{a.previousPath(), a.path()} {
		content, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		for line := range bytes.Lines(content) {
			var read Line
			if json.Unmarshal(line, &read) == nil && read.Seq > a.last {
				a.keep(read)
			}
		}
	}
	return nil
}

// keep adds a line to those in memory, and drops the oldest ones beyond the limits.
func (a *appLog) keep(line Line) {
	a.lines, a.bytes, a.last = append(a.lines, line), a.bytes+len(line.Text), line.Seq
	drop := 0
	for drop < len(a.lines)-1 && (a.bytes > maxMemory || len(a.lines)-drop > maxLines) {
		a.bytes -= len(a.lines[drop].Text)
		drop++
	}
	if drop > 0 {
		a.lines = append(a.lines[:0], a.lines[drop:]...) // appending would otherwise keep what was dropped
	}
}

// add adds a line of a stream.
func (a *appLog) add(stream, text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if stream != StreamPlatform && !a.afford(len(text)+1) {
		return
	}
	a.write(stream, text)
	close(a.news)
	a.news = make(chan struct{})
}

// platform adds a line of the platform.
func (a *appLog) platform(text string) {
	for line := range strings.SplitSeq(excerpt(text), "\n") {
		a.add(StreamPlatform, line)
	}
}

// afford reports whether the budget has room for a line. When it has room again, a line says how much was dropped.
func (a *appLog) afford(size int) bool {
	now := time.Now()
	a.budget = min(logBurst, a.budget+int(now.Sub(a.filled).Seconds()*logRate))
	a.filled = now
	if a.budget < size || a.skipped > 0 && a.budget < logBurst/2 {
		a.skipped += size
		a.dropped.Add(float64(size))
		return false
	}
	a.budget -= size
	if a.skipped > 0 {
		a.write(StreamPlatform, "dropped output: the app writes more than is logged")
		a.skipped = 0
	}
	return true
}

// write adds a line to the file and to those in memory. The caller holds mu.
func (a *appLog) write(stream, text string) {
	line := Line{Seq: a.last + 1, At: time.Now().UnixMilli(), Stream: stream, Text: text}
	a.keep(line)
	if a.isBroken {
		return
	}
	if err := a.store(line); err != nil {
		a.isBroken = true
		a.slog.Warn("cannot write the log of an app any more; it is in memory only", slog.String("app", a.appID), slog.Any("error", err))
	}
}

// store appends a line to the file, which it opens, and replaces when it is full. The log of an app is nothing that was acknowledged, so
// it is not synced.
func (a *appLog) store(line Line) error {
	if a.file != nil && a.size >= maxFile {
		if err := errors.Join(a.file.Close(), os.Rename(a.path(), a.previousPath())); err != nil {
			return err
		}
		a.file = nil
	}
	if a.file == nil {
		if err := os.MkdirAll(a.folder(a.appID), 0o700); err != nil {
			return err
		}
		file, err := os.OpenFile(a.path(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return err
		}
		found, err := file.Stat()
		if err != nil {
			return errors.Join(err, file.Close())
		}
		a.file, a.size = file, found.Size()
		if a.size > 0 { // the last line may have been cut off
			if _, err := a.file.WriteString("\n"); err != nil {
				return err
			}
		}
	}
	encoded, err := json.Marshal(line)
	if err != nil {
		return err
	}
	n, err := a.file.Write(append(encoded, '\n'))
	a.size += int64(n)
	return err
}

// tail returns the last lines of the app for the reason of a failure, with a line feed before each.
func (a *appLog) tail() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var last []string
	size := 0
	for i := len(a.lines) - 1; i >= 0 && len(last) < tailLines; i-- {
		if a.lines[i].Stream == StreamPlatform {
			break
		}
		if size += len(a.lines[i].Text) + 1; size > tailBytes {
			break
		}
		last = append([]string{a.lines[i].Text}, last...)
	}
	return lines(last)
}

// Lines are a part of the log of an app.
type Lines struct {
	Lines []Line
	// Missed is set if lines between the position and the first of these are not available any more.
	Missed bool
	// News is closed when there are further lines.
	News <-chan struct{}
}

// Logs opens the log of an app. It returns a function that returns at most limit lines after a position, of which 0 is the beginning,
// and one that must be called when the log is not read any more.
func (s *Supervisor) Logs(workspaceID, appID string) (read func(after uint64, limit int) Lines, release func(), err error) {
	if !app.IsID(appID) {
		return nil, nil, entity.Errorf(entity.NotFound, "no such app")
	}
	a, err := s.logs.acquire(appID)
	if err != nil {
		return nil, nil, err
	}
	var once sync.Once
	return a.read, func() { once.Do(func() { s.logs.release(a) }) }, nil
}

func (a *appLog) read(after uint64, limit int) Lines {
	a.mu.Lock()
	defer a.mu.Unlock()
	found := Lines{News: a.news}
	if len(a.lines) == 0 {
		return found
	}
	from := sort.Search(len(a.lines), func(i int) bool { return a.lines[i].Seq > after })
	found.Missed = after != 0 && after+1 < a.lines[0].Seq
	found.Lines = append(found.Lines, a.lines[from:min(from+limit, len(a.lines))]...)
	if from+limit < len(a.lines) {
		ready := make(chan struct{})
		close(ready)
		found.News = ready
	}
	return found
}

// writer returns a writer for the output of a process. It replaces the secret, if there is one, with "[key]", so that an app that
// prints its key does not put it into a file.
func (a *appLog) writer(stream, secret string) *lineWriter {
	return &lineWriter{log: a, stream: stream, secret: secret}
}

// A lineWriter divides output into lines.
type lineWriter struct {
	log            *appLog
	stream, secret string
	rest           []byte
}

// Write implements io.Writer. It never fails.
func (w *lineWriter) Write(p []byte) (int, error) {
	written := len(p)
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
	return written, nil
}

// consume writes the output of a stream until it ends. The last line may have no end.
func (w *lineWriter) consume(from io.ReadCloser) {
	defer from.Close()
	_, _ = io.Copy(w, from)
	if len(w.rest) > 0 {
		w.flush()
	}
}

// cut flushes a part of a line that is too long, but not the beginning of the secret at its end.
func (w *lineWriter) cut() {
	held := 0
	for n := min(len(w.secret), len(w.rest)) - 1; n > 0; n-- {
		if strings.HasPrefix(w.secret, string(w.rest[len(w.rest)-n:])) {
			held = n
			break
		}
	}
	beginning := slices.Clone(w.rest[len(w.rest)-held:])
	w.rest = w.rest[:len(w.rest)-held]
	w.flush()
	w.rest = append(w.rest, beginning...)
}

func (w *lineWriter) flush() {
	text := strings.ToValidUTF8(strings.TrimSuffix(string(w.rest), "\r"), "\uFFFD")
	w.rest = w.rest[:0]
	if w.secret != "" {
		text = strings.ReplaceAll(text, w.secret, "[key]")
	}
	w.log.add(w.stream, text)
}
