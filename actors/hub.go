package actors

import (
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/atelier-run/atelier/entity/activity"
	"github.com/atelier-run/atelier/persistence"
)

// blockConnections is how many connections a goroutine takes from a round at once.
const blockConnections = 8

// hub sends the rows of one workspace to its streams: while streams are open it has the ring of frames, and a round for new
// rows writes to the streams that have caught up.
type hub struct {
	cursor activity.Cursor
	// head is the last durable seq.
	head atomic.Uint64

	mu          sync.Mutex
	rings       [2]*ring
	listeners   [2]int
	connections map[*connection]struct{}
	// listed has the connections as a list, for rounds; nil after a change.
	listed []*connection
	signal chan struct{}
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

// wake begins a round, now or after the one under way.
func (h *hub) wake() {
	if h.signal == nil {
		return
	}
	select {
	case h.signal <- struct{}{}:
	default:
	}
}

// add registers a connection, which rounds visit from then on. Rows that are not in the ring by then are in the journal.
func (h *hub) add(c *connection) {
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
	h.listed = nil
	c.ring = h.rings[i]
	if h.signal == nil {
		h.signal = make(chan struct{}, 1)
		go h.wakeConnections(c.node.metrics, h.signal)
	}
}

func (h *hub) remove(c *connection) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.connections[c]; !ok {
		return
	}
	delete(h.connections, c)
	h.listed = nil
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

// wakeConnections runs while connections are open. Each round sends what is new to the connections that wait for it. Rows
// that become durable during a round are sent together: by this round to the connections that it has not come to, by the next
// to the others.
func (h *hub) wakeConnections(m *metrics, signal <-chan struct{}) {
	for range signal {
		r := round{metrics: m, connections: h.list()}
		r.run()
	}
}

// list returns the connections. The caller must not change or keep the list.
func (h *hub) list() []*connection {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.listed == nil {
		h.listed = slices.AppendSeq(make([]*connection, 0, len(h.connections)), maps.Keys(h.connections))
	}
	return h.listed
}

// round visits each connection of a list once. Goroutines share it, as many as there are processors, because a write to a
// socket takes longer than all else: each takes the next few connections and writes to one after the other.
type round struct {
	metrics     *metrics
	connections []*connection
	taken       atomic.Int64
}

// roundCounts is what one goroutine has sent in a round. It is counted once, because counters that several processors change for
// each write cost a part of it.
type roundCounts struct{ wakes, reads, bytes int }

func (n roundCounts) count(m *metrics) {
	m.wakes.Add(float64(n.wakes))
	m.ringHits.Add(float64(n.reads))
	m.ringBytes.Add(float64(n.bytes))
}

func (r *round) run() {
	blocks := (len(r.connections) + blockConnections - 1) / blockConnections
	var others sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), blocks) - 1 {
		others.Go(r.work)
	}
	r.work()
	others.Wait()
}

func (r *round) work() {
	var sent roundCounts
	defer func() { sent.count(r.metrics) }()
	for {
		end := int(r.taken.Add(blockConnections))
		begin := end - blockConnections
		if begin >= len(r.connections) {
			return
		}
		for _, c := range r.connections[begin:min(end, len(r.connections))] {
			c.wake(&sent)
		}
		runtime.Gosched() // commands and requests take turns with a long round
	}
}
