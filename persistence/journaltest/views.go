package journaltest

import (
	"fmt"
	"iter"
	"sync"
	"testing"

	"github.com/atelier-run/atelier/persistence"
)

func testRead(t *testing.T, h Harness) {
	c := openClient(t, h)
	defer c.mustClose()
	c.mustAppend(c.proposal(0, "a", 0, "1", "2", "3", "4"), c.proposal(0, "b", 0, "x"))
	c.withView(func(v persistence.View) {
		read := func(from uint64, d persistence.Direction) []string { return eventTexts(t, v.Read(0, "a", from, d)) }
		expectTexts(t, "up", read(0, persistence.Ascending), "a/1#1 1", "a/2#2 2", "a/3#3 3", "a/4#4 4")
		expectTexts(t, "up from 3", read(3, persistence.Ascending), "a/3#3 3", "a/4#4 4")
		expectTexts(t, "up from 5", read(5, persistence.Ascending))
		expectTexts(t, "down", read(^uint64(0), persistence.Descending), "a/4#4 4", "a/3#3 3", "a/2#2 2", "a/1#1 1")
		expectTexts(t, "down from 2", read(2, persistence.Descending), "a/2#2 2", "a/1#1 1")
		expectTexts(t, "down from 0", read(0, persistence.Descending))
		for version, want := range []bool{false, true, true, true, true, false} {
			payload, ok, err := v.Payload(0, "a", uint64(version))
			for e := range v.Read(0, "a", uint64(version), persistence.Ascending) {
				if ok && string(payload) != string(e.Payload) {
					t.Errorf("the payload of %d is %q", version, payload)
				}
				break
			}
			if ok != want || err != nil {
				t.Errorf("version %d: %v, %v", version, ok, err)
			}
		}
		for _, d := range []persistence.Direction{persistence.Ascending, persistence.Descending} {
			whole, stop := iter.Pull2(v.Read(0, "a", 3, d))
			for payload, err := range v.Payloads(0, "a", 3, d) {
				e, _, more := whole()
				if err != nil || !more || payload.Version != e.Version || string(payload.Bytes) != string(e.Payload) {
					t.Errorf("the payload of %+v is %+v, %v", e, payload, err)
				}
			}
			if _, _, more := whole(); more {
				t.Error("payloads end before the events")
			}
			stop()
		}
		for e := range v.Read(0, "a", 2, persistence.Ascending) {
			if e.Name != "2" {
				t.Fatalf("got %+v", e)
			}
			break
		}
	})
}

func testFeed(t *testing.T, h Harness) {
	c := openClient(t, h)
	defer c.mustClose()
	c.mustAppend(c.proposal(0, "a", 0, "1", "2"), c.proposal(0, "b", 0, "3"), c.proposal(0, "a", 2, "4"), c.proposal(1, "c", 0, "x"), c.proposal(0, "b", 1, "5"))
	c.withView(func(v persistence.View) {
		expectTexts(t, "all", eventTexts(t, v.Feed(0, 0, nil)), "a/1#1 1", "a/2#2 2", "b/1#3 3", "a/3#4 4", "b/2#5 5")
		expectTexts(t, "from 4", eventTexts(t, v.Feed(0, 4, nil)), "a/3#4 4", "b/2#5 5")
		expectTexts(t, "from 6", eventTexts(t, v.Feed(0, 6, nil)))
		expectTexts(t, "b", eventTexts(t, v.Feed(0, 1, func(s persistence.Stream) bool { return s == "b" })), "b/1#3 3", "b/2#5 5")
		expectTexts(t, "another partition", eventTexts(t, v.Feed(1, 0, nil)), "c/1#1 x")
		asked := 0
		later := func(persistence.Stream) bool { asked++; return asked > 2 } // is called for each row, not for each stream
		expectTexts(t, "from the third row on", eventTexts(t, v.Feed(0, 1, later)), "b/1#3 3", "a/3#4 4", "b/2#5 5")
	})
}

// testFeedSkips checks that Feed reports progress while it skips the events of unwanted streams.
func testFeedSkips(t *testing.T, h Harness) {
	c := openClient(t, h)
	defer c.mustClose()
	const unwanted = 5000
	for version := uint64(0); version < unwanted; version += 100 {
		p := c.proposal(0, "noise", version)
		for range 100 {
			p.Events = append(p.Events, event("noise"))
		}
		c.mustAppend(p)
	}
	c.mustAppend(c.proposal(0, "wanted", 0, "last"))
	signs, last := 0, uint64(0)
	c.withView(func(v persistence.View) {
		for e, err := range v.Feed(0, 0, func(s persistence.Stream) bool { return s == "wanted" }) {
			if err != nil || e.Sequence <= last {
				t.Fatalf("%d after %d: %v", e.Sequence, last, err)
			}
			last = e.Sequence
			if e.Stream == "wanted" {
				if e.Name != "last" {
					t.Fatalf("got %+v", e)
				}
				continue
			}
			if signs++; e.Name != "" || e.Payload != nil || e.Stream != "noise" {
				t.Fatalf("got %+v", e)
			}
		}
	})
	if last != unwanted+1 || signs < 2 || signs > 50 {
		t.Fatalf("%d signs, last %d", signs, last)
	}
}

func testViewIsStable(t *testing.T, h Harness) {
	c := openClient(t, h)
	defer c.mustClose()
	c.mustAppend(c.proposal(0, "a", 0, "one"))
	v := c.mustView()
	defer v.Close()
	second := c.proposal(0, "a", 1, "two")
	second.Entries = []persistence.Change{putEntry("i", "v", 1, "x")}
	c.mustAppend(second)
	if head(t, v, 0, "a") != 1 {
		t.Fatal("the head of the view has changed")
	}
	expectTexts(t, "read", eventTexts(t, v.Read(0, "a", 0, persistence.Ascending)), "a/1#1 one")
	expectTexts(t, "feed", eventTexts(t, v.Feed(0, 0, nil)), "a/1#1 one")
	expectTexts(t, "index", entryTexts(t, v, 0, persistence.Query{Index: "i", Value: "v"}))
	if c.head(0, "a") != 2 {
		t.Fatal("a later view does not have the acknowledged event")
	}
}

// testViewIncludesAcknowledged opens views during commits: each must contain the proposals that its goroutine was
// answered.
func testViewIncludesAcknowledged(t *testing.T, h Harness) {
	c := openClient(t, h)
	defer c.mustClose()
	var group sync.WaitGroup
	for g := range 8 {
		group.Go(func() {
			s := persistence.Stream(fmt.Sprint("s", g))
			for version := range uint64(50) {
				if r := c.appendOne(c.proposal(0, s, version, "e")); r.Err != nil {
					t.Error(r.Err)
					return
				}
				v, err := c.View()
				if err != nil {
					t.Error(err)
					return
				}
				if got, err := v.Head(0, s); got != version+1 || err != nil {
					t.Errorf("%s: %d after %d: %v", s, got, version+1, err)
				}
				v.Close()
			}
		})
	}
	group.Wait()
}

func testSnapshot(t *testing.T, h Harness) {
	c := openClient(t, h)
	snapshot := func(s persistence.Stream) (found persistence.Snapshot) {
		c.withView(func(v persistence.View) {
			var err error
			if found, err = v.Snapshot(0, s); err != nil {
				t.Fatal(err)
			}
		})
		return found
	}
	c.mustAppend(c.proposal(0, "a", 0, "one", "two"))
	c.SaveSnapshot(0, c.epochs[0], "a", persistence.Snapshot{Version: 1, State: []byte("old")})
	c.SaveSnapshot(0, c.epochs[0], "a", persistence.Snapshot{Version: 2, State: []byte("new")})
	c.mustAppend(c.proposal(0, "a", 2, "three")) // is written after the snapshots
	if s := snapshot("a"); s.Version != 2 || string(s.State) != "new" {
		t.Fatalf("got %+v", s)
	}
	if s := snapshot("b"); s.Version != 0 || s.State != nil {
		t.Fatalf("got %+v", s)
	}
	c.mustClose()
	c = openClient(t, h)
	defer c.mustClose()
	if s := snapshot("a"); s.Version != 2 || string(s.State) != "new" {
		t.Fatalf("after reopening: %+v", s)
	}
}

func testCheckpoint(t *testing.T, h Harness) {
	c := openClient(t, h)
	defer c.mustClose()
	first := c.proposal(0, "a", 0, "one", "two")
	first.Entries = []persistence.Change{putEntry("i", "v", 1, "x")}
	c.mustAppend(first)
	dir := h.Directory()
	if err := c.Checkpoint(dir); err != nil {
		t.Fatal(err)
	}
	if err := c.Checkpoint(dir); err == nil {
		t.Fatal("a checkpoint replaced another")
	}
	c.mustAppend(c.proposal(0, "a", 2, "later"))
	copied := newClient(t, h.OpenCopy(dir))
	defer copied.mustClose()
	copied.mustAppend(copied.proposal(0, "a", 2, "three"))
	copied.withView(func(v persistence.View) {
		expectTexts(t, "copy", eventTexts(t, v.Feed(0, 0, nil)), "a/1#1 one", "a/2#2 two", "a/3#3 three")
		expectTexts(t, "index", entryTexts(t, v, 0, persistence.Query{Index: "i", Value: "v"}), "v/1 x")
	})
	c.withView(func(v persistence.View) {
		expectTexts(t, "original", eventTexts(t, v.Feed(0, 3, nil)), "a/3#3 later")
	})
}

// testCheckpointWhileAppending copies a journal during appends. The copy has at least the events that were acknowledged
// before Checkpoint was called, and no event that was never appended.
func testCheckpointWhileAppending(t *testing.T, h Harness) {
	c := openClient(t, h)
	defer c.mustClose()
	dir := h.Directory()
	stop, done := make(chan struct{}), make(chan uint64)
	busy := make(chan struct{})
	go func() {
		version := uint64(0)
		for {
			select {
			case <-stop:
				done <- version
				return
			default:
			}
			p := c.proposal(0, "a", version, "e")
			p.Entries = []persistence.Change{putEntry("i", "v", version, "")}
			if r := c.appendOne(p); r.Err != nil {
				t.Error(r.Err)
			}
			if version++; version == 20 {
				close(busy)
			}
		}
	}()
	<-busy
	least := c.head(0, "a")
	err := c.Checkpoint(dir)
	close(stop)
	most := <-done
	if err != nil {
		t.Fatal(err)
	}
	copied := newClient(t, h.OpenCopy(dir))
	defer copied.mustClose()
	copied.withView(func(v persistence.View) {
		version := head(t, v, 0, "a")
		if version < least || version > most {
			t.Fatalf("version %d, want %d to %d", version, least, most)
		}
		events := eventTexts(t, v.Feed(0, 0, nil))
		entries := entryTexts(t, v, 0, persistence.Query{Index: "i", Value: "v"})
		if uint64(len(events)) != version || uint64(len(entries)) != version {
			t.Fatalf("%d events, %d entries, version %d", len(events), len(entries), version)
		}
	})
}
