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
	pull func() (persistence.Entry, error, bool)
	stop func()
	seq  uint64
	kind activityv1.Kind
	err  error
	more bool
}

func merge(v persistence.View, p persistence.Partition, queries []persistence.Query, page page) *merged {
	m := &merged{direction: page.direction}
	for _, q := range queries {
		q.From, q.Direction = page.from, page.direction
		w := &walk{}
		w.pull, w.stop = iter.Pull2(v.Index(p, q))
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
	w := &walk{stop: func() {}, pull: func() (persistence.Entry, error, bool) {
		if i++; i >= len(selected) {
			return persistence.Entry{}, nil, false
		}
		return persistence.Entry{Order: selected[i].Seq, Data: []byte{byte(selected[i].Operation.GetKind())}}, nil, true
	}}
	w.advance()
	m.walks = append(m.walks, w)
}

func (w *walk) advance() {
	entry, err, more := w.pull()
	w.seq, w.err, w.more = entry.Order, err, more
	if more && err == nil && len(entry.Data) > 0 {
		w.kind = activityv1.Kind(entry.Data[0])
	}
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
		seq, kind = w.seq, w.kind
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
		if best == nil || (w.seq < best.seq) == (m.direction == persistence.Ascending) {
			best = w
		}
	}
	return best
}
