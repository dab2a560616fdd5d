package activity

import activityv1 "github.com/atelier-run/atelier/messages/activity/v1"

// bound writes the index entries of the tail once it is long, with the decision that makes it so.
func (d *draft) bound() {
	t := &d.state.Tail
	switch {
	case d.Index != nil:
	case len(t.Reads) >= maxReadPaths:
		d.index(t.Reads)
	case t.waiting()+len(d.Rows) >= MaxTail:
		d.index(nil)
	case len(d.Rows) > 0 && !t.Marked:
		d.mark(d.state.Seq, 0)
	}
}

// mark puts the IndexMark. The first rows of a workspace carry one, so that they are not taken for rows of a time when
// entries were written with their row.
func (d *draft) mark(upTo, reads uint64) {
	d.put(Indexed, Prefix(d.state.WorkspaceID), &activityv1.IndexMark{Seq: upTo, Reads: reads})
}

// index writes the entries of the rows that have none, this decision's included, and read counts. Each pair of a path
// and an author, and each path's latest writer, is written once.
func (d *draft) index(reads Reads) {
	t := &d.state.Tail
	if t.waiting()+len(d.Rows)+len(reads) == 0 {
		return
	}
	w := &indexWriter{
		draft: d, IndexWrite: IndexWrite{UpTo: t.Proposed, Totals: map[string]*activityv1.Totals{}, ReadWrite: t.ReadWrites},
		writers: map[string]*activityv1.Writer{},
	}
	w.rows(t.Unindexed())
	w.rows(d.Rows)
	if len(reads) > 0 {
		w.reads(reads)
	}
	w.finish()
}

// indexWriter is an index write in the making.
type indexWriter struct {
	IndexWrite
	draft *draft
	// pairs and entries are the keys of Totals and writers in the order of their first row.
	pairs   []pair
	entries []string
	writers map[string]*activityv1.Writer
	bytes   int
	full    bool
}

type pair struct {
	path, author string
	before       *activityv1.Totals
}

func (w *indexWriter) rows(rows []Row) {
	for _, r := range rows {
		if w.full = w.full || w.bytes >= maxIndexBytes; w.full {
			return
		}
		w.row(r)
	}
}

func (w *indexWriter) row(r Row) {
	op := r.Operation
	w.UpTo = r.Seq
	w.bytes += w.draft.find(r)
	if !r.Counts() {
		return
	}
	w.bytes += 4*len(op.GetPath()) + 256
	r.CountInto(w.totals(op.GetPath(), op.GetAuthor()))
	made := r.Writer()
	if made == nil {
		return
	}
	dir, name := split(op.GetPath())
	value := w.draft.places.value(dir) + name
	if w.writers[value] == nil {
		w.entries = append(w.entries, value)
	}
	w.writers[value] = made
}

func (w *indexWriter) reads(reads Reads) {
	for path, authors := range reads {
		for _, c := range authors {
			c.CountInto(w.totals(path, c.Author))
		}
	}
	w.Reads = reads
	w.ReadWrite++
}

// totals returns the totals of an author on a path, to be changed.
func (w *indexWriter) totals(path string, author *activityv1.Author) *activityv1.Totals {
	p := pair{path: w.draft.places.value(path), author: authorKey(author)}
	if t := w.Totals[p.path+p.author]; t != nil {
		return t
	}
	p.before = w.draft.totals(p.path + p.author)
	after := copied(p.before)
	w.Totals[p.path+p.author] = after
	w.pairs = append(w.pairs, p)
	return after
}

func (w *indexWriter) finish() {
	d := w.draft
	for _, p := range w.pairs {
		after := w.Totals[p.path+p.author]
		d.Entries = p.move(d.Entries, after)
		d.put(Seen, p.path+p.author, after)
	}
	for _, value := range w.entries {
		d.put(LatestWriter, value, w.writers[value])
	}
	d.mark(w.UpTo, w.ReadWrite)
	d.Index = &w.IndexWrite
}
