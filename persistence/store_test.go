package persistence_test

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/atelier-run/atelier/persistence"
	"github.com/atelier-run/atelier/persistence/journaltest"
)

// harness is a journal in memory that can lose power.
type harness struct {
	t      *testing.T
	fs     *vfs.MemFS
	latest *persistence.Store
	rng    *rand.Rand
}

func newHarness(t *testing.T) journaltest.Harness {
	return &harness{t: t, fs: vfs.NewCrashableMem(), rng: rand.New(rand.NewPCG(1, 2))}
}

func (h *harness) Open() journaltest.Journal { return h.OpenCopy("data") }

func (h *harness) OpenCopy(dir string) journaltest.Journal {
	s, err := persistence.Open(small(h.fs, dir))
	if err != nil {
		h.t.Fatal(err)
	}
	h.latest = s
	return s
}

func (h *harness) Members(j journaltest.Journal) ([]persistence.Journal, func(persistence.Partition, int) (uint64, error)) {
	s := j.(*persistence.Store)
	members := []*persistence.Member{s.Member(persistence.DefaultMember), s.Member("second")}
	return []persistence.Journal{members[0], members[1]}, func(p persistence.Partition, member int) (uint64, error) {
		return s.Move(context.Background(), p, members[member].Name())
	}
}

func small(fs vfs.FS, dir string) persistence.Options {
	return persistence.Options{Dir: dir, FS: fs, Logger: slog.New(slog.DiscardHandler), CacheBytes: 4 << 20}
}

// Crash keeps everything that was synced, and sometimes a part of the rest.
func (h *harness) Crash() {
	crashed := h.fs
	h.fs = crashed.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50 * h.rng.IntN(3), RNG: h.rng})
	_ = h.latest.Close() // writes to the lost disk
}

func (h *harness) Directory() string { return "copy" }

func TestJournal(t *testing.T) { journaltest.Run(t, newHarness) }
