package activity

import (
	"slices"
	"strings"

	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// Counts reports whether a row counts as a read or a write of its path.
func (r Row) Counts() bool { return writes(r.Operation.GetKind()) || reads(r.Operation.GetKind()) }

// CountInto adds a row that counts to its author's totals on its path. A new Totals is the author's first.
func (r Row) CountInto(t *activityv1.Totals) {
	op := r.Operation
	touch(t, op.GetAuthor(), r.At, r.At)
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

// Writer returns the latest writer that a row makes; nil for none.
func (r Row) Writer() *activityv1.Writer {
	if !writes(r.Operation.GetKind()) {
		return nil
	}
	return &activityv1.Writer{Path: r.Operation.GetPath(), Author: r.Operation.GetAuthor(), LastWriteAt: r.At}
}

// CountInto adds reads to their author's totals on their path.
func (c ReadCount) CountInto(t *activityv1.Totals) {
	touch(t, c.Author, c.FirstAt, c.LastAt)
	t.ReadCount += c.Count
}

func touch(t *activityv1.Totals, author *activityv1.Author, first, last int64) {
	if t.Author == nil {
		t.Author, t.FirstAt = author, first
	}
	t.FirstAt, t.LastAt = min(t.FirstAt, first), max(t.LastAt, last)
}

// writes reports whether a row of a kind makes its author the latest writer of its path.
func writes(k activityv1.Kind) bool {
	switch k {
	case activityv1.Kind_KIND_WRITE, activityv1.Kind_KIND_CREATE, activityv1.Kind_KIND_RENAME,
		activityv1.Kind_KIND_CHANGED_SUMMARY:
		return true
	default:
		return false
	}
}

// reads reports whether a row of a kind tells of reads.
func reads(k activityv1.Kind) bool {
	return k == activityv1.Kind_KIND_READ || k == activityv1.Kind_KIND_VIEWED_SUMMARY
}

// copied returns totals that may be changed while those of the argument are not; empty ones for nil.
func copied(t *activityv1.Totals) *activityv1.Totals {
	return &activityv1.Totals{
		Author: t.GetAuthor(), FirstAt: t.GetFirstAt(), LastAt: t.GetLastAt(),
		ReadCount: t.GetReadCount(), WriteCount: t.GetWriteCount(), LastWriteAt: t.GetLastWriteAt(),
		MarkedAt: t.GetMarkedAt(), RecencyAt: t.GetRecencyAt(),
	}
}

// read counts a read: as a marker where the author's last one on the path is older than the window, else in memory.
func (d *draft) read(op *activityv1.Operation) {
	if !strings.HasPrefix(op.GetAuthor().GetActor(), "mirror:") {
		seen := d.places.value(op.GetPath()) + authorKey(op.GetAuthor())
		if marked := d.markedAt(seen); marked == 0 || d.At-marked >= MarkerWindow.Milliseconds() {
			d.row(op)
			if d.marks == nil {
				d.marks = map[string]int64{}
			}
			d.marks[seen] = d.At
			return
		}
	}
	d.Reads = append(d.Reads, UnmarkedRead{op.GetPath(), ReadCount{
		Author: op.GetAuthor(), FirstAt: d.At, LastAt: d.At, Count: max(op.GetCount(), 1),
	}})
}

// markedAt returns the time of the last read marker of an author on a path; 0 for none.
func (d *draft) markedAt(seen string) int64 {
	if at, ok := d.marks[seen]; ok {
		return at
	}
	if at, ok := d.state.Tail.Marks[seen]; ok {
		return at
	}
	return d.totals(seen).GetMarkedAt()
}

// totals are those of the last index write that is proposed.
func (d *draft) totals(seen string) *activityv1.Totals {
	for _, w := range slices.Backward(d.state.Tail.Writes) {
		if t, ok := w.Totals[seen]; ok {
			return t
		}
	}
	return d.lookup(seen)
}

// fold adds an operation to what the next summary of a generated tree tells.
func (d *draft) fold(op *activityv1.Operation, tree string) {
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

// flush turns the folds that are due into summaries.
func (d *draft) flush() {
	for _, key := range d.state.due(d.At) {
		f := d.state.Folds[key]
		d.setFold(key, nil)
		d.remove(OpenFolds, Prefix(d.state.WorkspaceID)+key)
		d.rowAt(&activityv1.Operation{Kind: f.GetKind(), Path: f.GetTree(), Count: f.GetCount(), Author: f.GetAuthor(),
			EntryKind: activityv1.EntryKind_ENTRY_KIND_FOLDER}, f.GetAt())
	}
}

// due are the keys of the folds whose window has passed, in a fixed order.
func (s *State) due(now int64) []string {
	var keys []string
	for key, f := range s.Folds {
		if now-f.GetSince() >= FoldWindow.Milliseconds() {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys[:min(len(keys), maxFlushed)]
}
