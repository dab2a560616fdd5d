package observe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/activity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// Window is the time from the first change of a drive to the rows of its changes, in which changes are folded.
const Window = 2 * time.Second

// Options are the arguments of New.
type Options struct {
	Drives *drive.Drives
	Asker  entity.Asker
	// Log receives failures of observation. nil: slog.Default.
	Log *slog.Logger

	// scanOnly makes New choose Scans although the kernel could do better.
	scanOnly bool
	// maxPending is the number of changes of a drive that wait for the journal before they are dropped for a scan. 0: 1<<15.
	maxPending int
	// isLimited uses the kernel's queue with its limit, and maxQueueBytes limits the queue otherwise. 0: 64 MiB.
	isLimited     bool
	maxQueueBytes int
	// window replaces Window. checkpoint replaces checkpointInterval.
	window, checkpoint time.Duration
}

// A Mode is a way to observe drives.
type Mode string

const (
	// Events observes every change and the process that made it, with fanotify and the process connector.
	Events Mode = "events"
	// Scans finds changes by reading the drive, and attributes them to the drive's only author or else to the system.
	Scans Mode = "scans"
)

// An Observer turns changes that processes make to drives into rows of activity. It is a prometheus.Collector and safe for
// concurrent use.
type Observer struct {
	drives  *drive.Drives
	asker   entity.Asker
	log     *slog.Logger
	metrics *metrics
	options Options
	// dir is the folder of all drives without links.
	dir    string
	mode   Mode
	reason error

	running context.Context
	stop    context.CancelFunc
	marks   marks

	// mu guards the fields below. reader is nil while there is no watch.
	mu      sync.Mutex
	reader  *reader
	watches int
	closed  bool
}

// New returns an Observer, and finds out which mode is possible. It fails if the folder of the drives cannot be read.
func New(options Options) (*Observer, error) {
	dir, err := realPath(options.Drives.Dir())
	if err != nil {
		return nil, fmt.Errorf("observe: find the folder of the drives: %w", err)
	}
	options.maxPending = cmp.Or(options.maxPending, 1<<15)
	options.maxQueueBytes = cmp.Or(options.maxQueueBytes, 64<<20)
	options.window = cmp.Or(options.window, Window)
	options.checkpoint = cmp.Or(options.checkpoint, checkpointInterval)
	o := &Observer{
		drives: options.Drives, asker: options.Asker, log: cmp.Or(options.Log, slog.Default()), metrics: newMetrics(),
		options: options, dir: dir, mode: Events,
	}
	o.running, o.stop = context.WithCancel(context.Background())
	if o.reason = o.probe(); o.reason != nil {
		o.mode = Scans
	}
	return o, nil
}

// probe returns why events cannot be observed.
func (o *Observer) probe() error {
	if o.options.scanOnly {
		return errors.New("observe: events are not wanted")
	}
	if os.Geteuid() != 0 {
		return errors.New("observe: only root may observe the processes of the machine")
	}
	g, err := openGroup(o.dir, o.options.isLimited)
	if err != nil {
		return err
	}
	g.close()
	c, err := openConnector()
	if err != nil {
		return err
	}
	c.close()
	return nil
}

// Mode returns how changes are observed. If that is not Events, reason says why.
func (o *Observer) Mode() (mode Mode, reason error) { return o.mode, o.reason }

// filesDir returns the root folder of a drive.
func (o *Observer) filesDir(workspaceID string) string { return filesOf(o.dir, workspaceID) }

// filesOf returns the root folder of a drive below the folder of all drives.
func filesOf(dir, workspaceID string) string { return filepath.Join(dir, workspaceID, "files") }

// A Watch observes one drive for the author of one tree of processes. Its methods are safe for concurrent use.
type Watch struct {
	observer    *Observer
	reader      *reader
	workspaceID string
	author      *activityv1.Author
	// isUnidentified reports that the id of the root process is unknown.
	isUnidentified atomic.Bool
	ending         sync.Once
	finishing      sync.Once
	ended          chan struct{}
	err            error
}

// Begin begins to observe a workspace's drive for an author, before the author's process starts. The first watch of a drive
// makes durable that it is being observed, and repairs the changes that an earlier process of the node has missed, as Recover does.
//
// It returns invalid_request for an author that a row cannot have, Unavailable if the drive or the activity is not available,
// and errors of the kernel.
func (o *Observer) Begin(ctx context.Context, workspaceID string, author *activityv1.Author) (*Watch, error) {
	if n := len(author.GetActor()); n == 0 || n > activity.MaxActorBytes || len(author.GetUserId()) > activity.MaxActorBytes ||
		!utf8.ValidString(author.GetActor()) || !utf8.ValidString(author.GetUserId()) {
		return nil, entity.Errorf(entity.InvalidRequest, "an author has an actor of 1 to %d bytes and a user id of at most as many, in UTF-8", activity.MaxActorBytes)
	}
	r, err := o.retain()
	if err != nil {
		return nil, err
	}
	w := &Watch{observer: o, reader: r, workspaceID: workspaceID, author: author, ended: make(chan struct{})}
	if err := r.begin(ctx, w); err != nil {
		o.releaseReader()
		return nil, err
	}
	o.metrics.watches.Inc()
	return w, nil
}

// retain returns the reader for another watch, and starts it for the first one.
func (o *Observer) retain() (*reader, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil, entity.Errorf(entity.Unavailable, "the server is shutting down")
	}
	if o.reader == nil {
		r, err := startReader(o)
		if err != nil {
			return nil, fmt.Errorf("observe: %w", err)
		}
		o.reader = r
	}
	o.watches++
	return o.reader, nil
}

// releaseReader undoes retain. After the last watch nothing of the kernel is left in use.
func (o *Observer) releaseReader() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.watches--; o.watches == 0 && o.reader != nil {
		o.reader.shutDown()
		o.reader = nil
	}
}

// Attribute makes a process, with its id in the namespace of this process, and all its descendants the watch's. It must be called
// before any of the process's code runs. 0 means that the id is unknown: then changes by unknown processes are attributed to
// the watch if it is the only one of the drive with unknown processes.
func (w *Watch) Attribute(pid int) error {
	switch {
	case pid == 0:
		w.isUnidentified.Store(true) // before Attribute returns: the reader may be reading events at the moment
		return nil
	case w.reader.processes == nil:
		return nil
	}
	return w.reader.processes.register(int32(pid), w)
}

// End ends the watch after its processes have ended. It returns when all changes up to now have durable rows. Further calls
// wait for the first one.
//
// It returns ctx's error if that takes too long; the watch ends nevertheless. It returns an error if rows were refused, as they
// are after the workspace was deleted.
func (w *Watch) End(ctx context.Context) error {
	w.ending.Do(func() {
		if err := w.reader.do(func() { w.reader.end(w) }); err != nil {
			w.finish(err)
		}
	})
	select {
	case <-w.ended:
		return w.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// finish makes End return. Only the first call has an effect.
func (w *Watch) finish(err error) {
	w.finishing.Do(func() {
		w.err = err
		w.observer.metrics.watches.Dec()
		go func() { // releaseReader waits for the goroutine that calls finish
			w.observer.releaseReader()
			close(w.ended)
		}()
	})
}

// Close ends the observation. Recover finds the changes without durable rows at the next start.
func (o *Observer) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.stop()
	if o.reader != nil {
		o.reader.shutDown()
	}
	return nil
}
