package persistence

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestRemovedRowsFreeSpace removes large rows on a disk that is nearly full: the store becomes small without a restart.
func TestRemovedRowsFreeSpace(t *testing.T) {
	f := newFaultyJournal(t, Options{MinFreeBytes: 1 << 20})
	f.diskSpace.interval = 0
	propose := func(p Proposal) {
		t.Helper()
		p.Stream, p.Epoch = "rows", f.epoch
		results := make(chan Result, 1)
		f.Append(p, func(r Result) { results <- r })
		if r := <-results; r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	const rows, size = 16, 1 << 20
	source := rand.NewChaCha8([32]byte{1})
	var removed []Change
	for i := range rows {
		row := Entry{Index: "image", Value: fmt.Sprint(i), Data: make([]byte, size)}
		_, _ = source.Read(row.Data)
		propose(Proposal{Entries: []Change{{Entry: row}}})
		removed = append(removed, Change{Entry: Entry{Index: row.Index, Value: row.Value}, Remove: true})
	}
	if err := f.db.Flush(); err != nil {
		t.Fatal(err)
	}
	if used := f.db.Metrics().Total().TablesSize; used < rows*size {
		t.Fatalf("the tables have only %d bytes", used)
	}
	f.disk.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1<<20 - 1, TotalBytes: 1 << 30})
	propose(Proposal{Entries: removed, Urgency: Essential})
	for began := time.Now(); f.db.Metrics().Total().TablesSize > size; runtime.Gosched() {
		if time.Since(began) > waitLimit {
			t.Fatalf("the tables still have %d bytes", f.db.Metrics().Total().TablesSize)
		}
	}
	f.mustClose()
}
