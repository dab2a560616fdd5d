// Package persistence is the journal: the durable, ordered history of every entity, and the indexes over it.
//
// A stream is the history of one entity. It belongs to a partition. The streams of a partition share one sequence (the
// feed), one owner and one order of commits. A proposal carries the version of the stream that its proposer has seen and the
// epoch under which the proposer leads the partition; the journal refuses it if either is stale. The events and index
// entries of a proposal become durable together or not at all.
//
// Nothing can be read before it is durable. A View is the journal as of one commit, and contains at least everything that
// was acknowledged before the view was opened. The only exception is Snapshot, the saved state of an entity: it may be
// visible before it is durable, and may be lost.
//
// # From a proposal to the disk
//
// Open makes a Store, a journal on Pebble. In a Store, a proposal takes these steps:
//
//  1. Member.Append adds it to the queue of its partition (queue.enqueue), or refuses it at once: the queue is full, the
//     member does not lead the partition, or the journal is closed.
//  2. writer.run, the only goroutine that writes, takes entries from the queues of all partitions (queue.takeCommit): up
//     to 1,024 entries or 1 MiB, without waiting for more, a round for each partition. Under load these commits grow by themselves.
//     Each partition with queued entries gets its share of a commit, and a part of the bounds of the queue is reserved for
//     each, so that one busy partition does not block the others.
//  3. diskSpace.check measures the disk. If it is nearly full, queue.takeRefused removes the entries from the commit that are
//     not Essential, and they are refused.
//  4. committer.stage compares versions and epochs (applier.apply) and adds the rows of accepted proposals to the batch of
//     the commit. A refused proposal adds nothing and does not affect the rest of its round.
//  5. barrier.sync writes the batch and syncs Pebble's log, once for all partitions. syncedLogs.promise then records, without a
//     sync, up to where the log is durable, so that a start notices if its end is lost (see syncedLogs). Views that are opened meanwhile show
//     the state before (views.beginCommit, views.endCommit).
//  6. watchers.publishCommit claims each round (queue.claimRound), so that it is answered exactly once, and notifies the
//     owner of each partition with an advanced feed.
//  7. callbacks.callCommitted calls done for each proposal.
//
// Callbacks run one at a time, and the callbacks of one partition in the order of its proposals. The callback of a proposal that step 1 or
// 3 refuses may run before the callbacks of earlier proposals.
//
// The caller gives up ownership of everything a proposal refers to until done is called: payloads and states are not copied.
// Conversely, an Event's Payload and an Entry's Data belong to the journal and are valid until the next step of the
// iteration; strings may be kept.
//
// # Opening and verifying a store
//
//  1. openDirectory checks that no part of the data directory is missing (directory.checkParts), locks it, and reads the
//     format file and the marks (directory.readIdentity), or creates both.
//  2. directory.verifyStore compares the store with the marks, a file outside Pebble that promises the least content of the store.
//     verifier.verify compares the manifest, the beginnings of logs that SYNCED promises (see
//     syncedLogs) and, after an orderly end, all logs with their checksums; opens the store read-only; reads its tables and logs;
//     and compares epochs and sequences. Open returns ErrDamaged if anything is missing or unreadable. Nothing on the disk has
//     been changed until then.
//  3. createSynced writes SYNCED anew, and directory.upgradeFormat raises the format of an older directory.
//  4. pebble.Open opens the store for writing and replays the logs.
//  5. openWorkspaceBytes reads the counters of workspaces (see workspaceBytes), and counts the events of an older directory. beginTerms makes a new
//     epoch of each partition durable, so that no proposal from before is accepted.
//  6. marksWriter.recordOpened writes the marks of the opened store, and Store.start starts writer.run and
//     marksWriter.writePeriodically.
//
// A data directory is opened by one process at a time. Its number of partitions is fixed when it is created, and its id is
// unique. Checkpoint creates another data directory. Accept makes a directory open although its marks promise more than
// it contains, and records that for the metrics. Positions in streams and feeds belong to a Timeline, which a restore renews.
//
// # Ownership
//
// Each partition has at most one owner at a time: the member that leads it. Leading a partition is a term, which has an epoch.
// Epochs grow with each term and are durable before any member is notified of them. Open makes DefaultMember the owner of
// every partition; Store.Member makes further members in the same process. A term takes these steps:
//
//  1. Store.Move queues the move behind the proposals of the partition. It is a round of its own.
//  2. committer.stage makes a new epoch (applier.beginTerm), which barrier.sync makes durable.
//  3. queue.claimRound makes the new member the owner: from then on the queue refuses proposals of the old one.
//  4. watchers.beginTerm notifies the old owner of the end of its term (watchers.endTerm), and then the new owner of the
//     beginning of its own. The first notice has the sequence of the feed, including everything that was applied before.
//  5. watchers.publishCommit notifies the owner of each advance of the feed.
//  6. The term ends with the next move, or by an error: if the committer cannot read the partition or has lost its quorum,
//     writer.failPartition (also called by Store.Fail) ends it. The owner is notified, proposals in flight are answered with
//     ErrUnknown, and queued and later ones with a NotLeaderError. Other partitions continue.
//  7. After an error, Move gives the partition an owner again, after reading its state from the disk; Store.Recover does
//     this automatically. The new term begins with everything that is durable.
//
// For one partition, the journal guarantees:
//
//   - A watcher receives notices in the order of epochs. Notices with Owned and the same epoch are the beginning of the term
//     and its advances. A notice without Owned and with that epoch is the end of the term and its last notice. If a member's
//     term is renewed, the notice of the new epoch replaces the end.
//   - A proposal is applied in the term of its epoch or refused with a NotLeaderError. It is answered exactly once, possibly
//     after its proposer was notified of the end of the term; its result is valid nevertheless.
//   - A snapshot is dropped if its term has ended, so that it never replaces the snapshot of a later owner.
//
// # Disk errors
//
// With less free space than Options.MinFreeBytes, or fewer free inodes than Options.MinFreeFiles, proposals are refused with
// ErrRefused until there is space again. Essential proposals, such as deletions by users, are accepted until the
// reserve is nearly used up, and rationed proposals, such as sign-ins, until half of the reserve is used up. The reserve is a number of
// spare files, for when others have left neither a byte nor an inode: with the reserve the journal continues, and Open succeeds on a full
// disk (see reserve). While the disk is nearly full, reclaimer compacts the index entries that proposals remove, which frees their space.
//
// An error of Pebble's log ends the journal and all terms (failure.fail): proposals in flight are answered with ErrUnknown, queued and
// later ones with ErrClosed, and views continue to show the durable state. Failed then tells the process to exit, so that its
// supervisor restarts it and the disk decides which of the proposals in flight are durable. Pebble retries flushes and compactions that
// fail; they end the journal only if they keep failing for another reason than lack of space or of file descriptors.
package persistence

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"
)

// Partition is the number of a partition, from 0 to the count that was fixed when the data directory was created.
type Partition uint16

// Stream names the history of an entity: its kind, a slash and its identity.
type Stream string

// Journal is the durable store of entities, as one member uses it. Its methods may be called from any goroutine.
type Journal interface {
	// Append queues a proposal and returns at once. done is called exactly once, from a goroutine of the journal, when the
	// proposal is durable or is known to be refused; it must not block. Proposals for one stream are applied in the order in
	// which Append was called.
	Append(p Proposal, done func(Result))
	// View returns the durable state of the journal. The caller closes the view. It returns ErrClosed after Close.
	View() (View, error)
	// SaveSnapshot queues the state of an entity behind the proposals of its partition. It replaces the last snapshot of the
	// stream, so that the entity is activated faster. The snapshot may be lost, and is dropped if the caller does not lead the
	// partition under epoch. The caller must save only versions that it knows to be durable, in ascending order: then the
	// stored snapshot always agrees with the stream, even if a later one was lost.
	SaveSnapshot(p Partition, epoch uint64, s Stream, snapshot Snapshot)
	// Watch calls fn with the terms of the caller until ctx ends: with the state of every partition before Watch returns, and
	// then with each beginning and end of a term and with each advance of a feed during a term. An advance is reported before
	// the proposers that caused it are answered. Calls come one at a time, in the order that the package comment guarantees
	// under "Ownership". fn must not block; it may call Append.
	Watch(ctx context.Context, fn func(Notice))
	// WorkspaceBytes returns the bytes of the events of a workspace, including the events of proposals that are being committed.
	WorkspaceBytes(p Partition, workspaceID string) uint64
	// Checkpoint writes a consistent copy of the durable state to dir, which must not exist.
	Checkpoint(dir string) error
}

// View reads one durable state of the journal. The values that an iteration yields are valid until its next step. After
// View.Close or Journal.Close, all methods but Close return ErrClosed.
type View interface {
	// Head returns the last version of the stream, or 0 if it has no events.
	Head(p Partition, s Stream) (uint64, error)
	// Revision returns the revision of the last proposal for the stream that had one, or 0 if there is none.
	Revision(p Partition, s Stream) (uint64, error)
	// Read yields the events of a stream with versions of at least from in ascending order, or of at most from in descending
	// order.
	Read(p Partition, s Stream, from uint64, d Direction) iter.Seq2[Event, error]
	// Payloads yields the same events as Read, without decoding their metadata.
	Payloads(p Partition, s Stream, from uint64, d Direction) iter.Seq2[Payload, error]
	// Payload returns a copy of the payload of one event; ok is false if the event does not exist.
	Payload(p Partition, s Stream, version uint64) (payload []byte, ok bool, err error)
	// Feed yields the events of a partition with sequences of at least from, in ascending order, if want returns true for
	// their stream. want is called for every row, so its result for a stream may change during the iteration; nil selects all
	// streams. The events of other streams are not read, and erased events do not exist: about once in a thousand rows, Feed yields an Event that has only
	// Stream and Sequence, so that the caller can advance its cursor. An event with a malformed record has only Stream,
	// Version and Sequence.
	Feed(p Partition, from uint64, want func(Stream) bool) iter.Seq2[Event, error]
	// Lookup returns a copy of the data of one index entry; ok is false if the entry does not exist.
	Lookup(p Partition, index, value string, order uint64) (data []byte, ok bool, err error)
	// Index yields the entries that a query selects.
	Index(p Partition, q Query) iter.Seq2[Entry, error]
	// Snapshot returns the last snapshot of the stream, or the zero Snapshot if there is none. The caller owns its state.
	Snapshot(p Partition, s Stream) (Snapshot, error)
	Close() error
}

// Direction is the order of an iteration.
type Direction bool

const (
	Ascending  Direction = false
	Descending Direction = true
)

// Proposal is a change that the owner of a partition wants to commit. Without events it changes index entries only.
type Proposal struct {
	Partition Partition
	Stream    Stream
	// Expected is the version of the stream on which the proposal was decided.
	Expected uint64
	// Revision must be one more than the revision of the stream, unless it is 0. It orders proposals without events, which
	// do not change the version, and refuses every proposal that was decided after one that the journal has refused.
	Revision uint64
	// Epoch is the term under which the proposer leads the partition.
	Epoch   uint64
	Events  []Event
	Entries []Change
	// Erase removes the events that the stream has so far, and its snapshot, before Events are added. Versions go on.
	Erase bool
	// Urgency decides whether the proposal is accepted although the disk is nearly full. Only small proposals may be more than Ordinary.
	Urgency Urgency
}

// Urgency orders proposals by how full the disk may be when they are accepted.
type Urgency int8

const (
	// Ordinary proposals are refused as soon as the disk is nearly full.
	Ordinary Urgency = iota
	// Rationed proposals, which many may repeat, are accepted as long as half of the reserve is left.
	Rationed
	// Essential proposals are accepted until the reserve is used.
	Essential
)

// Event is one event of a stream. The journal assigns Version (from Expected + 1) and Sequence.
type Event struct {
	Stream    Stream
	Version   uint64
	Sequence  uint64
	Name      string
	Payload   []byte
	At        time.Time // in milliseconds
	Actor     string
	CommandID string
	RequestID string
}

// Payload is the payload of the event with a version.
type Payload struct {
	Version uint64
	Bytes   []byte
}

// Entry is one row of an index. Rows with the same index and value are sorted by Order. Value may contain any bytes.
type Entry struct {
	Index string
	Value string
	Order uint64
	Data  []byte
}

// Change puts or removes an entry. It replaces an entry with the same index, value and order.
type Change struct {
	Entry
	Remove bool
}

// Query selects entries of one index.
type Query struct {
	Index string
	Value string
	// Prefix selects all values that begin with Value, sorted by value and order; From is then ignored.
	Prefix bool
	// After excludes the values up to and including this one. It applies to ascending queries with Prefix.
	After string
	// From is the least order of an ascending query, and the greatest of a descending one.
	From      uint64
	Direction Direction
}

// Snapshot is the state of an entity as of a version.
type Snapshot struct {
	Version uint64
	State   []byte
}

// Result is the outcome of a proposal, which is durable if Err is nil.
type Result struct {
	// Version is the version of the stream after the append.
	Version uint64
	// Err is nil, a ConflictError, a NotLeaderError, ErrUnknown, ErrRefused or ErrClosed.
	Err error
}

// Notice reports that a term of the watching member has begun or ended, or that the feed has advanced during the term.
type Notice struct {
	Partition Partition
	// Epoch is the epoch of the member's term if Owned, and otherwise of its last term, which has ended (0 if it had none).
	Epoch uint64
	// Owned reports whether the member leads the partition.
	Owned bool
	// Sequence is the last durable sequence of the feed. Without Owned it may be older, but is at least the last one that the
	// member was notified of.
	Sequence uint64
}

// ConflictError is the error of a proposal if its expected version or revision is not the current one of the stream.
type ConflictError struct{ Actual uint64 }

func (e *ConflictError) Error() string {
	return fmt.Sprintf("the stream is at version %d", e.Actual)
}

// NotLeaderError is the error of a proposal if its member does not lead the partition under its epoch. Epoch is the current
// epoch of the partition, or 0 if the partition has failed and has no leader, or does not exist.
type NotLeaderError struct{ Epoch uint64 }

func (e *NotLeaderError) Error() string {
	if e.Epoch == 0 {
		return "no member leads the partition"
	}
	return fmt.Sprintf("the member does not lead the partition under this epoch: it is at epoch %d", e.Epoch)
}

var (
	// ErrUnknown means that the proposal may or may not become durable: read the stream again.
	ErrUnknown = errors.New("the outcome of the append is unknown")
	// ErrRefused means that the proposal was not written and may be retried: the disk or the queue is full.
	ErrRefused = errors.New("the journal refuses writes for now")
	// ErrClosed means that the journal is closed or has failed and writes nothing more.
	ErrClosed = errors.New("the journal is closed")
)
