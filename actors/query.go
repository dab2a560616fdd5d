package actors

import (
	"log/slog"
	"runtime/debug"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/activity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	"github.com/atelier-run/atelier/persistence"
)

// rowBytes is more than most rows have with their comma, so that a page is written without being copied.
const rowBytes = 256

// scanBudget bounds the rows that one page passes over in search of those it wants; such a page is short.
const scanBudget = 4096

// querying is a machine that answers some messages from a view, off the actor: what is in a view is durable, and waits
// behind nothing.
type querying interface {
	isQuery(m proto.Message) bool
	query(at place, m proto.Message) (proto.Message, error)
}

// place is where an entity's rows are read.
type place struct {
	view      persistence.View
	partition persistence.Partition
	stream    persistence.Stream
	identity  string
}

func (e *entityActor) isQuery(r *request) bool {
	m, ok := e.own.machine.(querying)
	return ok && m.isQuery(r.command.Message)
}

func (e *entityActor) query(r *request) {
	m := e.own.machine.(querying)
	e.answer(r, func(at place) (proto.Message, error) { return m.query(at, r.command.Message) })
}

// answer reads a view off the actor and answers with what read returns.
func (e *entityActor) answer(r *request, read func(place) (proto.Message, error)) {
	p := e.own
	go func() {
		v, err := e.term.node.journal.View()
		if err != nil {
			p.refuse(r, err)
			return
		}
		defer v.Close()
		defer func() {
			if reason := recover(); reason != nil {
				e.term.node.log.Error("a query panicked", slog.String("kind", r.command.Kind), slog.Any("panic", reason), slog.String("stack", string(debug.Stack())))
				r.answer(nil, entity.Errorf(entity.Internal, "the query failed"))
			}
		}()
		reply, err := read(place{v, e.term.partition, p.stream, e.identity})
		if err != nil {
			p.refuse(r, err)
			return
		}
		r.answer(reply, nil)
	}()
}

// activityReader reads one workspace's activity from one view.
type activityReader struct{ place }

func answerActivity(at place, m proto.Message) (proto.Message, error) {
	a := activityReader{at}
	switch q := m.(type) {
	case *activityv1.ReadFeed:
		if err := a.checkPosition(q.GetPosition()); err != nil {
			return nil, err
		}
		return a.feed(q)
	case *activityv1.ReadHistory:
		if err := a.checkPosition(q.GetAfter()); err != nil {
			return nil, err
		}
		return a.walk(a.places(q.GetPath(), false, false), pageOf(q.GetAfter(), q.GetLimit(), q.GetReads(), persistence.Ascending))
	case *activityv1.ReadSeenBy:
		return a.seenBy(q)
	case *activityv1.ReadLatestWriters:
		return a.latestWriters(q)
	case *activityv1.ListIntents:
		return a.intents()
	}
	return nil, entity.Errorf(entity.InvalidRequest, "activity answers no %s", m.ProtoReflect().Descriptor().Name())
}

// checkPosition returns invalid_cursor for a position behind the last row: a cursor of a history that was lost since.
func (a activityReader) checkPosition(position uint64) error {
	if position == 0 {
		return nil
	}
	head, err := a.view.Head(a.partition, a.stream)
	if err == nil && position > head {
		err = entity.Errorf(entity.InvalidCursor, "")
	}
	return err
}

// page is what a walk of rows is asked for.
type page struct {
	from      uint64
	limit     int
	reads     bool
	direction persistence.Direction
}

// pageOf turns a position, which a walk goes on behind, into its first seq. from is 0 where nothing can follow.
func pageOf(position uint64, limit int32, reads bool, d persistence.Direction) page {
	p := page{limit: min(max(int(limit), 1), 100), reads: reads, direction: d}
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
	if q.GetPath() != "" {
		return a.walk(a.places(q.GetPath(), q.GetSubtree(), true), p)
	}
	return a.sequence(p)
}

// sequence is a page of the whole workspace.
func (a activityReader) sequence(p page) (*activityv1.Page, error) {
	out := newPage(p.limit)
	if p.from == 0 {
		return out.Page, nil
	}
	scanned := 0
	for event, err := range a.view.Payloads(a.partition, a.stream, p.from, p.direction) {
		if err != nil {
			return nil, err
		}
		if out.rows == p.limit || scanned == scanBudget {
			return out.end(), nil
		}
		scanned++
		out.last = event.Version
		if row := activity.Stored(event.Bytes); p.wants(row.Kind()) {
			out.add(row)
		}
	}
	return out.Page, nil
}

// places are the index walks that together select a path's rows.
func (a activityReader) places(path string, subtree, restores bool) []persistence.Query {
	value := activity.PathValue(a.identity, path)
	queries := []persistence.Query{{Index: activity.ByPath, Value: value}}
	if subtree {
		queries = append(queries, persistence.Query{Index: activity.Below, Value: value})
	}
	if restores {
		queries = append(queries, persistence.Query{Index: activity.Restores, Value: activity.Prefix(a.identity)})
	}
	return queries
}

// walk is a page of the rows that index walks select.
func (a activityReader) walk(queries []persistence.Query, p page) (*activityv1.Page, error) {
	out := newPage(p.limit)
	if p.from == 0 {
		return out.Page, nil
	}
	m := merge(a.view, a.partition, queries, p)
	defer m.close()
	for scanned := 0; ; scanned++ {
		seq, kind, ok, err := m.next()
		if err != nil {
			return nil, err
		}
		if !ok {
			return out.Page, nil
		}
		if out.rows == p.limit || scanned == scanBudget {
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

// pageWriter gathers a page's rows.
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

// end is the page when more may follow.
func (w *pageWriter) end() *activityv1.Page {
	w.Next = w.last
	return w.Page
}

func (a activityReader) seenBy(q *activityv1.ReadSeenBy) (proto.Message, error) {
	limit := pageOf(0, q.GetLimit(), true, persistence.Ascending).limit
	out := &activityv1.SeenBy{}
	query := persistence.Query{Index: activity.Recency, Value: activity.PathValue(a.identity, q.GetPath()), Prefix: true}
	if len(q.GetAfter()) > 0 {
		query.After = query.Value + string(q.GetAfter())
	}
	var last string
	for entry, err := range a.view.Index(a.partition, query) {
		if err != nil {
			return nil, err
		}
		if len(out.Readers) == limit {
			out.Next = []byte(last)
			break
		}
		place, seen, ok := activity.RecencyAuthor(a.identity, q.GetPath(), entry.Value)
		if !ok {
			continue
		}
		var t activityv1.Totals
		if found, err := a.lookup(activity.Seen, seen, &t); err != nil {
			return nil, err
		} else if !found {
			continue
		}
		last = place
		out.Readers = append(out.Readers, &activityv1.Reader{
			Author: t.GetAuthor(), FirstAt: t.GetFirstAt(), LastAt: t.GetLastAt(),
			ReadCount: t.GetReadCount(), WriteCount: t.GetWriteCount(), LastWriteAt: t.GetLastWriteAt(),
		})
	}
	return out, nil
}

func (a activityReader) latestWriters(q *activityv1.ReadLatestWriters) (proto.Message, error) {
	out := &activityv1.LatestWriters{}
	for _, name := range q.GetNames() {
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

// lookup decodes one entry; found is false where there is none.
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
