package bench

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

const pageRows = 50

// A place is a workspace with a number of sessions in each list. Its session 0 has as many children and rows.
type place struct {
	a         *sessionActors
	workspace string
	n         int
}

// A listQuestion requests a page at a random position with a full page after it.
type listQuestion struct {
	name string
	ask  func(p place, random *rand.Rand) (kind, identity string, m proto.Message)
}

// list returns the question for the list of a scope and a bucket. number returns the number of the session at a place in the list.
// The list has p.n places.
func list(name, scope, bucket string, f *sessionv1.Filter, number func(place int) int) listQuestion {
	return listQuestion{name, func(p place, random *rand.Rand) (string, string, proto.Message) {
		filter, err := proto.Marshal(f)
		if err != nil {
			p.a.b.Fatal(err)
		}
		prefix := session.RangePrefix(scope, bucket, f.GetArchived())
		i := number(p.n - 1 - random.IntN(p.n-pageRows)) // newest first
		after := prefix + entity.DescendingKey(uint64(firstCreated+int64(i)*1000)) + sessionID(i)
		return entity.KindWorkspace, p.workspace, &wirev1.List{
			Name: session.SessionList, Prefix: []byte(prefix), After: []byte(after), Filter: filter, Limit: pageRows,
		}
	}}
}

var listQuestions = []listQuestion{
	list("all", session.ScopeAll, "", &sessionv1.Filter{}, func(i int) int { return 4 * i }),
	list("top-level", session.ScopeTopLevel, "", &sessionv1.Filter{}, func(i int) int { return 4 * i }),
	list("done", session.ScopeTopLevel, session.BucketDone, &sessionv1.Filter{}, func(i int) int { return 4 * i }),
	list("asking", session.ScopeAll, session.BucketAsking, &sessionv1.Filter{}, func(i int) int { return 4*i + 1 }),
	list("archived", session.ScopeAll, "", &sessionv1.Filter{Archived: true}, func(i int) int { return 4*i + 3 }),
	list("search", session.ScopeAll, "", &sessionv1.Filter{Search: "report"}, func(i int) int { return 4 * i }),
	list("children", sessionID(0), "", &sessionv1.Filter{}, func(i int) int { return children + 4*i }),
	{"history", func(p place, random *rand.Rand) (string, string, proto.Message) {
		return entity.KindSession, session.Identity(p.workspace, sessionID(0)), &wirev1.ReadTimeline{
			From: uint64(pageRows + 20 + random.IntN(p.n-pageRows-20)), Descending: true, Limit: pageRows, // some events are no rows
		}
	}},
}

// BenchmarkSessionLists requests pages of 50 as a member, in turns from a workspace with 100 sessions in each list and a session
// with 100 children and 100 rows, and from one with 100,000 of each, in the same journal. first are positions that are requested
// for the first time, again the same positions a moment later.
func BenchmarkSessionLists(b *testing.B) {
	large := 100_000
	if testing.Short() {
		large = 10_000
	}
	store, _ := openJournal(b)
	a := newSessionActors(b, store, time.Minute)
	places := []place{{a, "ws_01jd0000000000000000000001", 100}, {a, "ws_01jd0000000000000000000002", large}}
	for _, p := range places {
		p.fill()
	}
	for _, q := range listQuestions {
		b.Run(q.name, func(b *testing.B) {
			first, again := map[int][]time.Duration{}, map[int][]time.Duration{}
			random := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
			for b.Loop() {
				for turn := range 2 * Turns * len(places) {
					p := places[turn%len(places)]
					asked := make([]entity.Command, 64)
					for i := range asked {
						asked[i].Kind, asked[i].Identity, asked[i].Message = q.ask(p, random)
						asked[i].Principal = member
					}
					first[p.n] = append(first[p.n], p.time(b, asked)...)
					again[p.n] = append(again[p.n], p.time(b, asked)...)
				}
			}
			b.ReportMetric(0, "ns/op")
			for _, p := range places {
				b.ReportMetric(micros(first[p.n]), fmt.Sprintf("first-%d-µs", p.n))
				b.ReportMetric(micros(again[p.n]), fmt.Sprintf("again-%d-µs", p.n))
			}
			b.ReportMetric(micros(first[large])/micros(first[100]), "first-of-100")
			b.ReportMetric(micros(again[large])/micros(again[100]), "of-100")
		})
	}
}

// fill writes the sessions and their rows.
func (p place) fill() {
	p.a.found(p.workspace)
	store := p.a.journal.Store
	writeSessions(p.a.b, store, p.a.router, 4*p.n, func(i int) *pastSession { return listed(p.workspace, i) })
	writeSessions(p.a.b, store, p.a.router, p.n, func(i int) *pastSession { return listedChild(p.workspace, i) })
	parent := session.Identity(p.workspace, sessionID(0))
	seq := p.a.ask(entity.KindSession, parent, member, &sessionv1.SendInput{Input: &sessionv1.Input{
		Kind: sessionv1.InputKind_INPUT_KIND_MESSAGE, Text: "Write it down.",
	}}).(*sessionv1.Accepted).GetInputSeq()
	p.a.ask(entity.KindSession, parent, entity.Platform(), &sessionv1.ClaimTurn{TurnId: seq, RunId: "run"})
	text := strings.Repeat("The figures of the quarter are better. ", 5)
	for written, batch := 0, uint64(1); written < p.n; batch++ {
		rows := make([]*sessionv1.Row, min(session.MaxBatchRows, p.n-written))
		for i := range rows {
			rows[i] = &sessionv1.Row{Text: &sessionv1.Text{Text: text, InputSeq: seq}}
		}
		written += len(rows)
		p.a.ask(entity.KindSession, parent, entity.Platform(), &sessionv1.RecordRows{TurnId: seq, RunId: "run", Batch: batch, Rows: rows})
	}
	p.a.ask(entity.KindSession, parent, entity.Platform(), &sessionv1.EndTurn{
		TurnId: seq, RunId: "run", Status: sessionv1.TurnStatus_TURN_STATUS_COMPLETE,
	})
}

// time returns the times of requests. Each request is answered with a full page.
func (p place) time(b *testing.B, asked []entity.Command) (took []time.Duration) {
	for _, c := range asked {
		began := time.Now()
		reply, err := p.a.router.Ask(b.Context(), c)
		took = append(took, time.Since(began))
		if err != nil {
			b.Fatal(err)
		}
		rows := 0
		switch page := reply.(type) {
		case *wirev1.Page:
			rows = len(page.GetRows())
		case *wirev1.Timeline:
			rows = len(page.GetEvents())
		}
		if rows != pageRows {
			b.Fatalf("a page of %v has %d rows", c.Message, rows)
		}
	}
	return took
}
