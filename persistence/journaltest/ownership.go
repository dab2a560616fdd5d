package journaltest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/atelier-run/atelier/persistence"
)

const (
	movedPartitions = 2
	movedMembers    = 2
	// minMoves and minAcknowledged (for each member) bound the run from below.
	minMoves        = 150
	minAcknowledged = 100
)

// testMoves lets two members append to the same streams while partitions move between them at random, and sometimes get a
// new term of the same member. Acknowledged proposals are stored, refused ones are not, and each event is in the section
// of the feed that the term of its epoch has written.
func testMoves(t *testing.T, h Harness) {
	j := h.Open()
	members, move := h.Members(j)
	m := &moveTest{t: t, move: move, terms: newTerms(t), answered: make(chan struct{}, 1), stop: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for i, member := range members[:movedMembers] {
		member.Watch(ctx, func(n persistence.Notice) {
			if n.Partition < movedPartitions {
				m.terms.check(i, n)
			}
		})
	}
	var workers sync.WaitGroup
	for i, member := range members[:movedMembers] {
		for w := range 2 * movedPartitions {
			worker := &moveWorker{moveTest: m, member: i, journal: member, partition: persistence.Partition(w % movedPartitions),
				rng: rand.New(rand.NewPCG(uint64(i), uint64(w)))}
			workers.Go(worker.run)
		}
	}
	m.moveAtRandom()
	close(m.stop)
	workers.Wait()
	m.checkStored(j)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

// observedTerms records the notices of all members, and checks their order.
type observedTerms struct {
	t  *testing.T
	mu sync.Mutex
	// last has the last notice of each member about each partition.
	last [movedMembers][movedPartitions]persistence.Notice
	// begun has the first notice of each term of a partition, in order.
	begun [movedPartitions][]persistence.Notice
}

func newTerms(t *testing.T) *observedTerms { return &observedTerms{t: t} }

func (s *observedTerms) check(member int, n persistence.Notice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := n.Partition
	before := s.last[member][p]
	s.last[member][p] = n
	switch {
	case n.Epoch < before.Epoch || n.Sequence < before.Sequence:
		s.t.Errorf("member %d: %+v after %+v", member, n, before)
	case n.Owned && n.Epoch == before.Epoch && !before.Owned:
		s.t.Errorf("member %d: %+v after the end of the term", member, n)
	case !n.Owned && before.Owned && n.Epoch != before.Epoch:
		s.t.Errorf("member %d: %+v ends %+v", member, n, before)
	}
	if !n.Owned || n.Epoch == before.Epoch {
		return
	}
	for other := range s.last {
		if other != member && s.last[other][p].Owned {
			s.t.Errorf("member %d: %+v while member %d has %+v", member, n, other, s.last[other][p])
		}
	}
	if begun := s.begun[p]; len(begun) > 0 && n.Epoch <= begun[len(begun)-1].Epoch {
		s.t.Errorf("epoch %d begins after %+v", n.Epoch, begun[len(begun)-1])
	}
	s.begun[p] = append(s.begun[p], n)
}

func (s *observedTerms) lastNotice(member int, p persistence.Partition) persistence.Notice {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last[member][p]
}

// answeredProposal is a proposal with its result, and the number of calls of its callback.
type answeredProposal struct {
	persistence.Proposal
	name   string
	calls  atomic.Int32
	result persistence.Result
}

// moveTest has the members that append, and their proposals.
type moveTest struct {
	t     *testing.T
	move  func(p persistence.Partition, member int) (uint64, error)
	terms *observedTerms
	stop  chan struct{}
	// answered has an element when a proposal was answered since it was taken last.
	answered     chan struct{}
	acknowledged [movedMembers]atomic.Int64

	mu  sync.Mutex
	all []*answeredProposal
}

// moveAtRandom moves a partition after every few results.
func (m *moveTest) moveAtRandom() {
	rng := rand.New(rand.NewPCG(7, 7))
	for n := 0; n < minMoves || m.acknowledged[0].Load() < minAcknowledged || m.acknowledged[1].Load() < minAcknowledged; n++ {
		for range rng.IntN(4) {
			<-m.answered
		}
		p, to := persistence.Partition(rng.IntN(movedPartitions)), rng.IntN(movedMembers)
		epoch, err := m.move(p, to)
		if err != nil {
			m.t.Errorf("move: %v", err)
			return
		}
		if notice := m.terms.lastNotice(to, p); notice.Epoch != epoch || !notice.Owned {
			m.t.Errorf("moved under epoch %d before the owner was notified: %+v", epoch, notice)
		}
	}
}

// moveWorker appends for one member to one partition.
type moveWorker struct {
	*moveTest
	member    int
	journal   persistence.Journal
	partition persistence.Partition
	rng       *rand.Rand
}

func (w *moveWorker) run() {
	for {
		select {
		case <-w.stop:
			return
		default:
		}
		if err := w.burst(); err != nil {
			w.t.Errorf("member %d: %v", w.member, err)
			return
		}
	}
}

// burst appends a few proposals without waiting in between, as an owner does: under the last epoch of the member, even if
// its term has ended, and sometimes under the epoch before.
func (w *moveWorker) burst() error {
	s := persistence.Stream([]string{"a", "b", "c"}[w.rng.IntN(3)])
	epoch := w.terms.lastNotice(w.member, w.partition).Epoch
	if w.rng.IntN(8) == 0 {
		epoch--
	}
	v, err := w.journal.View()
	if err != nil {
		return err
	}
	version, err := v.Head(w.partition, s)
	if err = errors.Join(err, v.Close()); err != nil {
		return err
	}
	var done sync.WaitGroup
	for range 1 + w.rng.IntN(4) {
		p := w.propose(s, epoch, version)
		version += uint64(len(p.Events))
		done.Add(1)
		w.journal.Append(p.Proposal, func(r persistence.Result) {
			if p.calls.Add(1) > 1 {
				w.t.Errorf("%s is answered again: %+v", p.name, r)
				return
			}
			p.result = r
			w.answer(p)
			done.Done()
		})
	}
	done.Wait()
	return nil
}

// propose returns a proposal with an event and an entry, or with an entry only.
func (w *moveWorker) propose(s persistence.Stream, epoch, expected uint64) *answeredProposal {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := &answeredProposal{name: fmt.Sprint("n", len(w.all))}
	w.all = append(w.all, p)
	p.Proposal = persistence.Proposal{Partition: w.partition, Stream: s, Epoch: epoch, Expected: expected}
	p.Entries = []persistence.Change{putEntry("moves", p.name, epoch, "")}
	if w.rng.IntN(4) > 0 {
		e := event(p.name)
		e.Actor = strconv.FormatUint(epoch, 10)
		p.Events = []persistence.Event{e}
	}
	return p
}

func (w *moveWorker) answer(p *answeredProposal) {
	if p.result.Err == nil {
		w.acknowledged[w.member].Add(1)
		if len(p.Events) > 0 {
			state := persistence.Snapshot{Version: p.result.Version, State: []byte(p.name)}
			w.journal.SaveSnapshot(p.Partition, p.Epoch, p.Stream, state)
		}
	}
	select {
	case w.answered <- struct{}{}:
	default:
	}
}

// checkStored compares the stored events, entries and snapshots with the results and the terms.
func (m *moveTest) checkStored(j Journal) {
	v, err := j.View()
	if err != nil {
		m.t.Fatal(err)
	}
	defer v.Close()
	stored := make(map[string]persistence.Event)
	at := make(map[string]string)
	for p := range persistence.Partition(movedPartitions) {
		for e, err := range v.Feed(p, 0, nil) {
			if err != nil {
				m.t.Fatal(err)
			}
			stored[e.Name] = e
			at[fmt.Sprint(p, e.Stream, e.Version)] = e.Name
			m.checkTerm(p, e)
		}
	}
	for _, p := range m.all {
		m.checkAnswer(v, p, stored)
	}
	for p := range persistence.Partition(movedPartitions) {
		for _, s := range []persistence.Stream{"a", "b", "c"} {
			snapshot, err := v.Snapshot(p, s)
			if want := at[fmt.Sprint(p, s, snapshot.Version)]; err != nil || string(snapshot.State) != want {
				m.t.Errorf("the snapshot of %s at %d is %q, %v; want %q", s, snapshot.Version, snapshot.State, err, want)
			}
		}
	}
}

// checkTerm fails if an event is in a section of the feed that another term has written.
func (m *moveTest) checkTerm(p persistence.Partition, e persistence.Event) {
	epoch, _ := strconv.ParseUint(e.Actor, 10, 64)
	begun := m.terms.begun[p]
	for i, term := range begun {
		if term.Epoch != epoch {
			continue
		}
		if e.Sequence <= term.Sequence || i+1 < len(begun) && e.Sequence > begun[i+1].Sequence {
			m.t.Errorf("partition %d: event %d is of epoch %d, which began after %d", p, e.Sequence, epoch, term.Sequence)
		}
		return
	}
	m.t.Errorf("partition %d: event %d is of epoch %d, of which no member was notified", p, e.Sequence, epoch)
}

func (m *moveTest) checkAnswer(v persistence.View, p *answeredProposal, stored map[string]persistence.Event) {
	if n := p.calls.Load(); n != 1 {
		m.t.Errorf("%s was answered %d times", p.name, n)
	}
	_, entry, err := v.Lookup(p.Partition, "moves", p.name, p.Epoch)
	e, found := stored[p.name]
	acknowledged := p.result.Err == nil
	var conflict *persistence.ConflictError
	var stale *persistence.NotLeaderError
	switch {
	case err != nil:
		m.t.Errorf("%s: %v", p.name, err)
	case !acknowledged && !errors.As(p.result.Err, &conflict) && !errors.As(p.result.Err, &stale):
		m.t.Errorf("%s: %v", p.name, p.result.Err)
	case entry != acknowledged, len(p.Events) > 0 && found != acknowledged:
		m.t.Errorf("%s: event %v, entry %v, answer %v", p.name, found, entry, p.result.Err)
	case found && (e.Stream != p.Stream || e.Version != p.result.Version):
		m.t.Errorf("%s: %+v, answer %+v", p.name, e, p.result)
	}
}

func testWatch(t *testing.T, h Harness) {
	c := openClient(t, h)
	defer c.mustClose()
	c.mustAppend(c.proposal(0, "a", 0, "one", "two"))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	notices := make(chan persistence.Notice, 10_000)
	c.Watch(ctx, func(n persistence.Notice) { notices <- n })
	last := make(map[persistence.Partition]uint64)
	for range len(c.epochs) {
		n := <-notices
		if _, twice := last[n.Partition]; twice || !n.Owned || n.Epoch != c.epochs[n.Partition] {
			t.Fatalf("got %+v", n)
		}
		last[n.Partition] = n.Sequence
	}
	if last[0] != 2 || last[1] != 0 {
		t.Fatalf("sequences %v", last)
	}
	c.mustAppend(c.entriesProposal(0, putEntry("i", "v", 1, ""))) // does not advance the feed
	c.mustAppend(c.proposal(0, "a", 2, "three"), c.proposal(0, "b", 0, "four"), c.proposal(1, "c", 0, "five"))
	for last[0] < 4 || last[1] < 1 {
		var n persistence.Notice
		select {
		case n = <-notices:
		default:
			t.Fatalf("answered before its notice: %v", last)
		}
		if n.Sequence <= last[n.Partition] || !n.Owned || n.Epoch != c.epochs[n.Partition] {
			t.Fatalf("got %+v after %v", n, last)
		}
		last[n.Partition] = n.Sequence
		c.withView(func(v persistence.View) {
			if got := eventTexts(t, v.Feed(n.Partition, n.Sequence, nil)); len(got) == 0 {
				t.Fatalf("%+v is not in a view", n)
			}
		})
	}
}

func testWatchEnds(t *testing.T, h Harness) {
	c := openClient(t, h)
	defer c.mustClose()
	ctx, cancel := context.WithCancel(context.Background())
	notices := make(chan persistence.Notice, 10_000)
	c.Watch(ctx, func(n persistence.Notice) { notices <- n })
	cancel()
	for len(notices) > 0 {
		<-notices
	}
	// Watchers are called in the order of their registration: when this one is called, the first one would have been.
	still, end := context.WithCancel(context.Background())
	defer end()
	notice := make(chan struct{}, 10_000)
	c.Watch(still, func(n persistence.Notice) {
		if n.Sequence > 0 {
			notice <- struct{}{}
		}
	})
	c.mustAppend(c.proposal(0, "a", 0, "one"))
	<-notice
	if len(notices) > 0 {
		t.Fatal("notified after the context has ended")
	}
}
