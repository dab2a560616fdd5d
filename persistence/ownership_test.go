package persistence

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// noticeLog collects the notices of one member about partition 0.
type noticeLog struct{ notices []Notice }

// watch returns a noticeLog of a member.
func (f *faultyJournal) watch(t *testing.T, m *Member) *noticeLog {
	t.Helper()
	seen := &noticeLog{}
	m.Watch(t.Context(), func(n Notice) {
		if n.Partition == 0 {
			seen.notices = append(seen.notices, n)
		}
	})
	return seen
}

// expect compares the collected notices with want, and clears them.
func (w *noticeLog) expect(t *testing.T, want ...Notice) {
	t.Helper()
	if !slices.Equal(w.notices, want) {
		t.Fatalf("notices %+v, want %+v", w.notices, want)
	}
	w.notices = nil
}

// appendToFirst appends one event to partition 0 for a member.
func appendToFirst(m *Member, epoch uint64, s Stream, expected uint64) Result {
	return appendEvent(m, 0, epoch, s, expected)
}

// appendEvent appends one event for a member.
func appendEvent(m *Member, p Partition, epoch uint64, s Stream, expected uint64) Result {
	results := make(chan Result, 1)
	e := []Event{{Name: "e"}}
	m.Append(Proposal{Partition: p, Stream: s, Expected: expected, Epoch: epoch, Events: e}, func(r Result) { results <- r })
	return <-results
}

// expectNotLeader fails unless the result is a NotLeaderError with this epoch.
func expectNotLeader(t *testing.T, r Result, epoch uint64) {
	t.Helper()
	var stale *NotLeaderError
	if !errors.As(r.Err, &stale) || stale.Epoch != epoch {
		t.Fatalf("got %+v, want a NotLeaderError with epoch %d", r, epoch)
	}
}

func (f *faultyJournal) mustMove(t *testing.T, p Partition, to string) uint64 {
	t.Helper()
	epoch, err := f.Move(context.Background(), p, to)
	if err != nil {
		t.Fatal(err)
	}
	return epoch
}

// TestMove moves a partition to another member, renews its term, and moves it back.
func TestMove(t *testing.T) {
	f := newFaultyJournal(t, Options{})
	first, second := f.Member(DefaultMember), f.Member("second")
	if f.Member("second") != second || second.Name() != "second" {
		t.Fatal("two members have the same name")
	}
	f.mustAppend("a", 0)
	firstLog, secondLog := f.watch(t, first), f.watch(t, second)
	firstLog.expect(t, Notice{0, f.epoch, true, 1})
	secondLog.expect(t, Notice{0, 0, false, 1})
	expectNotLeader(t, appendToFirst(second, f.epoch, "a", 1), f.epoch)

	moved := f.mustMove(t, 0, "second")
	if moved != f.epoch+1 {
		t.Fatalf("epoch %d after %d", moved, f.epoch)
	}
	firstLog.expect(t, Notice{0, f.epoch, false, 1})
	secondLog.expect(t, Notice{0, moved, true, 1})
	expectNotLeader(t, f.append("a", 1), moved)
	expectNotLeader(t, appendToFirst(first, moved, "a", 1), moved)
	if r := appendToFirst(second, moved, "a", 1); r.Err != nil {
		t.Fatal(r.Err)
	}
	firstLog.expect(t)
	secondLog.expect(t, Notice{0, moved, true, 2})

	renewed := f.mustMove(t, 0, "second")
	secondLog.expect(t, Notice{0, renewed, true, 2})
	expectNotLeader(t, appendToFirst(second, moved, "a", 2), renewed)

	back := f.mustMove(t, 0, DefaultMember)
	firstLog.expect(t, Notice{0, back, true, 2})
	secondLog.expect(t, Notice{0, renewed, false, 2})
	f.watch(t, second).expect(t, Notice{0, renewed, false, 2})
	if r := appendToFirst(first, back, "a", 2); r.Err != nil {
		t.Fatal(r.Err)
	}
	if _, err := f.Move(context.Background(), 0, "nobody"); err == nil {
		t.Fatal("moved to a member that does not exist")
	}
	if _, err := f.Move(context.Background(), 60000, "second"); err == nil {
		t.Fatal("moved a partition that does not exist")
	}
	f.mustClose()
	if _, err := f.Move(context.Background(), 0, "second"); !errors.Is(err, ErrClosed) {
		t.Fatalf("got %v", err)
	}
}

// TestSaveSnapshotOfEndedTerm saves snapshots under an ended epoch: none is written.
func TestSaveSnapshotOfEndedTerm(t *testing.T) {
	f := newFaultyJournal(t, Options{})
	second := f.Member("second")
	f.mustAppend("a", 0)
	f.mustAppend("a", 1)
	moved := f.mustMove(t, 0, "second")
	second.SaveSnapshot(0, moved, "a", Snapshot{Version: 2, State: []byte("new")})
	f.SaveSnapshot(0, f.epoch, "a", Snapshot{Version: 1, State: []byte("stale owner")})
	f.SaveSnapshot(0, moved, "a", Snapshot{Version: 1, State: []byte("not the owner")})
	second.SaveSnapshot(0, f.epoch, "a", Snapshot{Version: 1, State: []byte("stale epoch")})
	if r := appendToFirst(second, moved, "a", 2); r.Err != nil { // is written after the snapshots
		t.Fatal(r.Err)
	}
	v, err := f.View()
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	if s, err := v.Snapshot(0, "a"); err != nil || s.Version != 2 || string(s.State) != "new" {
		t.Fatalf("%+v, %v", s, err)
	}
}

// TestMoveThenCrash moves a partition and loses power: no epoch is used again.
func TestMoveThenCrash(t *testing.T) {
	f := newFaultyJournal(t, Options{})
	f.Member("second")
	moved := uint64(0)
	for range 3 {
		moved = f.mustMove(t, 0, "second")
	}
	reopened := f.reopenAfterCrash(t)
	defer reopened.Close()
	if n := reopened.watchers.notices[0]; n.Epoch != moved+1 || !n.Owned {
		t.Fatalf("%+v after epoch %d", n, moved)
	}
}

// damageHead makes the head of a stream in partition 0 unreadable.
func (f *faultyJournal) damageHead(t *testing.T, s Stream) {
	t.Helper()
	if err := f.db.Set(appendHeadKey(nil, 0, s), []byte{0xff}, pebble.Sync); err != nil {
		t.Fatal(err)
	}
}

// TestPartitionFailure damages a row of one partition: only the term of this partition ends.
func TestPartitionFailure(t *testing.T) {
	f := newFaultyJournal(t, Options{})
	second := f.Member("second")
	f.mustAppend("a", 0)
	firstLog := f.watch(t, f.local)
	other := f.mustMove(t, 1, "second")
	firstLog.notices = nil
	f.damageHead(t, "damaged")

	results := make(chan string, 4)
	begin := func(m *Member, p Partition, epoch uint64, s Stream, expected uint64) {
		e := []Event{{Name: "e"}}
		m.Append(Proposal{Partition: p, Stream: s, Expected: expected, Epoch: epoch, Events: e}, func(r Result) {
			results <- fmt.Sprintf("%s: %v", s, r.Err)
		})
	}
	f.commitTogether(func() {
		begin(f.local, 0, f.epoch, "a", 1)
		begin(second, 1, other, "b", 0)
		begin(f.local, 0, f.epoch, "damaged", 0)
		begin(second, 1, other, "b", 1)
	})
	var got []string
	for range 4 {
		got = append(got, <-results)
	}
	slices.Sort(got)
	want := []string{"a: " + ErrUnknown.Error(), "b: <nil>", "b: <nil>", "damaged: " + ErrUnknown.Error()}
	if !slices.Equal(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
	firstLog.expect(t, Notice{0, f.epoch, true, 2}, Notice{0, f.epoch, false, 2})
	expectNotLeader(t, f.append("a", 1), 0)
	if r := appendEvent(second, 1, other, "b", 2); r.Err != nil {
		t.Fatal(r.Err)
	}
	if n := headOf(t, f.Store, "a"); n != 1 {
		t.Fatalf("version %d: rows of the failed round remain", n)
	}
	if f.Err() != nil || f.queue.failedCount() != 1 {
		t.Fatalf("%v, %d failed", f.Err(), f.queue.failedCount())
	}

	f.epoch = f.mustMove(t, 0, DefaultMember)
	firstLog.expect(t, Notice{0, f.epoch, true, 2})
	f.mustAppend("a", 1)
	firstLog.expect(t, Notice{0, f.epoch, true, 3})
	f.mustClose()
}

// TestFail ends a term with one proposal in flight and one in the queue.
func TestFail(t *testing.T) {
	f := newFaultyJournal(t, Options{})
	f.mustAppend("a", 0)
	seen := f.watch(t, f.local)
	seen.notices = nil
	release := f.holdSyncs()
	flying := f.startAppend("a", 1)
	<-f.syncing
	queued := f.startAppend("a", 2)
	f.Fail(0, errors.New("no quorum"))
	f.Fail(60000, errors.New("no such partition"))
	if r := <-flying; !errors.Is(r.Err, ErrUnknown) {
		t.Fatalf("in flight: %+v", r)
	}
	expectNotLeader(t, <-queued, 0)
	seen.expect(t, Notice{0, f.epoch, false, 1})
	release()
	f.epoch = f.mustMove(t, 0, DefaultMember)
	// The proposal in flight became durable after all: the new term begins with it.
	seen.expect(t, Notice{0, f.epoch, true, 2})
	f.mustAppend("a", 2)
	f.mustClose()
}

// TestJournalFailureEndsTerms breaks the log: all owners are notified of the end of their terms.
func TestJournalFailureEndsTerms(t *testing.T) {
	f := newFaultyJournal(t, Options{})
	second := f.Member("second")
	moved := f.mustMove(t, 0, "second")
	ended := make(chan Notice, 100)
	for _, m := range []*Member{f.local, second} {
		m.Watch(t.Context(), func(n Notice) {
			if !n.Owned && n.Epoch != 0 {
				ended <- n
			}
		})
	}
	before := len(ended) // the first member's term of partition 0
	f.injectFault(faultOn(errors.New("broken"), ".log", syncs...))
	if r := appendToFirst(second, moved, "a", 0); !errors.Is(r.Err, ErrUnknown) {
		t.Fatalf("got %+v", r)
	}
	if got := len(ended) - before; got != f.Partitions() {
		t.Fatalf("%d owners were notified before the proposals were answered, want %d", got, f.Partitions())
	}
	<-f.Failed()
	if _, err := f.Move(context.Background(), 0, DefaultMember); !errors.Is(err, ErrClosed) {
		t.Fatalf("got %v", err)
	}
	f.fault.Store(nil)
}

// TestQueueReservation fills the queue of one partition: others still accept proposals.
func TestQueueReservation(t *testing.T) {
	for name, o := range map[string]Options{
		"number": {QueueProposals: 480, Partitions: 2},
		"bytes":  {QueueBytes: 48_000, Partitions: 2},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFaultyJournal(t, o)
			release := f.holdSyncs()
			first := f.startAppend("first", 0)
			<-f.syncing
			answered := make(chan error, 10_000)
			fill := func(p Partition) (accepted int) {
				for before := -1; ; accepted++ {
					e := []Event{{Name: "e", Payload: make([]byte, 100)}}
					s := Stream(fmt.Sprint("s", accepted))
					f.Append(Proposal{Partition: p, Stream: s, Epoch: f.epoch, Events: e}, func(r Result) { answered <- r.Err })
					n, _ := f.queue.depth()
					if n == before {
						return accepted
					}
					before = n
				}
			}
			mine, others := fill(0), fill(1)
			if others == 0 || mine < 6*others || others > mine {
				t.Fatalf("%d and %d were accepted", mine, others)
			}
			if n, bytes := f.queue.depth(); name == "number" && n != 480 || name == "bytes" && bytes > 48_000 {
				t.Fatalf("%d proposals, %d bytes are waiting", n, bytes)
			}
			release()
			if r := <-first; r.Err != nil {
				t.Fatal(r.Err)
			}
			refused := 0
			for range mine + others + 2 {
				if err := <-answered; err != nil {
					refused++
				}
			}
			if refused != 2 {
				t.Fatalf("%d were refused", refused)
			}
			if q := f.queue; q.count.borrowed != 0 || q.bytes.borrowed != 0 || q.load != (load{}) {
				t.Fatalf("an empty queue of %+v, %+v, %+v", q.load, q.count, q.bytes)
			}
			f.mustClose()
		})
	}
}

// TestTakeCommit fills the queue of one partition: the others have their part of the next commit.
func TestTakeCommit(t *testing.T) {
	empty := func() *queue {
		lanes := make([]*lane, 3)
		for i := range lanes {
			lanes[i] = &lane{partition: Partition(i)}
		}
		return newQueue(lanes, 100_000, 100<<20)
	}
	q := empty()
	for range 5000 {
		q.enqueue(0, nil, queueEntry{size: 100})
	}
	for range 10 {
		q.enqueue(1, nil, queueEntry{size: 100})
	}
	for range 700 {
		q.enqueue(2, nil, queueEntry{size: 100})
	}
	taken := q.takeCommit(nil)
	for i, want := range []int{1024 - 10 - 341, 10, 341} {
		if got := len(taken[i].round.pending); got != want {
			t.Fatalf("partition %d: %d of the commit, want %d", i, got, want)
		}
		taken[i].round.reset()
	}
	// A proposal as large as a commit is the only one in its commit, and a move is a round of its own.
	q = empty()
	q.enqueue(1, nil, queueEntry{size: 100})
	q.enqueue(1, nil, queueEntry{move: &Member{}, size: 100})
	q.enqueue(1, nil, queueEntry{size: 100})
	for range 3 {
		if taken = q.takeCommit(nil); len(taken) != 1 || len(taken[0].round.pending) != 1 {
			t.Fatalf("%d lanes", len(taken))
		}
		taken[0].round.reset()
	}
	q.enqueue(2, nil, queueEntry{size: 2 * maxBatchBytes})
	q.enqueue(1, nil, queueEntry{size: 1})
	for i, p := range []Partition{2, 1} {
		taken = q.takeCommit(nil)
		if len(taken) != 1 || taken[0].partition != p {
			t.Fatalf("commit %d takes %d lanes", i, len(taken))
		}
		taken[0].round.reset()
	}
}

// TestRecover fails a partition twice: each time its owner leads it again, under a new epoch, and the stream continues.
func TestRecover(t *testing.T) {
	f := newFaultyJournal(t, Options{})
	f.Recover(t.Context())
	led := make(chan Notice, 64)
	f.Watch(t.Context(), func(n Notice) {
		if n.Partition == 0 {
			led <- n
		}
	})
	next := func(owned bool) (n Notice) {
		for n = <-led; n.Owned != owned; n = <-led {
		}
		return n
	}
	epoch := next(true).Epoch
	f.mustAppend("a", 0)
	for i := range 2 {
		f.Fail(0, errors.New("no quorum"))
		next(false)
		now := next(true)
		if now.Epoch <= epoch {
			t.Fatalf("epoch %d after %d", now.Epoch, epoch)
		}
		epoch = now.Epoch
		if r := appendEvent(f.local, 0, epoch, "a", uint64(i+1)); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	if r := appendEvent(f.local, 1, f.epoch, "b", 0); r.Err != nil {
		t.Errorf("another partition: %v", r.Err)
	}
	f.mustClose()
}

func TestRecoveryPause(t *testing.T) {
	r := &recovery{attempts: make([]attempts, 1)}
	now := time.Now()
	check := func(got time.Duration, failures int) {
		if limit := recovering.Limit(failures); got < limit/2 || got > limit {
			t.Errorf("after %d failures a pause of %v, want at most %v", failures, got, limit)
		}
	}
	for n := range 3 {
		check(r.nextPause(0, now), n+1)
	}
	for range 20 {
		now = now.Add(time.Minute)
		r.nextPause(0, now)
	}
	check(r.nextPause(0, now), 24)
	check(r.nextPause(0, now.Add(healthyAfter+1)), 1)
}
