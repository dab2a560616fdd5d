package persistence

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// DefaultMember is the member that leads every partition when a journal is opened. A Store acts for it.
const DefaultMember = "default"

// Member is one of several owners of a journal's partitions within a process: each leads the partitions that Move has
// given it. It sees everything that is stored, appends to the partitions that it leads, and its watchers are told of
// its own terms alone.
type Member struct {
	store *Store
	name  string
	// led is the epoch of the member's last term that has ended, for each partition. The watchers' lock guards it.
	endedEpochs []uint64
}

var _ Journal = (*Member)(nil)

// members are those that Store.Member has made.
type memberSet struct {
	mu     sync.Mutex
	byName map[string]*Member
}

func (s *Store) newMember(name string) *Member {
	return &Member{store: s, name: name, endedEpochs: make([]uint64, s.Partitions())}
}

// Member returns the journal as a member of that name sees it, always the same for one name. It leads nothing until
// Move gives it a partition, except DefaultMember. It may be called from any goroutine.
func (s *Store) Member(name string) *Member {
	s.members.mu.Lock()
	defer s.members.mu.Unlock()
	m := s.members.byName[name]
	if m == nil {
		m = s.newMember(name)
		s.members.byName[name] = m
	}
	return m
}

// Move makes a member lead a partition, under a new epoch that it returns: a change of owner, or a new term of the same
// owner. A partition that has failed is read again from the disk and goes on.
//
// Proposals made before are applied before the move, and what the old owner proposes afterwards is refused with a
// NotLeaderError. The new epoch is durable before anyone is told. Then the watchers of the old owner are told that it
// leads the partition no longer, and after them those of the new one; by the time Move returns, all have been told.
//
// Errors: one that names the partition or the member that does not exist; ErrClosed; ErrRefused when the disk is nearly
// full; ErrUnknown or a NotLeaderError when the partition fails meanwhile, and ctx's error. After ErrUnknown and ctx's
// error the move may still take place. Callbacks of the journal must not call Move, which waits for them.
func (s *Store) Move(ctx context.Context, p Partition, to string) (epoch uint64, err error) {
	if int(p) >= s.Partitions() {
		return 0, fmt.Errorf("move partition %d: there are %d partitions", p, s.Partitions())
	}
	s.members.mu.Lock()
	m := s.members.byName[to]
	s.members.mu.Unlock()
	if m == nil {
		return 0, fmt.Errorf("move partition %d: there is no member %q", p, to)
	}
	results := make(chan Result, 1)
	entry := queueEntry{move: m, done: func(r Result) { results <- r }, size: rowBytes}
	if why, _ := s.queue.enqueue(p, nil, entry); why != reasonNone {
		return 0, fmt.Errorf("move partition %d: %w", p, ErrClosed)
	}
	select {
	case r := <-results:
		if r.Err != nil {
			return 0, fmt.Errorf("move partition %d: %w", p, r.Err)
		}
		return r.Version, nil
	case <-ctx.Done():
		return 0, fmt.Errorf("move partition %d: %w", p, ctx.Err())
	}
}

// Fail ends the term of one partition as an error of its committer does: the owner is told, proposals in flight are
// answered with ErrUnknown and all others with a NotLeaderError, until Move gives the partition an owner. Other
// partitions go on. It returns at once; a partition that does not exist is ignored.
func (s *Store) Fail(p Partition, cause error) {
	if int(p) < s.Partitions() {
		s.writer.failPartition(s.queue.lanes[p], cause)
	}
}

// Name returns the member's name.
func (m *Member) Name() string { return m.name }

// Append keeps what the proposal refers to until done is called.
func (m *Member) Append(p Proposal, done func(Result)) {
	s := m.store
	size := proposalSize(&p)
	if size > maxProposalBytes {
		s.refuse(reasonTooLarge, 0, done)
		return
	}
	if why, epoch := s.queue.enqueue(p.Partition, m, queueEntry{proposal: p, done: done, size: size}); why != reasonNone {
		s.refuse(why, epoch, done)
	}
}

// View shows everything that is stored, whoever leads the partitions.
func (m *Member) View() (View, error) { return m.store.View() }

// SaveSnapshot keeps what the snapshot refers to until it is written, and drops it when the journal is busy, or when the
// member does not lead the partition under that epoch. A state of more than 8 MiB is dropped and logged, since it would
// hold up every commit each time it is saved: the stream can still be read from its events, and the entity's rules need a
// bound.
func (m *Member) SaveSnapshot(p Partition, epoch uint64, stream Stream, snapshot Snapshot) {
	s := m.store
	size := rowBytes + len(stream) + len(snapshot.State)
	if size > maxProposalBytes {
		s.metrics.snapshots.WithLabelValues(string(reasonTooLarge)).Inc()
		s.options.Logger.Warn("the snapshot of a stream is too large and was not saved", "stream", string(stream),
			"bytes", len(snapshot.State), "most", maxProposalBytes)
		return
	}
	if why, _ := s.queue.enqueue(p, m, queueEntry{snapshot: &snapshotSave{stream, epoch, snapshot}, size: size}); why != reasonNone {
		s.metrics.snapshots.WithLabelValues(string(why)).Inc()
	}
}

// Watch returns at once; by then fn has been called for every partition. Later calls come from the journal's goroutines,
// one at a time.
func (m *Member) Watch(ctx context.Context, fn func(Notice)) { m.store.watchers.add(ctx, m, fn) }

// Checkpoint copies the whole journal.
func (m *Member) Checkpoint(dir string) error { return m.store.Checkpoint(dir) }

// watchers tells members which partitions they lead and how far the feeds are.
//
// Its lock is held while watchers are called, and is taken before the queue's. That is what orders notices: a round is
// landed, and its advance told, within one hold of the lock, so that the end of a term, which comes after its lane has
// failed or its move has landed, is told after every advance of the term.
type watchers struct {
	mu  sync.Mutex
	all []*watcher
	// state is what the owners of the partitions have been told last.
	notices []Notice
	owners  []*Member
	// recorder is told every state, whoever leads the partition.
	recorder func(Notice)
}

type watcher struct {
	member *Member
	ctx    context.Context
	fn     func(Notice)
}

func newWatchers(state []Notice, owner *Member) *watchers {
	return &watchers{notices: state, owners: slices.Repeat([]*Member{owner}, len(state))}
}

func (w *watchers) notify(one *watcher, n Notice) {
	if one.ctx.Err() == nil {
		one.fn(n)
	}
}

// add tells fn the state of every partition, as the member sees it, before it returns.
func (w *watchers) add(ctx context.Context, m *Member, fn func(Notice)) {
	one := &watcher{m, ctx, fn}
	w.mu.Lock()
	defer w.mu.Unlock()
	for p, n := range w.notices {
		if w.owners[p] != m {
			n.Owned, n.Epoch = false, m.endedEpochs[p]
		}
		w.notify(one, n)
	}
	w.all = append(w.all, one)
	context.AfterFunc(ctx, func() { w.remove(one) })
}

func (w *watchers) remove(one *watcher) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = slices.DeleteFunc(w.all, func(other *watcher) bool { return other == one })
}

// record has fn called with the state of every partition, and with each later change.
func (w *watchers) setRecorder(fn func(Notice)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.recorder = fn
	for _, n := range w.notices {
		fn(n)
	}
}

// tellOwner tells the owner of a partition its state.
func (w *watchers) notifyOwner(p Partition) {
	if w.recorder != nil {
		w.recorder(w.notices[p])
	}
	for _, one := range w.all {
		if one.member == w.owners[p] {
			w.notify(one, w.notices[p])
		}
	}
}

// committed lands the lanes of a commit and tells what it changed: one notice for each partition, however many events
// it had. It returns the lanes that the caller answers.
func (w *watchers) publishCommit(q *queue, staged []*lane) []*lane {
	w.mu.Lock()
	defer w.mu.Unlock()
	landed := staged[:0]
	for _, l := range staged {
		if !q.claimRound(l) {
			continue
		}
		landed = append(landed, l)
		switch {
		case l.round.isMove():
			w.beginTerm(l.partition, l.round.pending[0].move, l.round.results[0].Version, l.committer.sequence())
		case l.round.advanced:
			w.notices[l.partition].Sequence = l.committer.sequence()
			w.notifyOwner(l.partition)
		}
	}
	return landed
}

// grant tells the old owner that its term has ended, and then the new one that its own begins. An owner whose term is
// renewed is told of the new term alone.
func (w *watchers) beginTerm(p Partition, to *Member, epoch, sequence uint64) {
	if w.owners[p] != to {
		w.endTerm(p)
	}
	w.owners[p].endedEpochs[p] = w.notices[p].Epoch
	w.owners[p] = to
	w.notices[p] = Notice{Partition: p, Epoch: epoch, Owned: true, Sequence: sequence}
	w.notifyOwner(p)
}

func (w *watchers) endTerm(p Partition) {
	if w.notices[p].Owned {
		w.notices[p].Owned = false
		w.notifyOwner(p)
	}
}

// lose tells the owner of a partition that its term has ended, unless a later one has begun.
func (w *watchers) endFailedTerm(p Partition, epoch uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.notices[p].Epoch == epoch {
		w.endTerm(p)
	}
}

// loseAll tells all owners that their terms have ended.
func (w *watchers) endAllTerms() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for p := range w.notices {
		w.endTerm(Partition(p))
	}
}

const (
	// firstRecovery and longestRecovery bound the pause before a partition that has failed is given an owner again. It
	// doubles with each failure, and begins anew once the partition has lived for healthyAfter.
	minRecoveryPause = 100 * time.Millisecond
	maxRecoveryPause = 30 * time.Second
	healthyAfter     = 5 * time.Minute
)

// Recover gives each partition that fails back to DefaultMember, after a pause, for as long as ctx and the journal last.
// It is for a journal whose only member that is, and is called once. It returns at once.
func (s *Store) Recover(ctx context.Context) {
	r := &recovery{store: s, attempts: make([]attempts, s.Partitions()), scheduled: make(chan Partition, 2*s.Partitions())}
	ctx, cancel := context.WithCancel(ctx)
	s.local.Watch(ctx, func(n Notice) {
		if !n.Owned {
			r.schedule(n.Partition)
		}
	})
	go func() {
		defer cancel()
		r.run(ctx)
	}()
}

type recovery struct {
	store     *Store
	attempts  []attempts
	scheduled chan Partition
}

// attempts are those to recover one partition.
type attempts struct {
	failures int
	last     time.Time
}

func (r *recovery) run(ctx context.Context) {
	due := make(chan Partition, len(r.attempts))
	for {
		select {
		case p := <-r.scheduled:
			pause := r.nextPause(p, time.Now())
			r.store.options.Logger.Warn("a partition that has failed is given an owner again after a pause",
				slog.Int("partition", int(p)), slog.Int("failures", r.attempts[p].failures), slog.Duration("pause", pause))
			time.AfterFunc(pause, func() {
				select {
				case due <- p:
				case <-ctx.Done():
				}
			})
		case p := <-due:
			r.recoverPartition(ctx, p)
		case <-r.store.writer.finished:
			return
		case <-r.store.failure.ended:
			return
		case <-ctx.Done():
			return
		}
	}
}

// pause counts a failure, and returns for how long the partition is left alone.
func (r *recovery) nextPause(p Partition, now time.Time) time.Duration {
	a := &r.attempts[p]
	if now.Sub(a.last) > healthyAfter {
		a.failures = 0
	}
	a.failures, a.last = a.failures+1, now
	return min(minRecoveryPause<<min(a.failures-1, 20), maxRecoveryPause)
}

// recover moves a partition to its owner. Where that fails, the next attempt follows after a longer pause.
func (r *recovery) recoverPartition(ctx context.Context, p Partition) {
	if !r.store.queue.hasFailed(p) {
		return
	}
	epoch, err := r.store.Move(ctx, p, DefaultMember)
	switch {
	case err == nil:
		r.store.options.Logger.Info("a partition that had failed is led again", slog.Int("partition", int(p)), slog.Uint64("epoch", epoch))
	case errors.Is(err, ErrClosed) || ctx.Err() != nil:
	default:
		r.store.options.Logger.Error("a partition that has failed cannot be given an owner", slog.Int("partition", int(p)), slog.Any("error", err))
		r.schedule(p)
	}
}

// note has a partition recovered. It does not block, since the journal may be calling: there is room for each partition
// twice, and one fails again only after its recovery has begun.
func (r *recovery) schedule(p Partition) {
	select {
	case r.scheduled <- p:
	default:
	}
}
