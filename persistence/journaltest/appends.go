package journaltest

import (
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"

	"github.com/atelier-run/atelier/persistence"
)

func testAppend(t *testing.T, h Harness) {
	c := openClient(t, h)
	defer c.mustClose()
	p := c.proposal(1, "workspace/a", 0, "one", "two")
	if r := c.appendOne(p); r.Err != nil || r.Version != 2 {
		t.Fatalf("got %+v", r)
	}
	if r := c.appendOne(c.proposal(1, "workspace/a", 2)); r.Err != nil || r.Version != 2 {
		t.Fatalf("nothing appended: %+v", r)
	}
	c.withView(func(v persistence.View) {
		version := uint64(0)
		for e, err := range v.Read(1, "workspace/a", 0, persistence.Ascending) {
			if err != nil {
				t.Fatal(err)
			}
			want := p.Events[version]
			version++
			want.Stream, want.Version, want.Sequence = "workspace/a", version, version
			if !reflect.DeepEqual(e, want) {
				t.Fatalf("got %+v, want %+v", e, want)
			}
		}
		if version != 2 || head(t, v, 1, "workspace/a") != 2 || head(t, v, 0, "workspace/a") != 0 {
			t.Fatalf("%d events", version)
		}
	})
}

// actual returns the version in a ConflictError.
func actual(t *testing.T, r persistence.Result) uint64 {
	t.Helper()
	var conflict *persistence.ConflictError
	if !errors.As(r.Err, &conflict) {
		t.Fatalf("got %+v, want a conflict", r)
	}
	return conflict.Actual
}

func testConflict(t *testing.T, h Harness) {
	c := openClient(t, h)
	defer c.mustClose()
	c.mustAppend(c.proposal(0, "a", 0, "one", "two"))
	for _, expected := range []uint64{0, 1, 3} {
		if v := actual(t, c.appendOne(c.proposal(0, "a", expected, "no"))); v != 2 {
			t.Fatalf("expected %d: actual %d", expected, v)
		}
	}
	if v := actual(t, c.appendOne(c.proposal(0, "new", 1, "no"))); v != 0 {
		t.Fatalf("a stream without events: actual %d", v)
	}
	if c.head(0, "a") != 2 || c.head(0, "new") != 0 {
		t.Fatal("a refused proposal has advanced a stream")
	}
}

// testRefusedInBatch queues all proposals at once, so that the batch must read its own rows and omit the rows of
// refused proposals.
func testRefusedInBatch(t *testing.T, h Harness) {
	c := openClient(t, h)
	defer c.mustClose()
	stale := c.proposal(0, "a", 1, "stale")
	stale.Epoch--
	nowhere := c.proposal(0, "a", 0, "nowhere")
	nowhere.Partition = 60000
	losing := c.proposal(0, "a", 0, "losing")
	losing.Entries = []persistence.Change{{Entry: persistence.Entry{Index: "i", Value: "losing"}}}
	results := c.appendAll(c.proposal(0, "a", 0, "one"), losing, stale, nowhere, c.proposal(0, "a", 1, "two"), c.proposal(0, "b", 0, "three"))
	if actual(t, results[1]) != 1 {
		t.Fatal("the conflict does not have the version within the batch")
	}
	for _, i := range []int{2, 3} {
		var stale *persistence.NotLeaderError
		if !errors.As(results[i].Err, &stale) {
			t.Fatalf("%d: %+v", i, results[i])
		}
	}
	for i, version := range map[int]uint64{0: 1, 4: 2, 5: 1} {
		if r := results[i]; r.Err != nil || r.Version != version {
			t.Fatalf("%d: %+v", i, r)
		}
	}
	c.withView(func(v persistence.View) {
		expectTexts(t, "feed", eventTexts(t, v.Feed(0, 0, nil)), "a/1#1 one", "a/2#2 two", "b/1#3 three")
		expectTexts(t, "index", entryTexts(t, v, 0, persistence.Query{Index: "i", Prefix: true}))
	})
}

func testEpoch(t *testing.T, h Harness) {
	c := openClient(t, h)
	c.mustAppend(c.proposal(0, "a", 0, "one"))
	old := c.proposal(0, "a", 1, "late")
	c.mustClose()
	c = openClient(t, h)
	defer c.mustClose()
	if c.epochs[0] <= old.Epoch {
		t.Fatalf("epoch %d after %d", c.epochs[0], old.Epoch)
	}
	var stale *persistence.NotLeaderError
	if r := c.appendOne(old); !errors.As(r.Err, &stale) || stale.Epoch != c.epochs[0] {
		t.Fatalf("got %+v", r)
	}
	c.mustAppend(c.proposal(0, "a", 1, "two"))
}

// testOrder appends from many goroutines, each to its own stream and without waiting.
func testOrder(t *testing.T, h Harness) {
	c := openClient(t, h)
	defer c.mustClose()
	const streams, each = 8, 200
	var mu sync.Mutex
	called := make(map[int][]uint64)
	var done sync.WaitGroup
	done.Add(streams * each)
	for s := range streams {
		go func() {
			for i := range uint64(each) {
				p := c.proposal(persistence.Partition(s%2), persistence.Stream(fmt.Sprint("s", s)), i, "e")
				c.Append(p, func(r persistence.Result) {
					mu.Lock()
					defer mu.Unlock()
					defer done.Done()
					if r.Err != nil {
						t.Errorf("stream %d, %d: %v", s, i, r.Err)
					}
					called[s] = append(called[s], r.Version)
				})
			}
		}()
	}
	done.Wait()
	for s, versions := range called {
		for i, version := range versions {
			if version != uint64(i+1) {
				t.Fatalf("stream %d: call %d was of version %d", s, i, version)
			}
		}
	}
	c.withView(func(v persistence.View) {
		for p := range persistence.Partition(2) {
			sequence := uint64(0)
			for e, err := range v.Feed(p, 0, nil) {
				if sequence++; err != nil || e.Sequence != sequence {
					t.Fatalf("partition %d: %d after %d: %v", p, e.Sequence, sequence, err)
				}
			}
			if sequence != streams/2*each {
				t.Fatalf("partition %d: %d rows", p, sequence)
			}
		}
	})
}

// testAnyBytes uses names of streams that collide if keys are not escaped.
func testAnyBytes(t *testing.T, h Harness) {
	c := openClient(t, h)
	defer c.mustClose()
	streams := []persistence.Stream{"a", "a\x00", "a\x00b", "a\x01", "a\x01\x01", "a\x02", "ab", "\xff\xff", "a/\x00\x00\x00\x00\x00\x00\x00\x00\x01"}
	for i, s := range streams {
		for version := range uint64(i + 1) {
			c.mustAppend(c.proposal(0, s, version, "e"))
		}
	}
	c.withView(func(v persistence.View) {
		for i, s := range streams {
			if got := eventTexts(t, v.Read(0, s, 0, persistence.Ascending)); len(got) != i+1 || head(t, v, 0, s) != uint64(i+1) {
				t.Fatalf("stream %q: %q", s, got)
			}
		}
	})
}

func testReopen(t *testing.T, h Harness) {
	c := openClient(t, h)
	change := persistence.Change{Entry: persistence.Entry{Index: "i", Value: "v", Order: 7, Data: []byte("d")}}
	p := c.proposal(1, "a", 0, "one", "two")
	p.Entries = append(p.Entries, change)
	c.mustAppend(p)
	c.mustClose()
	c = openClient(t, h)
	defer c.mustClose()
	c.mustAppend(c.proposal(1, "a", 2, "three"))
	c.withView(func(v persistence.View) {
		expectTexts(t, "feed", eventTexts(t, v.Feed(1, 0, nil)), "a/1#1 one", "a/2#2 two", "a/3#3 three")
		expectTexts(t, "index", entryTexts(t, v, 1, persistence.Query{Index: "i", Value: "v"}), "v/7 d")
	})
}

func testCrash(t *testing.T, h Harness) {
	c := openClient(t, h)
	c.mustAppend(c.proposal(0, "a", 0, "one"), c.proposal(0, "a", 1, "two"))
	h.Crash()
	c = openClient(t, h)
	defer c.mustClose()
	c.mustAppend(c.proposal(0, "a", 2, "three"))
	c.withView(func(v persistence.View) {
		expectTexts(t, "feed", eventTexts(t, v.Feed(0, 0, nil)), "a/1#1 one", "a/2#2 two", "a/3#3 three")
	})
}

func testClose(t *testing.T, h Harness) {
	c := openClient(t, h)
	left := c.mustView()
	// Proposals from before Close are written, later ones are refused.
	before := make(chan persistence.Result, 1)
	c.Append(c.proposal(0, "a", 0, "one"), func(r persistence.Result) { before <- r })
	c.mustClose()
	if r := <-before; r.Err != nil {
		t.Fatal(r.Err)
	}
	if r := c.appendOne(c.proposal(0, "a", 1, "two")); !errors.Is(r.Err, persistence.ErrClosed) {
		t.Fatalf("got %+v", r)
	}
	if _, err := c.View(); !errors.Is(err, persistence.ErrClosed) {
		t.Fatalf("got %v", err)
	}
	if _, err := left.Head(0, "a"); !errors.Is(err, persistence.ErrClosed) {
		t.Fatalf("a view that is still open: %v", err)
	}
	if err := left.Close(); err != nil {
		t.Fatal(err)
	}
}

// testRevision refuses all proposals that follow a refused one, including proposals that change entries only.
func testRevision(t *testing.T, h Harness) {
	c := openClient(t, h)
	defer c.mustClose()
	revised := func(revision uint64, data string) persistence.Proposal {
		p := c.entriesProposal(0, putEntry("i", "a", 1, data))
		p.Revision = revision
		return p
	}
	c.mustAppend(revised(1, "first"), revised(2, "second"))
	results := c.appendAll(revised(4, "ahead"), revised(5, "behind it"), revised(3, "third"), revised(3, "again"))
	for i, refused := range []bool{true, true, false, true} {
		if refused {
			actual(t, results[i])
		} else if results[i].Err != nil {
			t.Errorf("revision 3 is refused: %v", results[i].Err)
		}
	}
	unchecked := c.entriesProposal(0, putEntry("i", "b", 1, "unchecked"))
	c.mustAppend(unchecked)
	c.withView(func(v persistence.View) {
		expectTexts(t, "index", entryTexts(t, v, 0, persistence.Query{Index: "i", Prefix: true}), "a/1 third", "b/1 unchecked")
		if got, err := v.Revision(0, "indexed"); err != nil || got != 3 {
			t.Errorf("the revision is %d, %v", got, err)
		}
	})
}
