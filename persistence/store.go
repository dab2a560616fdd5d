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
	options     Options
	directory   *directory
	disk        *disk
	marksWriter *marksWriter
	db          *pebble.DB
	views       *views
	queue       *queue
	callbacks   *callbacks
	watchers    *watchers
	writer      *writer
	failure     *failure
	metrics     *metrics
	diskSpace   *diskSpace
	members     memberSet
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
	s := &Store{options: o, directory: d, metrics: newMetrics(), callbacks: &callbacks{}, failure: newFailure(o.Logger)}
	if err := s.failure.guard(s.start); err != nil {
		s.releaseDirectory()
		return nil, fmt.Errorf("data directory %s: %w", o.Dir, err)
	}
	return s, nil
}

// giveUp leaves the directory to the next who opens it.
func (s *Store) releaseDirectory() {
	if s.failure.cause() != nil {
		return
	}
	if s.db != nil {
		_ = s.db.Close()
	}
	_ = s.directory.lock.Close()
}

func (s *Store) start() error {
	m, err := s.directory.verifyStore(s.options.verifier(s.directory))
	if err != nil {
		return err
	}
	if err := s.directory.upgradeFormat(); err != nil {
		return err
	}
	s.marksWriter = newMarksWriter(s.options.FS, s.options.Marks, m, s.options.Logger)
	b := &backgroundErrors{failure: s.failure, metrics: s.metrics}
	s.disk = &disk{FS: s.options.FS, store: s.directory.join(storeName), errors: b, marksWriter: s.marksWriter}
	options := s.options.pebble(s.disk, b)
	compactions := newCompactionScheduler()
	options.Experimental.CompactionScheduler = compactions
	db, err := pebble.Open(s.disk.store, options)
	if err != nil {
		return err
	}
	s.db = db
	compactions.start()
	shares, err := beginTerms(db, s.directory.format.partitions)
	if err != nil {
		return err
	}
	s.views = newViews(db)
	s.local = s.newMember(DefaultMember)
	s.members.byName = map[string]*Member{DefaultMember: s.local}
	barrier := &localBarrier{db: db, batch: db.NewBatch(), applier: newApplier(db, shares, s.options.CachedHeads), views: s.views, failure: s.failure}
	s.queue = newQueue(s.localLanes(shares, barrier), s.options.QueueProposals, s.options.QueueBytes)
	s.watchers = newWatchers(ownedNotices(shares), s.local)
	s.watchers.setRecorder(s.marksWriter.recordNotice)
	if err := s.marksWriter.recordOpened(); err != nil {
		return err
	}
	s.diskSpace = &diskSpace{fs: s.options.FS, dir: s.options.Dir, minFree: s.options.MinFreeBytes, interval: diskSpaceInterval}
	s.writer = &writer{
		queue:     s.queue,
		barrier:   barrier,
		callbacks: s.callbacks,
		watchers:  s.watchers,
		diskSpace: s.diskSpace,
		metrics:   s.metrics,
		failure:   s.failure,
		logger:    s.options.Logger,
		finished:  make(chan struct{}),
	}
	s.failure.onFailure(s.writer.failAll)
	s.disk.running.Store(true)
	go s.writer.run()
	go s.marksWriter.writePeriodically()
	return s.failure.cause()
}

// takeEpochs makes a new term of every partition durable, so that nothing proposed under an earlier opening fits.
func beginTerms(db *pebble.DB, partitions int) ([]partitionState, error) {
	shares := make([]partitionState, partitions)
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
func (s *Store) localLanes(shares []partitionState, barrier *localBarrier) []*lane {
	lanes := make([]*lane, len(shares))
	for i := range lanes {
		p := Partition(i)
		lanes[i] = &lane{partition: p, committer: &localCommitter{barrier, p}, owner: s.local, epoch: shares[i].epoch}
	}
	return lanes
}

func ownedNotices(shares []partitionState) []Notice {
	notices := make([]Notice, len(shares))
	for i, s := range shares {
		notices[i] = Notice{Partition: Partition(i), Epoch: s.epoch, Owned: true, Sequence: s.sequence}
	}
	return notices
}

var errProposalTooLarge = fmt.Errorf("%w: a proposal is at most %d bytes", ErrRefused, maxProposalBytes)

// Append appends for DefaultMember; see Member.Append.
func (s *Store) Append(p Proposal, done func(Result)) { s.local.Append(p, done) }

func (s *Store) refuse(why reason, epoch uint64, done func(Result)) {
	s.metrics.countRefused(why, 1)
	err := ErrRefused
	switch why {
	case reasonClosed:
		err = ErrClosed
	case reasonTooLarge:
		err = errProposalTooLarge
	case reasonNotLeader:
		err = &NotLeaderError{Epoch: epoch}
	}
	s.callbacks.enqueueResult(done, err)
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
func (s *Store) Timeline() string { return s.marksWriter.marks.timeline }

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
	s.marksWriter.stopPeriodicWrites()
	if err := s.failure.cause(); err != nil {
		return err
	}
	s.disk.running.Store(false)
	if err := s.failure.guard(s.db.Close); err != nil {
		return errors.Join(err, s.directory.lock.Close())
	}
	if err := s.marksWriter.writeSealed(); err != nil {
		return errors.Join(err, s.directory.lock.Close())
	}
	s.options.Logger.Debug("the journal is closed", slog.String("dir", s.options.Dir))
	return s.directory.lock.Close()
}

// Checkpoint makes dir a data directory of its own, with a disk id of its own: a copy that went by the same would be
// taken for the original by whoever has its votes or its log counted. It has no marks: they are made, with a timeline of
// their own, when it is first opened. Its format file is written last, so that one that was cut off does not open. Files that Pebble does not change any more are linked, not copied, where dir lies on the
// same file system.
func (s *Store) Checkpoint(dir string) error {
	if err := s.checkpoint(dir); err != nil {
		return fmt.Errorf("checkpoint %s: %w", dir, err)
	}
	return nil
}

func (s *Store) checkpoint(dir string) error {
	if err := s.views.enter(); err != nil {
		return err
	}
	defer s.views.exit()
	if s.failure.cause() != nil {
		return ErrClosed
	}
	fs := s.options.FS
	if _, err := fs.Stat(dir); err == nil {
		return fmt.Errorf("it exists")
	}
	copied := &directory{fs: fs, path: dir, format: s.directory.format}
	copied.format.disk, copied.format.marked = newID(), false
	if err := s.copyStore(copied.join(storeName)); err != nil {
		return err
	}
	return copied.writeFormat()
}

// copyStore does not outlast the journal: Pebble writes to its log first, and may stay there.
func (s *Store) copyStore(dir string) error {
	done := make(chan error, 1)
	go func() {
		done <- s.failure.guard(func() error { return s.db.Checkpoint(dir, pebble.WithFlushedWAL()) })
	}()
	select {
	case err := <-done:
		return err
	case <-s.failure.ended:
		return ErrClosed
	}
}
