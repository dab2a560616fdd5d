package persistence

import (
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
)

// views shows what is durable. Pebble shows a batch before its log is synced, so a snapshot is taken while no batch is
// in flight, and serves everyone until the next commit has ended.
type views struct {
	db *pebble.DB

	mu      sync.Mutex
	idle    sync.Cond
	current *sharedSnapshot
	snapshots     map[*sharedSnapshot]struct{}
	// stale tells that a commit has ended since current was taken.
	stale bool
	// flying tells that a batch is visible that may not be durable. A failed journal stays so.
	inFlight bool
	closed bool
	// closing is closed, for those who do not hold mu.
	closing atomic.Bool
	// active counts the reads going on.
	activeReads int
}

// shown is a snapshot and how many hold it: its views, and views.current.
type sharedSnapshot struct {
	snapshot *pebble.Snapshot
	holders  int
}

func newViews(db *pebble.DB) *views {
	v := &views{db: db, stale: true, snapshots: make(map[*sharedSnapshot]struct{})}
	v.idle.L = &v.mu
	return v
}

// hold is called before a batch is applied. What is durable by now has then been taken, so that nobody who asks for a
// view waits for the disk, and so that it can still be read if the batch fails.
// It gives ErrClosed when the journal has failed and is closed already, which the writer may be the last to learn.
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
		go v.closeSnapshot(old) // while the disk is busy: Pebble looks for compactions each time
	}
	return nil
}

// release is called when the batch is durable.
func (v *views) endCommit() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.inFlight, v.stale = false, true
}

// refresh returns what the caller is to discard outside the lock, if anything.
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

// drop lets go of one hold, and returns what nobody holds any longer, which the caller discards outside the lock.
func (v *views) dropHolder(s *sharedSnapshot) *sharedSnapshot {
	if s == nil {
		return nil
	}
	if s.holders--; s.holders > 0 {
		return nil
	}
	delete(v.snapshots, s)
	v.activeReads++ // until it is closed, so that the store is not closed before it
	return s
}

func (v *views) closeSnapshot(s *sharedSnapshot) {
	if s == nil {
		return
	}
	_ = s.snapshot.Close()
	v.exit()
}

// enter makes close wait for exit.
func (v *views) enter() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return ErrClosed
	}
	v.activeReads++
	return nil
}

func (v *views) exit() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.exitLocked()
}

func (v *views) exitLocked() {
	if v.activeReads--; v.activeReads == 0 {
		v.idle.Broadcast()
	}
}

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

// close ends reads at their next step, waits for them, and closes what views have left open.
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

// view is one caller's hold on a snapshot.
type view struct {
	views  *views
	shared  *sharedSnapshot
	closed bool // under views.mu
}

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

// begin holds the snapshot for a read, and the journal open; each begin that gives no error has its end.
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

func (v *view) endRead() {
	v.views.mu.Lock()
	unheld := v.views.dropHolder(v.shared)
	v.views.exitLocked()
	v.views.mu.Unlock()
	v.views.closeSnapshot(unheld)
}
