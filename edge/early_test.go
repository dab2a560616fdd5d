package edge_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// serveEarly makes a process of an app that answers each request after its head, and closes the connection. read is the number of bytes of
// the body that it reads before.
func (s *stage) serveEarly(appID, answer string, read int64) {
	s.Helper()
	s.serveConnections(appID, func(c net.Conn, in *bufio.Reader) {
		_, _ = io.CopyN(io.Discard, in, read)
		_, _ = io.WriteString(c, answer)
	})
}

// The answer of an app that reads only the beginning of an upload reaches a client that sends all of it before it reads.
func TestEarlyAnswers(t *testing.T) {
	s := newStage(t)
	id := s.register("notes", nil)
	s.publish(id)
	const size = 16 << 20
	text := strings.Repeat("too large ", 2000)
	for name, answer := range map[string]string{
		"short":      "HTTP/1.1 413 Content Too Large\r\nContent-Length: 9\r\nConnection: close\r\n\r\ntoo large",
		"long":       "HTTP/1.1 413 Content Too Large\r\nContent-Length: 20000\r\nConnection: close\r\n\r\n" + text,
		"kept alive": "HTTP/1.1 413 Content Too Large\r\nContent-Length: 9\r\n\r\ntoo large",
	} {
		s.serveEarly(id, answer, 64<<10)
		for range 3 {
			c, err := net.Dial("tcp", s.served.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			_ = c.SetDeadline(time.Now().Add(longest))
			r := s.request("POST", "/", "")
			r.Body, r.ContentLength = io.NopCloser(io.LimitReader(zeros{}, size)), size
			if err := r.Write(c); err != nil {
				t.Errorf("%s: the upload: %v", name, err)
			}
			response, err := http.ReadResponse(bufio.NewReader(c), r)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				c.Close()
				continue
			}
			body, err := io.ReadAll(response.Body)
			if err != nil || response.StatusCode != 413 || !strings.HasPrefix(string(body), "too large") {
				t.Errorf("%s: %s %.100s %v", name, response.Status, body, err)
			}
			c.Close()
		}
	}
}

// An app that fails during an upload gives no response.
func TestFailureDuringUpload(t *testing.T) {
	s := newStage(t)
	id := s.register("notes", nil)
	s.publish(id)
	s.serveEarly(id, "", 64<<10)
	r := s.request("POST", "/", "")
	r.Body, r.ContentLength = io.NopCloser(io.LimitReader(zeros{}, 16<<20)), 16<<20
	response, body := s.send(r)
	s.expect(response, body, 502, "unavailable")
}
