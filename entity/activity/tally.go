package activity

import (
	"slices"
	"strings"

	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// tally counts an operation that changed a path, and makes its author the path's latest writer.
func (d *draft) tally(op *activityv1.Operation) {
	switch op.GetKind() {
	case activityv1.Kind_KIND_WRITE, activityv1.Kind_KIND_CREATE, activityv1.Kind_KIND_RENAME:
		d.wrote(op.GetPath(), op.GetAuthor(), max(op.GetCount(), 1), d.call.At())
	}
}

func (d *draft) wrote(path string, author *activityv1.Author, count uint64, at int64) {
	d.count(path, author, at, func(t *activityv1.Totals) {
		t.WriteCount += count
		t.LastWriteAt = at
	})
	dir, name := split(path)
	d.put(LatestWriter, d.places.value(dir)+name,
		&activityv1.Writer{Path: path, Author: author, LastWriteAt: at})
}

// read counts a read, and leaves a marker where the author's last one on the path is older than the window.
func (d *draft) read(op *activityv1.Operation) {
	at := d.call.At()
	mark := !strings.HasPrefix(op.GetAuthor().GetActor(), "mirror:")
	if before := d.totals(d.places.value(op.GetPath()) + authorKey(op.GetAuthor())); before.GetMarkedAt() > 0 {
		mark = mark && at-before.GetMarkedAt() >= MarkerWindow.Milliseconds()
	}
	if mark {
		d.row(op)
	}
	d.count(op.GetPath(), op.GetAuthor(), at, func(t *activityv1.Totals) {
		t.ReadCount += max(op.GetCount(), 1)
		if mark {
			t.MarkedAt = at
		}
	})
}

// count changes an author's totals on a path, and moves them to their place in its order of recency.
func (d *draft) count(path string, author *activityv1.Author, at int64, change func(*activityv1.Totals)) {
	value, key := d.places.value(path), authorKey(author)
	seen := value + key
	before := d.totals(seen)
	after := &activityv1.Totals{
		Author: author, FirstAt: at, LastAt: max(at, before.GetLastAt()),
		ReadCount: before.GetReadCount(), WriteCount: before.GetWriteCount(),
		LastWriteAt: before.GetLastWriteAt(), MarkedAt: before.GetMarkedAt(),
	}
	if before != nil {
		after.FirstAt = before.GetFirstAt()
	}
	change(after)
	if before != nil && before.GetLastAt() != after.GetLastAt() {
		d.remove(Recency, recencyValue(value, before.GetLastAt(), key))
	}
	if before == nil || before.GetLastAt() != after.GetLastAt() {
		d.Entries = append(d.Entries, Entry{Index: Recency, Value: recencyValue(value, after.GetLastAt(), key)})
	}
	d.put(Seen, seen, after)
	if d.Totals == nil {
		d.Totals = map[string]*activityv1.Totals{}
	}
	d.Totals[seen] = after
}

// totals are those of this decision, or those before it.
func (d *draft) totals(seen string) *activityv1.Totals {
	if t, ok := d.Totals[seen]; ok {
		return t
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
	since := d.call.At()
	if before != nil {
		since = before.GetSince()
	}
	after := &activityv1.Fold{
		Kind: kind, Tree: tree, Author: op.GetAuthor(),
		Count: before.GetCount() + 1, At: max(d.call.At(), before.GetAt()), Since: since,
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
	for _, key := range d.state.due(d.call.At()) {
		f := d.state.Folds[key]
		d.setFold(key, nil)
		d.remove(OpenFolds, Prefix(d.state.WorkspaceID)+key)
		d.rowAt(&activityv1.Operation{Kind: f.GetKind(), Path: f.GetTree(), Count: f.GetCount(), Author: f.GetAuthor(),
			EntryKind: activityv1.EntryKind_ENTRY_KIND_FOLDER}, f.GetAt())
		if f.GetKind() == activityv1.Kind_KIND_CHANGED_SUMMARY {
			d.wrote(f.GetTree(), f.GetAuthor(), f.GetCount(), f.GetAt())
			continue
		}
		d.count(f.GetTree(), f.GetAuthor(), f.GetAt(), func(t *activityv1.Totals) { t.ReadCount += f.GetCount() })
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
