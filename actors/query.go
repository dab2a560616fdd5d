package actors

import (
	"log/slog"
	"runtime/debug"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/persistence"
)

// scanBudget bounds the rows that one page passes over in search of those it wants; such a page is short.
const scanBudget = 4096

// querying is a machine that answers some messages from a view, off the actor: what is in a view is durable, and waits
// behind nothing.
type querying interface {
	isQuery(m proto.Message) bool
	query(src source, m proto.Message) (proto.Message, error)
	// recent returns what a query needs and the journal's indexes do not have yet. It is called in the actor, and its
	// result is read off it; known reports whether the machine's state agrees with the journal.
	recent(q proto.Message, known bool) any
}

// A source is one entity's part of a view of the journal.
type source struct {
	view      persistence.View
	partition persistence.Partition
	stream    persistence.Stream
	identity  string
	// recent is what the machine adds to the view; see querying.
	recent any
}

func (e *entityActor) isQuery(r *request) bool {
	m, ok := e.own.machine.(querying)
	return ok && m.isQuery(r.command.Message)
}

// query answers from a view that is opened after recent was called. It has every row that recent tells of as durable, and
// maybe index entries that were not there yet: its IndexMark tells which rows and read counts are in the indexes, so that
// each is counted once.
func (e *entityActor) query(r *request) {
	m := e.own.machine.(querying)
	// Where the state cannot be learnt now, the answer finds in its view what it needs.
	known := e.own.learn() == nil
	recent := m.recent(r.command.Message, known)
	e.answer(r, func(src source) (proto.Message, error) {
		src.recent = recent
		return m.query(src, r.command.Message)
	})
}

// answer reads a view off the actor and answers with what read returns.
func (e *entityActor) answer(r *request, read func(source) (proto.Message, error)) {
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
		reply, err := read(source{view: v, partition: e.term.partition, stream: p.stream, identity: e.identity})
		if err != nil {
			p.refuse(r, err)
			return
		}
		r.answer(reply, nil)
	}()
}
