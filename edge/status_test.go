package edge_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// A response clears no cookies of other hosts, and what else it clears is its own.
func TestClearedData(t *testing.T) {
	s := newStage(t)
	s.publish(s.register("notes", func(w http.ResponseWriter, r *http.Request) { w.Header()["Clear-Site-Data"] = r.URL.Query()["clear"] }))
	for _, test := range []struct {
		sent []string
		want string
	}{
		{[]string{`"cookies"`}, ""},
		{[]string{`"cache", "COOKIES" , "storage"`}, `"cache", "storage"`},
		{[]string{`"cookies"`, `"executionContexts"`}, `"executionContexts"`},
		{[]string{`"*"`}, `"cache", "storage"`},
		{[]string{`"cache"`}, `"cache"`},
	} {
		response, _ := s.get("/?" + url.Values{"clear": test.sent}.Encode())
		if got := strings.Join(response.Header["Clear-Site-Data"], "|"); got != test.want {
			t.Errorf("%q becomes %q, want %q", test.sent, got, test.want)
		}
	}
}

// A status that is none is the app's failure.
func TestInvalidStatus(t *testing.T) {
	s := newStage(t)
	id := s.register("notes", nil)
	s.publish(id)
	for _, status := range []string{"000", "001", "099"} {
		s.serveRaw(id, "HTTP/1.1 "+status+" Odd\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		response, body := s.get("/")
		s.expect(response, body, 502, "unavailable")
	}
	if text := s.logged.String(); strings.Contains(text, "panic") || strings.Contains(text, "level=ERROR") {
		t.Error(text)
	}
	for _, status := range []int{200, 299, 599, 999} {
		s.serveRaw(id, fmt.Sprintf("HTTP/1.1 %d Odd\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", status))
		response, body := s.get("/")
		s.expect(response, body, status, "")
	}
}

// A client of HTTP/1.0 gets no informational response, and cannot change the protocol.
func TestHTTP10(t *testing.T) {
	s := newStage(t)
	id := s.register("notes", nil)
	s.publish(id)
	s.serveRaw(id, "HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nwhole")
	got := s.raw("GET / HTTP/1.0\r\nHost: notes--acme.apps.test\r\n\r\n")
	if !strings.HasPrefix(got, "HTTP/1.0 200 OK\r\n") || !strings.HasSuffix(got, "\r\n\r\nwhole") {
		t.Errorf("%q", got)
	}
	s.serveBy(id, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close") // the next request is for another process
		fmt.Fprintf(w, "upgrade %q, connection %q", r.Header["Upgrade"], r.Header["Connection"])
	})
	got = s.raw("GET /ws HTTP/1.0\r\nHost: notes--acme.apps.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	if !strings.HasPrefix(got, "HTTP/1.0 200 OK\r\n") || !strings.HasSuffix(got, "upgrade [], connection []") {
		t.Errorf("%q", got)
	}
	s.serveRaw(id, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	got = s.raw("GET /ws HTTP/1.0\r\nHost: notes--acme.apps.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	if !strings.HasPrefix(got, "HTTP/1.0 502 ") {
		t.Errorf("%q", got)
	}
}
