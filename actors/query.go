package actors

import (
	"log/slog"
	"runtime/debug"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/persistence"
)

// scanBudget limits the rows that one page reads without returning them. A page that reaches it is short, and the caller
// continues behind it.
const scanBudget = 4096

// maxPageBytes is the size of the rows at which a page of a list or of activity ends, in bytes, because pages are in memory while clients
// read them. A page has at least one row.
const maxPageBytes = 256 << 10

// A querying machine answers queries from a view, outside the actor. Everything in a view is durable, so that a query waits for
// no proposal.
type querying interface {
	isQuery(m proto.Message) bool
	query(src source, m proto.Message) (proto.Message, error)
	// recent returns the rows that a query needs and that the indexes of the journal may lack. It runs in the actor, and its
	// result is read concurrently. loaded is set if the machine has the state of the journal. Rows that become durable later are
	// in the view: query adds them.
	recent(q proto.Message, loaded bool) any
}

// A source is one entity's part of a view of the journal.
type source struct {
	view      persistence.View
	partition persistence.Partition
	stream    persistence.Stream
	identity  string
	// recent is the result of querying.recent.
	recent any
}

func (e *entityActor) isQuery(r *request) bool {
	m, ok := e.own.machine.(querying)
	return ok && m.isQuery(r.command.Message)
}

// query answers a query from a view that is opened after the call of recent. The view has every row that recent reports as
// durable, and perhaps later rows, and index entries that were missing at that time. The view's IndexMark tells which rows and
// read counts its indexes have, so that each is counted once. The answer has every row of the view, so that a position in it
// is never behind a row that the answer could not have.
func (e *entityActor) query(r *request) {
	m := e.own.machine.(querying)
	// If the state cannot be loaded now, the answer reads the rows from its view.
	loaded := e.own.ensureLoaded() == nil
	recent := m.recent(r.command.Message, loaded)
	e.answerFromView(r, func(src source) (proto.Message, error) {
		src.recent = recent
		return m.query(src, r.command.Message)
	})
}

// answerFromView opens a view in another goroutine and answers with the result of read.
func (e *entityActor) answerFromView(r *request, read func(source) (proto.Message, error)) {
	p := e.own
	e.term.system.dispatcher.Schedule(func() {
		v, err := e.term.system.journal.View()
		if err != nil {
			p.fail(r, err)
			return
		}
		defer v.Close()
		defer func() {
			if reason := recover(); reason != nil {
				e.term.system.log.Error("a query panicked", slog.String("kind", r.command.Kind), slog.Any("panic", reason), slog.String("stack", string(debug.Stack())))
				r.answer(nil, entity.Errorf(entity.Internal, "the query failed"))
			}
		}()
		reply, err := read(source{view: v, partition: e.term.partition, stream: p.stream, identity: e.identity})
		if err != nil {
			p.fail(r, err)
			return
		}
		r.answer(reply, nil)
	})
}
