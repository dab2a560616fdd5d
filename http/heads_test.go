package http_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	nethttp "net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/atelier-run/atelier/http"
)

const whoami = "GET /v1/whoami HTTP/1.1\r\nHost: x\r\n"

// begin opens a connection and sends the beginning of a request.
func (b *bubble) begin(head string) net.Conn {
	b.Helper()
	c, err := b.pipes.dial(b.Context(), "", "")
	if err != nil {
		b.Fatal(err)
	}
	go io.WriteString(c, head) // the server may stop reading
	return c
}

// answered reads a response from a connection.
func (b *bubble) answered(c net.Conn) (int, string) {
	b.Helper()
	answer, err := nethttp.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		b.Error(err)
		return 0, ""
	}
	body, _ := io.ReadAll(answer.Body)
	return answer.StatusCode, string(body)
}

func TestHeadsAreBounded(t *testing.T) {
	for name, test := range map[string]struct {
		head   string
		status int
	}{
		"as many fields as allowed": {whoami + strings.Repeat("a: b\r\n", 126) + "Connection: close\r\n\r\n", 401},
		"too many fields":           {whoami + strings.Repeat("a: b\r\n", 130) + "\r\n", 431},
		"unfinished fields":         {whoami + strings.Repeat("a:\n", 130), 431},
		"a long field":              {whoami + "a: " + strings.Repeat("x", 50<<10) + "\r\nConnection: close\r\n\r\n", 401},
		"too long a field":          {whoami + "a: " + strings.Repeat("x", 65<<10) + "\r\n\r\n", 431},
		"too long a target":         {"GET /" + strings.Repeat("x", 65<<10) + " HTTP/1.1\r\n\r\n", 431},
		"lines in a body":           {"POST /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 1000\r\n\r\n" + strings.Repeat("\n", 1000), 405},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				c := b.begin(test.head)
				defer c.Close()
				if status, body := b.answered(c); status != test.status {
					b.Errorf("%d %s, want %d", status, body, test.status)
				}
			})
		})
	}
}

// TestHeadsOfAConnectionAreCountedSeparately sends more fields over one connection than one head may have.
func TestHeadsOfAConnectionAreCountedSeparately(t *testing.T) {
	inBubble(t, func(b *bubble) {
		c, err := b.pipes.dial(b.Context(), "", "")
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		for range 5 {
			if answer := exchange(b, c, whoami+strings.Repeat("a: b\r\n", 100)+"\r\n"); answer.StatusCode != 401 {
				b.Errorf("%d", answer.StatusCode)
			}
		}
	})
}

// TestUnfinishedHeads has a thousand clients send most of a head each. The memory for them is bounded; short heads are still
// served, and long ones after the clients have timed out.
func TestUnfinishedHeads(t *testing.T) {
	inBubble(t, func(b *bubble) {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		var held []net.Conn
		long := whoami + strings.Repeat("a: "+strings.Repeat("x", 470)+"\r\n", 120)
		for range 1000 {
			held = append(held, b.begin(long))
		}
		synctest.Wait()
		if charged := b.server.Stats().HeadBytes; charged < 16<<20 || charged > 32<<20 {
			b.Errorf("%d bytes are charged", charged)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 192<<20 {
			b.Errorf("they take %d bytes", grown)
		}
		c := b.begin(whoami + "Connection: close\r\n\r\n")
		if status, body := b.answered(c); status != 401 {
			b.Errorf("a short head: %d %s", status, body)
		}
		c = b.begin(long + "Connection: close\r\n\r\n")
		if status, body := b.answered(c); status != 503 || !strings.Contains(body, "unavailable") {
			b.Errorf("a long head: %d %s", status, body)
		}
		time.Sleep(11 * time.Second)
		if charged := b.server.Stats().HeadBytes; charged != 0 {
			b.Errorf("%d bytes are charged when all have timed out", charged)
		}
		c = b.begin(long + "Connection: close\r\n\r\n")
		if status, body := b.answered(c); status != 401 {
			b.Errorf("a long head afterwards: %d %s", status, body)
		}
		for _, c := range held {
			c.Close()
		}
	}, func(o *http.Options) { o.Limits.Connections = 2000 })
}

// TestBodiesOtherThanUploadsHaveOneDeadline sends an XML body byte by byte.
func TestBodiesOtherThanUploadsHaveOneDeadline(t *testing.T) {
	for _, method := range []string{"PROPFIND", "PROPPATCH", "LOCK"} {
		inBubble(t, func(b *bubble) {
			b.world.drive = func(w nethttp.ResponseWriter, r *nethttp.Request) {
				if _, err := io.Copy(io.Discard, r.Body); !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("%s: the body ended with %v", method, err)
				}
				w.WriteHeader(400)
			}
			began := time.Now()
			got := b.request(method, "/v1/ws/acme/drive/a", &slowBody{parts: 1 << 20, every: 700 * time.Millisecond})
			got.Body.Close()
			if lasted := time.Since(began); got.StatusCode != 400 || lasted > 31*time.Second {
				b.Errorf("%s: %d after %v", method, got.StatusCode, lasted)
			}
		})
	}
}
