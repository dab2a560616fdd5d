package persistence

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/atelier-run/atelier/retry"
)

// DefaultMember is the member that leads every partition when a journal is opened. A Store acts for it.
const DefaultMember = "default"

// Member is one of several owners of a journal's partitions within a process. It reads the whole journal, appends to the
// partitions that it leads, and its watchers are notified of its own terms only.
type Member struct {
	store *Store
	name  string
	// endedEpochs has the epoch of the member's last ended term of each partition. The lock of watchers guards it.
	endedEpochs []uint64
}

var _ Journal = (*Member)(nil)

// memberSet has the members that Store.Member has made.
type memberSet struct {
	mu     sync.Mutex
	byName map[string]*Member
}

// newMember returns a member that leads nothing.
func (s *Store) newMember(name string) *Member {
	return &Member{store: s, name: name, endedEpochs: make([]uint64, s.Partitions())}
}

// Member returns the journal as the member with this name uses it, the same one for each call. Except for DefaultMember,
// it leads nothing until Move gives it a partition. It may be called from any goroutine.
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

// Move makes a member the leader of a partition, under a new epoch that it returns. The member may already be the leader;
// its term is then renewed. A partition that has failed is recovered from the disk. The package comment describes the
// steps under "Ownership".
//
// Proposals that were queued before are applied before the move, and later ones of the old owner are refused with a
// NotLeaderError. The new epoch is durable before any watcher is notified. When Move returns, the watchers of the old
// owner were notified of the end of its term, and after them the watchers of the new owner of the beginning.
//
// Move returns an error that names a partition or member that does not exist; ErrClosed; ErrRefused if the disk is nearly
// full; ErrUnknown or a NotLeaderError if the partition fails meanwhile; or the error of ctx. After ErrUnknown and an
// error of ctx the move may still take effect. Callbacks of the journal must not call Move, which waits for them.
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

// Fail ends the term of one partition as an error of its committer would: the owner is notified, proposals in flight are
// answered with ErrUnknown, and all others with a NotLeaderError until Move gives the partition an owner. Other
// partitions continue. It returns at once, and ignores a partition that does not exist.
func (s *Store) Fail(p Partition, cause error) {
	if int(p) < s.Partitions() {
		s.writer.failPartition(s.queue.lanes[p], cause)
	}
}

// Name returns the member's name.
func (m *Member) Name() string { return m.name }

// Append queues a proposal; see Journal. It refers to the memory of the proposal until done is called.
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

// View returns the durable state of all partitions, including the partitions of other members.
func (m *Member) View() (View, error) { return m.store.View() }

// SaveSnapshot queues a snapshot; see Journal. It refers to the memory of the snapshot until that is written. It drops
// the snapshot if the queue is full or if the member does not lead the partition under epoch. It drops and logs a state
// of more than 8 MiB, because that would delay all other commits each time it is saved: the entity is then activated from
// its events, and its rules need a bound.
func (m *Member) SaveSnapshot(p Partition, epoch uint64, stream Stream, snapshot Snapshot) {
	s := m.store
	size := rowBytes + len(stream) + len(snapshot.State)
	if size > maxProposalBytes {
		s.metrics.snapshots.WithLabelValues(string(reasonTooLarge)).Inc()
		s.options.Logger.Warn("dropped a snapshot that is too large", "stream", string(stream),
			"bytes", len(snapshot.State), "most", maxProposalBytes)
		return
	}
	if why, _ := s.queue.enqueue(p, m, queueEntry{snapshot: &snapshotSave{stream, epoch, snapshot}, size: size}); why != reasonNone {
		s.metrics.snapshots.WithLabelValues(string(why)).Inc()
	}
}

// Watch notifies fn of the terms of the member; see Journal. fn has been called for every partition when Watch returns.
// Later calls come from goroutines of the journal, one at a time.
func (m *Member) Watch(ctx context.Context, fn func(Notice)) { m.store.watchers.add(ctx, m, fn) }

// WorkspaceBytes returns the bytes of the events of a workspace; see Journal.
func (m *Member) WorkspaceBytes(p Partition, workspaceID string) uint64 {
	return m.store.WorkspaceBytes(p, workspaceID)
}

// Checkpoint copies the whole journal; see Store.Checkpoint.
func (m *Member) Checkpoint(dir string) error { return m.store.Checkpoint(dir) }

// watchers notifies members of the partitions that they lead, and of advances of their feeds.
//
// Its lock is held while watchers are called, and is acquired before the lock of the queue. This orders the notices: a
// round is claimed, and its advance reported, while the lock is held once. The end of a term follows after its lane has
// failed or its move was claimed, and is therefore reported after every advance of the term.
type watchers struct {
	mu  sync.Mutex
	all []*watcher
	// notices has the last notice to the owner of each partition.
	notices []Notice
	owners  []*Member
	// recorder receives the notices of all partitions, for all owners.
	recorder func(Notice)
}

// watcher is a function that receives the notices of a member until ctx ends.
type watcher struct {
	member *Member
	ctx    context.Context
	fn     func(Notice)
}

// newWatchers returns the watchers of partitions that are all led by owner.
func newWatchers(state []Notice, owner *Member) *watchers {
	return &watchers{notices: state, owners: slices.Repeat([]*Member{owner}, len(state))}
}

// notify calls a watcher unless its context has ended.
func (w *watchers) notify(one *watcher, n Notice) {
	if one.ctx.Err() == nil {
		one.fn(n)
	}
}

// add registers a watcher, and calls fn with the state of every partition, from the member's point of view, before it
// returns.
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

// setRecorder makes fn the recorder, and calls it with the state of every partition.
func (w *watchers) setRecorder(fn func(Notice)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.recorder = fn
	for _, n := range w.notices {
		fn(n)
	}
}

// notifyOwner notifies the owner of a partition, and the recorder, of its state. The caller holds mu.
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

// publishCommit claims the rounds of a commit, and notifies the owners: once for each partition, however many events it
// has. It returns the lanes with rounds that the caller has to answer.
func (w *watchers) publishCommit(q *queue, staged []*lane) []*lane {
	w.mu.Lock()
	defer w.mu.Unlock()
	landed := staged[:0]
	for _, l := range staged {
		if !q.claimRound(l, true) {
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

// beginTerm notifies the old owner of the end of its term, and then the new owner of the beginning of its own. If the
// owner stays the same, it is notified of the new term only. The caller holds mu.
func (w *watchers) beginTerm(p Partition, to *Member, epoch, sequence uint64) {
	if w.owners[p] != to {
		w.endTerm(p)
	}
	w.owners[p].endedEpochs[p] = w.notices[p].Epoch
	w.owners[p] = to
	w.notices[p] = Notice{Partition: p, Epoch: epoch, Owned: true, Sequence: sequence}
	w.notifyOwner(p)
}

// endTerm notifies the owner of the end of its term. The caller holds mu.
func (w *watchers) endTerm(p Partition) {
	if w.notices[p].Owned {
		w.notices[p].Owned = false
		w.notifyOwner(p)
	}
}

// endFailedTerm notifies the owner of a partition that its term has ended, unless a later term has begun.
func (w *watchers) endFailedTerm(p Partition, epoch uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.notices[p].Epoch == epoch {
		w.endTerm(p)
	}
}

// endAllTerms notifies all owners that their terms have ended.
func (w *watchers) endAllTerms() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for p := range w.notices {
		w.endTerm(Partition(p))
	}
}

// recovering has the pauses before a failed partition gets an owner again. They start over once the partition has been healthy for
// healthyAfter.
var recovering = retry.Policy{First: 100 * time.Millisecond, Longest: 30 * time.Second}

const healthyAfter = 5 * time.Minute

// Recover gives each partition that fails back to DefaultMember after a pause, until ctx ends, or the journal is closed
// or fails. It returns at once. It is called at most once, and only if DefaultMember is the only member.
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

// recovery gives failed partitions back to DefaultMember.
type recovery struct {
	store    *Store
	attempts []attempts
	// scheduled has the partitions that have failed.
	scheduled chan Partition
}

// attempts counts the failures of one partition, and has the time of the last one.
type attempts struct {
	failures int
	last     time.Time
}

// run recovers each scheduled partition after its pause.
func (r *recovery) run(ctx context.Context) {
	due := make(chan Partition, len(r.attempts))
	for {
		select {
		case p := <-r.scheduled:
			pause := r.nextPause(p, time.Now())
			r.store.options.Logger.Warn("a failed partition will be recovered after a pause",
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

// nextPause counts a failure of a partition, and returns the pause before its recovery.
func (r *recovery) nextPause(p Partition, now time.Time) time.Duration {
	a := &r.attempts[p]
	if now.Sub(a.last) > healthyAfter {
		a.failures = 0
	}
	a.failures, a.last = a.failures+1, now
	return recovering.After(a.failures)
}

// recoverPartition moves a failed partition to DefaultMember. If that fails, it schedules another attempt.
func (r *recovery) recoverPartition(ctx context.Context, p Partition) {
	if !r.store.queue.hasFailed(p) {
		return
	}
	epoch, err := r.store.Move(ctx, p, DefaultMember)
	switch {
	case err == nil:
		r.store.options.Logger.Info("a failed partition is recovered", slog.Int("partition", int(p)), slog.Uint64("epoch", epoch))
	case errors.Is(err, ErrClosed) || ctx.Err() != nil:
	default:
		r.store.options.Logger.Error("cannot recover a failed partition, will retry", slog.Int("partition", int(p)), slog.Any("error", err))
		r.schedule(p)
	}
}

// schedule has a partition recovered after a pause. It does not block, because watchers must not: scheduled has room for
// every partition twice, and a partition fails again only after its recovery has begun.
func (r *recovery) schedule(p Partition) {
	select {
	case r.scheduled <- p:
	default:
	}
}
