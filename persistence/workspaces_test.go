package persistence

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/atelier-run/atelier/tests/race"
)

// lawStreams are the streams of the law: of two workspaces, and one that belongs to none.
var lawStreams = []Stream{"workspace/ws_a", "session/ws_a/ses_1", "session/ws_a/ses_2", "activity/ws_b", "user/usr_ws_a"}

// sumRows returns the bytes of each workspace by reading all rows of events and of the feed of a partition.
func sumRows(t testing.TB, db *pebble.DB, p Partition) map[string]uint64 {
	t.Helper()
	sums := map[string]uint64{}
	for _, tag := range []byte{tagEvent, tagFeed} {
		lower := appendHeader(nil, p, tag)
		it, err := db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: successor(nil, lower)})
		if err != nil {
			t.Fatal(err)
		}
		for ok := it.First(); ok; ok = it.Next() {
			name := string(it.Key()[keyHeader:max(keyHeader, splitKey(it.Key())-1)])
			if tag == tagFeed {
				_, stream, err := decodePosition(it.Value())
				if err != nil {
					t.Fatal(err)
				}
				name = string(stream)
			}
			if _, identity, _ := strings.Cut(name, "/"); strings.HasPrefix(identity, "ws_") {
				id, _, _ := strings.Cut(identity, "/")
				sums[id] += uint64(len(it.Key()) + len(it.Value()))
			}
		}
		if err := it.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return sums
}

// forgetCounts takes the counters of a closed store away, and the bytes of streams, so that it is a store from before format 3. Streams
// with erased events keep their heads, because a store from before format 3 has no such streams.
func forgetCounts(t testing.TB, fs vfs.FS, dir string) {
	t.Helper()
	o := smallOptions(fs, dir).withDefaults()
	db, err := pebble.Open(fs.PathJoin(dir, storeName), o.pebble(fs, &backgroundErrors{failure: newFailure(o.Logger), metrics: newMetrics()}))
	if err != nil {
		t.Fatal(err)
	}
	for p := range Partition(defaultPartitions) {
		lower := appendHeader(nil, p, tagWorkspace)
		if err := db.DeleteRange(lower, successor(nil, lower), pebble.Sync); err != nil {
			t.Fatal(err)
		}
		for _, s := range lawStreams {
			h, err := readHead(db, p, s)
			if err != nil {
				t.Fatal(err)
			}
			if h.version+h.revision > 0 && h.erased == 0 {
				old := binary.AppendUvarint(binary.AppendUvarint(nil, h.version), h.revision)
				if err := db.Set(appendHeadKey(nil, p, s), old, pebble.Sync); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if err := errors.Join(db.Close(), fs.Remove(fs.PathJoin(dir, syncedName))); err != nil {
		t.Fatal(err)
	}
	name := fs.PathJoin(dir, formatName)
	file, err := fs.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	format, err := io.ReadAll(file)
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	file, err = fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	_, err = file.Write(bytes.Replace(format, []byte("atelier journal 3"), []byte("atelier journal 2"), 1))
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
}

// countLaw compares the counters of a journal with its rows.
type countLaw struct {
	t     *testing.T
	fs    *vfs.MemFS
	store *Store
	epoch uint64
}

func (l *countLaw) open() {
	o := smallOptions(l.fs, "data")
	o.recountRows = 3
	l.store = mustOpen(l.t, o)
	l.epoch = l.store.watchers.notices[0].Epoch
}

func (l *countLaw) version(s Stream) uint64 {
	v, err := l.store.View()
	if err != nil {
		l.t.Fatal(err)
	}
	defer v.Close()
	version, err := v.Head(0, s)
	if err != nil {
		l.t.Fatal(err)
	}
	return version
}

// append appends random proposals together. Some of them are refused.
func (l *countLaw) append(rt *rapid.T) {
	n := rapid.IntRange(1, 5).Draw(rt, "proposals")
	results := make(chan Result, n)
	for range n {
		p := Proposal{Stream: rapid.SampledFrom(lawStreams).Draw(rt, "stream"), Epoch: l.epoch - rapid.SampledFrom([]uint64{0, 0, 0, 1}).Draw(rt, "behind")}
		p.Expected = l.version(p.Stream)
		p.Erase = rapid.IntRange(0, 4).Draw(rt, "erase") == 0
		for range rapid.IntRange(0, 3).Draw(rt, "events") {
			p.Events = append(p.Events, Event{
				Name: "e", Actor: rapid.SampledFrom([]string{"", "usr_1"}).Draw(rt, "actor"), Payload: make([]byte, rapid.IntRange(0, 300).Draw(rt, "bytes")),
			})
		}
		l.store.Append(p, func(r Result) { results <- r })
	}
	for range n {
		<-results
	}
}

func (l *countLaw) reopen(*rapid.T) {
	mustClose(l.t, l.store)
	l.open()
}

func (l *countLaw) crash(*rapid.T) {
	crashed := l.store
	l.fs = l.fs.CrashClone(vfs.CrashCloneCfg{})
	_ = crashed.Close() // writes to the lost disk
	l.open()
}

func (l *countLaw) recount(*rapid.T) {
	mustClose(l.t, l.store)
	forgetCounts(l.t, l.fs, "data")
	l.open()
}

func (l *countLaw) check(rt *rapid.T) {
	sums := sumRows(l.t, l.store.db, 0)
	var sum uint64
	for _, id := range []string{"ws_a", "ws_b"} {
		sum += sums[id]
		if got := l.store.WorkspaceBytes(0, id); got != sums[id] {
			rt.Fatalf("%s has %d bytes according to its counter, and rows of %d bytes", id, got, sums[id])
		}
	}
	if total, most := l.store.workspaces.total(); total != sum || most != max(sums["ws_a"], sums["ws_b"]) {
		rt.Fatalf("the total is %d, and the most %d", total, most)
	}
}

// TestWorkspaceBytesLaw appends and erases at random, closes and crashes the journal, and takes its counters away: they always
// equal the bytes of the rows. The number of histories is low, because each one opens the journal many times.
func TestWorkspaceBytesLaw(t *testing.T) {
	race.Skip(t, "it opens hundreds of directories one after the other")
	if checks := flag.Lookup("rapid.checks"); checks.Value.String() == checks.DefValue {
		_ = checks.Value.Set("12")
		t.Cleanup(func() { _ = checks.Value.Set(checks.DefValue) })
	}
	rapid.Check(t, func(rt *rapid.T) {
		l := &countLaw{t: t, fs: vfs.NewCrashableMem()}
		l.open()
		rt.Repeat(map[string]func(*rapid.T){
			"append": l.append, "append again": l.append, "append more": l.append,
			"reopen": l.reopen, "crash": l.crash, "recount": l.recount, "": l.check,
		})
		mustClose(t, l.store)
	})
}

// TestErase erases the events of a stream: their room is free at once, versions go on, and other streams are unchanged.
func TestErase(t *testing.T) {
	o := smallOptions(vfs.NewMem(), "data")
	s := mustOpen(t, o)
	epoch := s.watchers.notices[0].Epoch
	add := func(p Proposal) Result {
		p.Epoch = epoch
		done := make(chan Result, 1)
		s.Append(p, func(r Result) { done <- r })
		return <-done
	}
	note := []Event{{Name: "note", Payload: make([]byte, 10_000)}}
	for i := range uint64(3) {
		for _, stream := range []Stream{"session/ws_a/ses_1", "session/ws_a/ses_2"} {
			if r := add(Proposal{Stream: stream, Expected: i, Events: note}); r.Err != nil {
				t.Fatal(r.Err)
			}
		}
	}
	s.SaveSnapshot(0, epoch, "session/ws_a/ses_1", Snapshot{Version: 3, State: []byte("secret")})
	before := s.WorkspaceBytes(0, "ws_a")
	if before < 60_000 || before > 61_000 {
		t.Errorf("six notes of 10,000 bytes have %d", before)
	}
	if r := add(Proposal{Stream: "session/ws_a/ses_1", Expected: 2, Erase: true}); r.Err == nil {
		t.Error("a stale proposal has erased a stream")
	}
	if r := add(Proposal{Stream: "session/ws_a/ses_1", Expected: 3, Erase: true, Events: []Event{{Name: "erased"}}}); r.Err != nil || r.Version != 4 {
		t.Fatalf("%+v", r)
	}
	s.SaveSnapshot(0, epoch, "session/ws_a/ses_1", Snapshot{Version: 3, State: []byte("secret")}) // was taken before, and is late
	if r := add(Proposal{Stream: "after", Entries: []Change{{Entry: Entry{Index: "after"}}}}); r.Err != nil {
		t.Fatal(r.Err)
	}
	check := func() {
		t.Helper()
		if after := s.WorkspaceBytes(0, "ws_a"); after > before-29_000 || after < 30_000 {
			t.Errorf("%d of %d bytes remain", after, before)
		}
		v, err := s.View()
		if err != nil {
			t.Fatal(err)
		}
		defer v.Close()
		var names []string
		for e, err := range v.Read(0, "session/ws_a/ses_1", 0, Ascending) {
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, fmt.Sprint(e.Version, " ", e.Name))
		}
		for e, err := range v.Feed(0, 0, nil) {
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, fmt.Sprint("#", e.Sequence, " ", e.Name))
		}
		if got, want := fmt.Sprint(names), "[4 erased #2 note #4 note #6 note #7 erased]"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if snapshot, err := v.Snapshot(0, "session/ws_a/ses_1"); err != nil || snapshot.Version != 0 {
			t.Errorf("the snapshot is %+v, %v", snapshot, err)
		}
	}
	check()
	mustClose(t, s)
	s = mustOpen(t, o)
	check()
	mustClose(t, s)
}

// TestStageFailureCountsNothing fails a partition while it applies a proposal. The bytes of the proposal do not count.
func TestStageFailureCountsNothing(t *testing.T) {
	f := newFaultyJournal(t, Options{})
	f.mustAppend("session/ws_a/ses_1", 0)
	counted := f.WorkspaceBytes(0, "ws_a")
	f.damageHead(t, "session/ws_a/ses_2")
	var applied, failed chan Result
	f.commitTogether(func() {
		applied = f.startAppend("session/ws_a/ses_1", 1)
		failed = f.startAppend("session/ws_a/ses_2", 0)
	})
	// A move that is queued before the partition fails is refused with its proposals, and moves nothing.
	for _, result := range []chan Result{applied, failed} {
		if r := <-result; !errors.Is(r.Err, ErrUnknown) {
			t.Errorf("a proposal of the partition that failed is answered with %v", r.Err)
		}
	}
	f.mustMove(t, 0, DefaultMember)
	if got, want := f.WorkspaceBytes(0, "ws_a"), sumRows(t, f.db, 0)["ws_a"]; got != want || got != counted {
		t.Errorf("the counter is %d, the rows have %d bytes, and had %d", got, want, counted)
	}
	f.mustClose()
}
