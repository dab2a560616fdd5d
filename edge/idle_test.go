package edge_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/atelier-run/atelier/edge"
)

// heldWriter is a client that does not read the response until resumed is closed.
type heldWriter struct {
	*httptest.ResponseRecorder
	writing, resumed chan struct{}
	// isStopped is set when the edge ends the request.
	isStopped atomic.Bool
}

func (w *heldWriter) Write(b []byte) (int, error) {
	close(w.writing)
	<-w.resumed
	return w.ResponseRecorder.Write(b)
}

func (w *heldWriter) SetWriteDeadline(time.Time) error { w.isStopped.Store(true); return nil }

// A client that has closed its sending side and reads the response slowly has not left.
func TestSlowHalfClosedClient(t *testing.T) {
	s := newStage(t, func(o *edge.Options) { o.Limits.HalfClosedTime = time.Nanosecond })
	began := make(chan struct{})
	s.publish(s.register("notes", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/file" {
			io.WriteString(w, "whole")
			return
		}
		began <- struct{}{}
		<-r.Context().Done()
		began <- struct{}{}
	}))
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	w := &heldWriter{ResponseRecorder: httptest.NewRecorder(), writing: make(chan struct{}), resumed: make(chan struct{})}
	served := make(chan struct{})
	go func() {
		defer close(served)
		s.edge.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "http://notes--acme.apps.test/file", http.NoBody))
	}()
	<-w.writing
	leave()
	for range 2 { // the watcher has seen all requests when two that are silent have ended
		c, err := net.Dial("tcp", s.served.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, "GET /silent HTTP/1.1\r\nHost: notes--acme.apps.test\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		<-began
		c.Close()
		<-began
	}
	if w.isStopped.Load() {
		t.Error("the response has ended while the client reads")
	}
	close(w.resumed)
	<-served
}

// A request lasts as long as the app has time to begin the response, also if that is longer than the time of idle requests.
func TestIdleRequestWithoutAResponse(t *testing.T) {
	s := newStage(t, func(o *edge.Options) { o.Limits.IdleTime, o.Limits.HeaderTime = time.Nanosecond, time.Hour })
	began, released := make(chan struct{}), make(chan struct{})
	s.publish(s.register("notes", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/idle" {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		close(began)
		select {
		case <-released:
		case <-r.Context().Done():
		}
	}))
	request, status := s.request("GET", "/slow", ""), make(chan int, 1)
	go func() {
		response, err := http.DefaultTransport.RoundTrip(request)
		if err != nil {
			t.Error(err)
			status <- 0
			return
		}
		response.Body.Close()
		status <- response.StatusCode
	}()
	<-began
	for range 2 { // the watcher has seen all requests when two that are idle have ended
		s.raw("GET /idle HTTP/1.0\r\nHost: notes--acme.apps.test\r\n\r\n")
	}
	close(released)
	if got := <-status; got != 200 {
		t.Errorf("status %d", got)
	}
}

// A request that ends because it is idle before the app has begun the response gets 504.
func TestIdleUpload(t *testing.T) {
	s := newStage(t, func(o *edge.Options) {
		o.Limits.IdleTime, o.Limits.HeaderTime = time.Nanosecond, time.Millisecond
		o.Limits.StartWait = -time.Minute // takes the watcher's margin away
	})
	s.publish(s.register("notes", func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) }))
	got := s.raw("POST / HTTP/1.1\r\nHost: notes--acme.apps.test\r\nContent-Length: 5\r\n\r\nhe")
	if !strings.HasPrefix(got, "HTTP/1.1 504 ") || !strings.Contains(got, "did not begin its response within 1ms") {
		t.Errorf("%q", got)
	}
}
