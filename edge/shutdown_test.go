package edge_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/atelier-run/atelier/http/server"
)

// front serves an edge by a server of the platform, and returns the server and its address.
func (s *stage) front(e server.Edge) (*server.Server, string) {
	s.Helper()
	front, err := server.New(server.Options{Asker: s.node.Router, Secret: make([]byte, 32), Edge: e})
	if err != nil {
		s.Fatal(err)
	}
	front.Mount(nil, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.Fatal(err)
	}
	go front.Serve(l)
	return front, l.Addr().String()
}

// A server that shuts down ends the streams of events of apps, also streams that begin later, and waits for other requests of apps.
func TestShutdown(t *testing.T) {
	s := newStage(t)
	began, finish := make(chan struct{}), make(chan struct{})
	s.publish(s.register("notes", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/work" {
			close(began)
			<-finish
		}
		echo(nil)(w, r)
	}))
	front, address := s.front(s.edge)
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	stream, later, work := s.request("GET", "/sse", "").WithContext(ctx), s.request("GET", "/sse", "").WithContext(ctx), s.request("GET", "/work", "")
	stream.URL.Host, work.URL.Host = address, address
	events, err := http.DefaultTransport.RoundTrip(stream)
	if err != nil {
		t.Fatal(err)
	}
	defer events.Body.Close()
	worked := make(chan string, 1)
	go func() {
		response, err := http.DefaultTransport.RoundTrip(work)
		if err != nil {
			worked <- err.Error()
			return
		}
		response.Body.Close()
		worked <- response.Status
	}()
	<-began
	ended := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), longest)
		defer cancel()
		ended <- front.Shutdown(ctx)
	}()
	if _, err := io.ReadAll(events.Body); err == nil {
		t.Error("the stream ended as if it were complete")
	}
	if response, err := http.DefaultTransport.RoundTrip(later); err == nil {
		if _, err := io.ReadAll(response.Body); err == nil {
			t.Error("a later stream ended as if it were complete")
		}
		response.Body.Close()
	}
	if ctx.Err() != nil {
		t.Error("a stream did not end")
	}
	close(finish)
	if got := <-worked; got != "200 OK" {
		t.Errorf("a request in progress is answered %s", got)
	}
	if err := <-ended; err != nil {
		t.Errorf("the server shuts down with %v", err)
	}
}
