package persistence

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/atelier-run/atelier/tests/race"
)

// image is the content of every file below a directory, by path.
type image map[string][]byte

// imageOf reads the image of a directory. Files may be removed in the background: imageOf reads until it finds the same files twice.
func imageOf(t *testing.T, fs vfs.FS, dir string) image {
	t.Helper()
	var last image
	for {
		files := image{}
		err := files.read(fs, dir)
		switch {
		case err == nil && last != nil && last.equal(files):
			return files
		case err == nil:
			last = files
		case !errors.Is(err, os.ErrNotExist):
			t.Fatal(err)
		}
	}
}

// read adds the files below a directory.
func (i image) read(fs vfs.FS, dir string) error {
	names, err := fs.List(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		path := fs.PathJoin(dir, name)
		at, err := fs.Stat(path)
		if err != nil {
			return err
		}
		if at.IsDir() {
			if err := i.read(fs, path); err != nil {
				return err
			}
			continue
		}
		file, err := fs.Open(path)
		if err != nil {
			return err
		}
		i[path], err = io.ReadAll(file)
		if err = errors.Join(err, file.Close()); err != nil {
			return err
		}
	}
	return nil
}

// fileSystem returns a file system with the files of the image.
func (i image) fileSystem(t *testing.T) *vfs.MemFS {
	t.Helper()
	fs := vfs.NewMem()
	for path, content := range i {
		if err := fs.MkdirAll(fs.PathDir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		file, err := fs.Create(path, vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		_, err = file.Write(slices.Clone(content))
		if err = errors.Join(err, file.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return fs
}

// replace returns the image with another content of one file, or without the file if content is nil.
func (i image) replace(path string, content []byte) image {
	other := maps.Clone(i)
	other[path] = content
	if content == nil {
		delete(other, path)
	}
	return other
}

func (i image) equal(other image) bool {
	return maps.EqualFunc(i, other, func(a, b []byte) bool { return string(a) == string(b) })
}

// rowsOf returns every row of a store except the epochs, which change with each opening.
func rowsOf(s *Store) (map[string]string, error) {
	it, err := s.db.NewIter(&pebble.IterOptions{})
	if err != nil {
		return nil, err
	}
	defer it.Close()
	rows := map[string]string{}
	for ok := it.First(); ok; ok = it.Next() {
		if key := it.Key(); key[keyHeader-1] != tagTerm {
			rows[string(key)] = string(it.Value())
		}
	}
	return rows, it.Error()
}

// history is a store with tables from several openings, a compaction, and rows that are only in its log.
type history struct {
	rows map[string]string
	// closed is the directory after an orderly end, killed after the end of the process by a signal, crashed after a loss of power.
	closed, killed, crashed image
}

// newHistory returns a store with 19 events.
func newHistory(t *testing.T) history {
	t.Helper()
	fs := vfs.NewCrashableMem()
	o := smallOptions(fs, "data")
	o.Partitions = 2
	for opening := range 3 {
		s := mustOpen(t, o)
		for i := range 6 {
			appendRows(t, s, Partition(i%2), opening, i)
			if i == 3 {
				if err := s.db.Flush(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if opening == 1 {
			if err := s.db.Compact(t.Context(), []byte{0}, []byte{0xff}, false); err != nil {
				t.Fatal(err)
			}
		}
		mustClose(t, s)
	}
	s := mustOpen(t, o)
	appendRows(t, s, 1, 9, 9)
	rows, err := rowsOf(s)
	if err != nil {
		t.Fatal(err)
	}
	h := history{rows: rows, killed: imageOf(t, fs, "data"), crashed: imageOf(t, fs.CrashClone(vfs.CrashCloneCfg{}), "data")}
	mustClose(t, s)
	h.closed = imageOf(t, fs, "data")
	return h
}

// appendRows appends an event with an entry, and then a proposal with an entry only, which does not advance the feed.
func appendRows(t *testing.T, s *Store, p Partition, opening, i int) {
	t.Helper()
	s.watchers.mu.Lock()
	epoch := s.watchers.notices[p].Epoch
	s.watchers.mu.Unlock()
	stream := Stream(fmt.Sprintf("s/%d-%d", opening, i))
	entry := Change{Entry: Entry{Index: "i", Value: string(stream), Order: 1, Data: make([]byte, 40)}}
	alone := entry
	alone.Order = 2
	for version, proposal := range []Proposal{
		{Events: []Event{{Name: "e", Payload: make([]byte, 40)}}, Entries: []Change{entry}},
		{Entries: []Change{alone}},
	} {
		proposal.Partition, proposal.Stream, proposal.Expected, proposal.Epoch = p, stream, uint64(version), epoch
		results := make(chan Result, 1)
		s.Append(proposal, func(r Result) { results <- r })
		if r := <-results; r.Err != nil {
			t.Fatal(r.Err)
		}
	}
}

// opensWhole reports whether a possibly damaged directory opens. It fails the test if the directory opens without all of
// its rows, or if a refused opening has changed it.
func (h history) opensWhole(t *testing.T, damaged image, what string) (served bool) {
	t.Helper()
	fs := damaged.fileSystem(t)
	s, err := Open(smallOptions(fs, "data"))
	if err != nil {
		if !strings.Contains(err.Error(), "data directory data: ") {
			t.Errorf("%s: the error does not name the directory: %v", what, err)
		}
		if !damaged.equal(imageOf(t, fs, "data")) {
			t.Errorf("%s: the opening was refused (%v), but has changed the directory", what, err)
		}
		return false
	}
	defer s.Close()
	rows, err := rowsOf(s)
	if err != nil || !maps.Equal(h.rows, rows) {
		t.Errorf("%s: the journal opened without all of its rows: %v", what, err)
	}
	return true
}

// TestDamage damages each file of a data directory, except the log after a loss of power, which may legitimately be torn at its end.
// Each opening finds every row, or is refused and changes nothing.
func TestDamage(t *testing.T) {
	race.Skip(t, "it opens thousands of damaged directories one after the other")
	h := newHistory(t)
	for name, whole := range map[string]image{"closed": h.closed, "killed": h.killed, "crashed": h.crashed} {
		t.Run(name, func(t *testing.T) {
			if !h.opensWhole(t, whole, "whole") {
				t.Fatal("the whole directory is refused")
			}
			t.Run("flipped bits", func(t *testing.T) { h.testFlippedBits(t, whole, name != "crashed") })
			t.Run("missing and shortened files", func(t *testing.T) { h.testMissingFiles(t, whole, name != "crashed") })
		})
	}
}

// testFlippedBits flips single bits of each file.
func (h history) testFlippedBits(t *testing.T, whole image, logs bool) {
	rng := rand.New(rand.NewPCG(1, 1))
	current := "" // the manifest with the highest number
	for path := range whole {
		if strings.Contains(path, manifestPrefix) && !strings.Contains(path, manifestMarkerPrefix) {
			current = max(current, path)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(whole)) {
		step := 29
		switch {
		case strings.HasSuffix(path, logSuffix) && !logs:
			continue
		case path == current, strings.HasSuffix(path, marksName), strings.HasSuffix(path, formatName):
			step = 1
		}
		content, refused := whole[path], 0
		for at := rng.IntN(step); at < len(content); at += step {
			flipped := slices.Clone(content)
			flipped[at] ^= 1 << rng.IntN(8)
			if !h.opensWhole(t, whole.replace(path, flipped), fmt.Sprintf("%s, byte %d", path, at)) {
				refused++
			}
		}
		t.Logf("%s: %d bytes, %d openings refused", path, len(content), refused)
	}
}

// testMissingFiles removes, halves and empties each file.
func (h history) testMissingFiles(t *testing.T, whole image, logs bool) {
	for path, content := range whole {
		if strings.HasSuffix(path, lockName) || strings.HasSuffix(path, logSuffix) && !logs {
			continue
		}
		h.opensWhole(t, whole.replace(path, nil), path+" missing")
		if len(content) > 0 {
			h.opensWhole(t, whole.replace(path, content[:len(content)/2]), path+" cut in half")
			h.opensWhole(t, whole.replace(path, content[:len(content)-1]), path+" without its last byte")
			h.opensWhole(t, whole.replace(path, []byte{}), path+" empty")
		}
	}
}

// TestDamagedLogs flips bits of the two logs that a crash has left. The first log was completed: each opening finds every
// row, or is refused. The last one may be torn at its end: each opening succeeds or is refused. A refused opening changes
// nothing.
func TestDamagedLogs(t *testing.T) {
	h, logs := crashWithTwoLogs(t)
	for i, path := range logs {
		content, refused := h.crashed[path], 0
		for at := 0; at < len(content); at += 3 {
			flipped := slices.Clone(content)
			flipped[at] ^= 1 << (at % 8)
			damaged, what := h.crashed.replace(path, flipped), fmt.Sprintf("%s, byte %d", path, at)
			if i == 0 {
				if !h.opensWhole(t, damaged, what) {
					refused++
				}
				continue
			}
			fs := damaged.fileSystem(t)
			if s, err := Open(smallOptions(fs, "data")); err == nil {
				mustClose(t, s)
			} else if refused++; !damaged.equal(imageOf(t, fs, "data")) {
				t.Errorf("%s: the opening was refused (%v), but has changed the directory", what, err)
			}
		}
		t.Logf("%s: %d bytes, %d openings refused", path, len(content), refused)
		if i == 0 && refused < len(content)/4 {
			t.Errorf("%s: only %d openings are refused", path, refused)
		}
	}
	h.opensWhole(t, h.crashed, "whole")
}

// TestLogsCutOff cuts both logs of a killed process off at each byte. The end of the last log was promised when its last
// proposal was answered: an opening without a row is refused, and names the log.
func TestLogsCutOff(t *testing.T) {
	h, logs := crashWithTwoLogs(t)
	for _, path := range logs {
		content := h.killed[path]
		for at := range content {
			fs := h.killed.replace(path, content[:at]).fileSystem(t)
			s, err := Open(smallOptions(fs, "data"))
			if err == nil {
				if rows, err := rowsOf(s); err != nil || !maps.Equal(h.rows, rows) {
					t.Errorf("%s, cut off at byte %d of %d: the journal opened without all of its rows: %v", path, at, len(content), err)
				}
				mustClose(t, s)
			} else if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), path) {
				t.Errorf("%s, cut off at byte %d of %d: %v", path, at, len(content), err)
			}
		}
	}
	h.opensWhole(t, h.killed, "whole")
}

// crashWithTwoLogs returns a directory after a crash with two logs to replay, and their paths.
func crashWithTwoLogs(t *testing.T) (h history, logs []string) {
	t.Helper()
	release := make(chan struct{})
	disk := vfs.NewCrashableMem()
	var armed atomic.Bool
	isTable := faultOn(errors.New("table"), tableSuffix, errorfs.OpCreate)
	fs := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if armed.Load() && isTable(op) != nil {
			<-release
		}
		return nil
	}))
	s := mustOpen(t, smallOptions(fs, "data"))
	armed.Store(true)
	appendRows(t, s, 0, 0, 0)
	flushed, err := s.db.AsyncFlush()
	if err != nil {
		t.Fatal(err)
	}
	appendRows(t, s, 1, 0, 1)
	if h.rows, err = rowsOf(s); err != nil {
		t.Fatal(err)
	}
	h.killed, h.crashed = imageOf(t, disk, "data"), imageOf(t, disk.CrashClone(vfs.CrashCloneCfg{}), "data")
	close(release)
	<-flushed
	mustClose(t, s)
	for _, path := range slices.Sorted(maps.Keys(h.crashed)) {
		if strings.HasSuffix(path, logSuffix) && len(h.crashed[path]) > 0 {
			logs = append(logs, path)
		}
	}
	if len(logs) != 2 {
		t.Fatalf("the logs are %v", logs)
	}
	return h, logs
}
