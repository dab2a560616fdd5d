package edge_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/atelier-run/atelier/edge"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
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

// The request of a client that has left ends at an app that sends nothing, and counts as nobody's error.
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
