package observe

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/entity"
)

const (
	// gatherTime is how long the reader lets events gather before it reads them. The kernel merges repeated events on a file,
	// and the observed processes are interrupted less.
	gatherTime = 3 * time.Millisecond
	// readerNice is the priority of the reader's thread. Processes that make more events than it can read use all processors.
	readerNice = -15
)

// A reader observes drives while there is at least one watch. Everything but requests belongs to its goroutine.
type reader struct {
	observer *Observer
	log      *slog.Logger
	// group, processes and folders are nil in the mode Scans, hints is nil in the mode Events.
	group     *group
	processes *processes
	folders   *folders
	hints     *hints
	drives    map[string]*watched
	// strangers are the processes of one batch that belong to no watch.
	strangers map[int32]bool
	// drainedAt is a time. The events of all changes before it have been read.
	drainedAt time.Time

	running context.Context
	stop    context.CancelFunc
	flights sync.WaitGroup
	done    chan struct{}

	// wake is an eventfd that interrupts the wait for events.
	wake int
	mu   sync.Mutex
	// requests are functions for the goroutine; isClosed: it runs no more.
	requests []func()
	isClosed bool
}

// startReader opens what the observer's mode needs of the kernel and starts the goroutine.
func startReader(o *Observer) (_ *reader, err error) {
	r := &reader{
		observer: o, log: o.log, drives: map[string]*watched{}, strangers: map[int32]bool{},
		drainedAt: time.Now(), done: make(chan struct{}),
	}
	if r.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			r.closeFiles()
		}
	}()
	if o.mode == Events {
		if r.group, err = openGroup(o.dir, o.options.isLimited); err != nil {
			return nil, err
		}
		c, err := openConnector()
		if err != nil {
			return nil, err
		}
		r.processes = newProcesses(c)
		r.folders = newFolders(r.group.mount, o.dir)
		if err := r.folders.addRoot(r.group.mount, ""); err != nil {
			return nil, err
		}
	} else if r.hints, err = openHints(); err != nil {
		return nil, err
	}
	r.running, r.stop = context.WithCancel(o.running)
	go r.run()
	return r, nil
}

func (r *reader) closeFiles() {
	if r.group != nil {
		r.group.close()
	}
	if r.processes != nil {
		r.processes.connector.close()
	}
	if r.hints != nil {
		r.hints.close()
	}
	_ = unix.Close(r.wake) // holds no data
}

// do runs a function in the reader's goroutine, later. It returns Unavailable if the goroutine has ended.
func (r *reader) do(f func()) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isClosed {
		return entity.Errorf(entity.Unavailable, "the server is shutting down")
	}
	r.requests = append(r.requests, f)
	return r.wakeUp()
}

// wakeUp interrupts the wait for events. The caller holds mu.
func (r *reader) wakeUp() error {
	_, err := unix.Write(r.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	if errors.Is(err, unix.EAGAIN) {
		return nil // it is awake already
	}
	return err
}

// shutDown ends the goroutine and closes everything. Flights are canceled.
func (r *reader) shutDown() {
	r.stop()
	r.mu.Lock()
	isClosed := r.isClosed
	r.mu.Unlock()
	if !isClosed {
		_ = r.do(func() {}) // the goroutine may have ended meanwhile
	}
	<-r.done
}

func (r *reader) run() {
	defer close(r.done)
	runtime.LockOSThread() // and never unlocked, because the priority is the thread's
	// Without the right to do so the reader works, but is more likely to miss events.
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), readerNice)
	for r.running.Err() == nil {
		if err := r.cycle(); err != nil {
			r.log.Error("cannot observe drives; they are scanned instead", slog.Any("error", err))
			r.missed("kernel", r.drainedAt)
			r.runRequests() // which cycle has not come to
			// A failure that lasts must not use a processor.
			r.wait(time.Second, false)
		}
	}
	r.mu.Lock()
	r.isClosed = true
	r.mu.Unlock()
	r.flights.Wait()
	r.runRequests()
	for _, d := range r.drives {
		for w := range d.watches {
			d.finish(w, r.running.Err())
		}
	}
	r.closeFiles()
}

func (r *reader) hasRequests() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.requests) > 0
}

// runRequests calls the functions that other goroutines have requested.
func (r *reader) runRequests() {
	r.mu.Lock()
	requests := r.requests
	r.requests = nil
	r.mu.Unlock()
	for _, f := range requests {
		f()
	}
}

// cycle waits for events, a request or the time of a flush, and handles all of them.
func (r *reader) cycle() error {
	woken, events := r.wait(r.timeout(), true)
	if events && !woken {
		r.wait(gatherTime, false)
	}
	if err := r.drain(); err != nil {
		return err
	}
	r.runRequests()
	for _, d := range r.drives {
		r.advance(d)
	}
	return nil
}

// timeout returns the time until the next flush or scan; negative: there is none. It is 0 if there are requests: another wait
// than that for events may have been woken by them.
func (r *reader) timeout() time.Duration {
	if r.hasRequests() {
		return 0
	}
	next := time.Duration(-1)
	for _, d := range r.drives {
		if due := d.due(); !due.IsZero() {
			left := max(time.Until(due), 0)
			if next < 0 || left < next {
				next = left
			}
		}
	}
	return next
}

// wait waits until there are requests, or with events set until there are events, at most for a time; negative: without limit.
func (r *reader) wait(limit time.Duration, events bool) (woken, ready bool) {
	fds := []unix.PollFd{{Fd: int32(r.wake), Events: unix.POLLIN}}
	if events && r.group != nil {
		fds = append(fds, unix.PollFd{Fd: int32(r.group.fd), Events: unix.POLLIN},
			unix.PollFd{Fd: int32(r.processes.connector.fd), Events: unix.POLLIN})
	}
	if events && r.hints != nil {
		fds = append(fds, unix.PollFd{Fd: int32(r.hints.fd), Events: unix.POLLIN})
	}
	milliseconds := -1
	if limit >= 0 {
		milliseconds = int((limit + time.Millisecond - 1) / time.Millisecond)
	}
	if _, err := unix.Poll(fds, milliseconds); err != nil {
		return false, false // interrupted
	}
	if fds[0].Revents != 0 {
		var value [8]byte
		_, _ = unix.Read(r.wake, value[:]) // resets it
		woken = true
	}
	for _, fd := range fds[1:] {
		ready = ready || fd.Revents != 0
	}
	return woken, ready
}

// drain reads and applies all events that are queued. When it loses events, it forgets the paths of folders, because the lost events
// may have moved them.
func (r *reader) drain() (err error) {
	if r.hints != nil {
		return r.drainHints()
	}
	defer func() {
		if err != nil {
			r.folders.forget()
		}
	}()
	started := time.Now()
	for r.running.Err() == nil {
		b := batch{folders: r.folders}
		overflow, more, err := r.fill(&b)
		if err != nil {
			return err
		}
		if err := r.drainProcesses(); err != nil {
			return err
		}
		r.apply(&b)
		if overflow {
			r.folders.forget()
			r.missed("kernel", r.drainedAt)
		}
		if !more {
			r.drainedAt = started
			r.observer.metrics.processes.Set(float64(r.processes.forget()))
			r.folders.bound()
			clear(r.strangers)
			return nil
		}
		r.folders.bound()
		if r.group.queuedBytes() > r.observer.options.maxQueueBytes {
			return r.reset()
		}
	}
	return nil
}

// reset replaces the kernel's queue, which processes fill faster than it can be read, by an empty one.
func (r *reader) reset() error {
	fresh, err := openGroup(r.observer.dir, r.observer.options.isLimited)
	if err != nil {
		return err
	}
	r.group.close()
	since := r.drainedAt
	r.group = fresh
	r.folders = newFolders(fresh.mount, r.observer.dir)
	r.missed("kernel", since)
	return r.folders.addRoot(fresh.mount, "")
}

// drainProcesses reads the forks and exits that were reported before now.
func (r *reader) drainProcesses() error {
	before := r.processes.missed
	err := r.processes.drain()
	if missed := r.processes.missed - before; missed > 0 {
		r.observer.metrics.overflows.WithLabelValues("processes").Add(float64(missed))
		r.log.Warn("forks of processes were missed; changes by some processes may be attributed to the system")
	}
	return err
}

// fill reads events into a batch, until none is queued or the batch is full, and looks up their folders. overflow reports that
// the kernel has dropped events, more that events may be queued.
func (r *reader) fill(b *batch) (overflow, more bool, err error) {
	visit := func(record *record) {
		if record.mask&unix.FAN_Q_OVERFLOW != 0 {
			overflow = true
			return
		}
		b.add(record)
	}
	from := 0
	for lookups := 0; ; lookups++ {
		for more = true; more && len(b.events) < maxBatch<<min(lookups, 2); {
			if more, err = r.group.read(visit); err != nil {
				return overflow, more, err
			}
		}
		if lookups > 0 && b.relocatesSince(from) {
			// The folders were looked up before these events were read, but perhaps after the changes that they report.
			b.now, from = nil, 0
		}
		if !b.lookUp(from) || lookups == maxLookups {
			return overflow, more, nil
		}
		from = len(b.events)
	}
}

// missed makes all watched drives be scanned for changes since a time.
func (r *reader) missed(queue string, since time.Time) {
	r.observer.metrics.overflows.WithLabelValues(queue).Inc()
	r.log.Warn("changes of drives were missed; the drives are scanned", slog.String("queue", queue))
	for _, d := range r.drives {
		d.requestScan(since)
	}
}
