package persistence

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// image is the content of every file below a directory, by path.
type image map[string][]byte

func imageOf(t *testing.T, fs vfs.FS, dir string) image {
	t.Helper()
	files := image{}
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		path := fs.PathJoin(dir, name)
		at, err := fs.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if at.IsDir() {
			maps.Copy(files, imageOf(t, fs, path))
			continue
		}
		file, err := fs.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		files[path], err = io.ReadAll(file)
		if err = errors.Join(err, file.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// disk returns a file system that holds the image.
func (i image) disk(t *testing.T) *vfs.MemFS {
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

// with returns the image with another content of one file; nil: without the file.
func (i image) with(path string, content []byte) image {
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

// rowsOf returns every row of a store but the epochs, which change with each opening.
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

// history is a store with tables of several openings, a compaction and rows that are in its log alone.
type history struct {
	rows map[string]string
	// closed is the directory after a clean end, crashed after the power went.
	closed, crashed image
}

func newHistory(t *testing.T) history {
	t.Helper()
	fs := vfs.NewCrashableMem()
	o := tiny(fs, "data")
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
	h := history{rows: rows, crashed: imageOf(t, fs.CrashClone(vfs.CrashCloneCfg{}), "data")}
	mustClose(t, s)
	h.closed = imageOf(t, fs, "data")
	return h
}

// appendRows appends an event with an entry, and after it an entry alone, which no feed counts.
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

// serves opens a directory that may be damaged. It serves every row, or refuses with an error and changes nothing.
func (h history) serves(t *testing.T, damaged image, what string) (served bool) {
	t.Helper()
	fs := damaged.disk(t)
	s, err := Open(tiny(fs, "data"))
	if err != nil {
		if !strings.Contains(err.Error(), "data directory data: ") {
			t.Errorf("%s: the error does not name the directory: %v", what, err)
		}
		if !damaged.equal(imageOf(t, fs, "data")) {
			t.Errorf("%s: the start is refused (%v) and the directory has changed", what, err)
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

// TestDamage damages every file but the log of a crash, whose end may be torn for good reason. Each start serves every
// row, or is refused and changes nothing.
func TestDamage(t *testing.T) {
	h := newHistory(t)
	for name, whole := range map[string]image{"closed": h.closed, "crashed": h.crashed} {
		t.Run(name, func(t *testing.T) {
			if !h.serves(t, whole, "whole") {
				t.Fatal("the whole directory is refused")
			}
			t.Run("flipped bits", func(t *testing.T) { h.flip(t, whole, name == "closed") })
			t.Run("missing and shortened files", func(t *testing.T) { h.remove(t, whole, name == "closed") })
		})
	}
}

func (h history) flip(t *testing.T, whole image, logs bool) {
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
			if !h.serves(t, whole.with(path, flipped), fmt.Sprintf("%s, byte %d", path, at)) {
				refused++
			}
		}
		t.Logf("%s: %d bytes, %d starts refused", path, len(content), refused)
	}
}

func (h history) remove(t *testing.T, whole image, logs bool) {
	for path, content := range whole {
		if strings.HasSuffix(path, lockName) || strings.HasSuffix(path, logSuffix) && !logs {
			continue
		}
		h.serves(t, whole.with(path, nil), path+" missing")
		if len(content) > 0 {
			h.serves(t, whole.with(path, content[:len(content)/2]), path+" cut in half")
			h.serves(t, whole.with(path, []byte{}), path+" empty")
		}
	}
}

// TestDamagedLogs flips bits of the logs of a crash that left two of them. The first was ended cleanly: each start serves
// every row, or is refused. The end of the last one may be torn: each start succeeds or is refused. A refused start changes
// nothing.
func TestDamagedLogs(t *testing.T) {
	h, logs := twoLogs(t)
	for i, path := range logs {
		content, refused := h.crashed[path], 0
		for at := 0; at < len(content); at += 3 {
			flipped := slices.Clone(content)
			flipped[at] ^= 1 << (at % 8)
			damaged, what := h.crashed.with(path, flipped), fmt.Sprintf("%s, byte %d", path, at)
			if i == 0 {
				if !h.serves(t, damaged, what) {
					refused++
				}
				continue
			}
			fs := damaged.disk(t)
			if s, err := Open(tiny(fs, "data")); err == nil {
				mustClose(t, s)
			} else if refused++; !damaged.equal(imageOf(t, fs, "data")) {
				t.Errorf("%s: the start is refused (%v) and the directory has changed", what, err)
			}
		}
		t.Logf("%s: %d bytes, %d starts refused", path, len(content), refused)
		if i == 0 && refused < len(content)/4 {
			t.Errorf("%s: only %d starts are refused", path, refused)
		}
	}
	h.serves(t, h.crashed, "whole")
}

// twoLogs returns a directory after a crash with two logs that are to be replayed, and their paths.
func twoLogs(t *testing.T) (h history, logs []string) {
	t.Helper()
	release := make(chan struct{})
	disk := vfs.NewCrashableMem()
	var armed atomic.Bool
	isTable := failing(errors.New("table"), tableSuffix, errorfs.OpCreate)
	fs := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if armed.Load() && isTable(op) != nil {
			<-release
		}
		return nil
	}))
	s := mustOpen(t, tiny(fs, "data"))
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
	h.crashed = imageOf(t, disk.CrashClone(vfs.CrashCloneCfg{}), "data")
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
