package persistence

import (
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
)

// views gives out views of the durable state. Pebble shows a batch before its log is synced. A snapshot is therefore
// taken only while no batch is in flight, and is shared by all views until the next commit has ended.
type views struct {
	db *pebble.DB

	// mu guards the fields below, except closing.
	mu   sync.Mutex
	idle sync.Cond // activeReads has become 0
	// current is the newest snapshot of a durable state, or nil.
	current   *sharedSnapshot
	snapshots map[*sharedSnapshot]struct{}
	// stale reports that a commit has ended since current was taken.
	stale bool
	// inFlight reports that a batch is visible in Pebble that may not be durable. It remains set after a failed commit.
	inFlight bool
	closed   bool
	// closing is true after close was called. Iterations read it without mu.
	closing atomic.Bool
	// activeReads counts the reads, and the snapshots that are being closed. close waits for them.
	activeReads int
}

// sharedSnapshot is a Pebble snapshot and the number of its holders: views, reads and views.current. The last holder
// closes it.
type sharedSnapshot struct {
	snapshot *pebble.Snapshot
	holders  int
}

func newViews(db *pebble.DB) *views {
	v := &views{db: db, stale: true, snapshots: make(map[*sharedSnapshot]struct{})}
	v.idle.L = &v.mu
	return v
}

// beginCommit is called before a batch is applied, and takes a snapshot of the durable state. View can then return it
// without waiting for the disk, and it remains readable if the batch fails. It returns ErrClosed if the journal has
// failed and was closed, which the writer may not know yet.
func (v *views) beginCommit() error {
	v.mu.Lock()
	if v.closed {
		v.mu.Unlock()
		return ErrClosed
	}
	old := v.refreshCurrent()
	v.inFlight = true
	v.mu.Unlock()
	if old != nil {
		go v.closeSnapshot(old) // concurrently with the commit, because Pebble then looks for compactions
	}
	return nil
}

// endCommit is called when the batch is durable.
func (v *views) endCommit() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.inFlight, v.stale = false, true
}

// refreshCurrent takes a new snapshot if current is stale and no batch is in flight. It returns a snapshot that the
// caller must close with closeSnapshot after releasing mu, or nil. The caller holds mu.
func (v *views) refreshCurrent() *sharedSnapshot {
	if !v.stale || v.inFlight {
		return nil
	}
	old := v.current
	v.current = &sharedSnapshot{snapshot: v.db.NewSnapshot(), holders: 1}
	v.snapshots[v.current] = struct{}{}
	v.stale = false
	return v.dropHolder(old)
}

// dropHolder removes one holder of s. If it was the last one, dropHolder returns s, which the caller must close with
// closeSnapshot after releasing mu. The caller holds mu.
func (v *views) dropHolder(s *sharedSnapshot) *sharedSnapshot {
	if s == nil {
		return nil
	}
	if s.holders--; s.holders > 0 {
		return nil
	}
	delete(v.snapshots, s)
	v.activeReads++ // so that the store is not closed before the snapshot
	return s
}

// closeSnapshot closes a snapshot that dropHolder has returned. It does nothing for nil.
func (v *views) closeSnapshot(s *sharedSnapshot) {
	if s == nil {
		return
	}
	_ = s.snapshot.Close()
	v.exit()
}

// enter makes close wait until exit is called. It returns ErrClosed after close.
func (v *views) enter() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return ErrClosed
	}
	v.activeReads++
	return nil
}

// exit unregisters the read that enter registered.
func (v *views) exit() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.exitLocked()
}

// exitLocked is exit for callers that hold mu.
func (v *views) exitLocked() {
	if v.activeReads--; v.activeReads == 0 {
		v.idle.Broadcast()
	}
}

// open returns a view of the durable state, or ErrClosed after close.
func (v *views) open() (*view, error) {
	v.mu.Lock()
	if v.closed {
		v.mu.Unlock()
		return nil, ErrClosed
	}
	old := v.refreshCurrent()
	v.current.holders++
	opened := &view{views: v, shared: v.current}
	v.mu.Unlock()
	v.closeSnapshot(old)
	return opened, nil
}

// close makes reads end at their next step, waits for them, and closes the snapshots of views that are still open.
func (v *views) close() {
	v.mu.Lock()
	v.closed = true
	v.closing.Store(true)
	for v.activeReads > 0 {
		v.idle.Wait()
	}
	left := v.snapshots
	v.snapshots, v.current = nil, nil
	v.mu.Unlock()
	for s := range left {
		_ = s.snapshot.Close()
	}
}

// view is one caller's View.
type view struct {
	views  *views
	shared *sharedSnapshot
	closed bool // under views.mu
}

// Close drops the view's hold on its snapshot. It may be called more than once.
func (v *view) Close() error {
	v.views.mu.Lock()
	var unheld *sharedSnapshot
	if !v.closed && !v.views.closed {
		unheld = v.views.dropHolder(v.shared)
	}
	v.closed = true
	v.views.mu.Unlock()
	v.views.closeSnapshot(unheld)
	return nil
}

// beginRead holds the snapshot and keeps the journal open during a read. If it returns nil, endRead must follow.
func (v *view) beginRead() error {
	v.views.mu.Lock()
	defer v.views.mu.Unlock()
	if v.closed || v.views.closed {
		return ErrClosed
	}
	v.views.activeReads++
	v.shared.holders++
	return nil
}

// endRead ends a read.
func (v *view) endRead() {
	v.views.mu.Lock()
	unheld := v.views.dropHolder(v.shared)
	v.views.exitLocked()
	v.views.mu.Unlock()
	v.views.closeSnapshot(unheld)
}
