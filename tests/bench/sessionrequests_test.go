package bench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/atelier-run/atelier/cmd/node"
	"github.com/atelier-run/atelier/entity"
	entitycomputer "github.com/atelier-run/atelier/entity/computer"
	"github.com/atelier-run/atelier/entity/session"
	api "github.com/atelier-run/atelier/http"
	httpapi "github.com/atelier-run/atelier/http/api"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
)

// BenchmarkSessionRequests sends 10,000 requests that each add a message to one of 1,000 sessions and wait for its terminal, and reports
// their memory in the process of the node, beside the memory of as many requests that a handler of net/http holds. Then the turns are
// interrupted, and every request must be answered. The clients are in another process.
func BenchmarkSessionRequests(b *testing.B) {
	m, err := startWith(Disk(b), node.Options{
		SampleEvery: entitycomputer.SampleEvery, HoldTurns: true,
		HTTP: api.Options{Sessions: httpapi.SessionOptions{WaitTime: 10 * time.Minute}},
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := m.Stop(); err != nil {
			b.Error(err)
		}
	})
	writeSessions(b, m.Node.Journal.Member(node.MemberName(0)), m.Node.Router, waitedSessions, func(i int) *pastSession {
		return &pastSession{
			workspaceID: m.Workspace, id: sessionID(i), title: "Report", createdAt: firstCreated, end: endings[session.BucketDone],
		}
	})
	ask := func(i int, c sessionv1.Command) error {
		_, err := m.Node.Router.Ask(context.Background(), entity.Command{
			Kind: entity.KindSession, Identity: session.Identity(m.Workspace, sessionID(i)), Principal: entity.Platform(), Message: c,
		})
		return err
	}
	// The sessions are in memory before and after.
	if !parallel(b, waitedSessions, 64, func(i int) error { return ask(i, &sessionv1.DescribeSession{}) }) {
		return
	}
	readers := NewReaders(b)
	var idle idleRequests
	address := serveRaw(b, &idle)
	for b.Loop() {
		idle.release = make(chan struct{})
		bare := held(b, readers, address, func(int) []byte { return rawRequest }, func() int { return int(idle.count.Load()) },
			func() { close(idle.release) })
		idle.count.Store(0)
		began := uint32(time.Now().Unix())
		waiting := held(b, readers, m.Address, func(i int) []byte {
			body := fmt.Sprintf(`{"clientRequestId":"%08x-0000-4000-8000-%012x","text":"Summarize the report."}`, began, i)
			return fmt.Appendf(nil, "POST /v1/ws/%s/agent/sessions/%s/messages/wait HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer %s\r\n"+
				"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", m.Slug, sessionID(i%waitedSessions), m.Key, len(body), body)
		}, func() int { return gauge(b, m.Registry, "atelier_actor_held_queries", entity.KindSession) },
			func() { parallel(b, waitedSessions, 64, func(i int) error { return ask(i, &sessionv1.Interrupt{}) }) })
		b.ReportMetric(waiting, "B/request")
		b.ReportMetric(bare, "B/idle-request")
		b.ReportMetric(waiting/bare, "of-idle")
	}
	b.ReportMetric(0, "ns/op")
}

// idleRequests is a handler that answers requests when they are released.
type idleRequests struct {
	count   atomic.Int64
	release chan struct{}
}

func (i *idleRequests) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.count.Add(1)
	select {
	case <-i.release:
	case <-r.Context().Done():
	}
	io.WriteString(w, `{"terminal":{}}`)
}

// requestsAtOnce is the number of requests that are sent before the server counts them, fewer than a node accepts at once.
const requestsAtOnce = 250

// held sends 10,000 requests over connections of their own, and returns the memory of one in this process when the server counts
// all of them. Then it releases them and awaits the answers.
func held(b *testing.B, readers *Readers, address string, request func(i int) []byte, count func() int, release func()) float64 {
	before := settledMemory()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	var all []*Connections
	for sent := 0; sent < waits; sent += requestsAtOnce {
		some := make([][]byte, requestsAtOnce)
		for i := range some {
			some[i] = request(sent + i)
		}
		c := readers.Open(Group{
			Address: address, Connections: requestsAtOnce, Manner: Wait, Requests: some, Mark: []byte(`"terminal":`),
		})
		defer c.Close()
		all = append(all, c)
		for count() < sent+requestsAtOnce {
			if err := c.Lost(); err != nil {
				b.Fatal(err)
			}
			<-ticker.C
		}
		c.Requests = nil // their memory is not the server's
	}
	each := float64(settledMemory()-before) / waits
	release()
	for _, c := range all {
		c.Await(1)
	}
	return each
}
