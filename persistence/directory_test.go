package persistence

import (
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
)

// smallOptions returns the options of a journal with little memory.
func smallOptions(fs vfs.FS, dir string) Options {
	return Options{Dir: dir, FS: fs, Logger: discardLog, CacheBytes: minCache}
}

func mustOpen(t *testing.T, o Options) *Store {
	t.Helper()
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustClose(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// mustFailToOpen opens a journal, which must fail with an error that names the directory and contains all parts.
func mustFailToOpen(t *testing.T, o Options, parts ...string) {
	t.Helper()
	s, err := Open(o)
	if err == nil {
		s.Close()
		t.Fatal("it opened")
	}
	for _, part := range append(parts, o.Dir) {
		if !strings.Contains(err.Error(), part) {
			t.Fatalf("%q does not say %q", err, part)
		}
	}
}

func TestDirectory(t *testing.T) {
	fs := vfs.NewMem()
	s := mustOpen(t, smallOptions(fs, "data"))
	if s.Partitions() != defaultPartitions || len(s.Disk()) != 32 {
		t.Fatalf("%d partitions, disk %q", s.Partitions(), s.Disk())
	}
	mustFailToOpen(t, smallOptions(fs, "data"), "another process")
	disk := s.Disk()
	mustClose(t, s)

	other := smallOptions(fs, "data")
	other.Partitions = 3
	mustFailToOpen(t, other, "12 partitions, not 3")
	s = mustOpen(t, smallOptions(fs, "data"))
	if s.Disk() != disk {
		t.Fatal("the disk id changed")
	}
	mustClose(t, s)

	three := smallOptions(fs, "three")
	three.Partitions = 3
	s = mustOpen(t, three)
	mustClose(t, s)
	s = mustOpen(t, smallOptions(fs, "three"))
	if s.Partitions() != 3 {
		t.Fatalf("%d partitions", s.Partitions())
	}
	mustClose(t, s)
	three.Partitions = maxPartitions + 1
	three.Dir = "many"
	mustFailToOpen(t, three, "partitions")
}

// TestDirectoryLock opens a directory on disk twice: the lock refuses the second opening.
func TestDirectoryLock(t *testing.T) {
	dir := t.TempDir() + "/deep/data"
	s := mustOpen(t, smallOptions(nil, dir))
	mustFailToOpen(t, smallOptions(nil, dir), "another process")
	mustClose(t, s)
	mustClose(t, mustOpen(t, smallOptions(nil, dir)))
}

func TestFormat(t *testing.T) {
	for text, part := range map[string]string{
		"":                                  "not the FORMAT of a journal",
		"something else":                    "not the FORMAT of a journal",
		"atelier journal 0":                 "format is version 0",
		"atelier journal 4":                 "format is version 4; this program reads 1 to 3",
		"atelier journal 1\npartitions x\n": "malformed",
		"atelier journal 1\npartitions 0\ndisk abc\n": "0 partitions",
	} {
		fs := vfs.NewMem()
		mustClose(t, mustOpen(t, smallOptions(fs, "data")))
		file, err := fs.Create("data/"+formatName, vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = file.Write([]byte(text))
		_ = file.Close()
		mustFailToOpen(t, smallOptions(fs, "data"), part)
	}
}

func TestOlderFormatIsUpgraded(t *testing.T) {
	fs := vfs.NewMem()
	s := mustOpen(t, smallOptions(fs, "data"))
	disk := s.Disk()
	mustClose(t, s)
	d := directory{fs: fs, path: "data"}
	text, err := d.readFormat()
	if err != nil {
		t.Fatal(err)
	}
	file, err := fs.Create(d.join(formatName), vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = file.Write([]byte(strings.Replace(text, "journal 3", "journal 1", 1)))
	_ = file.Close()
	for range 2 {
		s = mustOpen(t, smallOptions(fs, "data"))
		if s.Disk() != disk {
			t.Errorf("the id of the journal has become %s", s.Disk())
		}
		mustClose(t, s)
		if upgraded, err := d.readFormat(); err != nil || upgraded != text {
			t.Errorf("the format file is %q, not %q: %v", upgraded, text, err)
		}
	}
}

func TestCheckpointInterrupted(t *testing.T) {
	fs := vfs.NewMem()
	s := mustOpen(t, smallOptions(fs, "data"))
	defer mustClose(t, s)
	if err := s.Checkpoint("copy"); err != nil {
		t.Fatal(err)
	}
	copied := mustOpen(t, smallOptions(fs, "copy"))
	if copied.Disk() == s.Disk() || copied.Partitions() != s.Partitions() {
		t.Fatalf("disk %s of %s", copied.Disk(), s.Disk())
	}
	mustClose(t, copied)
	if err := fs.Remove("copy/" + formatName); err != nil {
		t.Fatal(err)
	}
	mustFailToOpen(t, smallOptions(fs, "copy"), "interrupted")
}

func TestMemoryDefaults(t *testing.T) {
	for _, c := range []struct{ cache, memtable, wantCache, wantMemtable int64 }{
		{0, 0, 256 << 20, 32 << 20},
		{128 << 20, 0, 128 << 20, 32 << 20},
		{32 << 20, 64 << 20, 32 << 20, 8 << 20},
		{0, 128 << 20, 512 << 20, 128 << 20},
		{1, 0, 4 << 20, 1 << 20},
	} {
		o := Options{CacheBytes: c.cache, MemtableBytes: c.memtable}.withDefaults()
		if o.CacheBytes != c.wantCache || o.MemtableBytes != c.wantMemtable {
			t.Errorf("%+v: cache %d, memtable %d", c, o.CacheBytes, o.MemtableBytes)
		}
	}
}

// metricOf returns the sum of a metric of a journal, or of the samples of a histogram.
func metricOf(t *testing.T, s *Store, name string) (total float64) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(s.Collector())
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.Metric {
			if family.GetName() == name {
				total += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return total
}

func TestCollector(t *testing.T) {
	f := newFaultyJournal(t, Options{})
	f.mustAppend("a", 0)
	f.append("a", 0)
	for name, least := range map[string]float64{
		"atelier_journal_batch_proposals":           2,
		"atelier_journal_commit_seconds":            2,
		"atelier_journal_bytes_total":               100,
		"atelier_journal_refused_total":             1,
		"atelier_journal_pebble_wal_bytes_total":    100,
		"atelier_journal_pebble_memtable_bytes":     1,
		"atelier_journal_pebble_disk_bytes":         1,
		"atelier_journal_pebble_read_amplification": 0,
		"atelier_journal_queue_proposals":           0,
		"atelier_journal_pebble_cache_misses_total": 0,
		"atelier_journal_background_errors_total":   0,
		"atelier_journal_snapshots_dropped_total":   0,
		"atelier_journal_pebble_flushes_total":      0,
		"atelier_journal_pebble_l0_sublevels":       0,
		"atelier_journal_write_stalls_total":        0,
		"atelier_journal_failed":                    0,
		"atelier_journal_disk_full":                 0,
	} {
		if got := metricOf(t, f.Store, name); got < least {
			t.Errorf("%s is %g, want at least %g", name, got, least)
		}
	}
	f.mustClose()
	metricOf(t, f.Store, "after the end, without a panic")
}
