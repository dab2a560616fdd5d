package persistence

import (
	"bytes"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// TestSyncedForgetsLogsBeforeTheyGo loses power whenever a log is about to be removed or reused, and after. The directory opens
// each time: SYNCED never promises a log that is gone.
func TestSyncedForgetsLogsBeforeTheyGo(t *testing.T) {
	disk := vfs.NewCrashableMem()
	rng := rand.New(rand.NewPCG(1, 1))
	var mu sync.Mutex
	var crashed []*vfs.MemFS
	lose := func() {
		mu.Lock()
		defer mu.Unlock()
		for _, percent := range []int{0, 50, 100} {
			crashed = append(crashed, disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng}))
		}
	}
	fs := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if strings.HasSuffix(op.Path, logSuffix) && (op.Kind == errorfs.OpRemove || op.Kind == errorfs.OpReuseForWrite) {
			lose()
		}
		return nil
	}))
	for opening := range 3 {
		s := mustOpen(t, smallOptions(fs, "data"))
		for i := range 6 {
			appendRows(t, s, 0, opening, i)
			if err := s.db.Flush(); err != nil { // begins another log
				t.Fatal(err)
			}
			lose()
		}
		mustClose(t, s)
	}
	for i, fs := range crashed {
		s, err := Open(smallOptions(fs, "data"))
		if err != nil {
			t.Fatalf("after loss %d of %d: %v", i, len(crashed), err)
		}
		mustClose(t, s)
	}
	if len(crashed) < 100 {
		t.Errorf("only %d losses of power", len(crashed))
	}
}

// TestDirectoryWithoutSynced opens a directory of format 2. From then on it does not open without SYNCED.
func TestDirectoryWithoutSynced(t *testing.T) {
	h := newHistory(t)
	format := "data/" + formatName
	older := strings.Replace(string(h.killed[format]), "atelier journal 3", "atelier journal 2", 1)
	fs := h.killed.replace(format, []byte(older)).replace("data/"+syncedName, nil).fileSystem(t)
	if !h.opensWhole(t, imageOf(t, fs, "data"), "format 2") {
		t.Fatal("a directory of format 2 is refused")
	}
	mustClose(t, mustOpen(t, smallOptions(fs, "data")))
	if err := fs.Remove("data/" + syncedName); err != nil {
		t.Fatal(err)
	}
	mustBeDamaged(t, fs, smallOptions(fs, "data"), "data/"+syncedName+" is missing")
	if _, err := Accept(smallOptions(fs, "data")); err != nil {
		t.Fatal(err)
	}
	mustClose(t, mustOpen(t, smallOptions(fs, "data")))
}

// TestAcceptNamesLostLogs accepts a directory with a shortened log.
func TestAcceptNamesLostLogs(t *testing.T) {
	h, logs := crashWithTwoLogs(t)
	last := logs[len(logs)-1]
	fs := h.killed.replace(last, h.killed[last][:len(h.killed[last])/2]).fileSystem(t)
	mustBeDamaged(t, fs, smallOptions(fs, "data"), last)
	a, err := Accept(smallOptions(fs, "data"))
	if err != nil || len(a.Lost) != 1 || !strings.Contains(a.Lost[0], last) {
		t.Fatalf("%+v, %v", a, err)
	}
	mustClose(t, mustOpen(t, smallOptions(fs, "data")))
}

// lostEnd is a directory after its disk has lost power, with the rows that had synced promises, and all acknowledged rows.
type lostEnd struct {
	image         image
	log           string
	promised, all map[string]string
	// promisedBytes are the bytes of the log with the promised rows.
	promisedBytes int
}

// losePowerAfterSync appends rows, syncs their promises as marksWriter does at intervals, appends more rows, and loses power.
func losePowerAfterSync(t *testing.T) (l lostEnd) {
	t.Helper()
	disk := vfs.NewCrashableMem()
	s := mustOpen(t, smallOptions(disk, "data"))
	defer mustClose(t, s)
	rows := func() map[string]string {
		rows, err := rowsOf(s)
		if err != nil {
			t.Fatal(err)
		}
		return rows
	}
	appendRows(t, s, 0, 0, 0)
	l.promised = rows()
	if err := s.synced.sync(); err != nil {
		t.Fatal(err)
	}
	for path, content := range imageOf(t, disk.CrashClone(vfs.CrashCloneCfg{}), "data") {
		if strings.HasSuffix(path, logSuffix) && len(content) > 0 {
			l.log, l.promisedBytes = path, len(content)
		}
	}
	appendRows(t, s, 1, 0, 1)
	l.all = rows()
	l.image = imageOf(t, disk.CrashClone(vfs.CrashCloneCfg{}), "data")
	return l
}

// TestLostEndOfLog cuts the last log off after a loss of power, as a disk does that loses stored bytes. A loss of bytes that were promised
// when SYNCED was synced last is refused, and the log is named. A loss after that is refused or noticed only if it tears a record;
// the log is named then, too. The rest is lost without a sign: the bytes that were written since the last sync of SYNCED.
func TestLostEndOfLog(t *testing.T) {
	l := losePowerAfterSync(t)
	content := l.image[l.log]
	if l.promisedBytes == 0 || l.promisedBytes >= len(content) {
		t.Fatalf("%d of %d bytes are promised", l.promisedBytes, len(content))
	}
	unnoticed := 0
	for at := range len(content) + 1 {
		var log bytes.Buffer
		fs := l.image.replace(l.log, content[:at]).fileSystem(t)
		o := smallOptions(fs, "data")
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		if at < l.promisedBytes {
			if at%16 == 0 || at == l.promisedBytes-1 {
				mustBeDamaged(t, fs, o, l.log)
			}
			continue
		}
		s := mustOpen(t, o)
		rows, err := rowsOf(s)
		if err != nil {
			t.Fatal(err)
		}
		for row, value := range l.promised {
			if rows[row] != value {
				t.Errorf("cut off at byte %d of %d: the promised row %q is lost", at, len(content), row)
			}
		}
		torn := metricOf(t, s, "atelier_journal_incomplete_logs_total")
		mustClose(t, s)
		if named := strings.Contains(log.String(), "level=ERROR") && strings.Contains(log.String(), l.log); named != (torn == 1) {
			t.Errorf("cut off at byte %d: %v incomplete logs, and the log says %q", at, torn, log.String())
		}
		if torn == 0 && !maps.Equal(rows, l.all) {
			unnoticed++
		}
	}
	if unnoticed == 0 || unnoticed > len(l.all) { // at most the boundaries of records
		t.Errorf("a loss was unnoticed at %d of %d bytes", unnoticed, len(content))
	}
}

// TestTornPromise tears each slot of SYNCED, as a loss of power may. The promise of the other slot counts.
func TestTornPromise(t *testing.T) {
	h := newHistory(t)
	path := "data/" + syncedName
	for slot := range 2 {
		torn := slices.Clone(h.killed[path])
		copy(torn[slot*slotBytes+40:], make([]byte, 512))
		if !h.opensWhole(t, h.killed.replace(path, torn), "torn slot") {
			t.Errorf("the directory with a torn slot %d is refused", slot)
		}
	}
}

// TestForgetInBothSlots tears each slot after a promise was removed, as a loss of power during the next write may: the other slot does not
// have the promise. After a removal that has failed, the promise remains.
func TestForgetInBothSlots(t *testing.T) {
	fails := false
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if fails && op.Kind == errorfs.OpFileWriteAt {
			return errorfs.ErrInjected
		}
		return nil
	}))
	d := &directory{fs: fs, path: "data", format: format{disk: newID()}}
	if err := fs.MkdirAll("data", 0o700); err != nil {
		t.Fatal(err)
	}
	s, err := createSynced(d, []extent{{"000001.log", 1, 1}, {"000002.log", 1, 1}}, smallOptions(fs, "data").Logger)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	fails = true
	if err := s.forget("000001.log"); err == nil || len(s.logs) != 2 {
		t.Errorf("after %v there are the promises %v", err, s.logs)
	}
	fails = false
	if err := s.forget("000001.log"); err != nil {
		t.Fatal(err)
	}
	for slot := range 2 {
		whole := imageOf(t, fs, "data")
		torn := slices.Clone(whole["data/"+syncedName])
		copy(torn[slot*slotBytes+40:], make([]byte, 512))
		other := &directory{fs: whole.replace("data/"+syncedName, torn).fileSystem(t), path: "data", format: d.format}
		if logs, err := other.readSynced(); err != nil || len(logs) != 1 || logs[0].name != "000002.log" {
			t.Errorf("without slot %d: %v, %v", slot, logs, err)
		}
	}
}

// slotFile records the slots that are written between syncs, and calls duringSync while it is synced.
type slotFile struct {
	vfs.File
	written    map[int64]bool
	duringSync func()
}

func (f *slotFile) WriteAt(p []byte, at int64) (int, error) {
	f.written[at/slotBytes] = true
	return f.File.WriteAt(p, at)
}

func (f *slotFile) SyncData() error {
	f.duringSync()
	return f.File.SyncData()
}

// TestOneSlotIsWritten promises extents before and during syncs. Until a slot was synced without a write, which a loss of power or the
// write itself may tear, only that slot is written; then the other slot.
func TestOneSlotIsWritten(t *testing.T) {
	fs := vfs.NewMem()
	d := &directory{fs: fs, path: "data", format: format{disk: newID()}}
	if err := fs.MkdirAll("data", 0o700); err != nil {
		t.Fatal(err)
	}
	s, err := createSynced(d, nil, smallOptions(fs, "data").Logger)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	e := extent{name: "000001.log"}
	promise := func() {
		e.length++
		s.promise(e)
	}
	f := &slotFile{File: s.file, written: map[int64]bool{}}
	s.file = f
	var last int64 = -1
	for round := range 6 {
		syncs := 0
		f.duringSync = func() {
			if syncs++; syncs == 1 && round%2 == 0 {
				promise()
				promise()
			}
		}
		clear(f.written)
		for range round + 1 {
			promise()
		}
		if err := s.sync(); err != nil {
			t.Fatal(err)
		}
		if len(f.written) != 1 || f.written[last] || syncs != 2-round%2 {
			t.Fatalf("round %d: after slot %d the slots %v were written, with %d syncs", round, last, f.written, syncs)
		}
		for last = range f.written {
		}
		if logs, err := d.readSynced(); err != nil || len(logs) != 1 || logs[0] != e {
			t.Errorf("round %d: %v, %v", round, logs, err)
		}
	}
}

// BenchmarkPromise measures the write that follows each sync of the log.
func BenchmarkPromise(b *testing.B) {
	o := smallOptions(vfs.Default, b.TempDir())
	d := &directory{fs: o.FS, path: o.Dir, format: format{disk: newID()}}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		b.Fatal(err)
	}
	s, err := createSynced(d, []extent{{"000001.log", 1, 1}}, o.Logger)
	if err != nil {
		b.Fatal(err)
	}
	defer s.close()
	for e := (extent{"000002.log", 1, 1}); b.Loop(); e.length++ {
		s.promise(e)
	}
}
