package persistence

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"
)

// newMemoryDB returns an empty store in memory with the options of the journal.
func newMemoryDB(t *testing.T) *pebble.DB {
	o := Options{FS: vfs.NewMem(), Logger: discardLog, CacheBytes: minCache}.withDefaults()
	db, err := pebble.Open("db", o.pebble(o.FS, &backgroundErrors{failure: newFailure(discardLog), metrics: newMetrics()}))
	if err != nil {
		t.Fatal(err)
	}
	return db
}

// replica applies proposals as one member of a cluster would.
type replica struct {
	db      *pebble.DB
	applier *applier
	results []string
}

func newReplica(t *testing.T) *replica {
	db := newMemoryDB(t)
	w, err := openWorkspaceBytes(db, 2, defaultRecountRows, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return &replica{db: db, applier: newApplier(db, []partitionState{{epoch: 7}, {epoch: 9}}, 0, w)}
}

func (r *replica) apply(t *testing.T, proposals []Proposal) {
	b := r.db.NewBatch()
	defer b.Close()
	results := make([]Result, len(proposals))
	if err := r.applier.apply(b, proposals, results); err != nil {
		t.Fatal(err)
	}
	for _, one := range results {
		r.results = append(r.results, fmt.Sprint(one.Version, one.Err))
	}
	if err := r.db.Apply(b, pebble.NoSync); err != nil {
		t.Fatal(err)
	}
}

func (r *replica) dumpRows(t *testing.T) string {
	var out strings.Builder
	it, err := r.db.NewIter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		fmt.Fprintf(&out, "%x %x\n", it.Key(), it.Value())
	}
	return out.String()
}

// TestApplyIsDeterministic applies random proposals in one batch and in one batch each: rows and results are equal.
func TestApplyIsDeterministic(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		one, many := newReplica(t), newReplica(t)
		defer one.db.Close()
		defer many.db.Close()
		proposals := make([]Proposal, rapid.IntRange(1, 30).Draw(rt, "proposals"))
		for i := range proposals {
			p := &proposals[i]
			p.Partition = Partition(rapid.IntRange(0, 2).Draw(rt, "partition"))
			p.Stream = Stream(rapid.SampledFrom([]string{"a", "b", "workspace/ws_c", "session/ws_c/ses_d"}).Draw(rt, "stream"))
			p.Epoch = rapid.SampledFrom([]uint64{7, 9}).Draw(rt, "epoch")
			if h, found := many.applier.heads.Get(streamKey{p.Partition, p.Stream}); found {
				p.Expected = h.version
			}
			p.Expected += uint64(rapid.IntRange(0, 3).Draw(rt, "ahead"))
			p.Erase = rapid.IntRange(0, 3).Draw(rt, "erase") == 0
			for range rapid.IntRange(0, 2).Draw(rt, "events") {
				p.Events = append(p.Events, Event{Name: "e", At: time.UnixMilli(5), Payload: []byte{byte(i)}})
			}
			for range rapid.IntRange(0, 2).Draw(rt, "entries") {
				order := rapid.Uint64Range(0, 3).Draw(rt, "order")
				p.Entries = append(p.Entries, Change{Entry: Entry{Index: "i", Order: order, Data: []byte{byte(i)}}, Remove: rapid.Bool().Draw(rt, "remove")})
			}
		}
		one.apply(t, proposals)
		for i := range proposals {
			many.apply(t, proposals[i:i+1])
		}
		if fmt.Sprint(one.results) != fmt.Sprint(many.results) {
			rt.Fatalf("results differ:\n%v\n%v", one.results, many.results)
		}
		if a, b := one.dumpRows(t), many.dumpRows(t); a != b {
			rt.Fatalf("rows differ:\n%s\n%s", a, b)
		}
	})
}

// TestEvictedHeads appends to more streams than the applier caches heads.
func TestEvictedHeads(t *testing.T) {
	r := newReplica(t)
	defer r.db.Close()
	const cached = 2 * maxBatchProposals
	streams := cached + 100
	for version := range uint64(2) {
		for from := 0; from < streams; from += maxBatchProposals {
			var proposals []Proposal
			for i := from; i < min(from+maxBatchProposals, streams); i++ {
				proposals = append(proposals, Proposal{Stream: Stream(fmt.Sprint("s", i)), Expected: version, Epoch: 7, Events: []Event{{Name: "e"}}})
			}
			r.apply(t, proposals)
		}
	}
	for i, result := range r.results {
		if want := fmt.Sprint(1+i/streams, nil); result != want {
			t.Fatalf("%d: %s, want %s", i, result, want)
		}
	}
	if n := r.applier.heads.Len(); n != cached {
		t.Fatalf("%d heads are known", n)
	}
}
