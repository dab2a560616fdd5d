package actors

import (
	"slices"
	"sort"
	"sync/atomic"

	"github.com/atelier-run/atelier/entity/activity"
	"github.com/atelier-run/atelier/persistence"
)

const (
	chunkBytes = 256 << 10
	maxChunks  = 8
	// sendBytes bounds what a stream sends at once, unless one frame is larger.
	sendBytes = 64 << 10
)

// ring keeps the newest frames of a workspace as contiguous bytes, written once and shared by all streams. One goroutine
// appends; any number read what was published, without a lock. What falls out is left to the garbage collector, since a
// slow reader may still be sending it.
type ring struct {
	reads     bool
	published atomic.Pointer[window]
}

// window is one published state of a ring. Its slices are never changed, only appended to behind their length.
type window struct {
	// The ring answers for seqs of at least start and below end.
	start, end uint64
	chunks     []chunk
}

type chunk struct {
	first  uint64
	bytes  []byte
	frames []frame
}

// frame is where a row's frame ends in its chunk.
type frame struct {
	seq uint64
	end int
}

func newRing(reads bool, next uint64) *ring {
	r := &ring{reads: reads}
	r.published.Store(&window{start: next, end: next})
	return r
}

// resume begins the ring anew where it does not go on with next.
func (r *ring) resume(next uint64) {
	if r.published.Load().end != next {
		r.published.Store(&window{start: next, end: next})
	}
}

// append publishes committed rows. Rows that do not follow the last ones begin the ring anew.
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

// read returns frames from a seq on, and the seq that follows them. It is not ok where the ring no longer has that seq.
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

// from returns whole frames from a seq on, and the seq of the last of them.
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
