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

// ErrDamaged says that the data directory does not hold what its marks say it held, or that a file of it cannot be
// read. Open returns it, wrapped with the reason, before anything on the disk is changed.
var ErrDamaged = errors.New("the journal is damaged or incomplete")

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrDamaged, fmt.Errorf(format, args...))
}

// marks are the identity of a journal and its high-water marks, kept in a file outside Pebble, so that a store that
// lost history cannot pass for one that never had it. Everything that the marks promise was durable in the store before
// the marks were written; the store may hold more.
type marks struct {
	// disk is the id of the data directory that the marks belong to.
	disk string
	// timeline is random. It is renewed when the data directory is found to be a copy of another.
	timeline string
	// place tells the file that holds the marks from a copy of it; "" where the file system cannot tell.
	fileID string
	// sealed tells that the journal was closed cleanly: logs then lists every log of the store.
	sealed bool
	// shares are the least epoch and the least feed sequence of each partition.
	partitions []partitionMark
	// manifests are the beginnings of Pebble's manifests, one of which is the current one. Each edit of a manifest is in
	// them before Pebble acts on it, and thus before Pebble removes anything because of it.
	manifests []extent
	logs      []extent
}

// mark is what a partition held at least.
type partitionMark struct{ epoch, sequence uint64 }

// extent is the beginning of a file of the store: its length in bytes and the CRC-32C of them.
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

func (e *extent) extend(p []byte) {
	e.length += int64(len(p))
	e.sum = crc32.Update(e.sum, castagnoli, p)
}

// hasHistory reports whether the journal was ever opened: until then there is nothing that could have been lost.
func (m *marks) hasHistory() bool {
	return slices.ContainsFunc(m.partitions, func(s partitionMark) bool { return s.epoch > 0 })
}

func (m *marks) clone() marks {
	c := *m
	c.partitions, c.manifests, c.logs = slices.Clone(m.partitions), slices.Clone(m.manifests), slices.Clone(m.logs)
	return c
}

// encode returns the text of the file, which ends with a checksum of all before it.
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

var errMarksDamaged = errors.New("its checksum does not match its content")

// decodeMarks parses what encode returned. Errors: errMarksDamaged, or one that names the line.
func decodeMarks(text string) (marks, error) {
	var m marks
	at := strings.LastIndex(strings.TrimSuffix(text, "\n"), "\n") + 1
	if text[at:] != fmt.Sprintf("checksum %08x\n", crc32.Checksum([]byte(text[:at]), castagnoli)) {
		return m, errMarksDamaged
	}
	body, ok := strings.CutPrefix(text[:at], marksHeader)
	if !ok {
		return m, errors.New("its format is not one that this program reads")
	}
	for line := range strings.Lines(body) {
		if err := m.decodeLine(line); err != nil {
			return m, fmt.Errorf("line %q: %w", strings.TrimSpace(line), err)
		}
	}
	return m, nil
}

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
		err = errors.New("unknown")
	}
	return err
}

// readMarks returns the marks in a file, or nil where there is no such file. isCopy tells that the file is not the one
// that was written, but a copy of it. Errors: ErrDamaged.
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

// writeMarks replaces the file at path durably: after a crash it holds these marks or those before.
func writeMarks(fs vfs.FS, path string, m *marks) error {
	temporary := path + ".new"
	file, err := fs.Create(temporary, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	m.fileID = fileIDOf(file) // which a rename leaves as it is
	_, err = file.Write(m.encode())
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := fs.Rename(temporary, path); err != nil {
		return err
	}
	return syncDirectory(fs, fs.PathDir(path))
}

// keeper holds the marks of an open journal and writes them: with each edit of Pebble's manifest, after the journal has
// been opened, at intervals while feeds advance, and when the journal is closed. Its methods may be called from any
// goroutine.
type marksWriter struct {
	fs     vfs.FS
	path   string
	logger *slog.Logger

	// writing is held while the file is written, so that an older state never replaces a newer one.
	fileLock sync.Mutex

	mu sync.Mutex
	// marks is what the next write promises.
	marks marks
	// files are the manifests and logs that this process has written, by name.
	files map[string]*extent
	// pointed is the manifest that Pebble's marker was last moved to.
	currentManifest string
	// changed tells that a feed has advanced since the last write.
	changed bool

	stop, stopped chan struct{}
}

// marksInterval is the pause between writes of the marks while feeds advance.
const marksInterval = 5 * time.Second

func newMarksWriter(fs vfs.FS, path string, m marks, logger *slog.Logger) *marksWriter {
	return &marksWriter{
		fs: fs, path: path, logger: logger, marks: m, files: make(map[string]*extent),
		stop: make(chan struct{}), stopped: make(chan struct{}),
	}
}

// save makes the marks durable.
func (k *marksWriter) write() error {
	k.fileLock.Lock()
	defer k.fileLock.Unlock()
	k.mu.Lock()
	m := k.marks.clone()
	k.changed = false
	k.mu.Unlock()
	return writeMarks(k.fs, k.path, &m)
}

// note takes what a partition holds from a notice about it.
func (k *marksWriter) recordNotice(n Notice) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := &k.marks.partitions[n.Partition]
	s.epoch, s.sequence = max(s.epoch, n.Epoch), max(s.sequence, n.Sequence)
	k.changed = true
}

// run writes the marks at intervals until close. An error is logged; the next interval tries again.
func (k *marksWriter) writePeriodically() {
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
		if err := k.write(); err != nil {
			k.logger.Warn("the marks of the journal cannot be written; trying again", "path", k.path, "error", err)
		}
	}
}

// close ends run.
func (k *marksWriter) stopPeriodicWrites() {
	close(k.stop)
	<-k.stopped
}

// seal writes the marks of a journal that is closed: nothing follows the logs any more.
func (k *marksWriter) writeSealed() error {
	k.mu.Lock()
	k.marks.sealed, k.marks.logs = true, nil
	for name, e := range k.files {
		if strings.HasSuffix(name, logSuffix) {
			k.marks.logs = append(k.marks.logs, *e)
		}
	}
	slices.SortFunc(k.marks.logs, func(a, b extent) int { return strings.Compare(a.name, b.name) })
	k.mu.Unlock()
	return k.write()
}

// created begins the extent of a file that holds nothing yet, or nothing that counts.
func (k *marksWriter) beginExtent(name string) *extent {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := &extent{name: name}
	k.files[name] = e
	return e
}

// points takes the name of the manifest that Pebble's marker is being moved to. The move is durable when Pebble goes on.
func (k *marksWriter) recordMarker(manifest string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.currentManifest = manifest
}

// synced makes marks durable that hold all of a manifest that is durable itself. A manifest is synced once before the
// marker is moved to it: until then the one before may still be the current one.
func (k *marksWriter) recordManifest(e *extent) error {
	k.mu.Lock()
	if k.currentManifest == e.name {
		k.forgetOldManifests()
	}
	at := slices.IndexFunc(k.marks.manifests, func(other extent) bool { return other.name == e.name })
	if at < 0 {
		at = len(k.marks.manifests)
		k.marks.manifests = append(k.marks.manifests, extent{})
	}
	k.marks.manifests[at] = *e
	k.mu.Unlock()
	return k.write()
}

// opened makes the marks of a store durable that Pebble has opened: its marker has been moved.
func (k *marksWriter) recordOpened() error {
	k.mu.Lock()
	k.forgetOldManifests()
	k.mu.Unlock()
	return k.write()
}

// forgetOthers leaves the current manifest alone in the marks.
func (k *marksWriter) forgetOldManifests() {
	if k.currentManifest != "" {
		others := func(e extent) bool { return e.name != k.currentManifest }
		k.marks.manifests = slices.DeleteFunc(slices.Clone(k.marks.manifests), others)
	}
}

// removed forgets a file.
func (k *marksWriter) forgetFile(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.files, name)
}

// witness is a file of the store whose extent is kept. Pebble writes to a file and syncs it from one goroutine at a time
// (vfs.File), so that the extent needs no lock.
type trackedFile struct {
	vfs.File
	marksWriter *marksWriter
	extent      *extent
	// manifest tells that the marks are written with each sync.
	isManifest bool
}

func (f *trackedFile) Write(p []byte) (int, error) {
	f.extent.extend(p) // before Write, which may change p; after an error the file is not used again
	return f.File.Write(p)
}

func (f *trackedFile) Sync() error     { return f.afterSync(f.File.Sync()) }
func (f *trackedFile) SyncData() error { return f.afterSync(f.File.SyncData()) }

func (f *trackedFile) afterSync(err error) error {
	if err != nil || !f.isManifest {
		return err
	}
	return f.marksWriter.recordManifest(f.extent)
}
