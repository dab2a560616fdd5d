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

// Store is the journal of a single machine. It acts as DefaultMember, which leads every partition from the moment when
// the journal is opened, unless Move gives some to other members.
type Store struct {
	options     Options
	directory   *directory
	disk        *disk
	marksWriter *marksWriter
	synced      *syncedLogs
	db          *pebble.DB
	views       *views
	workspaces  *workspaceBytes
	queue       *queue
	callbacks   *callbacks
	watchers    *watchers
	writer      *writer
	failure     *failure
	metrics     *metrics
	diskSpace   *diskSpace
	reclaimer   *reclaimer
	reserve     *reserve
	accepted    accepted
	members     memberSet
	// local is DefaultMember.
	local *Member

	closing sync.Once
	// ended is the result of Close.
	ended error
}

var _ Journal = (*Store)(nil)

// Open opens the journal in a data directory, or creates it, as the package comment describes under "Opening and
// verifying a store". Every error names the directory. It fails if another process has the directory open, if the number
// of partitions or the format differs, or, with ErrDamaged, if history or a part of the directory is missing or a file
// cannot be read; nothing has been changed then. Each opening begins a new term of every partition.
func Open(o Options) (*Store, error) {
	o = o.withDefaults()
	reserve, err := newReserve(o)
	if err != nil {
		return nil, err
	}
	o.FS = reserve
	d, err := openDirectory(o)
	if err != nil {
		return nil, err
	}
	if err := reserve.list(); err != nil {
		return nil, errors.Join(fmt.Errorf("data directory %s: %w", o.Dir, err), d.lock.Close())
	}
	s := &Store{options: o, reserve: reserve, directory: d, metrics: newMetrics(), callbacks: &callbacks{}, failure: newFailure(o.Logger)}
	if err := s.failure.guard(s.start); err != nil {
		s.releaseDirectory()
		return nil, fmt.Errorf("data directory %s: %w", o.Dir, err)
	}
	return s, nil
}

// releaseDirectory closes Pebble and the lock after start has failed, so that the directory can be opened again. After a
// failure inside Pebble it does neither: Pebble may still be writing.
func (s *Store) releaseDirectory() {
	if s.failure.cause() != nil {
		return
	}
	if s.db != nil {
		_ = s.db.Close()
	}
	if s.synced != nil {
		_ = s.synced.close()
	}
	_ = s.directory.lock.Close()
}

// start carries out the steps 2 to 6 of opening a store. It returns an error if one of them fails.
func (s *Store) start() error {
	v := s.options.verifier(s.directory)
	m, err := s.directory.verifyStore(v)
	if err != nil {
		return err
	}
	s.reportLosses(v)
	if s.synced, err = createSynced(s.directory, s.directory.synced, s.options.Logger); err != nil {
		return err
	}
	if err := s.directory.upgradeFormat(); err != nil {
		return err
	}
	s.marksWriter = newMarksWriter(s.options.FS, s.options.Marks, m, s.options.Logger)
	b := &backgroundErrors{failure: s.failure, metrics: s.metrics}
	s.disk = &disk{FS: s.options.FS, store: s.directory.join(storeName), errors: b, marksWriter: s.marksWriter, synced: s.synced}
	options := s.options.pebble(s.disk, b)
	compactions := newCompactionScheduler() // grants none while pebble.Open runs
	options.Experimental.CompactionScheduler = compactions
	db, err := pebble.Open(s.disk.store, options)
	if err != nil {
		return err
	}
	s.db = db
	compactions.start()
	if s.workspaces, err = openWorkspaceBytes(db, s.directory.format.partitions, s.options.recountRows, s.options.Logger); err != nil {
		return err
	}
	states, err := beginTerms(db, s.directory.format.partitions)
	if err != nil {
		return err
	}
	s.views = newViews(db)
	s.local = s.newMember(DefaultMember)
	s.members.byName = map[string]*Member{DefaultMember: s.local}
	barrier := &localBarrier{db: db, batch: db.NewBatch(), applier: newApplier(db, states, s.options.CachedHeads, s.workspaces), views: s.views, failure: s.failure}
	s.queue = newQueue(s.localLanes(states, barrier), s.options.QueueProposals, s.options.QueueBytes)
	s.watchers = newWatchers(ownedNotices(states), s.local)
	s.watchers.setRecorder(s.marksWriter.recordNotice)
	if err := s.marksWriter.recordOpened(); err != nil {
		return err
	}
	s.reserve.isOpened.Store(true)
	s.reserve.refill()
	s.reserve.share()
	s.diskSpace = &diskSpace{
		reserve: s.reserve, dir: s.options.Dir, minBytes: s.options.MinFreeBytes, minFiles: s.options.MinFreeFiles,
		interval: diskSpaceInterval, logger: s.options.Logger,
	}
	s.reclaimer = newReclaimer(db, s.views, s.reserve, s.failure, s.options.Logger)
	s.writer = &writer{
		queue:     s.queue,
		barrier:   barrier,
		callbacks: s.callbacks,
		watchers:  s.watchers,
		diskSpace: s.diskSpace,
		reclaimer: s.reclaimer,
		metrics:   s.metrics,
		failure:   s.failure,
		logger:    s.options.Logger,
		finished:  make(chan struct{}),
	}
	s.failure.onFailure(s.writer.failAll)
	s.disk.running.Store(true)
	go s.writer.run()
	go s.reclaimer.run()
	go s.marksWriter.writePeriodically(s.synced.sync)
	return s.failure.cause()
}

// beginTerms makes a new epoch of every partition durable, so that proposals from an earlier opening are refused. It
// returns the state of the partitions.
func beginTerms(db *pebble.DB, partitions int) ([]partitionState, error) {
	states := make([]partitionState, partitions)
	b := db.NewBatch()
	defer b.Close()
	for i := range states {
		p := Partition(i)
		key := appendHeader(nil, p, tagTerm)
		epoch, err := readNumber(db, key)
		if err != nil {
			return nil, err
		}
		states[i].epoch = epoch + 1
		if states[i].sequence, err = lastSequence(db, p); err != nil {
			return nil, err
		}
		if err := b.Set(key, binary.AppendUvarint(nil, epoch+1), nil); err != nil {
			return nil, err
		}
	}
	return states, db.Apply(b, pebble.Sync)
}

// lastSequence returns the sequence of the last event in the feed of a partition, or 0 if the feed is empty.
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

// localLanes returns a lane for each partition, all led by DefaultMember and with the same barrier.
func (s *Store) localLanes(states []partitionState, barrier *localBarrier) []*lane {
	lanes := make([]*lane, len(states))
	for i := range lanes {
		p := Partition(i)
		lanes[i] = &lane{partition: p, committer: &localCommitter{barrier, p}, owner: s.local, epoch: states[i].epoch}
	}
	return lanes
}

// ownedNotices returns the notices of a member that leads every partition.
func ownedNotices(states []partitionState) []Notice {
	notices := make([]Notice, len(states))
	for i, s := range states {
		notices[i] = Notice{Partition: Partition(i), Epoch: s.epoch, Owned: true, Sequence: s.sequence}
	}
	return notices
}

var errProposalTooLarge = fmt.Errorf("%w: the proposal is larger than %d bytes", ErrRefused, maxProposalBytes)

// Append appends for DefaultMember; see Member.Append.
func (s *Store) Append(p Proposal, done func(Result)) { s.local.Append(p, done) }

// refuse counts a refusal and queues the callback with the matching error. epoch is the epoch of the partition.
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

// rowBytes is the approximate size of a row in addition to its payload and names.
const rowBytes = 64

// proposalSize returns the approximate size of a proposal in the queue and on the disk.
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

// View returns the durable state; see Journal.
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

// Watch notifies fn of the terms of DefaultMember; see Member.Watch.
func (s *Store) Watch(ctx context.Context, fn func(Notice)) { s.local.Watch(ctx, fn) }

// WorkspaceBytes returns the bytes of the events of a workspace; see Journal.
func (s *Store) WorkspaceBytes(p Partition, workspaceID string) uint64 {
	return s.workspaces.of(p, workspaceID)
}

// Partitions returns the number of partitions, which was fixed when the data directory was created.
func (s *Store) Partitions() int { return s.directory.format.partitions }

// Disk returns the id of the data directory. It is unique: a copy by Checkpoint has another id.
func (s *Store) Disk() string { return s.directory.format.disk }

// Timeline returns the id of the history that positions and cursors refer to. It is random, stays the same when the
// store is opened again, and changes when the data directory is restored from a copy.
func (s *Store) Timeline() string { return s.marksWriter.marks.timeline }

// Failed returns a channel that is closed when the journal has failed and writes nothing more. The process should then
// exit, so that its supervisor restarts it; Err returns the reason.
func (s *Store) Failed() <-chan struct{} { return s.failure.ended }

// Err returns the error that ended the journal, or nil.
func (s *Store) Err() error { return s.failure.cause() }

// Close commits all queued proposals, ends reads at their next step and waits for them. Later calls return the result of
// the first. If the journal has failed, the directory stays locked until the process exits, since Pebble may still be
// writing to it.
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
	s.reclaimer.stop()
	s.views.close()
	s.marksWriter.stopPeriodicWrites()
	if err := s.failure.cause(); err != nil {
		return err
	}
	s.disk.running.Store(false)
	if err := s.failure.guard(s.db.Close); err != nil {
		return errors.Join(err, s.directory.lock.Close())
	}
	if err := errors.Join(s.marksWriter.writeSealed(), s.synced.close()); err != nil {
		return errors.Join(err, s.directory.lock.Close())
	}
	s.options.Logger.Debug("the journal is closed", slog.String("dir", s.options.Dir))
	return s.directory.lock.Close()
}

// Checkpoint copies the durable state to dir, which becomes a data directory with an id of its own: a cluster would
// otherwise take the copy for the original and count its vote or its log. The copy has no marks; its first opening
// creates them, with a new timeline. The format file is written last, so that an interrupted copy does not open. Files
// that Pebble no longer changes are linked instead of copied if dir is on the same file system. It returns ErrClosed
// after Close or a failure, and an error if dir exists.
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
		return errors.New("the directory exists already")
	}
	copied := &directory{fs: fs, path: dir, format: s.directory.format}
	copied.format.disk, copied.format.marked = newID(), false
	if err := s.copyStore(copied.join(storeName)); err != nil {
		return err
	}
	return copied.writeFormat()
}

// copyStore copies Pebble's files to dir. It returns ErrClosed if the journal fails meanwhile: Pebble first writes to its
// log, and that write may never return (see disk.endJournalOn).
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
