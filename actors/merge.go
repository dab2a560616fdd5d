package actors

import (
	"iter"
	"slices"

	"github.com/atelier-run/atelier/entity/activity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	"github.com/atelier-run/atelier/persistence"
)

// A merged reads several indexes as one, in the order of seq, and returns each seq once.
type merged struct {
	direction persistence.Direction
	cursors   []*indexCursor
	last      uint64
}

// An indexCursor is a position in one index. next is its entry at the position, unless err is set; more reports whether there
// is one.
type indexCursor struct {
	pull func() (activity.Posting, error, bool)
	stop func()
	next activity.Posting
	err  error
	more bool
}

// mergeIndexes returns the entries of several queries from the beginning of a page on. The caller calls close.
func mergeIndexes(v persistence.View, p persistence.Partition, queries []persistence.Query, page page) *merged {
	m := &merged{direction: page.direction}
	for _, q := range queries {
		q.From, q.Direction = page.from, page.direction
		c := &indexCursor{}
		c.pull, c.stop = iter.Pull2(postings(v, p, q))
		c.advance()
		m.cursors = append(m.cursors, c)
	}
	return m
}

// addRows adds the selected rows of a page that no index has yet, as if they were the rows of an additional index. rows is ascending.
func (m *merged) addRows(rows []activity.Row, has func(activity.Row) bool, page page) {
	var selected []activity.Row
	for _, row := range rows {
		if has(row) && (page.direction == persistence.Ascending && row.Seq >= page.from ||
			page.direction == persistence.Descending && row.Seq <= page.from) {
			selected = append(selected, row)
		}
	}
	if page.direction == persistence.Descending {
		slices.Reverse(selected)
	}
	i := -1
	c := &indexCursor{stop: func() {}, pull: func() (activity.Posting, error, bool) {
		if i++; i >= len(selected) {
			return activity.Posting{}, nil, false
		}
		return activity.Posting{Seq: selected[i].Seq, Kind: selected[i].Operation.GetKind()}, nil, true
	}}
	c.advance()
	m.cursors = append(m.cursors, c)
}

func (c *indexCursor) advance() {
	c.next, c.err, c.more = c.pull()
}

// postings returns the rows that an index has at a value, from q.From on in q.Direction. An entry is a run of rows under the
// seq of its first row, so that the run that contains q.From may begin before it.
func postings(v persistence.View, p persistence.Partition, q persistence.Query) iter.Seq2[activity.Posting, error] {
	return func(yield func(activity.Posting, error) bool) {
		var buf []activity.Posting
		run := func(entry persistence.Entry, err error) bool {
			if err == nil {
				buf, err = activity.AppendPostings(buf[:0], entry.Order, entry.Data)
			}
			if err != nil {
				yield(activity.Posting{}, err)
				return false
			}
			return yieldRun(buf, q, yield)
		}
		if q.Direction == persistence.Ascending && q.From > 1 {
			before := q
			before.From, before.Direction = q.From-1, persistence.Descending
			for entry, err := range v.Index(p, before) {
				if !run(entry, err) {
					return
				}
				break
			}
		}
		for entry, err := range v.Index(p, q) {
			if !run(entry, err) {
				return
			}
		}
	}
}

// yieldRun yields the rows of a run that a query selects, in its direction, and reports whether the caller wants more.
func yieldRun(run []activity.Posting, q persistence.Query, yield func(activity.Posting, error) bool) bool {
	if q.Direction == persistence.Descending {
		slices.Reverse(run)
	}
	for _, row := range run {
		if q.Direction == persistence.Ascending && row.Seq < q.From || q.Direction == persistence.Descending && row.Seq > q.From {
			continue
		}
		if !yield(row, nil) {
			return false
		}
	}
	return true
}

func (m *merged) close() {
	for _, c := range m.cursors {
		c.stop()
	}
}

// next returns the next seq and the kind of its row; ok is false at the end.
func (m *merged) next() (seq uint64, kind activityv1.Kind, ok bool, err error) {
	for {
		c := m.nearest()
		if c == nil {
			return 0, 0, false, nil
		}
		if c.err != nil {
			return 0, 0, false, c.err
		}
		seq, kind = c.next.Seq, c.next.Kind
		c.advance()
		if seq != m.last {
			m.last = seq
			return seq, kind, true, nil
		}
	}
}

// nearest returns the cursor with an error or with the next row in the direction; nil: all are at their end.
func (m *merged) nearest() *indexCursor {
	var best *indexCursor
	for _, c := range m.cursors {
		if !c.more {
			continue
		}
		if c.err != nil {
			return c
		}
		if best == nil || (c.next.Seq < best.next.Seq) == (m.direction == persistence.Ascending) {
			best = c
		}
	}
	return best
}
