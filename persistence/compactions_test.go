package persistence

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// waitLimit bounds the time that a test waits for an event that should be immediate.
const waitLimit = 3 * time.Minute

// TestOpenAfterKill opens a store with a replayed log that makes a compaction necessary, on a disk that blocks
// compactions. Open returns nevertheless, and the compaction runs later.
func TestOpenAfterKill(t *testing.T) {
	release := make(chan struct{})
	isTable := faultOn(errors.New("table"), tableSuffix, errorfs.OpCreate)
	var tables atomic.Int32
	fs := errorfs.Wrap(killedWithBacklog(t), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if isTable(op) != nil && tables.Add(1) > 1 { // the flush of the replayed log writes the first table
			<-release
		}
		return nil
	}))
	opened := make(chan *Store, 1)
	go func() {
		s, err := Open(smallOptions(fs, "data"))
		if err != nil {
			t.Error(err)
		}
		opened <- s
	}()
	var s *Store
	select {
	case s = <-opened:
		close(release)
	case <-time.After(waitLimit):
		close(release)
		t.Error("Open waits for a compaction")
		s = <-opened
	}
	if s == nil {
		return
	}
	defer mustClose(t, s)
	for began := time.Now(); s.db.Metrics().Levels[0].TablesCount > 1; runtime.Gosched() {
		if time.Since(began) > waitLimit {
			t.Fatalf("level 0 still has %d tables", s.db.Metrics().Levels[0].TablesCount)
		}
	}
}

// killedWithBacklog returns the disk after a kill of a process that had many overlapping tables in level 0, and further
// rows in its log.
func killedWithBacklog(t *testing.T) vfs.FS {
	t.Helper()
	disk := vfs.NewCrashableMem()
	o := smallOptions(disk, "data")
	mustClose(t, mustOpen(t, o))
	p := o.withDefaults().pebble(disk, &backgroundErrors{failure: newFailure(discardLog), metrics: newMetrics()})
	p.DisableAutomaticCompactions = true
	db, err := pebble.Open("data/store", p)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	const flushes = 20
	for flush := range flushes + 1 {
		for i := range 10 {
			key := appendEntryKey(nil, 0, "i", fmt.Sprint(i), 0)
			if err := db.Set(key, fmt.Append(nil, flush), pebble.Sync); err != nil {
				t.Fatal(err)
			}
		}
		if flush < flushes {
			if err := db.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	return disk.CrashClone(vfs.CrashCloneCfg{})
}

// TestEventsAreStoredBesideTheirKeys flushes and compacts events of one stream, and finds no value in a block of its own.
func TestEventsAreStoredBesideTheirKeys(t *testing.T) {
	disk := vfs.NewMem()
	o := smallOptions(disk, "data")
	db, err := pebble.Open("store", o.withDefaults().pebble(disk, &backgroundErrors{failure: newFailure(discardLog), metrics: newMetrics()}))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	prefix := appendEventPrefix(nil, 0, "kind/identity")
	for flush := range 2 {
		for i := range 10 {
			key := appendNumber(append([]byte(nil), prefix...), uint64(1+10*flush+i))
			if err := db.Set(key, []byte("the payload of an event"), nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := db.Flush(); err != nil {
			t.Fatal(err)
		}
		expectValuesInPlace(t, db)
	}
	if err := db.Compact(t.Context(), prefix, append(prefix, 0xff), false); err != nil {
		t.Fatal(err)
	}
	expectValuesInPlace(t, db)
}

// expectValuesInPlace fails the test if the database has no table, or one with values in other blocks than their keys.
func expectValuesInPlace(t *testing.T, db *pebble.DB) {
	t.Helper()
	levels, err := db.SSTables(pebble.WithProperties())
	if err != nil {
		t.Fatal(err)
	}
	tables := 0
	for level, found := range levels {
		for _, table := range found {
			if tables++; table.Properties.NumValuesInValueBlocks > 0 {
				t.Errorf("a table of level %d has %d values in blocks of their own", level, table.Properties.NumValuesInValueBlocks)
			}
		}
	}
	if tables == 0 {
		t.Error("there is no table")
	}
}
