package observe

import (
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// refold returns a table with changes that did not agree with the disk, followed by the changes that were folded since: the
// event that explains the difference is probably among the latter changes.
func refold(deferred []*change, next *table) table {
	if len(deferred) == 0 {
		return *next
	}
	var t table
	for _, c := range deferred {
		t.append(next.since, c)
		if c.from != "" {
			t.last[c.from] = c
		}
	}
	moves := next.moves
	for i, c := range next.changes {
		for len(moves) > 0 && moves[0].before <= i {
			t.moves = append(t.moves, folderMove{moves[0].from, moves[0].to, len(t.changes)})
			t.seal()
			moves = moves[1:]
		}
		if !c.isVoid {
			t.repeat(c)
		}
	}
	for _, m := range moves {
		t.moves = append(t.moves, folderMove{m.from, m.to, len(t.changes)})
		t.seal()
	}
	t.since = next.since
	return t
}

// repeat folds a change with the changes before it.
func (t *table) repeat(c *change) {
	s := seen{at: t.since, author: c.author, path: c.path, file: c.file}
	if t.last[c.path] == nil && (c.from == "" || t.last[c.from] == nil) || c.folder || c.isSilent {
		t.append(t.since, c)
		if c.from != "" {
			t.last[c.from] = c
		}
		return
	}
	switch c.kind {
	case activityv1.Kind_KIND_CREATE:
		if c.isUnsure {
			t.arrive(s)
		} else {
			t.create(s)
		}
	case activityv1.Kind_KIND_WRITE:
		t.write(s, false)
		if w := t.last[c.path]; w != nil && w.kind == activityv1.Kind_KIND_WRITE {
			w.count += c.count
		}
	case activityv1.Kind_KIND_DELETE:
		t.remove(s)
	default:
		t.rename(s, c.from)
	}
}
