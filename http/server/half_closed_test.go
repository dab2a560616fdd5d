package server_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/http/server"
	"github.com/atelier-run/atelier/tests/halfclosed"
)

// noEntities are the entities of a server. Its operations ask none.
type noEntities struct{}

func (noEntities) Ask(context.Context, entity.Command) (proto.Message, error) {
	return nil, entity.Errorf(entity.NotFound, "")
}

func (noEntities) Settle(context.Context, string, string) error { return nil }

// serve serves the routes with a time for ordinary requests, and returns the address.
func serve(t *testing.T, time time.Duration, routes ...server.Route) (s *server.Server, address string) {
	t.Helper()
	s, err := server.New(server.Options{Asker: noEntities{}, Secret: make([]byte, 32), Limits: server.Limits{RequestTime: time}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range routes {
		routes[i].Path, routes[i].Scope = "/thing", server.ScopePublic
	}
	s.Mount(routes, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		_ = s.Shutdown(context.Background())
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return s, l.Addr().String()
}

func requestOf(method string) string { return method + " /thing HTTP/1.1\r\nHost: localhost\r\n\r\n" }

// expectGone checks that the server has counted one request, and that its client had gone, once the connections have ended.
func expectGone(t *testing.T, s *server.Server) {
	t.Helper()
	if err := s.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	families, err := s.Options().Gatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var counted []string
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == "atelier_http_requests_total" && m.GetCounter().GetValue() > 0 {
				counted = append(counted, fmt.Sprint(m))
			}
		}
	}
	if len(counted) != 1 || !strings.Contains(counted[0], `"0xx"`) {
		t.Errorf("the server has counted %q", counted)
	}
}

// A client that shuts its sending side after the request, as nc -N and many probes do, gets the answer, and its change is made.
func TestClientThatSendsNoMore(t *testing.T) {
	run := server.Answer(http.StatusOK, server.Nothing, func(c *server.Call, _ server.None) (map[string]bool, error) {
		<-c.Request.Context().Done() // net/http has noticed
		return map[string]bool{"done": true}, c.Context.Err()
	})
	for timing, methods := range map[server.Timing][]string{
		server.Brief:     {http.MethodGet, http.MethodPost, http.MethodDelete},
		server.Streaming: {http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete},
		server.Transfer:  {http.MethodGet, http.MethodPut, http.MethodDelete, "PROPFIND", "MOVE"},
	} {
		var routes []server.Route
		for _, method := range methods {
			routes = append(routes, server.Route{Method: method, Handler: run, Timing: timing})
		}
		_, address := serve(t, time.Hour, routes...)
		for _, method := range methods {
			status, body := halfclosed.Send(t, address, requestOf(method))
			if status != http.StatusOK || body != `{"done":true}` {
				t.Errorf("%s of timing %d: %d %s", method, timing, status, body)
			}
		}
	}
}

// A wait for a client that has shut its sending side ends while there is time to answer.
func TestWaitForAClientThatSendsNoMore(t *testing.T) {
	_, address := serve(t, time.Millisecond, server.Route{Method: http.MethodPost, Timing: server.Streaming, Handler: func(c *server.Call) error {
		waiting, end := c.Waiting(c.Context, time.Hour)
		defer end()
		<-waiting.Done()
		c.Response.WriteJSON(http.StatusAccepted, "later")
		return nil
	}})
	if status, body := halfclosed.Send(t, address, requestOf(http.MethodPost)); status != http.StatusAccepted || body != `"later"` {
		t.Errorf("%d %s", status, body)
	}
}

// untilGone runs until its client has gone, and answers as the router does.
func untilGone(c *server.Call) error {
	<-c.Context.Done()
	return entity.Errorf(entity.Unavailable, "retry")
}

// A client that may have gone does not hold its request for longer than its time, gets no advice to repeat a change, and counts as gone.
func TestTimeOfAClientThatSendsNoMore(t *testing.T) {
	for method, route := range map[string]server.Route{
		"a change":   {Method: http.MethodPost, Timing: server.Streaming},
		"a transfer": {Method: "MOVE", Timing: server.Transfer},
		"a stream":   {Method: http.MethodGet, Timing: server.Streaming},
	} {
		t.Run(method, func(t *testing.T) {
			route.Handler = untilGone
			s, address := serve(t, time.Millisecond, route)
			c := halfclosed.Open(t, address, requestOf(route.Method))
			if answer, err := io.ReadAll(c); len(answer) > 0 || err != nil {
				t.Errorf("%q, %v", answer, err)
			}
			expectGone(t, s)
		})
	}
}

// The request of a client ends at once if its connection is reset, and counts as gone.
func TestClientThatHasGone(t *testing.T) {
	began := make(chan struct{})
	s, address := serve(t, time.Hour, server.Route{Method: http.MethodPost, Timing: server.Streaming, Handler: func(c *server.Call) error {
		close(began)
		return untilGone(c)
	}})
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, requestOf(http.MethodPost)); err != nil {
		t.Fatal(err)
	}
	<-began
	if err := c.(*net.TCPConn).SetLinger(0); err != nil {
		t.Fatal(err)
	}
	c.Close()
	expectGone(t, s)
}

// The request of a client that has shut its sending side ends at the drain deadline.
func TestDrainOfAClientThatSendsNoMore(t *testing.T) {
	noticed, ended := make(chan struct{}), make(chan struct{})
	s, address := serve(t, time.Hour, server.Route{Method: http.MethodPost, Timing: server.Streaming, Handler: func(c *server.Call) error {
		<-c.Request.Context().Done()
		close(noticed)
		<-c.Context.Done()
		close(ended)
		return c.Context.Err()
	}})
	halfclosed.Open(t, address, requestOf(http.MethodPost))
	<-noticed
	over, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Shutdown(over); err == nil || !strings.Contains(err.Error(), "POST /thing") {
		t.Errorf("the error is %v, want the name of the request", err)
	}
	<-ended
}
