package persistence

import (
	"encoding/binary"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
)

// workspaceBytes has, for each partition, the counter of each workspace: the bytes of the rows of its events, keys and values, and of
// the rows of the feed that name these events. The head of a stream has the bytes of the stream's events, which erasing subtracts;
// the rows of the feed remain. Index entries and snapshots do not count.
//
// applier changes the counters, and writes their rows in the batch with the events. So they are exact, survive a restart and a
// crash, and cost a workspace one small row for each commit. recount computes them once for a partition from before format 3, before
// proposals are accepted.
//
// The counters may be read from any goroutine. They include proposals that are being committed.
type workspaceBytes struct {
	// mu guards the maps. Only the goroutine of applier adds to them, once the store is open.
	mu         sync.RWMutex
	partitions []map[string]*workspaceCounter
}

// workspaceCounter is the counter of one workspace.
type workspaceCounter struct {
	bytes atomic.Uint64
	key   []byte
	// changed reports that the current batch has changed the counter, and that its row is not written yet.
	changed bool
}

// workspacePrefix is the beginning of the id of a workspace, which is the first part of the identities of all entities of the workspace.
const workspacePrefix = "ws_"

// workspaceOf returns the id of the workspace that a stream belongs to, or "" if the stream belongs to no workspace.
func workspaceOf(s Stream) string {
	_, identity, _ := strings.Cut(string(s), "/")
	id, _, _ := strings.Cut(identity, "/")
	if !strings.HasPrefix(id, workspacePrefix) {
		return ""
	}
	return id
}

// appendWorkspaceKey appends the key of the counter of a workspace. The key without an id is the key of the row that every partition
// with counters has.
func appendWorkspaceKey(dst []byte, p Partition, id string) []byte {
	return appendEscaped(appendHeader(dst, p, tagWorkspace), id)
}

// openWorkspaceBytes reads the counters of all partitions. It first counts the events of partitions that have no counters, up to rows of
// them in a batch.
func openWorkspaceBytes(db *pebble.DB, partitions, rows int, logger *slog.Logger) (*workspaceBytes, error) {
	w := &workspaceBytes{partitions: make([]map[string]*workspaceCounter, partitions)}
	for i := range partitions {
		p := Partition(i)
		_, closer, err := db.Get(appendWorkspaceKey(nil, p, ""))
		if err == pebble.ErrNotFound {
			err = recount(db, p, rows, logger)
		} else if err == nil {
			err = closer.Close()
		}
		if err != nil {
			return nil, err
		}
		if err := w.load(db, p); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// load sets the counters of a partition to their stored values.
func (w *workspaceBytes) load(db pebble.Reader, p Partition) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.partitions[p] == nil {
		w.partitions[p] = make(map[string]*workspaceCounter)
	}
	for _, c := range w.partitions[p] {
		c.bytes.Store(0)
		c.changed = false
	}
	lower := appendHeader(nil, p, tagWorkspace)
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: successor(nil, lower)})
	if err != nil {
		return err
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		id, err := unescape(it.Key()[keyHeader:])
		if err != nil {
			return err
		}
		value, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		n, err := decodeNumber(value)
		if err != nil {
			return err
		}
		if id != "" {
			w.counter(p, id).bytes.Store(n)
		}
	}
	return it.Error()
}

// counter returns the counter of a workspace, which it makes if it is missing. The caller holds mu.
func (w *workspaceBytes) counter(p Partition, id string) *workspaceCounter {
	c := w.partitions[p][id]
	if c == nil {
		c = &workspaceCounter{key: appendWorkspaceKey(nil, p, id)}
		w.partitions[p][id] = c
	}
	return c
}

// ofStream returns the counter of the workspace that a stream belongs to, or nil if the stream belongs to no workspace.
func (w *workspaceBytes) ofStream(k streamKey) *workspaceCounter {
	id := workspaceOf(k.stream)
	if id == "" {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counter(k.partition, id)
}

// of returns the bytes of a workspace.
func (w *workspaceBytes) of(p Partition, id string) uint64 {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if int(p) >= len(w.partitions) {
		return 0
	}
	if c := w.partitions[p][id]; c != nil {
		return c.bytes.Load()
	}
	return 0
}

// total returns the bytes of all workspaces, and the bytes of the workspace that has most.
func (w *workspaceBytes) total() (sum, most uint64) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	for _, counters := range w.partitions {
		for _, c := range counters {
			n := c.bytes.Load()
			sum, most = sum+n, max(most, n)
		}
	}
	return sum, most
}

// feedRowBytes returns the bytes of the row of the feed for an event.
func feedRowBytes(version uint64, s Stream) uint64 {
	return uint64(keyHeader + numberLen + positionSize(version, s))
}

// setCounter adds the row of a counter to b.
func setCounter(b *pebble.Batch, c *workspaceCounter) error {
	var value [binary.MaxVarintLen64]byte
	return b.Set(c.key, value[:binary.PutUvarint(value[:], c.bytes.Load())], nil)
}
