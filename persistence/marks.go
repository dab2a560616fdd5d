package persistence

import (
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/errors/oserror"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// ErrDamaged means that the data directory contains less than its marks promise, or that one of its files cannot be read.
// Open returns it, wrapped with the reason, before it has changed anything on the disk.
var ErrDamaged = errors.New("the journal is damaged or incomplete")

// damaged returns an ErrDamaged with a reason.
func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrDamaged, fmt.Errorf(format, args...))
}

// marks are the identity and the high-water marks of a journal. They are stored in a file outside Pebble, so that a store
// that has lost its history is not taken for one that never had any. Everything that the marks promise was durable in the
// store before they were written; the store may contain more.
type marks struct {
	// disk is the id of the data directory that the marks belong to.
	disk string
	// timeline is a random id. It is renewed when the data directory is found to be a copy of another directory.
	timeline string
	// fileID tells the file of the marks from a copy of it (see fileIDOf); it is empty if the file system cannot tell
	// them apart. It is called "place" in the file.
	fileID string
	// sealed reports that the journal was closed in an orderly way: logs then has every log of the store.
	sealed bool
	// partitions has the least epoch and the least sequence of each partition.
	partitions []partitionMark
	// manifests has the beginnings of Pebble's manifests, including the current one. Each edit of a manifest is in the
	// marks before Pebble acts on it, and therefore before Pebble removes any file because of it.
	manifests []extent
	logs      []extent
}

// partitionMark is an epoch and a sequence of the feed that a partition has reached.
type partitionMark struct{ epoch, sequence uint64 }

// extent is the beginning of a file of the store: its length in bytes and their CRC-32C.
type extent struct {
	name   string
	length int64
	sum    uint32
}

const (
	marksName     = "MARKS"
	maxMarksBytes = 1 << 20
	marksHeader   = "atelier marks 1\n"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// extend adds the bytes that are written next to the file.
func (e *extent) extend(p []byte) {
	e.length += int64(len(p))
	e.sum = crc32.Update(e.sum, castagnoli, p)
}

// hasHistory reports whether the journal was ever opened. Before that, it has nothing to lose.
func (m *marks) hasHistory() bool {
	return slices.ContainsFunc(m.partitions, func(s partitionMark) bool { return s.epoch > 0 })
}

// clone returns a deep copy.
func (m *marks) clone() marks {
	c := *m
	c.partitions, c.manifests, c.logs = slices.Clone(m.partitions), slices.Clone(m.manifests), slices.Clone(m.logs)
	return c
}

// encode returns the content of the file. Its last line is a checksum of all lines before it.
func (m *marks) encode() []byte {
	var b strings.Builder
	b.WriteString(marksHeader)
	fmt.Fprintf(&b, "disk %s\ntimeline %s\nplace %s\nsealed %t\n", m.disk, m.timeline, cmp.Or(m.fileID, "-"), m.sealed)
	for p, s := range m.partitions {
		fmt.Fprintf(&b, "partition %d %d %d\n", p, s.epoch, s.sequence)
	}
	for _, e := range m.manifests {
		fmt.Fprintf(&b, "manifest %s %d %08x\n", e.name, e.length, e.sum)
	}
	for _, e := range m.logs {
		fmt.Fprintf(&b, "log %s %d %08x\n", e.name, e.length, e.sum)
	}
	fmt.Fprintf(&b, "checksum %08x\n", crc32.Checksum([]byte(b.String()), castagnoli))
	return []byte(b.String())
}

var errMarksDamaged = errors.New("the checksum does not match the content")

// decodeMarks decodes the content of the file. It returns errMarksDamaged, or an error that names the malformed line.
func decodeMarks(text string) (marks, error) {
	var m marks
	at := strings.LastIndex(strings.TrimSuffix(text, "\n"), "\n") + 1
	if text[at:] != fmt.Sprintf("checksum %08x\n", crc32.Checksum([]byte(text[:at]), castagnoli)) {
		return m, errMarksDamaged
	}
	body, ok := strings.CutPrefix(text[:at], marksHeader)
	if !ok {
		return m, errors.New("the format is unknown to this program")
	}
	for line := range strings.Lines(body) {
		if err := m.decodeLine(line); err != nil {
			return m, fmt.Errorf("line %q: %w", strings.TrimSpace(line), err)
		}
	}
	return m, nil
}

// decodeLine decodes one line of the file, which is a key and its values.
func (m *marks) decodeLine(line string) error {
	key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
	var err error
	switch key {
	case "disk":
		m.disk = value
	case "timeline":
		m.timeline = value
	case "place":
		if value != "-" {
			m.fileID = value
		}
	case "sealed":
		_, err = fmt.Sscanf(value, "%t", &m.sealed)
	case "partition":
		var p int
		var s partitionMark
		_, err = fmt.Sscanf(value, "%d %d %d", &p, &s.epoch, &s.sequence)
		if err == nil && p != len(m.partitions) {
			err = errors.New("partitions are out of order")
		}
		m.partitions = append(m.partitions, s)
	case "manifest", "log":
		var e extent
		_, err = fmt.Sscanf(value, "%s %d %x", &e.name, &e.length, &e.sum)
		if key == "log" {
			m.logs = append(m.logs, e)
		} else {
			m.manifests = append(m.manifests, e)
		}
	default:
		err = errors.New("unknown key")
	}
	return err
}

// readMarks returns the marks in a file, or nil if the file does not exist. isCopy reports that the file is a copy of the
// file that was written. It returns ErrDamaged if the content cannot be decoded.
func readMarks(fs vfs.FS, path string) (_ *marks, isCopy bool, err error) {
	file, err := fs.Open(path)
	if oserror.IsNotExist(err) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxMarksBytes))
	if err != nil {
		return nil, false, err
	}
	m, err := decodeMarks(string(text))
	if err != nil {
		return nil, false, damaged("the marks in %s cannot be read: %w", path, err)
	}
	place := fileIDOf(file)
	return &m, m.fileID != "" && place != "" && m.fileID != place, nil
}

// writeMarks replaces the file at path atomically and durably: after a crash it has either these marks or the earlier marks.
func writeMarks(fs vfs.FS, path string, m *marks) error {
	temporary := path + ".new"
	file, err := fs.Create(temporary, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	m.fileID = fileIDOf(file) // a rename does not change it
	_, err = file.Write(m.encode())
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := fs.Rename(temporary, path); err != nil {
		return err
	}
	return syncDirectory(fs, fs.PathDir(path))
}

// marksWriter writes the marks of an open journal: after each edit of Pebble's manifest, after the journal was opened, at
// intervals while feeds advance, and when the journal is closed. Its methods may be called from any goroutine.
type marksWriter struct {
	fs     vfs.FS
	path   string
	logger *slog.Logger

	// fileLock is held while the file is written, so that older marks never replace newer ones. It is acquired before mu.
	fileLock sync.Mutex

	// mu guards the fields below.
	mu sync.Mutex
	// marks is the content of the next write.
	marks marks
	// files has the extents of the manifests and logs that this process has written, by name.
	files map[string]*extent
	// currentManifest is the manifest that Pebble's marker names, or is about to name.
	currentManifest string
	// changed reports that an epoch or a sequence has advanced since the last write.
	changed bool

	stop, stopped chan struct{}
}

// marksInterval is the time between periodic writes of the marks.
const marksInterval = 5 * time.Second

func newMarksWriter(fs vfs.FS, path string, m marks, logger *slog.Logger) *marksWriter {
	return &marksWriter{
		fs: fs, path: path, logger: logger, marks: m, files: make(map[string]*extent),
		stop: make(chan struct{}), stopped: make(chan struct{}),
	}
}

// write makes the marks durable.
func (w *marksWriter) write() error {
	w.fileLock.Lock()
	defer w.fileLock.Unlock()
	w.mu.Lock()
	m := w.marks.clone()
	w.changed = false
	w.mu.Unlock()
	err := writeMarks(w.fs, w.path, &m)
	if err != nil {
		w.mu.Lock()
		w.changed = true // the next periodic write repeats it
		w.mu.Unlock()
	}
	return err
}

// recordNotice raises a partition to the epoch and sequence of a notice. The next write promises them.
func (w *marksWriter) recordNotice(n Notice) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := &w.marks.partitions[n.Partition]
	s.epoch, s.sequence = max(s.epoch, n.Epoch), max(s.sequence, n.Sequence)
	w.changed = true
}

// reached returns the epochs and sequences that the partitions have reached.
func (w *marksWriter) reached() []partitionMark {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.marks.partitions)
}

// writePeriodically makes the promises of logs durable with syncPromises, and writes changed marks, at intervals until stopPeriodicWrites is
// called. It logs errors, and retries after the next interval.
func (w *marksWriter) writePeriodically(syncPromises func() error) {
	defer close(w.stopped)
	ticker := time.NewTicker(marksInterval)
	defer ticker.Stop()
	for {
		select {
		case <-w.stop:
			return
		case <-ticker.C:
		}
		if err := syncPromises(); err != nil {
			w.logger.Warn("cannot make the promised ends of the journal's logs durable, will retry", "error", err)
		}
		w.mu.Lock()
		changed := w.changed
		w.mu.Unlock()
		if !changed {
			continue
		}
		if err := w.write(); err != nil {
			w.logger.Warn("cannot write the marks of the journal, will retry", "path", w.path, "error", err)
		}
	}
}

// stopPeriodicWrites ends writePeriodically and waits for it.
func (w *marksWriter) stopPeriodicWrites() {
	close(w.stop)
	<-w.stopped
}

// writeSealed makes the marks of a closed journal durable, with the extents of its logs, which do not grow any more.
func (w *marksWriter) writeSealed() error {
	w.mu.Lock()
	w.marks.sealed, w.marks.logs = true, nil
	for name, e := range w.files {
		if strings.HasSuffix(name, logSuffix) {
			w.marks.logs = append(w.marks.logs, *e)
		}
	}
	slices.SortFunc(w.marks.logs, func(a, b extent) int { return strings.Compare(a.name, b.name) })
	w.mu.Unlock()
	return w.write()
}

// beginExtent returns a new, empty extent for a file that is created or reused.
func (w *marksWriter) beginExtent(name string) *extent {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := &extent{name: name}
	w.files[name] = e
	return e
}

// recordMarker records the manifest that Pebble's marker is about to name. The change of the marker is durable before
// Pebble continues.
func (w *marksWriter) recordMarker(manifest string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.currentManifest = manifest
}

// recordManifest makes marks durable that include the whole of a manifest that was just synced. Pebble syncs a new
// manifest once before it moves the marker; until then the manifest before it may still be the current one, and remains
// in the marks.
func (w *marksWriter) recordManifest(e *extent) error {
	w.mu.Lock()
	if w.currentManifest == e.name {
		w.forgetOldManifests()
	}
	at := slices.IndexFunc(w.marks.manifests, func(other extent) bool { return other.name == e.name })
	if at < 0 {
		at = len(w.marks.manifests)
		w.marks.manifests = append(w.marks.manifests, extent{})
	}
	w.marks.manifests[at] = *e
	w.mu.Unlock()
	return w.write()
}

// recordOpened makes marks durable after Pebble has opened the store and has moved the marker.
func (w *marksWriter) recordOpened() error {
	w.mu.Lock()
	w.forgetOldManifests()
	w.mu.Unlock()
	return w.write()
}

// forgetOldManifests removes all manifests but the current one from the marks. The caller holds mu.
func (w *marksWriter) forgetOldManifests() {
	if w.currentManifest != "" {
		others := func(e extent) bool { return e.name != w.currentManifest }
		w.marks.manifests = slices.DeleteFunc(slices.Clone(w.marks.manifests), others)
	}
}

// forgetFile drops the extent of a removed file.
func (w *marksWriter) forgetFile(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.files, name)
}

// trackedFile is a manifest or log with an extent that follows its writes. Pebble writes and syncs a file from one
// goroutine at a time (see vfs.File), so the extent needs no lock.
type trackedFile struct {
	vfs.File
	marksWriter *marksWriter
	extent      *extent
	// synced promises the extent of a log after each sync. It is nil for a manifest: each sync of a manifest writes the marks.
	synced *syncedLogs
}

func (f *trackedFile) Write(p []byte) (int, error) {
	f.extent.extend(p) // before Write, which may modify p; after an error Pebble does not use the file again
	return f.File.Write(p)
}

func (f *trackedFile) Sync() error     { return f.afterSync(f.File.Sync()) }
func (f *trackedFile) SyncData() error { return f.afterSync(f.File.SyncData()) }

// afterSync writes the marks after a manifest was synced, and a promise after a log was. err is the result of the sync.
func (f *trackedFile) afterSync(err error) error {
	if err != nil {
		return err
	}
	if f.synced != nil {
		f.synced.promise(*f.extent)
		return nil
	}
	return f.marksWriter.recordManifest(f.extent)
}
