package activity

import (
	"encoding/binary"
	"strings"

	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// The order of recency. A path's authors are listed by when they were last active, which changes with every read. An
// author's entry in the Recency index is therefore moved only when the author becomes active in another span of
// MarkerWindow than the entry is of: entries are in the order of their spans, and those of one span are sorted by the
// exact time when they are read. Removed entries, which a walk has to pass over, come up once in a span at the most.

// span is the one of MarkerWindow that a time lies in.
func span(at int64) int64 { return at / MarkerWindow.Milliseconds() }

// recencyAt is the time under which totals stand in the order of recency.
func recencyAt(t *activityv1.Totals) int64 {
	if at := t.GetRecencyAt(); at > 0 {
		return at
	}
	return t.GetLastAt()
}

// move appends the entries by which an author's place in the order of recency changes.
func (p pair) move(entries []Entry, after *activityv1.Totals) []Entry {
	if p.before != nil {
		was := recencyAt(p.before)
		if span(was) == span(after.LastAt) {
			after.RecencyAt = was
			return entries
		}
		entries = append(entries, Entry{Index: Recency, Value: p.path + place(was, p.author), Remove: true})
	}
	after.RecencyAt = after.LastAt
	return append(entries, Entry{Index: Recency, Value: p.path + place(after.LastAt, p.author)})
}

// place sorts before those of earlier times.
func place(at int64, author string) string {
	var newestFirst [8]byte
	binary.BigEndian.PutUint64(newestFirst[:], ^uint64(at))
	return string(newestFirst[:]) + author
}

// SeenPlace is where an author who was last active at a time stands in the exact order of a path's authors. A page of
// them ends with the place of its last.
func SeenPlace(at int64, author *activityv1.Author) string { return place(at, authorKey(author)) }

// RecencyStart is the value in the Recency index after which the authors of a path begin whose place is at least after;
// also others of the same span. "" where they begin with the first.
func RecencyStart(workspaceID, path, after string) string {
	if len(after) < 8 {
		return ""
	}
	at := int64(^binary.BigEndian.Uint64([]byte(after)))
	last := (span(at)+1)*MarkerWindow.Milliseconds() - 1
	return PathValue(workspaceID, path) + place(last, "")
}

// RecencyEntry parses a value in the Recency index of a path: the span that its author was last active in, and the
// author's value in the Seen index.
func RecencyEntry(workspaceID, path, value string) (activeIn int64, seen string, ok bool) {
	prefix := PathValue(workspaceID, path)
	standing, ok := strings.CutPrefix(value, prefix)
	if !ok || len(standing) < 8 {
		return 0, "", false
	}
	return span(int64(^binary.BigEndian.Uint64([]byte(standing)))), prefix + standing[8:], true
}
