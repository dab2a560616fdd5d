package persistence

import (
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// keeper holds the marks of an open journal and writes them: with each edit of Pebble's manifest, after the journal has
// been opened, at intervals while feeds advance, and when the journal is closed. Its methods may be called from any
// goroutine.
type keeper struct {
	fs     vfs.FS
	path   string
	logger *slog.Logger

	// writing is held while the file is written, so that an older state never replaces a newer one.
	writing sync.Mutex

	mu sync.Mutex
	// marks is what the next write promises.
	marks marks
	// files are the manifests and logs that this process has written, by name.
	files map[string]*extent
	// pointed is the manifest that Pebble's marker was last moved to.
	pointed string
	// changed tells that a feed has advanced since the last write.
	changed bool

	stop, stopped chan struct{}
}

// marksInterval is the pause between writes of the marks while feeds advance.
const marksInterval = 5 * time.Second

func newKeeper(fs vfs.FS, path string, m marks, logger *slog.Logger) *keeper {
	return &keeper{
		fs: fs, path: path, logger: logger, marks: m, files: make(map[string]*extent),
		stop: make(chan struct{}), stopped: make(chan struct{}),
	}
}

// save makes the marks durable.
func (k *keeper) save() error {
	k.writing.Lock()
	defer k.writing.Unlock()
	k.mu.Lock()
	m := k.marks.clone()
	k.changed = false
	k.mu.Unlock()
	return writeMarks(k.fs, k.path, &m)
}

// note takes what a partition holds from a notice about it.
func (k *keeper) note(n Notice) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := &k.marks.shares[n.Partition]
	s.epoch, s.sequence = max(s.epoch, n.Epoch), max(s.sequence, n.Sequence)
	k.changed = true
}

// run writes the marks at intervals until close. An error is logged; the next interval tries again.
func (k *keeper) run() {
	defer close(k.stopped)
	ticker := time.NewTicker(marksInterval)
	defer ticker.Stop()
	for {
		select {
		case <-k.stop:
			return
		case <-ticker.C:
		}
		k.mu.Lock()
		changed := k.changed
		k.mu.Unlock()
		if !changed {
			continue
		}
		if err := k.save(); err != nil {
			k.logger.Warn("the marks of the journal cannot be written; trying again", "path", k.path, "error", err)
		}
	}
}

// close ends run.
func (k *keeper) close() {
	close(k.stop)
	<-k.stopped
}

// seal writes the marks of a journal that is closed: nothing follows the logs any more.
func (k *keeper) seal() error {
	k.mu.Lock()
	k.marks.sealed, k.marks.logs = true, nil
	for name, e := range k.files {
		if strings.HasSuffix(name, logSuffix) {
			k.marks.logs = append(k.marks.logs, *e)
		}
	}
	slices.SortFunc(k.marks.logs, func(a, b extent) int { return strings.Compare(a.name, b.name) })
	k.mu.Unlock()
	return k.save()
}

// created begins the extent of a file that holds nothing yet, or nothing that counts.
func (k *keeper) created(name string) *extent {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := &extent{name: name}
	k.files[name] = e
	return e
}

// points takes the name of the manifest that Pebble's marker is being moved to. The move is durable when Pebble goes on.
func (k *keeper) points(manifest string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pointed = manifest
}

// synced makes marks durable that hold all of a manifest that is durable itself. A manifest is synced once before the
// marker is moved to it: until then the one before may still be the current one.
func (k *keeper) synced(e *extent) error {
	k.mu.Lock()
	if k.pointed == e.name {
		k.forgetOthers()
	}
	at := slices.IndexFunc(k.marks.manifests, func(other extent) bool { return other.name == e.name })
	if at < 0 {
		at = len(k.marks.manifests)
		k.marks.manifests = append(k.marks.manifests, extent{})
	}
	k.marks.manifests[at] = *e
	k.mu.Unlock()
	return k.save()
}

// opened makes the marks of a store durable that Pebble has opened: its marker has been moved.
func (k *keeper) opened() error {
	k.mu.Lock()
	k.forgetOthers()
	k.mu.Unlock()
	return k.save()
}

// forgetOthers leaves the current manifest alone in the marks.
func (k *keeper) forgetOthers() {
	if k.pointed != "" {
		others := func(e extent) bool { return e.name != k.pointed }
		k.marks.manifests = slices.DeleteFunc(slices.Clone(k.marks.manifests), others)
	}
}

// removed forgets a file.
func (k *keeper) removed(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.files, name)
}

// witness is a file of the store whose extent is kept. Pebble writes to a file and syncs it from one goroutine at a time
// (vfs.File), so that the extent needs no lock.
type witness struct {
	vfs.File
	keeper *keeper
	extent *extent
	// manifest tells that the marks are written with each sync.
	manifest bool
}

func (f *witness) Write(p []byte) (int, error) {
	f.extent.add(p) // before Write, which may change p; after an error the file is not used again
	return f.File.Write(p)
}

func (f *witness) Sync() error     { return f.sync(f.File.Sync()) }
func (f *witness) SyncData() error { return f.sync(f.File.SyncData()) }

func (f *witness) sync(err error) error {
	if err != nil || !f.manifest {
		return err
	}
	return f.keeper.synced(f.extent)
}
