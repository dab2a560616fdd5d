package persistence

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/atelier-run/atelier/tests/testmachine"
	"github.com/atelier-run/atelier/volume"
)

// TestFullDisk fills a real file system with everything but the reserve, again after each step. The journal goes on with essential
// proposals while it needs further logs and tables, is closed and opened on the full disk, and accepts everything as
// soon as there is space. Nothing that was acknowledged is lost.
func TestFullDisk(t *testing.T) {
	for name, test := range map[string]struct {
		options string
		fill    func(t testing.TB, dir string)
	}{
		"inodes": {"size=512m,nr_inodes=300", testmachine.FillInodes},
		"bytes":  {"size=96m", testmachine.FillBytes},
	} {
		t.Run(name, func(t *testing.T) {
			dir := testmachine.Volume(t, test.options)
			others := filepath.Join(dir, "others")
			if err := os.Mkdir(others, 0o700); err != nil {
				t.Fatal(err)
			}
			o := Options{Dir: filepath.Join(dir, "data"), Logger: discardLog, CacheBytes: minCache, MinFreeBytes: 32 << 20, MinFreeFiles: 50}
			s := openOnDisk(t, o)
			acknowledged := appendUntilRefused(t, s, 0, 5, Ordinary)
			test.fill(t, others)
			opened := 0
			for range 3 {
				if n := appendUntilRefused(t, s, acknowledged, 1, Ordinary); n != acknowledged {
					t.Fatal("an ordinary proposal was accepted on a full disk")
				}
				before := acknowledged
				if acknowledged = appendUntilRefused(t, s, acknowledged, 15, Essential); acknowledged < before+10 {
					t.Fatalf("start %d: %d of 15 essential proposals were accepted; %d spare files are left", opened, acknowledged-before, s.reserve.left.Load())
				}
				test.fill(t, others)
				if err := s.Close(); err != nil { // the logs are replayed at the next start, as after a kill
					t.Fatal(err)
				}
				test.fill(t, others)
				s = openOnDisk(t, o)
				opened++
				if n := headOf(t, s, "a"); n != acknowledged {
					t.Fatalf("version %d, want %d", n, acknowledged)
				}
				test.fill(t, others)
			}
			if err := os.RemoveAll(others); err != nil {
				t.Fatal(err)
			}
			s.diskSpace.interval = 0
			if n := appendUntilRefused(t, s, acknowledged, 5, Ordinary); n != acknowledged+5 {
				t.Fatalf("with space again, %d of 5 proposals were accepted", n-acknowledged)
			}
			expectSpares(t, s.reserve, spareFiles, spareFiles)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			free, err := volume.Measure(dir)
			if err != nil || free.FreeFiles < 100 {
				t.Errorf("%+v, %v", free, err)
			}
		})
	}
}

func openOnDisk(t *testing.T, o Options) *Store {
	t.Helper()
	o.FS = vfs.Default
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	s.diskSpace.interval = 0
	return s
}

// appendUntilRefused appends up to n events of 100 KiB to a stream, until one is refused. It returns the version of the stream.
func appendUntilRefused(t *testing.T, s *Store, version uint64, n int, urgency Urgency) uint64 {
	t.Helper()
	random := rand.New(rand.NewPCG(version, 0))
	for range n {
		content := make([]byte, 100<<10)
		for i := range content { // does not compress
			content[i] = byte(random.Uint32())
		}
		results := make(chan Result, 1)
		s.Append(Proposal{
			Stream: "a", Expected: version, Epoch: s.watchers.notices[0].Epoch, Urgency: urgency, Events: []Event{{Name: "e", Payload: content}},
		}, func(r Result) { results <- r })
		r := <-results
		switch {
		case errors.Is(r.Err, ErrRefused):
			return version
		case r.Err != nil:
			t.Fatal(r.Err)
		}
		version = r.Version
	}
	return version
}

// TestStartsOnAFullDisk opens a journal again and again while others take each inode that becomes free. An opening uses files of the reserve
// before it removes the files that they replace; the last quarter of the reserve lasts for many openings all the same.
func TestStartsOnAFullDisk(t *testing.T) {
	dir := testmachine.Volume(t, "size=512m,nr_inodes=300")
	others := filepath.Join(dir, "others")
	if err := os.Mkdir(others, 0o700); err != nil {
		t.Fatal(err)
	}
	o := Options{Dir: filepath.Join(dir, "data"), Logger: discardLog, CacheBytes: minCache, MinFreeBytes: 32 << 20, MinFreeFiles: 50}
	s := openOnDisk(t, o)
	acknowledged := appendUntilRefused(t, s, 0, 5, Ordinary)
	testmachine.FillInodes(t, others)
	for s.reserve.release(lastReserve) {
		testmachine.FillInodes(t, others)
	}
	for range 10 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		testmachine.FillInodes(t, others)
		s = openOnDisk(t, o)
		testmachine.FillInodes(t, others)
	}
	if n := headOf(t, s, "a"); n != acknowledged {
		t.Errorf("version %d, want %d", n, acknowledged)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
