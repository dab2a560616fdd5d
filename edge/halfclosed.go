package edge

import "sync"

// halfClosed has the requests of clients that have closed their sending side. The clients may have left (attend).
type halfClosed struct {
	mu  sync.Mutex
	all map[*exchange]bool
}

func newHalfClosed() *halfClosed { return &halfClosed{all: map[*exchange]bool{}} }

// add adds an exchange, unless the exchange is done.
func (h *halfClosed) add(x *exchange) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.done {
		return
	}
	x.touch()
	x.isHalfClosed.Store(true)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all[x] = true
}

// remove removes an exchange that is done.
func (h *halfClosed) remove(x *exchange) {
	if !x.isHalfClosed.Load() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.all, x)
}

// oldest returns the matching exchange that has been without traffic for the longest time, or nil if no exchange matches. Exchanges without
// slots, and exchanges with a response that is being written, do not match.
func (h *halfClosed) oldest(matches func(*exchange) bool) (oldest *exchange) {
	h.mu.Lock()
	all := make([]*exchange, 0, len(h.all))
	for x := range h.all {
		all = append(all, x)
	}
	h.mu.Unlock()
	for _, x := range all {
		x.mu.Lock()
		isMatch := x.isCounted && !x.isWriting.Load() && matches(x)
		x.mu.Unlock()
		if isMatch && (oldest == nil || x.usedAt().Before(oldest.usedAt())) {
			oldest = x
		}
	}
	return oldest
}

// makeRoom ends one half-closed request that counts returns true for, so that a new request may take its slots. It reports whether there
// was such a request. The slots are free when makeRoom returns true.
func (e *Edge) makeRoom(counts func(*exchange) bool) bool {
	for {
		x := e.halfClosed.oldest(counts)
		if x == nil {
			return false
		}
		x.stop(errGone)
		if x.free() { // otherwise the request has just ended by itself
			return true
		}
	}
}
