package persistence

import (
	"bytes"
	"encoding/binary"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"google.golang.org/protobuf/encoding/protowire"
)

// workspaceBytes has, for each partition, the counter of each workspace: the bytes of the rows of its events, keys and values, and of
// the rows of the feed that name these events. The head of a stream has the bytes of the stream's events, which erasing subtracts;
// the rows of the feed remain. Index entries and snapshots do not count.
//
// applier changes the counters, and writes their rows in the batch with the events. So they are exact, survive a restart and a
// crash, and cost a workspace one small row for each commit. recount computes them once for a partition from before format 3.
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

// workspaceOf returns the id of the workspace to which a stream belongs, or "" if the stream belongs to none.
func workspaceOf(s Stream) string {
	_, identity, _ := strings.Cut(string(s), "/")
	id, _, _ := strings.Cut(identity, "/")
	if !strings.HasPrefix(id, workspacePrefix) {
		return ""
	}
	return id
}

// appendWorkspaceKey appends the key of the counter of a workspace. The key without an id is that of the row that every partition with
// counters has.
func appendWorkspaceKey(dst []byte, p Partition, id string) []byte {
	return appendEscaped(appendHeader(dst, p, tagWorkspace), id)
}

// openWorkspaceBytes reads the counters of all partitions. It first counts the events of partitions that have no counters.
func openWorkspaceBytes(db *pebble.DB, partitions int, logger *slog.Logger) (*workspaceBytes, error) {
	w := &workspaceBytes{partitions: make([]map[string]*workspaceCounter, partitions)}
	for i := range partitions {
		p := Partition(i)
		_, closer, err := db.Get(appendWorkspaceKey(nil, p, ""))
		if err == pebble.ErrNotFound {
			err = recount(db, p, logger)
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

// ofStream returns the counter of the workspace to which a stream belongs, or nil if the stream belongs to none.
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

// total returns the bytes of all workspaces, and those of the workspace that has most.
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

// recountBatch bounds the bytes of heads that recount writes at once.
const recountBatch = 1 << 20

// recount counts the events of a partition, and writes the counters of its workspaces and the bytes of their streams. It reads all events
// of workspaces and the feed. If it is interrupted, the next opening begins it again.
func recount(db *pebble.DB, p Partition, logger *slog.Logger) error {
	start := time.Now()
	r := &recounting{db: db, partition: p, batch: db.NewBatch(), totals: make(map[string]uint64)}
	defer func() { r.batch.Close() }()
	if err := errors.Join(r.readEvents(), r.readFeed()); err != nil {
		return err
	}
	var all uint64
	for id, n := range r.totals {
		all += n
		if err := r.batch.Set(appendWorkspaceKey(nil, p, id), protowire.AppendVarint(nil, n), nil); err != nil {
			return err
		}
	}
	if err := r.batch.Set(appendWorkspaceKey(nil, p, ""), []byte{0}, nil); err != nil {
		return err
	}
	if err := db.Apply(r.batch, pebble.Sync); err != nil {
		return err
	}
	if all > 0 {
		logger.Info("counted the bytes of workspaces in the journal, which happens once", slog.Int("partition", int(p)),
			slog.Uint64("bytes", all), slog.Duration("duration", time.Since(start)))
	}
	return nil
}

// recounting is one call of recount.
type recounting struct {
	db        *pebble.DB
	partition Partition
	batch     *pebble.Batch
	// totals are the bytes of each workspace.
	totals map[string]uint64
}

// readFeed counts the rows of the feed.
func (r *recounting) readFeed() error {
	lower := appendHeader(nil, r.partition, tagFeed)
	it, err := r.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: successor(nil, lower)})
	if err != nil {
		return err
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		_, stream, err := decodePosition(value)
		if err != nil {
			return err
		}
		if id := workspaceOf(Stream(stream)); id != "" {
			r.totals[id] += uint64(len(it.Key()) + len(value))
		}
	}
	return it.Error()
}

// readEvents counts the rows of events, stream by stream.
func (r *recounting) readEvents() error {
	lower := appendHeader(nil, r.partition, tagEvent)
	it, err := r.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: successor(nil, lower)})
	if err != nil {
		return err
	}
	defer it.Close()
	for ok := it.First(); ok; {
		prefix := bytes.Clone(it.Key()[:splitKey(it.Key())])
		name, err := unescape(prefix[keyHeader : len(prefix)-1])
		if err != nil {
			return err
		}
		if workspaceOf(Stream(name)) == "" {
			ok = it.SeekGE(successor(nil, prefix))
			continue
		}
		if ok, err = r.readStream(it, prefix, Stream(name)); err != nil {
			return err
		}
	}
	return it.Error()
}

// readStream counts the events of a stream, from the position of it to the first event of another stream, and writes the head. ok is
// false if there is no such event.
func (r *recounting) readStream(it *pebble.Iterator, prefix []byte, s Stream) (ok bool, err error) {
	stored, err := readHead(r.db, r.partition, s)
	if err != nil {
		return false, err
	}
	stored.bytes = 0
	for ok = true; ok && bytes.HasPrefix(it.Key(), prefix); ok = it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return false, err
		}
		stored.bytes += uint64(len(it.Key()) + len(value))
	}
	r.totals[workspaceOf(s)] += stored.bytes
	h := &streamHead{key: streamKey{r.partition, s}, headRow: stored, eventPrefix: prefix, counter: &workspaceCounter{}}
	if err := setHead(r.batch, h); err != nil || r.batch.Len() < recountBatch {
		return ok, err
	}
	if err := r.db.Apply(r.batch, pebble.NoSync); err != nil {
		return false, err
	}
	r.batch.Reset()
	return ok, nil
}

// setCounter adds the row of a counter to b.
func setCounter(b *pebble.Batch, c *workspaceCounter) error {
	var value [binary.MaxVarintLen64]byte
	return b.Set(c.key, value[:binary.PutUvarint(value[:], c.bytes.Load())], nil)
}
