// Package persistence is the journal: the durable, ordered history of every entity, with the indexes that belong to it.
//
// A stream is one entity's history. It lies in a partition, whose streams share one sequence (the feed), one term and
// one order of commit. An append carries the version that its proposer saw and the epoch that it holds the partition
// under; the journal refuses it when either is stale. Events and their index entries become durable together or not
// at all.
//
// Nothing is shown before it is durable: a View is the journal as it stood after a commit that is on disk. It holds
// everything whose done was called before the view was opened; a snapshot of an entity's state alone may be shown
// before it is durable, since it may be lost anyway.
//
// # Ownership
//
// Each partition has at most one owner at a time: the member that leads it. Leading it is a term with an epoch, which
// grows with each term and is durable before anyone is told of it. Watch tells a member about its own terms. The
// guarantees, for one partition:
//
//   - A watcher is told in order of epochs. Notices with Owned and one epoch are the begin of the term and its advances;
//     one without Owned and the same epoch is its end, and the last of that epoch. Where a term of the same member
//     follows at once (its own renewal), the notice of the new epoch takes the place of the end.
//   - The old owner is told of the end before the new one is told of its beginning, and the new owner's first notice has
//     the sequence that includes everything that was applied before.
//   - A proposal is applied in the term of its epoch or refused with a NotLeaderError. Each is answered exactly once,
//     possibly after its proposer was told of the term's end; its outcome is then as valid as before.
//   - A snapshot is dropped when its term has ended, so that none replaces that of a later owner.
//   - A term also ends when the partition fails, because its committer cannot read what the partition holds or has lost
//     its quorum: the owner is told, what is in flight is answered with ErrUnknown, everything later with a
//     NotLeaderError. Other partitions go on. A later term begins with what is durable.
//
// # One machine
//
// Open makes a Store, a journal on Pebble that leads every partition. Store.Member makes further members, in the same
// process, and Store.Move gives partitions to them.
//
// Each partition has a queue, a committer and its own failure. One goroutine drains the bounded queues in turns, up to
// 1024 entries or 1 MiB at a time and without waiting for more, and commits them as one batch with one sync; under load
// batches grow by themselves. A partition with a long queue takes neither the room nor the turns of others: a part of
// the bound is reserved for each. A proposal that is refused leaves the rest of its batch alone. Callbacks run one at a
// time, and those of a partition in the order of its proposals. Those of proposals that never came to the writer (the
// queue is full, the member is not the owner, the journal is closed) may run before those of earlier ones.
//
// What a caller hands over belongs to the journal until it is written: payloads and states are not copied. What it
// reads is the journal's: an Event's Payload and an Entry's Data are valid until the next step; strings may be kept.
//
// # When the disk is at fault
//
// With less free space than Options.MinFreeBytes, appends are refused with ErrRefused until there is room again. An
// error of the log ends the journal, with all terms: what was in flight is answered with ErrUnknown, and everything
// after with ErrClosed; views go on with what was durable; Failed tells the process to end, so that its supervisor starts it anew
// and it reads from the disk what became of the rest. Flushes and compactions that fail are tried again, and end the
// journal when they keep failing for another reason than want of room.
//
// # Data directory
//
// A data directory is opened by one process at a time. Its number of partitions is fixed when it is made, and it has an
// id that no other has. Each opening takes a new epoch for every partition. Checkpoint makes another data directory.
//
// A file outside Pebble (Options.Marks) says what the store must hold at least. Open compares them before anything is
// changed, and returns ErrDamaged where history or a part of the directory is missing, or a file cannot be read; Accept
// makes such a directory open. Positions in streams and feeds belong to a Timeline, which a restore renews.
package persistence

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"
)

// Partition numbers a share of the streams; 0 to the count fixed when the data directory was made.
type Partition uint16

// Stream names an entity's history: its kind, a slash and its identity.
type Stream string

// Journal is the durable store that entities append to. Its methods may be called from any goroutine.
type Journal interface {
	// Append queues a proposal and returns at once. done is called exactly once, from the journal's goroutine, when the
	// outcome is durable or known to be refused; it must not block. Proposals of one stream are applied in the order of
	// their calls.
	Append(p Proposal, done func(Result))
	// View opens what is durable now. The caller closes it. Errors: ErrClosed.
	View() (View, error)
	// SaveSnapshot stores an entity's state for a faster activation, in order with the proposals of its partition. It
	// replaces the stream's last one. It may be lost, and is dropped when epoch is not the term under which the caller
	// leads the partition. The caller saves versions that it knows to be durable, in ascending order: what is stored then
	// always agrees with the stream, even where a save was lost.
	SaveSnapshot(p Partition, epoch uint64, s Stream, snapshot Snapshot)
	// Watch calls fn with the caller's terms until ctx ends: first with the state of every partition, before it returns;
	// then with each beginning and each end of a term, and with each advance of a feed during a term, before the
	// proposers that advanced it are answered. Calls come one at a time, in the order that the package comment gives. fn
	// must not block, and may call Append.
	Watch(ctx context.Context, fn func(Notice))
	// Checkpoint writes a consistent copy of everything durable into dir, which must not exist.
	Checkpoint(dir string) error
}

// View reads one durable state. What it yields is valid until the next step of the same iteration.
type View interface {
	// Head is the stream's last version; 0: no events.
	Head(p Partition, s Stream) (uint64, error)
	// Revision is the last of the stream's proposals that carried one; 0: none.
	Revision(p Partition, s Stream) (uint64, error)
	// Read yields a stream's events with versions of at least from, ascending; or, descending, at most from.
	Read(p Partition, s Stream, from uint64, d Direction) iter.Seq2[Event, error]
	// Payloads is Read for who wants no more of an event than its payload.
	Payloads(p Partition, s Stream, from uint64, d Direction) iter.Seq2[Payload, error]
	// Payload is the payload of one event, the caller's to keep; ok is false where there is no such event.
	Payload(p Partition, s Stream, version uint64) (payload []byte, ok bool, err error)
	// Feed yields the events of a partition with sequences of at least from, ascending, of the streams that want
	// selects; want is called for every row, so that its answer for a stream may change during the walk. Events of other
	// streams are passed over without being read: yield sees them with Stream and Sequence alone, once every thousand or
	// so, so that a follower's cursor can move on. An event whose record is malformed has Stream, Version and Sequence.
	Feed(p Partition, from uint64, want func(Stream) bool) iter.Seq2[Event, error]
	// Lookup is the data of one entry, the caller's to keep; ok is false where there is none.
	Lookup(p Partition, index, value string, order uint64) (data []byte, ok bool, err error)
	// Index yields the entries that a query selects.
	Index(p Partition, q Query) iter.Seq2[Entry, error]
	// Snapshot is the stream's last snapshot; the zero Snapshot where there is none.
	Snapshot(p Partition, s Stream) (Snapshot, error)
	Close() error
}

// Direction is the order of a walk.
type Direction bool

const (
	Ascending  Direction = false
	Descending Direction = true
)

// Proposal is what a stream's owner wants appended. Without events it changes index entries alone.
type Proposal struct {
	Partition Partition
	Stream    Stream
	// Expected is the stream's version that the proposal was decided on.
	Expected uint64
	// Revision is the count of the stream's proposals with this one, of those that carry it; 0: not checked. It orders
	// proposals that change entries alone, and refuses what was decided on one that the journal did not take.
	Revision uint64
	// Epoch is the term under which the proposer leads the partition.
	Epoch   uint64
	Events  []Event
	Entries []Change
}

// Event is one fact of a stream. The journal assigns Version (Expected + 1 and on) and Sequence.
type Event struct {
	Stream    Stream
	Version   uint64
	Sequence  uint64
	Name      string
	Payload   []byte
	At        time.Time
	Actor     string
	CommandID string
	RequestID string
}

// Payload is an event's own bytes.
type Payload struct {
	Version uint64
	Bytes   []byte
}

// Entry is one row of an index. Rows of one index and value are ordered by Order. Value may hold any bytes.
type Entry struct {
	Index string
	Value string
	Order uint64
	Data  []byte
}

// Change puts or removes an entry; an entry with the same index, value and order is replaced.
type Change struct {
	Entry
	Remove bool
}

// Query selects entries of one index.
type Query struct {
	Index string
	Value string
	// Prefix selects every value that begins with Value, ordered by value and then order; From is ignored.
	Prefix bool
	// After leaves out the values up to and including it; for ascending queries with Prefix.
	After string
	// From is the first order: at least (ascending) or at most (descending) it.
	From      uint64
	Direction Direction
}

// Snapshot is an entity's state as of a version.
type Snapshot struct {
	Version uint64
	State   []byte
}

// Result is the outcome of a proposal. With a nil Err it is durable.
type Result struct {
	// Version of the stream after the append.
	Version uint64
	// Err is a ConflictError, a NotLeaderError, ErrUnknown, ErrRefused or ErrClosed.
	Err error
}

// Notice tells a watcher that a term of its member has begun or ended, or that the feed has grown during the term.
type Notice struct {
	Partition Partition
	// Epoch is, with Owned, the term under which the member leads the partition; without, its last term, which has ended
	// (0: it had none).
	Epoch uint64
	// Owned reports whether the member leads the partition.
	Owned bool
	// Sequence is the last durable one of the feed; without Owned, at least the last that the member was told.
	Sequence uint64
}

// ConflictError refuses a proposal whose expected version or revision is not the stream's.
type ConflictError struct{ Actual uint64 }

func (e *ConflictError) Error() string {
	return fmt.Sprintf("the stream is at version %d", e.Actual)
}

// NotLeaderError refuses a proposal of a member that does not lead the partition under the proposal's epoch. Epoch is
// the partition's; 0: it has failed and nobody leads it, or there is no such partition.
type NotLeaderError struct{ Epoch uint64 }

func (e *NotLeaderError) Error() string {
	if e.Epoch == 0 {
		return "no member leads the partition"
	}
	return fmt.Sprintf("the partition's epoch is %d", e.Epoch)
}

var (
	// ErrUnknown says that the proposal may or may not become durable: read again.
	ErrUnknown = errors.New("the outcome of the append is unknown")
	// ErrRefused says that the proposal was not written and can be tried later: the disk is full, the queue is.
	ErrRefused = errors.New("the journal refuses writes for now")
	// ErrClosed says that the journal is closed or has failed; nothing more is written.
	ErrClosed = errors.New("the journal is closed")
)
