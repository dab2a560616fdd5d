package activity

import (
	"time"

	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

const (
	// IndexWindow is how long index entries and read counts are collected in memory before they are written.
	IndexWindow = time.Second
	// MaxTail is the number of unindexed rows at which the next decision writes their index entries.
	MaxTail = 1024
	// maxUnindexed is the number of unindexed rows above which new operations are refused. Only batches of operations on
	// very deep paths reach it.
	maxUnindexed = 1 << 14
	// maxReadPaths is the number of paths with read counts at which the next decision writes them.
	maxReadPaths = 4096
	// maxIndexBytes is the approximate size of an index write, in bytes. The rows beyond it are left to the next write.
	maxIndexBytes = 2 << 20
)

// Tail holds the rows and read counts that are not in the indexes yet. Its size is bounded, and it is empty IndexWindow
// after the last operation.
//
// A decision appends rows without index entries. A later proposal of the same stream, an index write, has the entries of
// many rows and an IndexMark with the seq of the last of them. The entries are derived from the rows alone, so after a
// crash the tail is read again from the stream. Read counts without rows are lost in a crash; they are at most
// IndexWindow old.
type Tail struct {
	// Rows are the rows without durable index entries, in the order of seq. Elements are never changed, because queries
	// read a copy of the slice while rows are appended.
	Rows []Row
	// Durable is the seq of the last durable row.
	Durable uint64
	// Proposed is the last seq with index entries that are durable or proposed.
	Proposed uint64
	// Uses are the acknowledged counts that are not proposed.
	Uses UseCounts
	// UseWrites is the number of index writes with read counts that have been proposed.
	UseWrites uint64
	// Writes are the proposed index writes that are not known to be durable, oldest first.
	Writes []*IndexWrite
	// Marks are the times of the last read markers in the rows after Proposed, by the value in the Seen index.
	Marks map[string]int64
	// Since is the time of the oldest row or read count that is not proposed, in milliseconds since the Unix epoch; 0 if
	// there is none.
	Since int64
	// Marked reports whether the workspace has an IndexMark. All rows of a workspace without one have their index entries.
	Marked bool
}

// IndexWrite is one write of index entries.
type IndexWrite struct {
	// UpTo is the seq of the last row that it indexes.
	UpTo uint64
	// Totals are the changed totals, by the value in the Seen index.
	Totals map[string]*activityv1.Totals
	// Uses are the counts in the write; nil if it has none. UseWrite is its number among the writes that have some.
	Uses     UseCounts
	UseWrite uint64
}

// Unindexed returns the rows without proposed index entries.
func (t *Tail) Unindexed() []Row {
	for i, r := range t.Rows {
		if r.Seq > t.Proposed {
			return t.Rows[i:]
		}
	}
	return nil
}

// DurableRows returns the rows of the tail that are durable.
func (t *Tail) DurableRows() []Row {
	n := len(t.Rows)
	for n > 0 && t.Rows[n-1].Seq > t.Durable {
		n--
	}
	return t.Rows[:n:n]
}

// countUnindexed returns the number of rows without proposed index entries.
func (t *Tail) countUnindexed() int {
	if len(t.Rows) == 0 || t.Rows[len(t.Rows)-1].Seq <= t.Proposed {
		return 0
	}
	return int(t.Rows[len(t.Rows)-1].Seq - max(t.Proposed, t.Rows[0].Seq-1))
}

// Dirty reports whether the tail has rows or read counts that are not proposed.
func (t *Tail) Dirty() bool { return t.countUnindexed() > 0 || len(t.Uses) > 0 }

// append appends rows that a decision added.
func (t *Tail) append(workspaceID string, rows []Row) {
	t.Rows = append(t.Rows, rows...)
	for _, r := range rows {
		t.addMark(workspaceID, r)
	}
}

// addMark records the time of a row that is a read marker in Marks.
func (t *Tail) addMark(workspaceID string, r Row) {
	if r.Operation.GetKind() != activityv1.Kind_KIND_READ {
		return
	}
	if t.Marks == nil {
		t.Marks = map[string]int64{}
	}
	t.Marks[SeenValue(workspaceID, r.Operation.GetPath(), r.Operation.GetAuthor())] = r.At
}

// addProposed records that an index write has been proposed to the journal.
func (t *Tail) addProposed(workspaceID string, w *IndexWrite) {
	t.Proposed, t.Marked = w.UpTo, true
	t.Writes = append(t.Writes, w)
	if w.Uses != nil {
		t.Uses, t.UseWrites = nil, w.UseWrite
	}
	t.Marks = nil
	for _, r := range t.Unindexed() {
		t.addMark(workspaceID, r)
	}
}

// removeDurable removes the oldest proposed index write, w, and its rows, because they are durable.
func (t *Tail) removeDurable(w *IndexWrite) {
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

// updateSince updates Since after a decision at a time, in milliseconds since the Unix epoch.
func (t *Tail) updateSince(at int64) {
	switch {
	case !t.Dirty():
		t.Since = 0
	case t.Since == 0:
		t.Since = max(at, 1)
	}
}

// Resume sets the tail of a state that was loaded from the journal. rows are the rows after the IndexMark, which is nil
// if the workspace has none. before is the state of the same actor before a failed proposal; the acknowledged read counts
// in it that are not durable are carried over. It is nil for an actor that has just started.
func (s *State) Resume(mark *activityv1.IndexMark, rows []Row, before *State) {
	t := &s.Tail
	*t = Tail{Durable: s.Seq, Proposed: s.Seq, Marked: mark != nil, UseWrites: mark.GetReads()}
	if mark != nil {
		t.Proposed = mark.GetSeq()
	}
	t.append(s.WorkspaceID, rows)
	if before != nil {
		s.At = before.At
		// A number is never used twice: queries use it to recognise the counts that they have already added.
		t.UseWrites = max(t.UseWrites, before.Tail.UseWrites)
		t.Uses = before.Tail.Uses
		for _, w := range before.Tail.Writes {
			if w.UseWrite > mark.GetReads() {
				t.Uses.merge(w.Uses)
			}
		}
	}
	t.updateSince(s.At)
}

// PendingUses is a count that is not known to be durable.
type PendingUses struct {
	Path string
	UseCount
	// UseWrite is the number of the index write that has or will have the count. If the IndexMark of a view of the
	// indexes has reached the number, the view already includes the count.
	UseWrite uint64
}

// PendingUses returns copies of the counts of a path that are not known to be durable, by any author.
func (s *State) PendingUses(path string) []PendingUses {
	var found []PendingUses
	for _, w := range s.Tail.Writes {
		for _, c := range w.Uses[path] {
			found = append(found, PendingUses{Path: path, UseCount: *c, UseWrite: w.UseWrite})
		}
	}
	for _, c := range s.Tail.Uses[path] {
		found = append(found, PendingUses{Path: path, UseCount: *c, UseWrite: s.Tail.UseWrites + 1})
	}
	return found
}

// UseCounts are counts by path and by author.
type UseCounts map[string]map[string]*UseCount

// UseCount counts the reads and writes by one author that have no rows.
type UseCount struct {
	Author *activityv1.Author
	// FirstAt and LastAt are the times of the first and the last of them. LastWriteAt is the time of the last write (0 if
	// there is no write). All are in milliseconds since the Unix epoch.
	FirstAt, LastAt, LastWriteAt int64
	Reads, Writes                uint64
}

// UnrecordedUse is an operation that is only counted and gets no row: a read soon after another, or an operation inside a
// generated folder.
type UnrecordedUse struct {
	Path string
	UseCount
}

// add adds a count to the count of the same path and author.
func (r *UseCounts) add(path string, c UseCount) {
	if *r == nil {
		*r = UseCounts{}
	}
	authors := (*r)[path]
	if authors == nil {
		authors = map[string]*UseCount{}
		(*r)[path] = authors
	}
	key := authorKey(c.Author)
	if before := authors[key]; before != nil {
		c.FirstAt, c.LastAt = min(before.FirstAt, c.FirstAt), max(before.LastAt, c.LastAt)
		c.LastWriteAt = max(before.LastWriteAt, c.LastWriteAt)
		c.Reads, c.Writes = c.Reads+before.Reads, c.Writes+before.Writes
	}
	authors[key] = &c
}

func (r *UseCounts) merge(others UseCounts) {
	for path, authors := range others {
		for _, c := range authors {
			r.add(path, *c)
		}
	}
}
