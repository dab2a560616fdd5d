package actors

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/atelier-run/atelier/entity/activity"
	"github.com/atelier-run/atelier/persistence"
)

const (
	// Above manyConnections, a wake-up is followed by a pause of about what the writes of those woken cost: rows that come
	// meanwhile share one write a stream. Where rows are so few that all are written long before the next comes, the
	// pause is over too, and holds nothing up.
	manyConnections = 64
	wakePause       = 10 * time.Microsecond
	longestPause    = 25 * time.Millisecond
)

// hub is where the streams of one workspace meet its rows: it keeps the ring of frames while somebody listens, and wakes
// those streams that had caught up.
type hub struct {
	cursor activity.Cursor
	// head is the last durable seq.
	head atomic.Uint64

	mu          sync.Mutex
	rings       [2]*ring
	listeners   [2]int
	connections map[*connection]struct{}
	signal      chan struct{}
}

func newHub(cursor activity.Cursor) *hub {
	return &hub{cursor: cursor, connections: map[*connection]struct{}{}}
}

// ringIndex returns the ring of a connection that follows reads, or of one that does not.
func ringIndex(reads bool) int {
	if reads {
		return 1
	}
	return 0
}

// resume tells the hub where the journal stands.
func (h *hub) resume(head uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.rings {
		if r != nil {
			r.resume(head + 1)
		}
	}
	h.head.Store(head)
	h.wake()
}

// publish passes on rows that have become durable.
func (h *hub) publish(events []persistence.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, r := range h.rings {
		if r != nil && h.listeners[i] > 0 {
			r.append(h.cursor, events)
		}
	}
	h.head.Store(events[len(events)-1].Version)
	h.wake()
}

// wake has the waker look for streams to wake, now or after its pause.
func (h *hub) wake() {
	if h.signal == nil {
		return
	}
	select {
	case h.signal <- struct{}{}:
	default:
	}
}

// add makes a connection one of those that are woken. What is not in the ring by then is in the journal.
func (h *hub) add(root *actor.RootContext, c *connection) {
	c.hub.Store(h) // before ended is read: whoever ends the connection reads them the other way round
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.ended.Load() {
		return
	}
	i := ringIndex(c.reads)
	if h.listeners[i] == 0 {
		h.rings[i] = newRing(c.reads, h.head.Load()+1)
	}
	h.listeners[i]++
	h.connections[c] = struct{}{}
	c.ring = h.rings[i]
	if h.signal == nil {
		h.signal = make(chan struct{}, 1)
		go h.wakeConnections(root, h.signal)
	}
}

func (h *hub) remove(c *connection) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.connections[c]; !ok {
		return
	}
	delete(h.connections, c)
	i := ringIndex(c.reads)
	if h.listeners[i]--; h.listeners[i] == 0 {
		h.rings[i] = nil
	}
	if len(h.connections) == 0 {
		close(h.signal)
		h.signal = nil
	}
}

// each calls fn with every connection.
func (h *hub) each(fn func(*connection)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.connections {
		fn(c)
	}
}

func (h *hub) listened() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.connections) > 0
}

// wakeConnections runs while somebody listens.
func (h *hub) wakeConnections(root *actor.RootContext, signal <-chan struct{}) {
	var idle []*connection
	for range signal {
		idle = idle[:0]
		h.each(func(c *connection) {
			if c.armed.CompareAndSwap(true, false) {
				idle = append(idle, c)
			}
		})
		for _, c := range idle {
			root.Send(c.pid, proceed{})
		}
		if len(idle) > manyConnections {
			time.Sleep(min(time.Duration(len(idle))*wakePause, longestPause))
		}
		clear(idle)
	}
}
