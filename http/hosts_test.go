package http_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	nethttp "net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/http"
)

// TestHosts asks for the platform at names of each kind.
func TestHosts(t *testing.T) {
	s := newFakeEntities().server(t, func(o *http.Options) {
		o.PublicURL = &url.URL{Scheme: "https", Host: "atelier.test:8443"}
		o.Hosts, o.Edge = []string{"Inside.test", "single"}, fakeEdge{}
	})
	served := func(host, path string) (status int, body string) {
		t.Helper()
		r := httptest.NewRequest("GET", path, nil)
		r.Host = host
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	for _, host := range []string{
		"atelier.test", "atelier.test:8443", "ATELIER.test.", "atelier.test.:1", "inside.test", "inside.TEST:80", "single", "single:8080", "",
		"localhost", "localhost:8080", "LOCALHOST.", "x.localhost", "127.0.0.1", "127.0.0.1:80", "192.0.2.1:8080", "::1", "[::1]", "[::1]:8080",
		"[fe80::1%25eth0]:80", "[2001:db8::1]:443",
	} {
		if status, body := served(host, "/v1/ws/x"); status == 421 {
			t.Errorf("%q is refused: %s", host, body)
		}
	}
	for _, host := range []string{
		"evil.org", "evil.org:8080", "atelier.test.evil.org", "xatelier.test", "x.atelier.test", "other", "apps.test", "localhost.evil.org", "127.0.0.1.evil.org",
		"xlocalhost", "1.2.3", "[::1]evil.org", "[evil.org]:80", "a:b:c", ":", ":80:", "atelier.test@evil.org", "evil.org@atelier.test", "0x7f.1", "\x00", "[", "]", "[]",
	} {
		var want string
		for _, path := range []string{"/", "/sign-in", "/v1/whoami", "/v1/ws/acme/drive/", "/docs", "/none", "/metrics/x", "/healthz/", "/mcp"} {
			status, body := served(host, path)
			if status != 421 || !strings.HasPrefix(body, `{"error":"misdirected_request","message":"`) || !strings.Contains(body, "hosts") {
				t.Errorf("%q%s: %d %s", host, path, status, body)
			}
			if want == "" {
				want = body
			}
			if body != want {
				t.Errorf("%q%s differs: %s", host, path, body)
			}
		}
		for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
			if status, body := served(host, path); status != 200 {
				t.Errorf("%q%s: %d %s", host, path, status, body)
			}
		}
	}
	if status, body := served("notes--acme.apps.test", "/healthz"); status != 200 || body != "app at notes--acme.apps.test" {
		t.Errorf("an app answers %d %s", status, body)
	}
}

// TestRebinding sends a request as the page of another site does that has led its name to the server, over a real connection.
func TestRebinding(t *testing.T) {
	w := newFakeEntities()
	live := httptest.NewServer(w.server(t, func(o *http.Options) { o.PublicURL = &url.URL{Scheme: "http", Host: "127.0.0.1:1"} }))
	defer live.Close()
	for host, want := range map[string]int{"evil.org": 421, live.Listener.Addr().String(): 401} {
		c, err := net.Dial("tcp", live.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "POST /v1/workspaces HTTP/1.1\r\nHost: %s\r\nOrigin: http://%s\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}", host, host)
		response, err := nethttp.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		c.Close()
		if response.StatusCode != want || response.Header.Get("X-Request-Id") == "" || response.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %s %v %s", host, response.Status, response.Header, body)
		}
	}
}
