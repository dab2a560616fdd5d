package persistence

import (
	"context"
	"fmt"
	"sync"
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
	led []uint64
}

var _ Journal = (*Member)(nil)

// members are those that Store.Member has made.
type members struct {
	mu   sync.Mutex
	made map[string]*Member
}

func (s *Store) newMember(name string) *Member {
	return &Member{store: s, name: name, led: make([]uint64, s.Partitions())}
}

// Member returns the journal as a member of that name sees it, always the same for one name. It leads nothing until
// Move gives it a partition, except DefaultMember. It may be called from any goroutine.
func (s *Store) Member(name string) *Member {
	s.members.mu.Lock()
	defer s.members.mu.Unlock()
	m := s.members.made[name]
	if m == nil {
		m = s.newMember(name)
		s.members.made[name] = m
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
	m := s.members.made[to]
	s.members.mu.Unlock()
	if m == nil {
		return 0, fmt.Errorf("move partition %d: there is no member %q", p, to)
	}
	results := make(chan Result, 1)
	entry := pending{move: m, done: func(r Result) { results <- r }, size: rowBytes}
	if why, _ := s.queue.put(p, nil, entry); why != accepted {
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
		s.writer.fail(s.queue.lanes[p], cause)
	}
}

// Name returns the member's name.
func (m *Member) Name() string { return m.name }

// Append keeps what the proposal refers to until done is called.
func (m *Member) Append(p Proposal, done func(Result)) {
	s := m.store
	size := proposalSize(&p)
	if size > maxProposalBytes {
		s.refuse(tooLarge, 0, done)
		return
	}
	if why, epoch := s.queue.put(p.Partition, m, pending{proposal: p, done: done, size: size}); why != accepted {
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
		s.metrics.snapshots.WithLabelValues(string(tooLarge)).Inc()
		s.options.Logger.Warn("the snapshot of a stream is too large and was not saved", "stream", string(stream),
			"bytes", len(snapshot.State), "most", maxProposalBytes)
		return
	}
	if why, _ := s.queue.put(p, m, pending{save: &save{stream, epoch, snapshot}, size: size}); why != accepted {
		s.metrics.snapshots.WithLabelValues(string(why)).Inc()
	}
}

// Watch returns at once; by then fn has been called for every partition. Later calls come from the journal's goroutines,
// one at a time.
func (m *Member) Watch(ctx context.Context, fn func(Notice)) { m.store.watchers.add(ctx, m, fn) }

// Checkpoint copies the whole journal.
func (m *Member) Checkpoint(dir string) error { return m.store.Checkpoint(dir) }
