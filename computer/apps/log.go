package apps

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
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
	// MaxLine is the maximum length of a line, in bytes. A longer line of output is split.
	MaxLine = 8 << 10
	// maxMemory is the maximum size of the text of the lines in memory, in bytes. maxLines is the maximum number of lines in memory.
	maxMemory = 512 << 10
	maxLines  = 4096
	// maxFile is the size, in bytes, at which a file becomes the previous file and a new file begins. A log has at most these two files.
	maxFile = 1 << 20
	// logRate is the output that is logged for a process, in bytes a second, and logBurst the output that is logged at once, in bytes. Output
	// beyond them is dropped and counted, so that a flood neither stops the process nor fills the disk.
	logRate, logBurst = 1 << 20, 4 << 20
	// dropRate is the maximum rate at which output is dropped, in bytes a second. A process that writes faster has to wait, so that reading its
	// output does not occupy a processor of the server.
	dropRate = 64 << 20
	// tailLines and tailBytes limit the part of the log that is appended to the reason of a failure.
	tailLines, tailBytes = 10, 1200
)

// StreamPlatform is the stream of the lines that the platform writes into the log of an app. The streams of the app's commands are install,
// stdout and stderr.
const StreamPlatform = "platform"

// A Line is a line of the log of an app. Its JSON is its form in the files.
type Line struct {
	// Seq is the number of the line in the log of the app, from 1. The numbers continue after a restart of the node.
	Seq uint64 `json:"seq"`
	// At is the time in milliseconds since the Unix epoch.
	At     int64  `json:"at"`
	Stream string `json:"stream"`
	Text   string `json:"text"`
}

// logs has the logs that are in use.
type logs struct {
	dir     string
	now     func() time.Time
	slog    *slog.Logger
	dropped prometheus.Counter

	mu   sync.Mutex
	open map[string]*appLog
}

func newLogs(dir string, now func() time.Time, log *slog.Logger) *logs {
	return &logs{dir: dir, now: now, slog: log, open: map[string]*appLog{}, dropped: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "atelier_app_log_dropped_bytes_total", Help: "Output of apps that was dropped, because they wrote too fast."})}
}

// An appLog is the log of an app: its last lines in memory, and more lines in files.
type appLog struct {
	*logs
	appID string
	// users counts the loops, the readers, and the streams of processes. logs.mu guards it.
	users int

	mu    sync.Mutex
	lines []Line
	bytes int
	last  uint64
	file  *os.File
	size  int64
	// isBroken is set after a write has failed, or the log was removed. Further lines are in memory only.
	isBroken bool
	// news is closed and replaced when a line is added.
	news chan struct{}
}

// acquire returns the log of an app. The caller must call release.
func (l *logs) acquire(appID string) (*appLog, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.open[appID]
	if a == nil {
		a = &appLog{logs: l, appID: appID, news: make(chan struct{})}
		if err := a.load(); err != nil {
			return nil, err
		}
		l.open[appID] = a
	}
	a.users++
	return a, nil
}

// hold adds a user of a log that is in use. The caller must call release.
func (a *appLog) hold() {
	a.logs.mu.Lock()
	defer a.logs.mu.Unlock()
	a.users++
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

// path returns the path of the current file, and previousPath the path of the file before it.
func (a *appLog) path() string         { return filepath.Join(a.folder(a.appID), "log") }
func (a *appLog) previousPath() string { return a.path() + ".1" }

// load reads the lines of the files. It skips a line that is incomplete because the node ended while it wrote the line.
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

// keep adds a line to the lines in memory, and removes the oldest lines beyond the limits.
func (a *appLog) keep(line Line) {
	a.lines, a.bytes, a.last = append(a.lines, line), a.bytes+len(line.Text), line.Seq
	drop := 0
	for drop < len(a.lines)-1 && (a.bytes > maxMemory || len(a.lines)-drop > maxLines) {
		a.bytes -= len(a.lines[drop].Text)
		drop++
	}
	clear(a.lines[:drop]) // the array may live on until append replaces it
	a.lines = a.lines[drop:]
}

// An output is the output of one process. Each process has its own limit, so that a flood of the current process does not suppress the lines of
// its successor that starts. appLog.mu guards the fields.
type output struct {
	// left is the number of bytes that may be logged, as of the time filled. skipped is the number of bytes that were dropped since the last
	// logged line.
	left, skipped int
	filled        time.Time
	// last has the last lines of the process, at most tailLines.
	last []string
}

func newOutput() *output { return &output{left: logBurst, filled: time.Now()} }

// refill adds the bytes that logRate allows for the time since the last call.
func (o *output) refill() {
	now := time.Now()
	o.left = min(logBurst, o.left+int(now.Sub(o.filled).Seconds()*logRate))
	o.filled = now
}

// add adds a line of a process to the log, unless the process has exhausted its limit. o is nil for a line of the platform.
func (a *appLog) add(stream, text string, o *output) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if o != nil && !a.afford(len(text)+1, o) {
		return
	}
	if o != nil {
		o.last = append(o.last, text)
		o.last = o.last[max(0, len(o.last)-tailLines):]
	}
	a.write(stream, text)
	close(a.news)
	a.news = make(chan struct{})
}

// platform adds a line of the platform.
func (a *appLog) platform(text string) {
	for line := range strings.SplitSeq(excerpt(text), "\n") {
		a.add(StreamPlatform, line, nil)
	}
}

// afford reports whether a line may be logged, and takes its bytes from the limit of the output. For the first line after dropped output, it adds a
// line that says that output was dropped.
func (a *appLog) afford(size int, o *output) bool {
	o.refill()
	if o.left < size || o.skipped > 0 && o.left < logBurst/2 {
		o.skipped += size
		a.dropped.Add(float64(size))
		return false
	}
	o.left -= size
	if o.skipped > 0 {
		a.write(StreamPlatform, "dropped output: the app writes more than is logged")
		o.skipped = 0
	}
	return true
}

// dropFlood reports whether the limit of an output is exhausted, so that the caller drops the bytes. If so, it counts the bytes as dropped, and
// pauses so long that the caller drops no more than dropRate.
func (a *appLog) dropFlood(size int, o *output) bool {
	a.mu.Lock()
	o.refill()
	isFlooded := o.skipped > 0 && o.left < logBurst/2
	if isFlooded {
		o.skipped += size
	}
	a.mu.Unlock()
	if isFlooded {
		a.dropped.Add(float64(size))
		time.Sleep(time.Duration(size) * time.Second / dropRate)
	}
	return isFlooded
}

// write adds a line to the lines in memory and to the file. The caller holds mu.
func (a *appLog) write(stream, text string) {
	line := Line{Seq: a.last + 1, At: a.now().UnixMilli(), Stream: stream, Text: text}
	a.keep(line)
	if a.isBroken {
		return
	}
	if err := a.store(line); err != nil {
		a.isBroken = true
		a.slog.Warn("cannot write the log of an app any more; it is in memory only", slog.String("app", a.appID), slog.Any("error", err))
	}
}

// store appends a line to the file. It opens the file if the file is not open, and begins a new file if the file is full. It does not sync the
// file, because no caller was told that the line is durable.
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
		if a.size > 0 { // the last line may be incomplete
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

// tail returns the last lines of a process for the reason of a failure, with a line feed before each.
func (a *appLog) tail(o *output) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	text := lines(o.last)
	return strings.ToValidUTF8(text[max(0, len(text)-tailBytes):], "") // the first character may be incomplete
}

// Lines are a part of the log of an app.
type Lines struct {
	Lines []Line
	// Last is the number of the last line of the log; 0: the log is empty.
	Last uint64
	// Missed is set if lines between the position and the first element of Lines are not available any more.
	Missed bool
	// News is closed when there are further lines.
	News <-chan struct{}
}

// Logs opens the log of an app. read returns at most limit lines after the line with the number after; 0: from the beginning. The caller must
// call release after the last read. Errors: not_found.
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
	found := Lines{News: a.news, Last: a.last}
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
