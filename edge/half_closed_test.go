package edge_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/atelier-run/atelier/edge"
	"github.com/atelier-run/atelier/entity"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	"github.com/atelier-run/atelier/tests/halfclosed"
)

// lateEdge begins each request without a body only when net/http has noticed that the client has closed its sending side. Before that, a
// request with a body has to be read, and therefore to begin.
type lateEdge struct {
	*edge.Edge
	// arrived gets the context of each request.
	arrived chan context.Context
}

func (e lateEdge) Serves(r *http.Request) bool {
	if r.Body == http.NoBody {
		<-r.Context().Done()
	}
	return e.Edge.Serves(r)
}

func (e lateEdge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.arrived <- r.Context()
	e.Edge.ServeHTTP(w, r)
}

// A client that closes its sending side after the request, as nc -N and many probes do, gets the response of the app: to a request that the
// caches do not know, of a custom domain, of a private app, with a body, in parts and to a launch.
func TestClientThatSendsNoMore(t *testing.T) {
	lines := make(accessLog, 100)
	s := newStage(t, func(o *edge.Options) { o.Log = slog.New(slog.NewTextHandler(lines, nil)) })
	late := lateEdge{s.edge, make(chan context.Context, 1)}
	id := s.register("notes", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		<-(<-late.arrived).Done()
		io.WriteString(w, "got ")
		w.(http.Flusher).Flush()
		w.Write(body)
	})
	cookie := "Cookie: " + s.visit(s.alice, id) + "\r\n"
	lines.next(t)
	s.bind(id, appv1.DomainStatus_DOMAIN_STATUS_ACTIVE, appv1.DomainStatus_DOMAIN_STATUS_ACTIVE)
	s.advance(2 * time.Second)
	_, address := s.front(late)
	for name, test := range map[string]struct{ head, body, want string }{
		"GET":             {head: "GET / HTTP/1.1\r\nHost: notes--acme.apps.test\r\n", want: "got "},
		"GET of HTTP/1.0": {head: "GET / HTTP/1.0\r\nHost: notes--acme.apps.test\r\n", want: "got "},
		"POST":            {head: "POST / HTTP/1.1\r\nHost: notes--acme.apps.test\r\nContent-Length: 5\r\n", body: "hello", want: "got hello"},
		"chunks":          {head: "POST / HTTP/1.1\r\nHost: notes--acme.apps.test\r\nTransfer-Encoding: chunked\r\n", body: "5\r\nhello\r\n0\r\n\r\n", want: "got hello"},
	} {
		s.advance(2 * time.Second) // nothing is cached
		status, body := halfclosed.Send(t, address, test.head+cookie+"\r\n"+test.body)
		if status != 200 || body != test.want {
			t.Errorf("%s: %d %s", name, status, body)
		}
		if line := lines.next(t); !strings.Contains(line, "status=200") || !strings.Contains(line, "outcome=proxied") {
			t.Errorf("%s: %s", name, line)
		}
	}
	s.publish(id)
	if status, body := halfclosed.Send(t, address, "GET / HTTP/1.1\r\nHost: "+domain+"\r\n\r\n"); status != 200 || body != "got " {
		t.Errorf("custom domain: %d %s", status, body)
	}
	lines.next(t)
	target, host := s.launch(s.alice, id, "", "")
	if status, body := halfclosed.Send(t, address, "GET "+target+" HTTP/1.1\r\nHost: "+host+"\r\n\r\n"); status != 303 {
		t.Errorf("launch: %d %s", status, body)
	}
	<-late.arrived
	for range 2 { // the name is unknown, and then known as one of the platform, but not any more
		status, body := halfclosed.Send(t, address, "GET / HTTP/1.1\r\nHost: platform.example\r\n\r\n")
		if status != 421 {
			t.Errorf("platform: %d %s", status, body)
		}
		s.advance(2 * time.Second)
	}
}

// A client that has left is told from a client that sends no more by the first response that the system of the client refuses.
func TestResponseToAClientThatHasLeft(t *testing.T) {
	s, lines := newLoggedStage(t)
	began, left, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	s.publish(s.register("tasks", func(w http.ResponseWriter, r *http.Request) {
		close(began)
		<-left
		for r.Context().Err() == nil {
			io.WriteString(w, "more")
			w.(http.Flusher).Flush()
		}
		close(ended)
	}))
	c, err := net.Dial("tcp", s.served.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: tasks--acme.apps.test\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	<-began
	c.Close()
	close(left)
	<-ended
	if line := lines.next(t); !strings.Contains(line, "status=200") {
		t.Error(line)
	}
}

// The request of a client that has left ends at an app that sends nothing, and the outcome is gone.
func TestSilenceForAClientThatHasLeft(t *testing.T) {
	lines := make(accessLog, 100)
	s := newStage(t, func(o *edge.Options) {
		o.Log, o.Limits.HalfClosedTime = slog.New(slog.NewTextHandler(lines, nil)), time.Nanosecond
	})
	began := make(chan struct{})
	s.publish(s.register("notes", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stream" {
			w.(http.Flusher).Flush()
		}
		began <- struct{}{}
		<-r.Context().Done()
		began <- struct{}{}
	}))
	for path, status := range map[string]string{"/": "status=0", "/stream": "status=200"} {
		c, err := net.Dial("tcp", s.served.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: notes--acme.apps.test\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		<-began
		c.Close()
		<-began
		if line := lines.next(t); !strings.Contains(line, status) || !strings.Contains(line, "outcome=gone") {
			t.Errorf("%s: %s", path, line)
		}
	}
}

// The request of a client that may have left, at an app that sends nothing, gives way to another request that no slot is free for.
func TestHalfClosedRequestsGiveWay(t *testing.T) {
	for name, c := range map[string]struct {
		limits edge.Limits
		// held is the number of requests that reach the limit; elsewhere is set if another workspace needs the slot.
		held      int
		elsewhere bool
	}{
		"address":   {limits: edge.Limits{ClientRequests: 1}, held: 1},
		"app":       {limits: edge.Limits{AppRequests: 2}, held: 2},
		"workspace": {limits: edge.Limits{Requests: 16}, held: 14},
		"node":      {limits: edge.Limits{Requests: 1}, held: 1, elsewhere: true},
	} {
		t.Run(name, func(t *testing.T) {
			lines := make(accessLog, 100)
			s := newStage(t, func(o *edge.Options) {
				o.Log, o.Limits = slog.New(slog.NewTextHandler(lines, &slog.HandlerOptions{Level: slog.LevelDebug})), c.limits
				o.Limits.HalfClosedTime = time.Hour
			})
			began, ended, released := make(chan struct{}), make(chan string, c.held), make(chan struct{})
			defer close(released)
			h := func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/" {
					hello(w, r)
					return
				}
				began <- struct{}{}
				select {
				case <-r.Context().Done():
					ended <- r.URL.Path
				case <-released:
				}
			}
			s.publish(s.register("notes", h))
			host := "notes--acme.apps.test"
			if c.elsewhere {
				s.workspaceID, host = newID("ws_"), "tasks--other.apps.test"
				s.ask(entity.KindSlug, "other", &slugv1.ClaimSlug{
					WorkspaceId: s.workspaceID, WorkspaceName: "Other", CreatorId: s.alice.GetUserId(), CreatorEmail: "alice@example.com",
				})
				s.settle("other")
				s.publish(s.register("tasks", h))
			}
			for n := range c.held {
				conn, err := net.Dial("tcp", s.served.Listener.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				fmt.Fprintf(conn, "GET /%d HTTP/1.1\r\nHost: notes--acme.apps.test\r\n\r\n", n)
				<-began
				if n > 0 { // the first waits for its answer
					continue
				}
				response, body := s.get("/", "Host", host)
				if c.held == 1 {
					s.expect(response, body, map[bool]int{false: 429, true: 503}[c.elsewhere], "too many")
				}
				if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
					t.Fatal(err)
				}
				for !strings.Contains(lines.next(t), "has closed its sending side") {
				}
			}
			response, body := s.get("/", "Host", host)
			s.expect(response, body, 200, "GET")
			if path := <-ended; path != "/0" {
				t.Errorf("the request of a client that waits has ended: %s", path)
			}
			for line := ""; !strings.Contains(line, "path=/0"); {
				if line = lines.next(t); strings.Contains(line, "path=/0") && !strings.Contains(line, "outcome=gone") {
					t.Error(line)
				}
			}
		})
	}
}
