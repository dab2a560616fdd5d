package bench

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/atelier-run/atelier/cmd/node"
	"github.com/atelier-run/atelier/entity"
	entitycomputer "github.com/atelier-run/atelier/entity/computer"
	"github.com/atelier-run/atelier/entity/session"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
)

const (
	// waitRequests is the number of requests that wait at the same time, each over a connection of its own.
	waitRequests = 5_000
	// requestsEach is the number of them for each session.
	requestsEach = 10
)

// BenchmarkSessionRequests sends 5,000 requests that each add a message to one of 500 sessions and wait for its terminal, and reports
// their memory in a node, beside that of requests of net/http that are idle. Then the turns are interrupted, and every request
// must be answered. The memory includes the clients' ends of the connections, which are in the same process.
func BenchmarkSessionRequests(b *testing.B) {
	m, err := startWith(Disk(b), node.Options{SampleEvery: entitycomputer.SampleEvery, HoldTurns: true})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := m.Stop(); err != nil {
			b.Error(err)
		}
	})
	const sessions = waitRequests / requestsEach
	writeSessions(b, m.Node.Journal.Member(node.MemberName(0)), m.Node.Router, sessions, func(i int) *pastSession {
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
	if !parallel(b, sessions, 64, func(i int) error { return ask(i, &sessionv1.DescribeSession{}) }) {
		return
	}
	var idle atomic.Int64
	address := serveRaw(b, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		idle.Add(1)
		<-r.Context().Done()
	}))
	for b.Loop() {
		before := settledMemory()
		connections := requestAll(b, address, func(int) string { return string(rawRequest) })
		awaitCount(b, func() int { return int(idle.Load()) })
		bare := float64(settledMemory()-before) / waitRequests
		for _, c := range connections {
			c.Close()
		}
		idle.Store(0)
		before = settledMemory()
		began := time.Now()
		connections = requestAll(b, m.Address, func(i int) string {
			body := fmt.Sprintf(`{"clientRequestId":"%08x-0000-4000-8000-%012x","text":"Summarize the report."}`, uint32(began.Unix()), i)
			return fmt.Sprintf("POST /v1/ws/%s/agent/sessions/%s/messages/wait HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer %s\r\n"+
				"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", m.Slug, sessionID(i%sessions), m.Key, len(body), body)
		})
		awaitCount(b, func() int { return gauge(b, m.Registry, "atelier_actor_held_queries", entity.KindSession) })
		waiting := float64(settledMemory()-before) / waitRequests
		b.ReportMetric(time.Since(began).Seconds(), "accepted-s")
		parallel(b, sessions, 64, func(i int) error { return ask(i, &sessionv1.Interrupt{}) })
		for _, c := range connections {
			status, err := bufio.NewReader(c).ReadString('\n')
			if err != nil || !strings.HasPrefix(status, "HTTP/1.1 200") {
				b.Fatal(status, err)
			}
			c.Close()
		}
		b.ReportMetric(waiting, "B/request")
		b.ReportMetric(bare, "B/idle-request")
		b.ReportMetric(waiting/bare, "of-idle")
	}
	b.ReportMetric(0, "ns/op")
}

// requestAll sends each request over a connection of its own.
func requestAll(b *testing.B, address string, request func(i int) string) []net.Conn {
	all := make([]net.Conn, waitRequests)
	if !parallel(b, waitRequests, 64, func(i int) (err error) {
		if all[i], err = net.Dial("tcp4", address); err == nil {
			_, err = all[i].Write([]byte(request(i)))
		}
		return err
	}) {
		b.FailNow()
	}
	return all
}

// awaitCount waits until waitRequests are counted.
func awaitCount(b *testing.B, count func() int) {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(25 * time.Second); count() < waitRequests; <-ticker.C {
		if time.Now().After(deadline) {
			b.Fatalf("%d requests wait", count())
		}
	}
}
