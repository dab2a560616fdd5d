package observe

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// system is the author of changes by processes that belong to no watch.
var system = &activityv1.Author{Actor: "system"}

// A watched drive is a drive with at least one watch. It belongs to the reader's goroutine.
type watched struct {
	reader      *reader
	workspaceID string
	watches     map[*Watch]struct{}
	ending      []*ending
	table       table
	// tableSince is a time before the first change of the table was made. It may have been read much later.
	tableSince time.Time
	times      modificationTimes
	installed  []installation
	// suspects are the missing paths that the next flight records, unless the rows until then explain why they are missing.
	suspects []suspect
	// isMarking reports that the mark is being stored or removed; waiting are the beginnings of watches that wait for the end.
	isMarking bool
	waiting   []func()
	// isBusy reports that a flight or a scan is running.
	isBusy bool
	// scanSince is the time since which changes may have been missed; zero: none were. scanAt is the time of the next scan.
	scanSince, scanAt time.Time
	// retryAt is the least time of the scan after one that has failed, also while watches are ending.
	retryAt time.Time
	// missedUntil is a time after which no changes were missed. All changes before flushedAt are in the tables of finished flights
	// or were missed.
	missedUntil, flushedAt time.Time
	// lastScan is when the last scan began, in the mode Scans.
	lastScan time.Time
	// mark is the time since which changes are missing after a crash, as stored beside the drive.
	mark time.Time
	// err is the reason why rows were refused.
	err error
}

// An ending is a watch that waits for the rows of its changes. They are in the table when the ending begins, or in the
// table of the running flight. The next flight records the changes that do not agree with the disk.
type ending struct {
	watch   *Watch
	flights int
}

// enoughFlights is the number of flights, started after the ending has begun, after which all changes are recorded.
const enoughFlights = 2

// begin adds a watch. The first watch of a drive stores the mark and repairs the changes missed before; others wait for it, at most
// until ctx ends. begin returns when changes are observed.
func (r *reader) begin(ctx context.Context, w *Watch) error {
	joined := make(chan *watched, 1)
	isWithdrawn := false
	var join func()
	join = func() {
		d := r.drives[w.workspaceID]
		switch {
		case isWithdrawn:
		case d == nil:
			d = &watched{reader: r, workspaceID: w.workspaceID, watches: map[*Watch]struct{}{}, isMarking: true}
			r.drives[w.workspaceID] = d
			joined <- d
		case d.isMarking:
			d.waiting = append(d.waiting, join)
		default:
			d.add(w)
			joined <- nil
		}
	}
	if err := r.do(join); err != nil {
		return err
	}
	withdraw := func() { isWithdrawn = true }
	first, err := r.awaitJoined(ctx, joined, withdraw)
	if err != nil || first == nil {
		return err
	}
	return r.beginFirst(ctx, w, first)
}

// awaitJoined waits until a watch has joined its drive, which it returns if the watch is the first one. When ctx ends before, it
// calls withdraw in the reader's goroutine and returns ctx's error, unless the watch has joined meanwhile.
func (r *reader) awaitJoined(ctx context.Context, joined <-chan *watched, withdraw func()) (*watched, error) {
	select {
	case first := <-joined:
		return first, nil
	case <-r.done:
		return nil, errClosed
	case <-ctx.Done():
	}
	withdrawn := make(chan struct{})
	if err := r.do(func() { withdraw(); close(withdrawn) }); err != nil {
		return nil, err
	}
	select {
	case <-withdrawn:
	case <-r.done:
		return nil, errClosed
	}
	select {
	case first := <-joined:
		return first, nil
	default:
		return nil, ctx.Err()
	}
}

var errClosed = errors.New("observe: the observer was closed")

// beginFirst stores the mark of a drive and adds its first watch.
func (r *reader) beginFirst(ctx context.Context, w *Watch, first *watched) error {
	added := make(chan struct{})
	now := time.Now()
	failed := r.observer.begin(ctx, w.workspaceID, now)
	err := r.do(func() {
		if failed != nil {
			delete(r.drives, w.workspaceID)
		} else {
			first.mark, first.lastScan, first.times.since = now, now, now
			first.add(w)
			if r.hints != nil {
				first.requestScan(now) // reads the tree once, to be notified of changes in its folders
				first.scanAt = now
			}
		}
		first.marked()
		close(added)
	})
	if err != nil {
		return errors.Join(failed, err)
	}
	select {
	case <-added:
		return failed
	case <-r.done:
		return errClosed
	}
}

// add adds a watch. In the mode Scans, the changes so far are attributed to the authors so far.
func (d *watched) add(w *Watch) {
	if d.reader.hints != nil && len(d.watches) > 0 && !d.scanSince.IsZero() {
		d.scanAt = time.Now()
	}
	d.watches[w] = struct{}{}
}

// marked ends a change of the drive's mark, and continues with the watches that waited for it.
func (d *watched) marked() {
	d.isMarking = false
	waiting := d.waiting
	d.waiting = nil
	for _, join := range waiting {
		join()
	}
}

// end begins to end a watch. The events of its processes have been queued; they are read before they are recorded.
func (r *reader) end(w *Watch) {
	d := r.drives[w.workspaceID]
	if d == nil {
		return
	}
	if err := r.drain(); err != nil {
		r.log.Error("cannot read events; the drive is scanned", slog.String("workspace", w.workspaceID), slog.Any("error", err))
		d.requestScan(r.drainedAt)
	}
	if r.hints != nil {
		d.requestScan(d.lastScan)
	}
	d.ending = append(d.ending, &ending{watch: w})
}

// due returns the time of the next flush or scan; zero: there is none.
func (d *watched) due() time.Time {
	if d.isBusy || d.isMarking {
		return time.Time{}
	}
	if len(d.suspects) > 0 {
		return time.Now()
	}
	var due time.Time
	if !d.table.isEmpty() {
		due = d.table.since.Add(d.reader.observer.options.window)
	}
	if !d.scanSince.IsZero() {
		scanAt := d.nextScan()
		if len(d.ending) > 0 && scanAt.Before(d.missedUntil) {
			scanAt = d.missedUntil
		}
		if due.IsZero() || scanAt.Before(due) {
			due = scanAt
		}
	}
	return due
}

// nextScan returns the least time of the next scan. Watches that are ending wait for it, so that only a failure delays it.
func (d *watched) nextScan() time.Time {
	if len(d.ending) > 0 {
		return d.retryAt
	}
	return d.scanAt
}

// maxTable is the number of changes of a drive that are recorded before the window has ended.
const maxTable = 4096

// advance starts the next flight or scan of a drive if it is due, or finishes the watches that are ending.
func (r *reader) advance(d *watched) {
	if len(d.table.changes) > r.observer.options.maxPending {
		r.observer.metrics.overflows.WithLabelValues("pending").Inc()
		r.log.Warn("the journal is too slow for the changes of a drive; the drive is scanned later", slog.String("workspace", d.workspaceID))
		d.requestScan(d.tableSince)
		d.table = table{}
	}
	if d.isBusy || d.isMarking {
		return
	}
	now := time.Now()
	isEnding := len(d.ending) > 0
	isScanDue := !d.scanSince.IsZero() && !now.Before(d.nextScan())
	switch {
	case d.err != nil:
		d.table, d.scanSince, d.suspects = table{}, time.Time{}, nil
		d.finishEnding(true)
	case isEnding && d.scanSince.IsZero() && d.finishEnding(false):
		r.advance(d)
	case len(d.suspects) > 0:
		r.startFlight(d)
	case isScanDue && d.canScan():
		r.startScan(d, now)
	case !d.table.isEmpty() && (isEnding || isScanDue || len(d.table.changes) >= maxTable ||
		!now.Before(d.table.since.Add(r.observer.options.window))):
		r.startFlight(d)
	}
}

// canScan reports whether all changes that were read before the last loss of changes have their rows. A scan then finds the missed
// changes, and leaves later changes to the table.
func (d *watched) canScan() bool {
	switch {
	case d.reader.hints != nil:
		return true
	case d.table.isEmpty():
		return !d.reader.drainedAt.Before(d.missedUntil)
	}
	return !d.flushedAt.Before(d.missedUntil)
}

// startFlight records the changes of a drive's table in the background.
func (r *reader) startFlight(d *watched) {
	f := &flight{observer: r.observer, workspaceID: d.workspaceID, times: &d.times, installed: d.installed, suspects: d.suspects}
	t, since := d.table, d.tableSince
	d.table, d.installed, d.suspects, d.isBusy = table{}, nil, nil, true
	begun, waiting := r.drainedAt, slices.Clone(d.ending)
	r.inBackground(func() {
		deferred, err := f.run(r.running, &t)
		r.finished(func() {
			d.isBusy = false
			for _, e := range waiting {
				e.flights++
			}
			if err != nil {
				d.fail(err)
			}
			d.flushedAt = begun
			if len(deferred) > 0 {
				r.drainAgain(d)
				if d.table.isEmpty() {
					d.table.since = time.Now()
				}
				d.table, d.tableSince = refold(deferred, &d.table), since
			}
			d.checkpoint(begun)
		})
	})
}

// drainAgain reads the events that explain why changes did not agree with the disk.
func (r *reader) drainAgain(d *watched) {
	if err := r.drain(); err != nil {
		d.requestScan(r.drainedAt)
	}
}

// inBackground runs work that shutDown waits for.
func (r *reader) inBackground(work func()) { r.flights.Go(work) }

// finished runs the end of background work in the reader's goroutine.
//
// The goroutine waits for background work before it ends, and then runs the ends that are left.
func (r *reader) finished(end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = append(r.requests, end)
	_ = r.wakeUp() // it fails only if the goroutine is awake
}

func (d *watched) fail(err error) {
	if errors.Is(err, errRefused) {
		d.err = err
		return
	}
	d.requestScan(d.mark) // canceled: the next start repairs
}

// requestScan makes the drive be scanned for changes since a time.
func (d *watched) requestScan(since time.Time) {
	if d.scanSince.IsZero() || since.Before(d.scanSince) {
		d.scanSince = since
	}
	now := time.Now()
	d.missedUntil = now.Add(clockMargin) // a scan leaves the margin before its end to the table
	if d.scanAt.Before(now) {
		d.scanAt = now.Add(scanDelay)
	}
}

// finishEnding finishes the ending watches with recorded changes, or with all set all ending watches. It
// reports whether there were any. While there are suspects, the changes are not recorded.
func (d *watched) finishEnding(all bool) bool {
	if !all && len(d.suspects) > 0 {
		return false
	}
	before := len(d.ending)
	d.ending = slices.DeleteFunc(d.ending, func(e *ending) bool {
		if !all && !d.table.isEmpty() && e.flights < enoughFlights {
			return false
		}
		if _, known := d.watches[e.watch]; known {
			d.finish(e.watch, d.err)
		}
		return true
	})
	return len(d.ending) < before
}

// finish removes a watch. The last watch of a drive removes the mark.
func (d *watched) finish(w *Watch, err error) {
	r := d.reader
	delete(d.watches, w)
	if r.processes != nil {
		r.processes.remove(w)
	}
	if len(d.watches) > 0 {
		w.finish(err)
		return
	}
	if r.hints != nil {
		r.hints.forget(d.workspaceID)
	}
	if r.running.Err() != nil {
		w.finish(err)
		return
	}
	d.isMarking = true
	r.inBackground(func() {
		r.observer.end(r.running, d.workspaceID, err == nil || errors.Is(err, errRefused))
		r.finished(func() {
			delete(r.drives, d.workspaceID)
			d.marked()
			w.finish(err)
		})
	})
}

// apply folds the events of a batch into the tables of their drives.
func (r *reader) apply(b *batch) {
	own := int32(unix.Getpid())
	now := time.Now()
	lost := false
	for i := range b.events {
		e := &b.events[i]
		isLocated := b.locate(e.dir, i)
		if isLocated && e.newDir != nil {
			isLocated = b.locate(e.newDir, i)
		}
		if !isLocated {
			r.observer.metrics.events.WithLabelValues("lost").Inc()
			lost = lost || e.pid != own
			continue
		}
		r.applyEvent(b, i, e, e.pid == own, now)
		b.follow(i)
	}
	r.repairCycles(b)
	if lost {
		r.missed("folders", r.drainedAt)
	}
}

// repairCycles forgets the paths of folders, and scans the drives, if a folder was moved to and fro within a batch. The kernel
// merges equal events, so that the place of the folder is not known.
func (r *reader) repairCycles(b *batch) {
	for d, positions := range b.next {
		moves := 0
		for _, i := range positions {
			if b.events[i].mask&unix.FAN_RENAME != 0 {
				moves++
			}
		}
		if moves < 2 {
			continue
		}
		if workspaceID, _, ok := splitDrive(d.path); ok && r.drives[workspaceID] != nil {
			r.drives[workspaceID].requestScan(r.drainedAt)
		}
		r.folders.forget()
	}
}
