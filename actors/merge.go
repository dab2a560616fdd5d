package actors

import (
	"iter"
	"slices"

	"github.com/atelier-run/atelier/entity/activity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	"github.com/atelier-run/atelier/persistence"
)

// merged walks several indexes as one, in the order of seq, each seq once.
type merged struct {
	direction persistence.Direction
	walks     []*walk
	last      uint64
}

// walk is one index with its next entry.
type walk struct {
	pull func() (activity.Posting, error, bool)
	stop func()
	next activity.Posting
	err  error
	more bool
}

func merge(v persistence.View, p persistence.Partition, queries []persistence.Query, page page) *merged {
	m := &merged{direction: page.direction}
	for _, q := range queries {
		q.From, q.Direction = page.from, page.direction
		w := &walk{}
		w.pull, w.stop = iter.Pull2(postings(v, p, q))
		w.advance()
		m.walks = append(m.walks, w)
	}
	return m
}

// addRows adds the rows that a page may have of those that no index has yet, ascending, which is as good as one more index.
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
	w := &walk{stop: func() {}, pull: func() (activity.Posting, error, bool) {
		if i++; i >= len(selected) {
			return activity.Posting{}, nil, false
		}
		return activity.Posting{Seq: selected[i].Seq, Kind: selected[i].Operation.GetKind()}, nil, true
	}}
	w.advance()
	m.walks = append(m.walks, w)
}

func (w *walk) advance() {
	w.next, w.err, w.more = w.pull()
}

// postings walks the rows that an index has at a value, from q.From on in q.Direction. An entry is a run of rows under
// the seq of its first row, so that the run which q.From lies in may begin before it.
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

// yieldRun yields those rows of a run that a query selects, in its direction, and reports whether more are wanted.
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
	for _, w := range m.walks {
		w.stop()
	}
}

// next is the next seq and its row's kind; ok is false at the end.
func (m *merged) next() (seq uint64, kind activityv1.Kind, ok bool, err error) {
	for {
		w := m.nearest()
		if w == nil {
			return 0, 0, false, nil
		}
		if w.err != nil {
			return 0, 0, false, w.err
		}
		seq, kind = w.next.Seq, w.next.Kind
		w.advance()
		if seq != m.last {
			m.last = seq
			return seq, kind, true, nil
		}
	}
}

func (m *merged) nearest() *walk {
	var best *walk
	for _, w := range m.walks {
		if !w.more {
			continue
		}
		if w.err != nil {
			return w
		}
		if best == nil || (w.next.Seq < best.next.Seq) == (m.direction == persistence.Ascending) {
			best = w
		}
	}
	return best
}
