package activity

import (
	"slices"
	"strings"

	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// Counts reports whether a row adds to the read or write count of its path.
func (r Row) Counts() bool { return isWrite(r.Operation.GetKind()) || isRead(r.Operation.GetKind()) }

// CountInto adds a row to the totals of its author on its path, which may be empty. Counts must be true for the row.
func (r Row) CountInto(t *activityv1.Totals) {
	op := r.Operation
	addTimes(t, op.GetAuthor(), r.At, r.At)
	n := max(op.GetCount(), 1)
	switch op.GetKind() {
	case activityv1.Kind_KIND_READ:
		t.ReadCount += n
		t.MarkedAt = r.At
	case activityv1.Kind_KIND_VIEWED_SUMMARY:
		t.ReadCount += n
	default:
		t.WriteCount += n
		t.LastWriteAt = r.At
	}
}

// Writer returns the entry that a row makes in the LatestWriter index; nil if the row is not a write.
func (r Row) Writer() *activityv1.Writer {
	if !isWrite(r.Operation.GetKind()) {
		return nil
	}
	return &activityv1.Writer{Path: r.Operation.GetPath(), Author: r.Operation.GetAuthor(), LastWriteAt: r.At}
}

// CountInto adds the counts to the totals of their author on their path, which may be empty.
func (c UseCount) CountInto(t *activityv1.Totals) {
	addTimes(t, c.Author, c.FirstAt, c.LastAt)
	t.ReadCount += c.Reads
	t.WriteCount += c.Writes
	t.LastWriteAt = max(t.LastWriteAt, c.LastWriteAt)
}

// Writer returns the entry that the counts make in the LatestWriter index; nil if they have no write.
func (c UseCount) Writer(path string) *activityv1.Writer {
	if c.Writes == 0 {
		return nil
	}
	return &activityv1.Writer{Path: path, Author: c.Author, LastWriteAt: c.LastWriteAt}
}

// addTimes extends the times of totals by the times of an author's operations, and sets the author of empty totals.
func addTimes(t *activityv1.Totals, author *activityv1.Author, first, last int64) {
	if t.Author == nil {
		t.Author, t.FirstAt = author, first
	}
	t.FirstAt, t.LastAt = min(t.FirstAt, first), max(t.LastAt, last)
}

// forgetFuture removes the times of totals that lie in the future of a time: they were recorded while the clock was ahead, and would be the
// latest until the clock reaches them.
func forgetFuture(t *activityv1.Totals, at int64) {
	for _, recorded := range []*int64{&t.LastAt, &t.LastWriteAt} {
		if *recorded > at && entity.HasPassed(*recorded, at, MarkerWindow) {
			*recorded = 0
		}
	}
}

// isWrite reports whether a row of a kind makes its author the latest writer of its path.
func isWrite(k activityv1.Kind) bool {
	switch k {
	case activityv1.Kind_KIND_WRITE, activityv1.Kind_KIND_CREATE, activityv1.Kind_KIND_RENAME,
		activityv1.Kind_KIND_CHANGED_SUMMARY:
		return true
	default:
		return false
	}
}

// isRead reports whether a row of a kind reports reads: a marker or a summary.
func isRead(k activityv1.Kind) bool {
	return k == activityv1.Kind_KIND_READ || k == activityv1.Kind_KIND_VIEWED_SUMMARY
}

// addRead adds a read: as a marker if the author's last marker on the path is older than MarkerWindow, otherwise as a
// count. Reads by mirrors never get a marker.
func (d *draft) addRead(op *activityv1.Operation) {
	if !strings.HasPrefix(op.GetAuthor().GetActor(), "mirror:") {
		seen := d.paths.value(op.GetPath()) + authorKey(op.GetAuthor())
		if marked := d.markedAt(seen); marked == 0 || entity.HasPassed(marked, d.At, MarkerWindow) {
			d.addRow(op, d.call.At())
			if d.marks == nil {
				d.marks = map[string]int64{}
			}
			d.marks[seen] = d.At
			return
		}
	}
	d.Uses = append(d.Uses, UnrecordedUse{op.GetPath(), UseCount{
		Author: op.GetAuthor(), FirstAt: d.At, LastAt: d.At, Reads: max(op.GetCount(), 1),
	}})
}

// addUse counts an operation inside a generated folder for its path: summaries do not name paths, but the authors of a path
// and its latest writer are answered for such paths as well.
func (d *draft) addUse(op *activityv1.Operation) {
	use := UseCount{Author: op.GetAuthor(), FirstAt: d.At, LastAt: d.At}
	switch {
	case op.GetKind() == activityv1.Kind_KIND_READ:
		use.Reads = max(op.GetCount(), 1)
	case isWrite(op.GetKind()):
		use.Writes, use.LastWriteAt = 1, d.At
	default:
		return
	}
	d.Uses = append(d.Uses, UnrecordedUse{op.GetPath(), use})
}

// markedAt returns the time of the last read marker under a value of the Seen index; 0 if there is none.
func (d *draft) markedAt(seen string) int64 {
	if at, ok := d.marks[seen]; ok {
		return at
	}
	if at, ok := d.state.Tail.Marks[seen]; ok {
		return at
	}
	return d.totals(seen).GetMarkedAt()
}

// totals returns the totals under a value of the Seen index, as of the last proposed index write; nil if there are none.
func (d *draft) totals(seen string) *activityv1.Totals {
	for _, w := range slices.Backward(d.state.Tail.Writes) {
		if t, ok := w.Totals[seen]; ok {
			return t
		}
	}
	return d.lookup(seen)
}

// addToFold adds an operation to the fold of a generated folder. The next summary is made from the fold.
func (d *draft) addToFold(op *activityv1.Operation, tree string) {
	kind := activityv1.Kind_KIND_CHANGED_SUMMARY
	if op.GetKind() == activityv1.Kind_KIND_READ {
		kind = activityv1.Kind_KIND_VIEWED_SUMMARY
	}
	key := string(byte(kind)) + tree + "\x00" + authorKey(op.GetAuthor())
	before, drafted := d.Folds[key]
	if !drafted {
		before = d.state.Folds[key]
	}
	since := d.At
	if before != nil {
		since = before.GetSince()
	}
	after := &activityv1.Fold{
		Kind: kind, Tree: tree, Author: op.GetAuthor(),
		Count: before.GetCount() + 1, At: max(d.At, before.GetAt()), Since: since,
	}
	d.setFold(key, after)
	d.put(OpenFolds, Prefix(d.state.WorkspaceID)+key, after)
}

func (d *draft) setFold(key string, f *activityv1.Fold) {
	if d.Folds == nil {
		d.Folds = map[string]*activityv1.Fold{}
	}
	d.Folds[key] = f
}

// flush replaces the folds that are due by the rows of their summaries.
func (d *draft) flush() {
	for _, key := range d.state.dueFolds(d.At) {
		f := d.state.Folds[key]
		d.setFold(key, nil)
		d.remove(OpenFolds, Prefix(d.state.WorkspaceID)+key)
		d.addRow(&activityv1.Operation{Kind: f.GetKind(), Path: f.GetTree(), Count: f.GetCount(), Author: f.GetAuthor(),
			EntryKind: activityv1.EntryKind_ENTRY_KIND_FOLDER}, f.GetAt())
	}
}

// dueFolds returns the keys of the folds that are due, at most maxFlushed of them, sorted.
func (s *State) dueFolds(now int64) []string {
	var keys []string
	for key, f := range s.Folds {
		if entity.HasPassed(f.GetSince(), now, FoldWindow) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys[:min(len(keys), maxFlushed)]
}
