package http_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	nethttp "net/http"
	"strings"
	"testing"
	"time"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/http"
)

// refusedHeads are requests that no handler sees, with the statuses of their answers.
var refusedHeads = map[string]struct {
	request string
	status  int
}{
	"escape in the target":       {"GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n", 400},
	"target without a slash":     {"GET x HTTP/1.1\r\nHost: x\r\n\r\n", 400},
	"no host":                    {"GET / HTTP/1.1\r\n\r\n", 400},
	"two hosts":                  {"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400},
	"malformed host":             {"GET / HTTP/1.1\r\nHost: x\x01\r\n\r\n", 400},
	"field without a colon":      {"GET / HTTP/1.1\r\nHost: x\r\na\r\n\r\n", 400},
	"space before the colon":     {"GET / HTTP/1.1\r\nHost: x\r\na : b\r\n\r\n", 400},
	"control character":          {"GET / HTTP/1.1\r\nHost: x\r\na: \x00\r\n\r\n", 400},
	"malformed length":           {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400},
	"no request":                 {"\x16\x03\x01 hello\r\n\r\n", 400},
	"another version":            {"GET / HTTP/9.9\r\nHost: x\r\n\r\n", 505},
	"unknown transfer encoding":  {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 501},
	"unknown expectation":        {"POST /v1/workspaces HTTP/1.1\r\nHost: x\r\nExpect: a\r\nContent-Length: 2\r\n\r\n{}", 417},
	"too many fields":            {"GET / HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("a: b\r\n", 130) + "\r\n", 431},
	"too long a field":           {"GET / HTTP/1.1\r\nHost: x\r\na: " + strings.Repeat("x", 80<<10) + "\r\n\r\n", 431},
	"length and encoding":        {"POST /v1/workspaces HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
	"encoding and length":        {"POST /v1/workspaces HTTP/1.1\r\nHost: x\r\ntransfer-encoding: chunked\r\nCONTENT-LENGTH: 5\r\n\r\n0\r\n\r\n", 400},
	"length and an odd encoding": {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\nTransfer-Encoding:\tchunked\n\n", 400},
}

// TestRefusedHeads sends requests that no handler sees, at the beginning of a connection and after another request, with and without TLS.
func TestRefusedHeads(t *testing.T) {
	said := &logBuffer{}
	logTo := func(o *http.Options) { o.Log = slog.New(slog.NewTextHandler(said, nil)) }
	server := newFakeEntities().server(t, logTo)
	plain := listen(t)
	go server.Serve(plain)
	t.Cleanup(func() {
		if err := server.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	at := newSecure(t, nil, logTo)
	for kind, dial := range map[string]func() (net.Conn, error){
		"plain":     func() (net.Conn, error) { return net.Dial("tcp", plain.Addr().String()) },
		"redirects": func() (net.Conn, error) { return net.Dial("tcp", at.http.Addr().String()) },
		"TLS": func() (net.Conn, error) {
			return tls.Dial("tcp", at.https.Addr().String(), &tls.Config{RootCAs: at.roots, ServerName: "atelier.test"})
		},
	} {
		for name, test := range refusedHeads {
			for _, before := range []string{"", "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"} {
				t.Run(kind+"/"+name, func(t *testing.T) {
					c, err := dial()
					if err != nil {
						t.Fatal(err)
					}
					defer c.Close()
					c.SetDeadline(time.Now().Add(longest))
					from := bufio.NewReader(c)
					if before != "" {
						io.WriteString(c, before)
						if answer := readAnswer(t, from); answer.StatusCode != 200 {
							t.Fatalf("before: %s", answer.Status)
						}
					}
					io.WriteString(c, test.request)
					checkRefusal(t, from, test.status, said)
				})
			}
		}
	}
}

func readAnswer(t *testing.T, from *bufio.Reader) *nethttp.Response {
	t.Helper()
	answer, err := nethttp.ReadResponse(from, nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body = io.NopCloser(strings.NewReader(string(body)))
	return answer
}

// checkRefusal reads an answer, which must be an error in the usual form, with an id that the log has, and the end of the connection.
func checkRefusal(t *testing.T, from *bufio.Reader, status int, said *logBuffer) {
	t.Helper()
	answer := readAnswer(t, from)
	body, _ := io.ReadAll(answer.Body)
	var refused struct {
		Error   entity.Code
		Message string
	}
	if err := json.Unmarshal(body, &refused); err != nil || answer.StatusCode != status || refused.Error != entity.InvalidRequest || refused.Message == "" {
		t.Fatalf("%s %s, want %d", answer.Status, body, status)
	}
	h := answer.Header
	id := h.Get("X-Request-Id")
	if h.Get("Content-Type") != "application/json" || h.Get("Cache-Control") != "no-store" || h.Get("X-Content-Type-Options") != "nosniff" || !entity.IsRequestID(id) {
		t.Errorf("header %v", h)
	}
	if !answer.Close {
		t.Error("the answer does not say that the connection ends")
	}
	if _, err := from.ReadByte(); err == nil {
		t.Error("the connection goes on")
	}
	if !strings.Contains(said.String(), "request="+id) {
		t.Errorf("the log lacks the id %s", id)
	}
}

// TestAnswersOfHandlersAreNotRefusals verifies that nothing that a handler writes is taken for a refusal of a head, and that a request
// with one length is served.
func TestAnswersOfHandlersAreNotRefusals(t *testing.T) {
	w := newFakeEntities()
	key := w.key(alice)
	w.drive = func(rw nethttp.ResponseWriter, r *nethttp.Request) {
		body, _ := io.ReadAll(r.Body)
		rw.WriteHeader(400)
		io.WriteString(rw, "HTTP/1.1 400 "+string(body))
	}
	server := w.server(t)
	l := listen(t)
	go server.Serve(l)
	defer server.Shutdown(context.Background())
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(longest))
	from := bufio.NewReader(c)
	head := "PUT /v1/ws/acme/drive/a HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + key + "\r\n"
	for _, request := range []string{
		head + "Content-Length: 2\r\n\r\nhi", head + "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", head + "Expect: 100-continue\r\nContent-Length: 2\r\n\r\nhi",
		head + "X-Content-Length: 2\r\nX: Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
		head + "Content-Length: 47\r\n\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n", head + "Content-Length: 2\r\n\r\nhi",
	} {
		io.WriteString(c, request)
		answer := readAnswer(t, from)
		if answer.StatusCode == 100 {
			answer = readAnswer(t, from)
		}
		body, _ := io.ReadAll(answer.Body)
		if answer.StatusCode != 400 || !strings.HasPrefix(string(body), "HTTP/1.1 400 ") {
			t.Errorf("%.120q: %s %s", request, answer.Status, body)
		}
	}
}
