package actors

import (
	"maps"
	"runtime"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/atelier-run/atelier/entity/activity"
	"github.com/atelier-run/atelier/persistence"
)

// blockConnections is the number of connections that a goroutine takes from a round at once.
const blockConnections = 8

// A hub passes the rows of one workspace to its streams. While there are streams it fills a ring of frames, and a round for new
// rows writes to the streams that have caught up. It is safe for concurrent use.
type hub struct {
	cursor activity.Cursor
	// head is the last durable seq.
	head atomic.Uint64

	mu sync.Mutex
	// rings and listeners, the number of their connections, are by ringIndex; a ring without listeners is nil.
	rings       [2]*ring
	listeners   [2]int
	connections map[*connection]struct{}
	// listed has the connections as a list, for rounds; nil after a change.
	listed []*connection
	// signal begins a round of wakeConnections; nil while there are no connections.
	signal chan struct{}
}

func newHub(cursor activity.Cursor) *hub {
	return &hub{cursor: cursor, connections: map[*connection]struct{}{}}
}

// ringIndex returns the index of the ring for connections with or without reads.
func ringIndex(reads bool) int {
	if reads {
		return 1
	}
	return 0
}

// resume sets the last durable seq after the activity's state was loaded. If rows are missing in the rings, these begin anew.
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

// publish appends rows that are durable to the rings and wakes the streams. The caller does not modify events afterwards.
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

// wake begins a round, now or after the round that is under way. The caller holds mu.
func (h *hub) wake() {
	if h.signal == nil {
		return
	}
	select {
	case h.signal <- struct{}{}:
	default:
	}
}

// add adds a connection, which rounds visit from then on. Rows that are not in the ring by then are in the journal.
func (h *hub) add(c *connection) {
	// add stores hub before it reads ended, and stop sets ended before the connection's actor reads hub. Therefore add sees ended, or the
	// actor sees hub, and removes the connection.
	c.hub.Store(h)
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
		go h.wakeConnections(c.system.metrics, h.signal)
	}
}

// remove removes a connection, and the ring with its last connection.
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

// each calls fn with every connection while mu is held.
func (h *hub) each(fn func(*connection)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.connections {
		fn(c)
	}
}

// hasFollowers reports whether there are connections.
func (h *hub) hasFollowers() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.connections) > 0
}

// wakeConnections runs while connections are open. Each round sends the new rows to the connections that wait for new rows. Rows
// that become durable during a round are sent together: by this round to the connections that it has not visited yet, and by the next
// round to the connections that this round has visited.
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

// round visits each connection of a list once. As many goroutines as there are processors share a round, because the writes to the sockets take
// most of the time: each goroutine takes the next few connections and writes to them one after the other.
type round struct {
	metrics     *metrics
	connections []*connection
	taken       atomic.Int64
}

// roundCounts has the counts of one goroutine in a round: woken connections, reads of the ring, and sent bytes. They are added to the metrics
// once per round, because counters that several processors change with each write would slow the writes down.
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

const (
	// A ring has at most maxChunks chunks of chunkBytes.
	chunkBytes = 256 << 10
	maxChunks  = 8
	// sendBytes limits the bytes that a stream sends at once, unless one frame is larger.
	sendBytes = 64 << 10
)

// A ring has the newest frames of a workspace as contiguous bytes, written once and shared by all streams. One goroutine
// appends; any number of goroutines read without a lock. The garbage collector frees old chunks, since a slow stream may still
// be sending one.
type ring struct {
	reads     bool
	published atomic.Pointer[window]
}

// A window is one published state of a ring. The bytes within the length of its slices never change; append writes behind it.
type window struct {
	// The window has the frames of the seqs from start to end-1.
	start, end uint64
	chunks     []chunk
}

type chunk struct {
	first  uint64
	bytes  []byte
	frames []frame
}

// A frame is the position in the chunk at which a row's frame ends.
type frame struct {
	seq uint64
	end int
}

func newRing(reads bool, next uint64) *ring {
	r := &ring{reads: reads}
	r.published.Store(&window{start: next, end: next})
	return r
}

// resume empties the ring unless next is the seq after its last row.
func (r *ring) resume(next uint64) {
	if r.published.Load().end != next {
		r.published.Store(&window{start: next, end: next})
	}
}

// append publishes durable rows. If they do not follow the last row, the ring is emptied first.
func (r *ring) append(cursor activity.Cursor, events []persistence.Event) {
	w := *r.published.Load()
	w.chunks = slices.Clone(w.chunks)
	for _, e := range events {
		if e.Version != w.end {
			w = window{start: e.Version, end: e.Version}
		}
		if row := activity.Stored(e.Payload); r.reads || !activity.Read(row.Kind()) {
			w.add(cursor, e.Version, row)
		}
		w.end = e.Version + 1
	}
	r.published.Store(&w)
}

func (w *window) add(cursor activity.Cursor, seq uint64, row activity.Stored) {
	size := len(row) + 96
	last := len(w.chunks) - 1
	if last < 0 || cap(w.chunks[last].bytes)-len(w.chunks[last].bytes) < size {
		w.grow(seq, size)
		last = len(w.chunks) - 1
	}
	c := &w.chunks[last]
	c.bytes = activity.AppendFrame(c.bytes, cursor, seq, row)
	c.frames = append(c.frames, frame{seq, len(c.bytes)})
}

func (w *window) grow(seq uint64, size int) {
	if len(w.chunks) == maxChunks {
		w.chunks = w.chunks[1:]
		w.start = w.chunks[0].first
	}
	w.chunks = append(w.chunks, chunk{first: seq, bytes: make([]byte, 0, max(chunkBytes, size))})
}

// read returns contiguous frames from a seq on, and the seq after them. ok is false if the ring does not have that seq. The
// caller must not modify the frames.
func (r *ring) read(from uint64) (frames []byte, next uint64, ok bool) {
	w := r.published.Load()
	switch {
	case from < w.start || from > w.end:
		return nil, from, false
	case from == w.end:
		return nil, from, true
	}
	i := sort.Search(len(w.chunks), func(i int) bool {
		c := w.chunks[i]
		return c.frames[len(c.frames)-1].seq >= from
	})
	if i == len(w.chunks) {
		return nil, w.end, true
	}
	frames, last := w.chunks[i].from(from)
	if last == w.chunks[len(w.chunks)-1].frames[len(w.chunks[len(w.chunks)-1].frames)-1].seq {
		return frames, w.end, true
	}
	return frames, last + 1, true
}

// from returns complete frames from a seq on, and the seq of the last frame.
func (c chunk) from(seq uint64) (frames []byte, last uint64) {
	i := sort.Search(len(c.frames), func(i int) bool { return c.frames[i].seq >= seq })
	begin := 0
	if i > 0 {
		begin = c.frames[i-1].end
	}
	j := i + sort.Search(len(c.frames)-i, func(k int) bool { return c.frames[i+k].end-begin > sendBytes })
	j = max(j, i+1)
	return c.bytes[begin:c.frames[j-1].end], c.frames[j-1].seq
}
