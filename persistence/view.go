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
	current *shown
	all     map[*shown]struct{}
	// stale tells that a commit has ended since current was taken.
	stale bool
	// flying tells that a batch is visible that may not be durable. A failed journal stays so.
	flying bool
	closed bool
	// closing is closed, for those who do not hold mu.
	closing atomic.Bool
	// active counts the reads going on.
	active int
}

// shown is a snapshot and how many hold it: its views, and views.current.
type shown struct {
	snapshot *pebble.Snapshot
	holders  int
}

func newViews(db *pebble.DB) *views {
	v := &views{db: db, stale: true, all: make(map[*shown]struct{})}
	v.idle.L = &v.mu
	return v
}

// hold is called before a batch is applied. What is durable by now has then been taken, so that nobody who asks for a
// view waits for the disk, and so that it can still be read if the batch fails.
// It gives ErrClosed when the journal has failed and is closed already, which the writer may be the last to learn.
func (v *views) hold() error {
	v.mu.Lock()
	if v.closed {
		v.mu.Unlock()
		return ErrClosed
	}
	old := v.refresh()
	v.flying = true
	v.mu.Unlock()
	if old != nil {
		go v.discard(old) // while the disk is busy: Pebble looks for compactions each time
	}
	return nil
}

// release is called when the batch is durable.
func (v *views) release() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.flying, v.stale = false, true
}

// refresh returns what the caller is to discard outside the lock, if anything.
func (v *views) refresh() *shown {
	if !v.stale || v.flying {
		return nil
	}
	old := v.current
	v.current = &shown{snapshot: v.db.NewSnapshot(), holders: 1}
	v.all[v.current] = struct{}{}
	v.stale = false
	return v.drop(old)
}

// drop lets go of one hold, and returns what nobody holds any longer, which the caller discards outside the lock.
func (v *views) drop(s *shown) *shown {
	if s == nil {
		return nil
	}
	if s.holders--; s.holders > 0 {
		return nil
	}
	delete(v.all, s)
	v.active++ // until it is closed, so that the store is not closed before it
	return s
}

func (v *views) discard(s *shown) {
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
	v.active++
	return nil
}

func (v *views) exit() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.leave()
}

func (v *views) leave() {
	if v.active--; v.active == 0 {
		v.idle.Broadcast()
	}
}

func (v *views) open() (*view, error) {
	v.mu.Lock()
	if v.closed {
		v.mu.Unlock()
		return nil, ErrClosed
	}
	old := v.refresh()
	v.current.holders++
	opened := &view{views: v, shown: v.current}
	v.mu.Unlock()
	v.discard(old)
	return opened, nil
}

// close ends reads at their next step, waits for them, and closes what views have left open.
func (v *views) close() {
	v.mu.Lock()
	v.closed = true
	v.closing.Store(true)
	for v.active > 0 {
		v.idle.Wait()
	}
	left := v.all
	v.all, v.current = nil, nil
	v.mu.Unlock()
	for s := range left {
		_ = s.snapshot.Close()
	}
}

// view is one caller's hold on a snapshot.
type view struct {
	views  *views
	shown  *shown
	closed bool // under views.mu
}

func (v *view) Close() error {
	v.views.mu.Lock()
	var unheld *shown
	if !v.closed && !v.views.closed {
		unheld = v.views.drop(v.shown)
	}
	v.closed = true
	v.views.mu.Unlock()
	v.views.discard(unheld)
	return nil
}

// begin holds the snapshot for a read, and the journal open; each begin that gives no error has its end.
func (v *view) begin() error {
	v.views.mu.Lock()
	defer v.views.mu.Unlock()
	if v.closed || v.views.closed {
		return ErrClosed
	}
	v.views.active++
	v.shown.holders++
	return nil
}

func (v *view) end() {
	v.views.mu.Lock()
	unheld := v.views.drop(v.shown)
	v.views.leave()
	v.views.mu.Unlock()
	v.views.discard(unheld)
}
