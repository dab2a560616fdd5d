package actors

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/activity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	"github.com/atelier-run/atelier/persistence"
)

// rowBytes is a size that most rows with their comma do not exceed, so that a page is rarely copied as it grows.
const rowBytes = 256

// An activityReader answers a query of one workspace's activity from a view.
type activityReader struct {
	source
	// tail are the durable rows that the view's indexes lack, ascending.
	tail []activity.Row
	// uses are the counts of the requested paths that the indexes lack.
	uses []activity.PendingUses
}

// queryActivity answers a query. It returns InvalidRequest for an unknown one, InvalidCursor for a position after the last row,
// and the journal's errors.
func queryActivity(src source, m proto.Message) (proto.Message, error) {
	a := activityReader{source: src}
	if err := a.catchUp(m); err != nil {
		return nil, err
	}
	switch q := m.(type) {
	case *activityv1.ReadFeed:
		return a.feed(q)
	case *activityv1.ReadHistory:
		return a.pathPage(selection{path: q.GetPath()}, pageOf(q.GetAfter(), q.GetLimit(), q.GetReads(), persistence.Ascending))
	case *activityv1.ReadSeenBy:
		return a.seenBy(q)
	case *activityv1.ReadLatestWriters:
		return a.latestWriters(q)
	case *activityv1.ReadNames:
		return a.names(q)
	case *activityv1.ListIntents:
		return a.intents()
	}
	return nil, entity.Errorf(entity.InvalidRequest, "activity answers no %s", m.ProtoReflect().Descriptor().Name())
}

// checkedHead returns the last row. It returns InvalidCursor for a position after that row: such a cursor is from rows that
// were lost since, for example by a restore.
func (a activityReader) checkedHead(position uint64) (uint64, error) {
	head, err := a.view.Head(a.partition, a.stream)
	if err == nil && position > head {
		err = entity.Errorf(entity.InvalidCursor, "")
	}
	return head, err
}

// catchUp sets tail and uses to the rows and counts that the view's indexes lack, if the query uses indexes. Rows that became
// durable after the call of recent are among them: otherwise the position behind a page, which is the last row of the view, would
// be behind rows that neither the indexes nor the tail have, and a client that continues from there would never get them.
func (a *activityReader) catchUp(m proto.Message) error {
	switch q := m.(type) {
	case *activityv1.ListIntents:
		return nil
	case *activityv1.ReadFeed:
		if q.GetPath() == "" {
			return nil
		}
	}
	recent := a.recent.(recentActivity)
	mark, err := indexMark(a.view, a.partition, a.identity)
	if err != nil {
		return err
	}
	for _, pending := range recent.uses {
		if pending.UseWrite > mark.GetReads() {
			a.uses = append(a.uses, pending)
		}
	}
	first := 0
	for first < len(recent.rows) && recent.rows[first].Seq <= mark.GetSeq() {
		first++
	}
	known, last := recent.rows[first:], uint64(0)
	if len(known) > 0 {
		last = known[len(known)-1].Seq
	}
	later, err := unindexed(a.view, a.partition, a.stream, mark, last)
	a.tail = append(slices.Clip(known), later...)
	return err
}

// A page is a range of rows that a query asks for: those after a position, in one direction.
type page struct {
	position  uint64
	from      uint64
	limit     int
	reads     bool
	direction persistence.Direction
}

// pageOf returns the page after a position; from is its first seq, or 0 if no row can follow.
func pageOf(position uint64, limit int32, reads bool, d persistence.Direction) page {
	p := page{position: position, limit: min(max(int(limit), 1), 100), reads: reads, direction: d}
	switch {
	case d == persistence.Ascending:
		p.from = position + 1
	case position == 0:
		p.from = 1<<63 - 1
	default:
		p.from = position - 1
	}
	return p
}

func (p page) wants(k activityv1.Kind) bool { return p.reads || !activity.Read(k) }

func (a activityReader) feed(q *activityv1.ReadFeed) (proto.Message, error) {
	direction := persistence.Direction(q.GetDescending())
	p := pageOf(q.GetPosition(), q.GetLimit(), q.GetReads(), direction)
	if direction == persistence.Descending && p.position != 0 {
		if _, err := a.checkedHead(p.position); err != nil {
			return nil, err
		}
	}
	if q.GetPath() != "" {
		return a.pathPage(selection{path: q.GetPath(), subtree: q.GetSubtree(), restores: true}, p)
	}
	return a.workspacePage(p)
}

// workspacePage returns a page of all rows of the workspace, without an index.
func (a activityReader) workspacePage(p page) (*activityv1.Page, error) {
	out := newPage(p.limit)
	if p.from == 0 {
		return a.lastPage(out, p)
	}
	scanned := 0
	for event, err := range a.view.Payloads(a.partition, a.stream, p.from, p.direction) {
		if err != nil {
			return nil, err
		}
		if out.isFull(p.limit) || scanned == scanBudget {
			return out.end(), nil
		}
		scanned++
		out.last = event.Version
		if row := activity.Stored(event.Bytes); p.wants(row.Kind()) {
			out.add(row)
		}
	}
	return a.lastPage(out, p)
}

// lastPage returns a page that reaches the end of its rows. In ascending order it has the position behind the newest row of
// the view: a client continues there once there are more rows. The page's own position is checked here: any other page in that
// order has found a row behind its position.
func (a activityReader) lastPage(out *pageWriter, p page) (*activityv1.Page, error) {
	if p.direction == persistence.Descending {
		return out.Page, nil
	}
	head, err := a.checkedHead(p.position)
	if err != nil {
		return nil, err
	}
	out.Resume = head
	return out.Page, nil
}

// A selection is the rows of a path; with subtree also those below the path, with restores also the restores of the drive.
type selection struct {
	path              string
	subtree, restores bool
}

// queries returns the index queries that together find a selection.
func (s selection) queries(workspaceID string) []persistence.Query {
	value := activity.PathValue(workspaceID, s.path)
	queries := []persistence.Query{{Index: activity.ByPath, Value: value}}
	if s.subtree {
		queries = append(queries, persistence.Query{Index: activity.Below, Value: value})
	}
	if s.restores {
		queries = append(queries, persistence.Query{Index: activity.Restores, Value: activity.Prefix(workspaceID)})
	}
	return queries
}

// contains reports whether the selection contains a row.
func (s selection) contains(row activity.Row) bool {
	if row.Operation.GetKind() == activityv1.Kind_KIND_RESTORE {
		return s.restores
	}
	return row.On(s.path) || s.subtree && row.Below(s.path)
}

// pathPage returns a page of the rows of a selection: the rows in the indexes, and the rows in the tail.
func (a activityReader) pathPage(s selection, p page) (*activityv1.Page, error) {
	out := newPage(p.limit)
	if p.from == 0 {
		return a.lastPage(out, p)
	}
	m := mergeIndexes(a.view, a.partition, s.queries(a.identity), p)
	m.addRows(a.tail, s.contains, p)
	defer m.close()
	for scanned := 0; ; scanned++ {
		seq, kind, ok, err := m.next()
		if err != nil {
			return nil, err
		}
		if !ok {
			return a.lastPage(out, p)
		}
		if out.isFull(p.limit) || scanned == scanBudget {
			return out.end(), nil
		}
		out.last = seq
		if !p.wants(kind) {
			continue
		}
		if err := a.row(out, seq); err != nil {
			return nil, err
		}
	}
}

func (a activityReader) row(out *pageWriter, seq uint64) error {
	row, ok, err := a.view.Payload(a.partition, a.stream, seq)
	if ok && err == nil {
		out.add(activity.Stored(row))
	}
	return err
}

// A pageWriter collects the rows of a page.
type pageWriter struct {
	*activityv1.Page
	rows int
	last uint64
}

func newPage(limit int) *pageWriter {
	return &pageWriter{Page: &activityv1.Page{Items: make([]byte, 0, limit*rowBytes)}}
}

func (w *pageWriter) add(row activity.Stored) {
	if w.rows > 0 {
		w.Items = append(w.Items, ',')
	}
	w.Items = append(w.Items, row.JSON()...)
	w.rows++
}

// isFull reports whether the page may have no further row.
func (w *pageWriter) isFull(limit int) bool { return w.rows == limit || len(w.Items) >= maxPageBytes }

// end returns the page with the position after which the next page begins.
func (w *pageWriter) end() *activityv1.Page {
	w.Next = w.last
	return w.Page
}

func (a activityReader) latestWriters(q *activityv1.ReadLatestWriters) (proto.Message, error) {
	recent := map[string]*activityv1.Writer{}
	for _, row := range a.tail {
		if w := row.Writer(); w != nil && activity.Dir(w.GetPath()) == q.GetDir() {
			recent[activity.Name(w.GetPath())] = w
		}
	}
	for _, pending := range a.uses {
		w, name := pending.Writer(pending.Path), activity.Name(pending.Path)
		if w != nil && w.GetLastWriteAt() >= recent[name].GetLastWriteAt() {
			recent[name] = w
		}
	}
	out := &activityv1.LatestWriters{}
	for _, name := range q.GetNames() {
		if w := recent[name]; w != nil {
			out.Writers = append(out.Writers, w)
			continue
		}
		var w activityv1.Writer
		found, err := a.lookup(activity.LatestWriter, activity.WriterValue(a.identity, q.GetDir(), name), &w)
		if err != nil {
			return nil, err
		}
		if found {
			out.Writers = append(out.Writers, &w)
		}
	}
	return out, nil
}

// maxNames is the greatest number of names in a page.
const maxNames = 1000

// names returns a page of the names in a folder that have a latest writer, in the index or in the tail.
func (a activityReader) names(q *activityv1.ReadNames) (proto.Message, error) {
	prefix := activity.WriterValue(a.identity, q.GetDir(), "")
	query := persistence.Query{Index: activity.LatestWriter, Value: prefix, Prefix: true}
	if q.GetAfter() != "" {
		query.After = prefix + q.GetAfter()
	}
	var names []string
	limit := min(max(int(q.GetLimit()), 1), maxNames)
	for entry, err := range a.view.Index(a.partition, query) {
		if err != nil {
			return nil, err
		}
		names = append(names, strings.TrimPrefix(entry.Value, prefix))
		if len(names) == limit {
			break
		}
	}
	for _, row := range a.tail {
		if w := row.Writer(); w != nil && activity.Dir(w.GetPath()) == q.GetDir() && activity.Name(w.GetPath()) > q.GetAfter() {
			names = append(names, activity.Name(w.GetPath()))
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	return &activityv1.Names{Names: names[:min(limit, len(names))]}, nil
}

// lookup decodes one index entry; found is false if there is none.
func (a activityReader) lookup(index, value string, m proto.Message) (found bool, err error) {
	data, found, err := a.view.Lookup(a.partition, index, value, 0)
	if err != nil || !found {
		return false, err
	}
	return true, proto.Unmarshal(data, m)
}

func (a activityReader) intents() (proto.Message, error) {
	found, err := open(a.view, a.partition, activity.OpenIntents, activity.Prefix(a.identity),
		func() *activityv1.Intent { return new(activityv1.Intent) })
	if err != nil {
		return nil, err
	}
	out := &activityv1.Intents{}
	for _, intent := range found {
		out.Intents = append(out.Intents, intent)
	}
	return out, nil
}
