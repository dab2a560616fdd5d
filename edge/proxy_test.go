package edge_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/atelier-run/atelier/edge"
	"github.com/atelier-run/atelier/entity"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// echo echoes WebSocket messages at /ws, and sends the events of events at /sse.
func echo(events chan string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/ws":
			c, err := websocket.Accept(w, r, nil)
			if err != nil {
				return
			}
			defer c.CloseNow()
			for {
				kind, message, err := c.Read(r.Context())
				if err != nil || c.Write(r.Context(), kind, message) != nil {
					return
				}
			}
		case "/sse":
			w.Header().Set("Content-Type", "text/event-stream")
			w.WriteHeader(200)
			http.NewResponseController(w).Flush()
			for {
				select {
				case event := <-events:
					fmt.Fprintf(w, "data: %s\n\n", event)
					http.NewResponseController(w).Flush()
				case <-r.Context().Done():
					return
				}
			}
		default:
			hello(w, r)
		}
	}
}

func (s *stage) dial(cookie string) *websocket.Conn {
	s.Helper()
	c, response, err := websocket.Dial(s.Context(), s.served.URL+"/ws", &websocket.DialOptions{
		Host: "notes--acme.apps.test", HTTPHeader: http.Header{"Cookie": {cookie}, "Origin": {"http://notes--acme.apps.test"}},
	})
	if err != nil {
		s.Fatalf("%v: %v", err, response)
	}
	s.Cleanup(func() { c.CloseNow() })
	return c
}

// newLastingStage returns a stage with a published app, and a connection to it at its standard address and one at its own domain.
func newLastingStage(t *testing.T, set ...func(*edge.Options)) (s *stage, id string, standard, custom *websocket.Conn) {
	s = newStage(t, set...)
	id = s.register("notes", echo(nil))
	s.bind(id, appv1.DomainStatus_DOMAIN_STATUS_ACTIVE, appv1.DomainStatus_DOMAIN_STATUS_ACTIVE)
	s.publish(id)
	custom, _, err := websocket.Dial(t.Context(), s.served.URL+"/ws", &websocket.DialOptions{Host: domain})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { custom.CloseNow() })
	return s, id, s.dial(""), custom
}

func (s *stage) echoes(c *websocket.Conn, text string) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), longest)
	defer cancel()
	if err := c.Write(ctx, websocket.MessageText, []byte(text)); err != nil {
		s.Fatal(err)
	}
	if _, got, err := c.Read(ctx); err != nil || string(got) != text {
		s.Fatalf("%q, %v", got, err)
	}
}

// ends fails the test unless the connection is closed.
func (s *stage) ends(c *websocket.Conn) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), longest)
	defer cancel()
	if _, _, err := c.Read(ctx); err == nil || ctx.Err() != nil {
		s.Errorf("the WebSocket did not end: %v", err)
	}
}

func TestWebSocketsAndEvents(t *testing.T) {
	s := newStage(t)
	events := make(chan string)
	id := s.register("notes", echo(events))
	cookie := s.visit(s.alice, id)
	c := s.dial(cookie)
	s.echoes(c, "one")
	s.echoes(c, strings.Repeat("x", 20_000))
	if open := s.metric("atelier_edge_upgrades"); open != 1 {
		t.Errorf("%v open upgrades", open)
	}
	response, err := http.DefaultTransport.RoundTrip(s.request("GET", "/sse", "", "Cookie", cookie))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	lines := bufio.NewReader(response.Body)
	for i := range 3 { // each event arrives before the next one is sent
		events <- fmt.Sprint(i)
		line, err := lines.ReadString('\n')
		if err != nil || line != fmt.Sprintf("data: %d\n", i) {
			t.Fatalf("%q, %v", line, err)
		}
		if _, err := lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
}

// Streams and WebSockets end when the access ends, in each way.
func TestLastingConnectionsEnd(t *testing.T) {
	for name, of := range map[string]struct {
		public bool
		end    func(s *stage, id string)
	}{
		"membership": {false, func(s *stage, _ string) {
			s.ask(entity.KindWorkspace, s.workspaceID, &workspacev1.RemoveMember{UserId: s.bob.GetUserId()})
			s.settle(s.workspaceID)
		}},
		"visibility": {true, func(s *stage, id string) {
			s.askApp(id, &appv1.SetVisibility{Visibility: appv1.Visibility_VISIBILITY_FOLDER})
		}},
		"disabled": {true, func(s *stage, id string) {
			s.askAs(s.alice, entity.KindApp, s.workspaceID+"/"+id, &appv1.SetDisabled{Disabled: true})
		}},
		"removed": {false, func(s *stage, id string) { s.askApp(id, &appv1.RemoveApp{TaskId: newID("tsk_")}) }},
		"closed":  {true, func(s *stage, _ string) { s.edge.Close() }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			id := s.register("notes", echo(nil))
			s.join(s.bob)
			var cookie string
			if of.public {
				s.publish(id)
			} else {
				cookie = s.visit(s.bob, id)
			}
			c := s.dial(cookie)
			s.echoes(c, "before")
			response, err := http.DefaultTransport.RoundTrip(s.request("GET", "/sse", "", "Cookie", cookie))
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			of.end(s, id)
			s.ends(c)
			if _, err := io.ReadAll(response.Body); err == nil {
				t.Error("the stream ended as if it were complete")
			}
		})
	}
}

// A domain that is not active any more ends what it served, and the standard address continues.
func TestLastingConnectionsEndWithTheirDomain(t *testing.T) {
	s, id, standard, custom := newLastingStage(t)
	s.echoes(custom, "before")
	s.bind(id, appv1.DomainStatus_DOMAIN_STATUS_ACTIVE, appv1.DomainStatus_DOMAIN_STATUS_REMOVING)
	s.ends(custom)
	s.echoes(standard, "after")
}

// A look-up that blocks delays the end of no other connection.
func TestBlockedLookUp(t *testing.T) {
	s, id, standard, _ := newLastingStage(t, func(o *edge.Options) { o.Limits.GraceTime = 24 * time.Hour })
	held, released := make(chan struct{}, 100), make(chan struct{})
	defer close(released)
	s.holdBindings(held, released)
	<-held // a round looks the domain up
	s.askApp(id, &appv1.SetVisibility{Visibility: appv1.Visibility_VISIBILITY_FOLDER})
	s.ends(standard)
}

// A process that was replaced serves the connections that it has, and new requests reach the new one.
func TestReplacedProcessDrains(t *testing.T) {
	s := newStage(t)
	var old atomic.Int64
	events := make(chan string)
	id := s.register("notes", func(w http.ResponseWriter, r *http.Request) { old.Add(1); echo(events)(w, r) })
	s.publish(id)
	c := s.dial("")
	s.get("/") // leaves an idle connection to the old process
	s.serveBy(id, hello)
	s.askAs(s.alice, entity.KindApp, s.workspaceID+"/"+id, &appv1.RestartApp{})
	s.askApp(id, &appv1.ReportReconciled{Generation: 2})
	s.advance(2 * time.Second)
	before := old.Load()
	response, body := s.get("/")
	s.expect(response, body, 200, "GET")
	if old.Load() != before {
		t.Error("a new request reached the old process")
	}
	s.echoes(c, "still there")
}

func TestLimits(t *testing.T) {
	s := newStage(t, func(o *edge.Options) {
		o.Limits.ClientRequests, o.Limits.AppRequests, o.Limits.Upgrades, o.Limits.HeaderBytes = 2, 3, 1, 2048
		o.Limits.HeaderTime = 50 * time.Millisecond
		o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	})
	s.publish(s.register("notes", func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/large":
			w.Header().Set("X-Large", strings.Repeat("x", 10_000))
		case "/slow":
			<-r.Context().Done()
		case "/closes":
			panic(http.ErrAbortHandler)
		default:
			echo(nil)(w, r)
		}
	}))
	response, body := s.get("/large")
	s.expect(response, body, 502, "unavailable")
	response, body = s.get("/closes")
	s.expect(response, body, 502, "unavailable")
	response, body = s.get("/slow")
	s.expect(response, body, 504, "timeout")
	s.expect(response, body, 504, "within 50ms, which is the setting app-response")

	s.dial("")
	_, refused, err := websocket.Dial(t.Context(), s.served.URL+"/ws", &websocket.DialOptions{Host: "notes--acme.apps.test"})
	if err == nil || refused.StatusCode != 503 {
		t.Errorf("a second WebSocket: %v", refused)
	}
	stream := func(client string) *http.Response {
		t.Helper()
		response, err := http.DefaultTransport.RoundTrip(s.request("GET", "/sse", "", "X-Forwarded-For", client))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { response.Body.Close() })
		return response
	}
	stream("192.0.2.1")
	stream("192.0.2.1") // with the WebSocket, these are all that the app may have
	response, body = s.get("/", "X-Forwarded-For", "192.0.2.1")
	s.expect(response, body, 429, "this address")
	response, body = s.get("/", "X-Forwarded-For", "192.0.2.2")
	s.expect(response, body, 503, "too many requests")
}

// The apps of a workspace leave room for the apps of other workspaces, and the apps of all workspaces leave room for the platform.
func TestRequestsOfAWorkspace(t *testing.T) {
	for name, c := range map[string]struct {
		slots, most, status int
		text                string
	}{
		"share of a workspace": {16, 14, 429, "this workspace"},
		"all":                  {-1, 0, 503, "too many requests"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, func(o *edge.Options) { o.Limits.Requests = c.slots })
			s.publish(s.register("notes", echo(nil)))
			for range c.most {
				response, err := http.DefaultTransport.RoundTrip(s.request("GET", "/sse", ""))
				if err != nil || response.StatusCode != 200 {
					t.Fatal(response, err)
				}
				t.Cleanup(func() { response.Body.Close() })
			}
			response, body := s.get("/")
			s.expect(response, body, c.status, c.text)
		})
	}
}

// A body of any size passes through, and is not held in memory.
func TestLargeBodies(t *testing.T) {
	s := newStage(t)
	s.publish(s.register("notes", func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		w.Header().Set("X-Length", fmt.Sprint(n))
		io.CopyN(w, zeros{}, 32<<20)
	}))
	r := s.request("POST", "/", "")
	r.Body, r.ContentLength = io.NopCloser(io.LimitReader(zeros{}, 32<<20)), -1
	response, body := s.send(r)
	if response.StatusCode != 200 || response.Header.Get("X-Length") != fmt.Sprint(32<<20) || len(body) != 32<<20 {
		t.Errorf("%s, %s bytes arrived, %d came back", response.Status, response.Header.Get("X-Length"), len(body))
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func TestHTTP2(t *testing.T) {
	s := newStage(t)
	s.publish(s.register("notes", hello))
	served := httptest.NewUnstartedServer(s.edge)
	served.EnableHTTP2 = true
	served.StartTLS()
	t.Cleanup(served.Close)
	r := s.request("POST", "/x", "body")
	r.URL.Scheme, r.URL.Host = "https", served.Listener.Addr().String()
	response, err := served.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	if response.ProtoMajor != 2 {
		t.Errorf("%s", response.Proto)
	}
	s.expect(response, string(body), 200, `POST notes--acme.apps.test/x cookie="" authorization="" body="body"`)
}

// The head and the parts of a body of known length reach the client while the app still works on the remainder.
func TestUnfinishedBodies(t *testing.T) {
	s := newStage(t)
	received := make(chan struct{})
	s.publish(s.register("notes", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "6")
		for _, part := range []string{"", "one", "two"} {
			io.WriteString(w, part)
			http.NewResponseController(w).Flush()
			select {
			case <-received:
			case <-time.After(longest):
				t.Error("the client has not received the part before")
				return
			}
		}
	}))
	response, err := http.DefaultTransport.RoundTrip(s.request("GET", "/", ""))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	received <- struct{}{}
	for _, want := range []string{"one", "two"} {
		part := make([]byte, 3)
		if _, err := io.ReadFull(response.Body, part); err != nil || string(part) != want {
			t.Fatalf("%q, %v; want %q", part, err, want)
		}
		received <- struct{}{}
	}
}

// A client that leaves ends its request at the app.
func TestClientLeaves(t *testing.T) {
	s := newStage(t, func(o *edge.Options) { o.Limits.HalfClosedTime = time.Nanosecond })
	ended := make(chan struct{})
	began := make(chan struct{})
	s.publish(s.register("notes", func(_ http.ResponseWriter, r *http.Request) {
		close(began)
		<-r.Context().Done()
		close(ended)
	}))
	ctx, cancel := context.WithCancel(t.Context())
	answered := make(chan error, 1)
	go func() {
		_, err := http.DefaultTransport.RoundTrip(s.request("GET", "/", "").WithContext(ctx))
		answered <- err
	}()
	<-began
	cancel()
	<-ended
	if err := <-answered; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// metric returns the value of a gauge, or of the sum of the counters with a name.
func (s *stage) metric(name string) (sum float64) {
	s.Helper()
	families, err := s.metrics.Gather()
	if err != nil {
		s.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			sum += m.GetGauge().GetValue() + m.GetCounter().GetValue() // one of them is nil, and has 0
		}
	}
	return sum
}

// Idle connections to apps are closed when there are too many of all apps together.
func TestIdleConnectionsAreLimited(t *testing.T) {
	s := newStage(t, func(o *edge.Options) { o.Limits.Connections = 1 })
	closed := make(chan string, 2)
	for _, slug := range []string{"notes", "tasks"} {
		id := s.register(slug, nil)
		process := httptest.NewUnstartedServer(http.HandlerFunc(hello))
		process.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed {
				closed <- slug
			}
		}
		process.Start()
		t.Cleanup(process.Close)
		s.mu.Lock()
		s.processes[id] = process.Listener.Addr().String()
		s.mu.Unlock()
		s.publish(id)
		response, body := s.get("/", "Host", slug+"--acme.apps.test")
		s.expect(response, body, 200, "GET")
	}
	for range 2 {
		select {
		case <-closed:
		case <-time.After(longest):
			t.Fatal("an idle connection stays open")
		}
	}
}
