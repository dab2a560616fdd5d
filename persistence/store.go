package persistence

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// Store is the journal of a single machine. It is the member that leads every partition, from its opening to its end
// unless Move gives some to other members.
type Store struct {
	options   Options
	directory *directory
	disk      *disk
	keeper    *keeper
	db        *pebble.DB
	views     *views
	queue     *queue
	answers   *answers
	watchers  *watchers
	writer    *writer
	failure   *failure
	metrics   *metrics
	space     *space
	members   members
	// local is DefaultMember, for which the store itself acts.
	local *Member

	closing sync.Once
	ended   error
}

var _ Journal = (*Store)(nil)

// Open opens the journal in a data directory, or makes it. Errors name the directory: it is in use by another process,
// has another number of partitions, or another format; ErrDamaged: it lost history or a part, or a file of it cannot be
// read, and nothing was changed. Each opening takes a new epoch for every partition.
func Open(o Options) (*Store, error) {
	o = o.withDefaults()
	d, err := openDirectory(o)
	if err != nil {
		return nil, err
	}
	s := &Store{options: o, directory: d, metrics: newMetrics(), answers: &answers{}, failure: newFailure(o.Logger)}
	if err := s.failure.guard(s.start); err != nil {
		s.giveUp()
		return nil, fmt.Errorf("data directory %s: %w", o.Dir, err)
	}
	return s, nil
}

// giveUp leaves the directory to the next who opens it.
func (s *Store) giveUp() {
	if s.failure.cause() != nil {
		return
	}
	if s.db != nil {
		_ = s.db.Close()
	}
	_ = s.directory.lock.Close()
}

func (s *Store) start() error {
	m, err := s.directory.verify(s.options.verifier(s.directory))
	if err != nil {
		return err
	}
	if err := s.directory.upgrade(); err != nil {
		return err
	}
	s.keeper = newKeeper(s.options.FS, s.options.Marks, m, s.options.Logger)
	b := &background{failure: s.failure, metrics: s.metrics}
	s.disk = &disk{FS: s.options.FS, store: s.directory.name(storeName), background: b, keeper: s.keeper}
	options := s.options.pebble(s.disk, b)
	compactions := newCompactionScheduler()
	options.Experimental.CompactionScheduler = compactions
	db, err := pebble.Open(s.disk.store, options)
	if err != nil {
		return err
	}
	s.db = db
	compactions.start()
	shares, err := takeEpochs(db, s.directory.format.partitions)
	if err != nil {
		return err
	}
	s.views = newViews(db)
	s.local = s.newMember(DefaultMember)
	s.members.made = map[string]*Member{DefaultMember: s.local}
	barrier := &localBarrier{db: db, batch: db.NewBatch(), applier: newApplier(db, shares, s.options.CachedHeads), views: s.views, failure: s.failure}
	s.queue = newQueue(s.localLanes(shares, barrier), s.options.QueueProposals, s.options.QueueBytes)
	s.watchers = newWatchers(owned(shares), s.local)
	s.watchers.record(s.keeper.note)
	if err := s.keeper.opened(); err != nil {
		return err
	}
	s.space = &space{fs: s.options.FS, dir: s.options.Dir, least: s.options.MinFreeBytes, every: spaceInterval}
	s.writer = &writer{
		queue:    s.queue,
		barrier:  barrier,
		answers:  s.answers,
		watchers: s.watchers,
		space:    s.space,
		metrics:  s.metrics,
		failure:  s.failure,
		logger:   s.options.Logger,
		finished: make(chan struct{}),
	}
	s.failure.then(s.writer.abandon)
	s.disk.armed.Store(true)
	go s.writer.run()
	go s.keeper.run()
	return s.failure.cause()
}

// takeEpochs makes a new term of every partition durable, so that nothing proposed under an earlier opening fits.
func takeEpochs(db *pebble.DB, partitions int) ([]share, error) {
	shares := make([]share, partitions)
	b := db.NewBatch()
	defer b.Close()
	for i := range shares {
		p := Partition(i)
		key := appendHeader(nil, p, tagTerm)
		epoch, err := readNumber(db, key)
		if err != nil {
			return nil, err
		}
		shares[i].epoch = epoch + 1
		if shares[i].sequence, err = lastSequence(db, p); err != nil {
			return nil, err
		}
		if err := b.Set(key, binary.AppendUvarint(nil, epoch+1), nil); err != nil {
			return nil, err
		}
	}
	return shares, db.Apply(b, pebble.Sync)
}

func lastSequence(db *pebble.DB, p Partition) (uint64, error) {
	lower := appendHeader(nil, p, tagFeed)
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: successor(nil, lower)})
	if err != nil {
		return 0, err
	}
	defer it.Close()
	if !it.Last() {
		return 0, it.Error()
	}
	return keyNumber(it.Key())
}

// localLanes makes the lanes of a single machine, all led by the default member.
func (s *Store) localLanes(shares []share, barrier *localBarrier) []*lane {
	lanes := make([]*lane, len(shares))
	for i := range lanes {
		p := Partition(i)
		lanes[i] = &lane{partition: p, committer: &localCommitter{barrier, p}, owner: s.local, epoch: shares[i].epoch}
	}
	return lanes
}

func owned(shares []share) []Notice {
	notices := make([]Notice, len(shares))
	for i, s := range shares {
		notices[i] = Notice{Partition: Partition(i), Epoch: s.epoch, Owned: true, Sequence: s.sequence}
	}
	return notices
}

var errTooLarge = fmt.Errorf("%w: a proposal is at most %d bytes", ErrRefused, maxProposalBytes)

// Append appends for DefaultMember; see Member.Append.
func (s *Store) Append(p Proposal, done func(Result)) { s.local.Append(p, done) }

func (s *Store) refuse(why reason, epoch uint64, done func(Result)) {
	s.metrics.refuse(why, 1)
	err := ErrRefused
	switch why {
	case closed:
		err = ErrClosed
	case tooLarge:
		err = errTooLarge
	case notLeader:
		err = &NotLeaderError{Epoch: epoch}
	}
	s.answers.later(done, err)
}

// rowBytes is about what a row costs beside what its owner put there.
const rowBytes = 64

func proposalSize(p *Proposal) int {
	n := rowBytes + len(p.Stream)
	for i := range p.Events {
		e := &p.Events[i]
		n += rowBytes + len(p.Stream) + len(e.Payload) + len(e.Name) + len(e.Actor) + len(e.CommandID) + len(e.RequestID)
	}
	for i := range p.Entries {
		e := &p.Entries[i]
		n += rowBytes + len(e.Index) + len(e.Value) + len(e.Data)
	}
	return n
}

func (s *Store) View() (View, error) {
	v, err := s.views.open()
	if err != nil {
		return nil, err
	}
	return v, nil
}

// SaveSnapshot saves for DefaultMember; see Member.SaveSnapshot.
func (s *Store) SaveSnapshot(p Partition, epoch uint64, stream Stream, snapshot Snapshot) {
	s.local.SaveSnapshot(p, epoch, stream, snapshot)
}

// Watch tells fn what DefaultMember leads; see Member.Watch.
func (s *Store) Watch(ctx context.Context, fn func(Notice)) { s.local.Watch(ctx, fn) }

// Partitions is the number fixed when the data directory was made.
func (s *Store) Partitions() int { return s.directory.format.partitions }

// Disk identifies the data directory. No other has the same, not even a copy by Checkpoint.
func (s *Store) Disk() string { return s.directory.format.disk }

// Timeline identifies the history that positions and cursors refer to. It is random, stays the same from one opening to
// the next, and is another one once the data directory has been restored from a copy.
func (s *Store) Timeline() string { return s.keeper.marks.timeline }

// Failed is closed when the journal can write no more. The process should then end, for its supervisor to start it
// again; Err tells why.
func (s *Store) Failed() <-chan struct{} { return s.failure.ended }

// Err is why the journal has failed; nil: it has not.
func (s *Store) Err() error { return s.failure.cause() }

// Close writes what was appended before it, ends reads at their next step and waits for them. A journal that has failed
// keeps its directory locked until the process ends, since Pebble may still be writing to it.
func (s *Store) Close() error {
	s.closing.Do(func() { s.ended = s.close() })
	return s.ended
}

func (s *Store) close() error {
	s.queue.close()
	select {
	case <-s.writer.finished:
	case <-s.failure.ended:
	}
	s.views.close()
	s.keeper.close()
	if err := s.failure.cause(); err != nil {
		return err
	}
	s.disk.armed.Store(false)
	if err := s.failure.guard(s.db.Close); err != nil {
		return errors.Join(err, s.directory.lock.Close())
	}
	if err := s.keeper.seal(); err != nil {
		return errors.Join(err, s.directory.lock.Close())
	}
	s.options.Logger.Debug("the journal is closed", slog.String("dir", s.options.Dir))
	return s.directory.lock.Close()
}
