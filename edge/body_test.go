package edge_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/atelier-run/atelier/edge"
)

// accessLog sends each line of the log of an edge to a channel.
type accessLog chan string

func (l accessLog) Write(b []byte) (int, error) {
	l <- string(bytes.TrimSpace(b))
	return len(b), nil
}

// next returns the next line.
func (l accessLog) next(t *testing.T) string {
	t.Helper()
	select {
	case line := <-l:
		return line
	case <-time.After(longest):
		t.Fatal("no request was logged")
		return ""
	}
}

func newLoggedStage(t *testing.T) (*stage, accessLog) {
	lines := make(accessLog, 100)
	s := newStage(t, func(o *edge.Options) { o.Log = slog.New(slog.NewTextHandler(lines, nil)) })
	s.publish(s.register("notes", func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			io.WriteString(w, "whole")
		}
	}))
	return s, lines
}

// A body that is malformed is the client's failure, and not the app's.
func TestMalformedBodies(t *testing.T) {
	s, lines := newLoggedStage(t)
	for name, body := range map[string]string{
		"length":       "5\r\nhello\r\nzz\r\n",
		"long length":  strings.Repeat("1", 20) + "\r\n",
		"end of chunk": "5\r\nhello!!\r\n0\r\n\r\n",
		"first length": "hello\r\n",
	} {
		got := s.raw("POST / HTTP/1.1\r\nHost: notes--acme.apps.test\r\nTransfer-Encoding: chunked\r\n\r\n" + body)
		if !strings.HasPrefix(got, "HTTP/1.1 400 ") || !strings.Contains(got, `"invalid_request"`) || strings.Count(got, "HTTP/1.1") != 1 {
			t.Errorf("%s: %s", name, got)
		}
		if line := lines.next(t); !strings.Contains(line, "status=400") || !strings.Contains(line, "outcome=refused") {
			t.Errorf("%s: %s", name, line)
		}
	}
}

// An upload that breaks off is no failure of the app.
func TestUploadsThatBreakOff(t *testing.T) {
	s, lines := newLoggedStage(t)
	for name, rest := range map[string]string{
		"length":            "Content-Length: 100\r\n\r\nhello",
		"chunk":             "Transfer-Encoding: chunked\r\n\r\nff\r\nhello",
		"between chunks":    "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
		"length of a chunk": "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1",
	} {
		for _, reset := range []bool{false, true} {
			c, err := net.Dial("tcp", s.served.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: notes--acme.apps.test\r\n"+rest); err != nil {
				t.Fatal(err)
			}
			if reset {
				c.(*net.TCPConn).SetLinger(0)
			}
			c.Close()
			if line := lines.next(t); !strings.Contains(line, "outcome=gone") {
				t.Errorf("%s, reset %v: %s", name, reset, line)
			}
		}
	}
}

// TestCanceledUploadsOfHTTP2 cancels an upload over HTTP/2: the client cancels one request.
func TestCanceledUploadsOfHTTP2(t *testing.T) {
	s, lines := newLoggedStage(t)
	served := httptest.NewUnstartedServer(s.edge)
	served.EnableHTTP2 = true
	served.StartTLS()
	t.Cleanup(served.Close)
	ctx, cancel := context.WithCancel(t.Context())
	body, write := io.Pipe()
	r := s.request("POST", "/", "").WithContext(ctx)
	r.URL.Scheme, r.URL.Host, r.Body, r.ContentLength = "https", served.Listener.Addr().String(), body, -1
	ended := make(chan error, 1)
	go func() {
		response, err := served.Client().Do(r)
		if err == nil {
			response.Body.Close()
		}
		ended <- err
	}()
	if _, err := io.WriteString(write, "hello"); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("the canceled request was answered")
	}
	write.Close()
	if line := lines.next(t); !strings.Contains(line, "outcome=gone") {
		t.Error(line)
	}
}
