package actors_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/atelier-run/atelier/entity/activity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	"github.com/atelier-run/atelier/persistence"
)

// proposals counts the proposals of a stream: all has all proposals, index the proposals with index entries alone.
type proposals struct {
	mu         sync.Mutex
	all, index int
	// refuse makes the journal refuse proposals with index entries alone.
	refuse bool
}

func (c *proposals) see(p persistence.Proposal) error {
	if p.Stream != "activity/ws_1" {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all++
	if len(p.Events) > 0 {
		return nil
	}
	c.index++
	if c.refuse {
		return persistence.ErrRefused
	}
	return nil
}

func (c *proposals) count() (all, index int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all, c.index
}

func (c *proposals) refusing(refuse bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuse = refuse
}

func (b *bench) readers(path string) []*activityv1.Reader {
	b.t.Helper()
	return b.query(&activityv1.ReadSeenBy{Path: path, Limit: 100}).(*activityv1.SeenBy).GetReaders()
}

func TestReads(t *testing.T) {
	read := record("ws_1", operation(activityv1.Kind_KIND_READ, "a"))
	begin := func(t *testing.T) (*bench, *proposals) {
		b, seen := newBench(t), &proposals{}
		b.createWorkspace("ws_1", "usr_1")
		b.faults.failing(seen.see)
		return b, seen
	}
	expect := func(t *testing.T, b *bench, reads uint64) {
		t.Helper()
		if got := b.readers("a"); len(got) != 1 || got[0].GetReadCount() != reads {
			t.Errorf("seen by %v, where there were %d reads", got, reads)
		}
	}

	t.Run("reads between markers are written together", func(t *testing.T) {
		b, seen := begin(t)
		b.mustAsk(read)
		_, before := seen.count()
		for n := range uint64(500) {
			b.mustAsk(read)
			if n%100 == 0 {
				expect(t, b, n+2)
			}
		}
		// Index entries are written once a second at the most, in real time.
		if all, index := seen.count(); all-index != 1 || index-before > 100 {
			t.Errorf("500 reads came to %d proposals, %d of them of rows", all, all-index)
		}
		expect(t, b, 501)
	})

	t.Run("are written in time", func(t *testing.T) {
		b, seen := begin(t)
		b.mustAsk(read)
		b.mustAsk(read)
		b.eventually(func() bool { _, index := seen.count(); return index > 0 })
		expect(t, b, 2)
	})

	t.Run("survive a refused write", func(t *testing.T) {
		b, seen := begin(t)
		b.mustAsk(read)
		b.mustAsk(read)
		seen.refusing(true)
		b.eventually(func() bool { _, index := seen.count(); return index > 0 })
		expect(t, b, 2)
		b.mustAsk(read)
		expect(t, b, 3)
		seen.refusing(false)
		b.writeIndexes("ws_1")
		expect(t, b, 3)
		b.restart()
		expect(t, b, 3)
	})

	t.Run("are written before passivation", func(t *testing.T) {
		b := newBench(t, func(b *bench) { b.idle = time.Minute })
		b.createWorkspace("ws_1", "usr_1")
		for range 3 {
			b.mustAsk(read)
		}
		b.clock.Advance(2 * time.Minute)
		b.system.Sweep()
		b.eventually(func() bool { return b.metric("atelier_actor_active", "workspace") == 0 })
		expect(t, b, 3)
	})

	t.Run("markers survive a crash", func(t *testing.T) {
		b, seen := begin(t)
		b.mustAsk(read)
		b.clock.Advance(activity.MarkerWindow)
		b.mustAsk(read)
		b.mustAsk(read)
		seen.refusing(true) // the flush when the actor stops
		b.restart()
		expect(t, b, 2)
		b.mustAsk(read)
		expect(t, b, 3)
		history := b.query(&activityv1.ReadHistory{Path: "a", Limit: 100, Reads: true}).(*activityv1.Page)
		if got := strings.Count(string(history.GetItems()), `"kind":"read"`); got != 2 {
			t.Errorf("%d markers", got)
		}
	})
}

// TestRowsWithoutIndexEntries verifies that queries find rows without index entries after a crash, and that the entries are
// written.
func TestRowsWithoutIndexEntries(t *testing.T) {
	b, seen := newBench(t), &proposals{refuse: true}
	b.createWorkspace("ws_1", "usr_1")
	b.faults.failing(seen.see)
	const n = 40
	for i := range n {
		b.mustAsk(record("ws_1", operation(activityv1.Kind_KIND_WRITE, fmt.Sprintf("d/%d", i%4))))
	}
	check := func() {
		t.Helper()
		page := b.query(&activityv1.ReadHistory{Path: "d/1", Limit: 100}).(*activityv1.Page)
		if got := strings.Count(string(page.GetItems()), `"path":"d/1"`); got != n/4 {
			t.Errorf("%d rows of a path, not %d", got, n/4)
		}
		if got := strings.Count(b.feed("ws_1", &activityv1.ReadFeed{Path: "d", Subtree: true}), `"seq"`); got != n {
			t.Errorf("%d rows below a folder, not %d", got, n)
		}
		if got := b.readers("d/1"); len(got) != 1 || got[0].GetWriteCount() != n/4 {
			t.Errorf("seen by %v", got)
		}
	}
	check()
	b.restart()
	check()
	b.writeIndexes("ws_1")
	check()
	b.restart()
	check()
	v, err := b.journal.View()
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	var rows []activity.Posting
	for entry, err := range v.Index(b.router.Partition("ws_1"), persistence.Query{Index: activity.ByPath, Value: activity.PathValue("ws_1", "d/1")}) {
		if err != nil {
			t.Fatal(err)
		}
		if rows, err = activity.AppendPostings(rows, entry.Order, entry.Data); err != nil {
			t.Fatal(err)
		}
	}
	if len(rows) != n/4 {
		t.Errorf("the index has %d rows of a path, not %d", len(rows), n/4)
	}
}

// TestIndexEntriesOfManyRows verifies that the index entries of many rows are written in several proposals.
func TestIndexEntriesOfManyRows(t *testing.T) {
	b := newBench(t)
	b.createWorkspace("ws_1", "usr_1")
	ops := make([]*activityv1.Operation, activity.MaxOperations)
	for i := range ops {
		ops[i] = operation(activityv1.Kind_KIND_WRITE, strings.Repeat(fmt.Sprint("d", i%10, "/"), 60)+fmt.Sprint(i%10))
	}
	for range 2 {
		b.mustAsk(record("ws_1", ops...))
	}
	for range 2 {
		got := b.readers(ops[3].GetPath())
		if len(got) != 1 || got[0].GetWriteCount() != uint64(2*len(ops)/10) {
			t.Errorf("seen by %v", got)
		}
		b.restart()
	}
}
