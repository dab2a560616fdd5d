package activity

import (
	"time"

	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

const (
	// IndexWindow is how long index entries and read counts are collected in memory before they are written.
	IndexWindow = time.Second
	// MaxTail is the number of rows without index entries at which the next decision writes their entries.
	MaxTail = 1024
	// maxUnindexed is the number of rows without index entries at which new operations are refused. Only batches of
	// operations on very deep paths come near it.
	maxUnindexed = 1 << 14
	// maxReadPaths is the number of paths with read counts at which they are written before their time.
	maxReadPaths = 4096
	// maxIndexBytes is about the size at which an index write ends; the rows after it are left to the next.
	maxIndexBytes = 2 << 20
)

// Tail is what the indexes do not have yet: rows whose entries are still to be written, and read counts. It is bounded,
// and empty IndexWindow after the last operation.
//
// A row is appended alone; its index entries follow in a later proposal of the same stream, together with those of its
// neighbours and with an IndexMark. The rows hold all that their entries are made of, so that after a crash the tail is
// read again from the stream. Read counts that leave no row are lost in a crash; they are at most IndexWindow old.
type Tail struct {
	// Rows are those whose entries are not known to be durable, in the order of seq. Queries read a copy of the slice
	// while rows are appended, so elements are never changed.
	Rows []Row
	// Durable is the seq of the last row that is.
	Durable uint64
	// Proposed is the seq up to which entries are durable or proposed.
	Proposed uint64
	// Reads are counts that were acknowledged and are not proposed.
	Reads Reads
	// ReadWrites numbers the proposals that carry read counts.
	ReadWrites uint64
	// Writes are the index writes that are proposed and not known to be durable, oldest first.
	Writes []*IndexWrite
	// Marks are the times of the last read marker among the rows after Proposed, by the value in the Seen index.
	Marks map[string]int64
	// Since is when the oldest of what is not proposed came, in milliseconds; 0 for nothing.
	Since int64
	// Marked reports whether the workspace has an IndexMark. Before its first one, every row has its entries.
	Marked bool
}

// IndexWrite is one write of index entries: up to which row, and what it made of the totals.
type IndexWrite struct {
	UpTo uint64
	// Totals that have changed, by their value in the Seen index.
	Totals map[string]*activityv1.Totals
	// Reads are the read counts that the write carries, nil for none; ReadWrite is its number among those that do.
	Reads     Reads
	ReadWrite uint64
}

// Unindexed returns the rows whose entries are not proposed.
func (t *Tail) Unindexed() []Row {
	for i, r := range t.Rows {
		if r.Seq > t.Proposed {
			return t.Rows[i:]
		}
	}
	return nil
}

// DurableRows returns those of the rows that are durable.
func (t *Tail) DurableRows() []Row {
	n := len(t.Rows)
	for n > 0 && t.Rows[n-1].Seq > t.Durable {
		n--
	}
	return t.Rows[:n:n]
}

// waiting is the number of rows whose entries are not proposed.
func (t *Tail) waiting() int {
	if len(t.Rows) == 0 || t.Rows[len(t.Rows)-1].Seq <= t.Proposed {
		return 0
	}
	return int(t.Rows[len(t.Rows)-1].Seq - max(t.Proposed, t.Rows[0].Seq-1))
}

// Dirty reports whether anything waits to be proposed.
func (t *Tail) Dirty() bool { return t.waiting() > 0 || len(t.Reads) > 0 }

func (t *Tail) append(workspaceID string, rows []Row) {
	t.Rows = append(t.Rows, rows...)
	for _, r := range rows {
		t.mark(workspaceID, r)
	}
}

func (t *Tail) mark(workspaceID string, r Row) {
	if r.Operation.GetKind() != activityv1.Kind_KIND_READ {
		return
	}
	if t.Marks == nil {
		t.Marks = map[string]int64{}
	}
	t.Marks[SeenValue(workspaceID, r.Operation.GetPath(), r.Operation.GetAuthor())] = r.At
}

// propose notes that index entries are on their way to the journal.
func (t *Tail) propose(workspaceID string, w *IndexWrite) {
	t.Proposed, t.Marked = w.UpTo, true
	t.Writes = append(t.Writes, w)
	if w.Reads != nil {
		t.Reads, t.ReadWrites = nil, w.ReadWrite
	}
	t.Marks = nil
	for _, r := range t.Unindexed() {
		t.mark(workspaceID, r)
	}
}

// settle notes that the oldest proposed index write is durable.
func (t *Tail) settle(w *IndexWrite) {
	t.Writes = t.Writes[1:]
	if len(t.Writes) == 0 {
		t.Writes = nil
	}
	n := 0
	for n < len(t.Rows) && t.Rows[n].Seq <= w.UpTo {
		n++
	}
	t.Rows = t.Rows[n:]
	if len(t.Rows) == 0 {
		t.Rows = nil
	}
}

// since keeps the time of the oldest of what waits.
func (t *Tail) since(at int64) {
	switch {
	case !t.Dirty():
		t.Since = 0
	case t.Since == 0:
		t.Since = max(at, 1)
	}
}

// Resume makes a state's tail what the journal says: rows are those after the mark, which is nil where the workspace has
// none. Of before, the state of the same actor up to a failed proposal, it keeps the read counts that were acknowledged
// and are not durable; nil for an actor that has just started.
func (s *State) Resume(mark *activityv1.IndexMark, rows []Row, before *State) {
	t := &s.Tail
	*t = Tail{Durable: s.Seq, Proposed: s.Seq, Marked: mark != nil, ReadWrites: mark.GetReads()}
	if mark != nil {
		t.Proposed = mark.GetSeq()
	}
	t.append(s.WorkspaceID, rows)
	if before != nil {
		s.At = before.At
		// A number is never given out twice, so that a query which knows a count by it does not count it again.
		t.ReadWrites = max(t.ReadWrites, before.Tail.ReadWrites)
		t.Reads = before.Tail.Reads
		for _, w := range before.Tail.Writes {
			if w.ReadWrite > mark.GetReads() {
				t.Reads.join(w.Reads)
			}
		}
	}
	t.since(s.At)
}

// PendingReads are the read counts of one author on a path that are not known to be durable.
type PendingReads struct {
	ReadCount
	// ReadWrite is the number of the index write that carries or will carry them: a view whose IndexMark has reached it
	// has them already.
	ReadWrite uint64
}

// PendingReads returns a copy of the read counts of a path that are not known to be durable.
func (s *State) PendingReads(path string) []PendingReads {
	var found []PendingReads
	for _, w := range s.Tail.Writes {
		for _, c := range w.Reads[path] {
			found = append(found, PendingReads{*c, w.ReadWrite})
		}
	}
	for _, c := range s.Tail.Reads[path] {
		found = append(found, PendingReads{*c, s.Tail.ReadWrites + 1})
	}
	return found
}

// Reads are read counts by path and by author.
type Reads map[string]map[string]*ReadCount

// ReadCount is a number of reads by one author.
type ReadCount struct {
	Author *activityv1.Author
	// FirstAt and LastAt are the times of the first and the last of them, in milliseconds.
	FirstAt, LastAt int64
	Count           uint64
}

// UnmarkedRead is an operation that counts as a read without being a row.
type UnmarkedRead struct {
	Path string
	ReadCount
}

func (r *Reads) add(path string, c ReadCount) {
	if *r == nil {
		*r = Reads{}
	}
	authors := (*r)[path]
	if authors == nil {
		authors = map[string]*ReadCount{}
		(*r)[path] = authors
	}
	key := authorKey(c.Author)
	if before := authors[key]; before != nil {
		c.FirstAt, c.LastAt = min(before.FirstAt, c.FirstAt), max(before.LastAt, c.LastAt)
		c.Count += before.Count
	}
	authors[key] = &c
}

func (r *Reads) join(others Reads) {
	for path, authors := range others {
		for _, c := range authors {
			r.add(path, *c)
		}
	}
}
