package http_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	nethttp "net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/atelier-run/atelier/entity/activity"
	"github.com/atelier-run/atelier/http"
	"github.com/atelier-run/atelier/http/mcp"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

const bob = "usr_01j0000000000000000000000b"

// crowd is a server with real listeners, and clients with addresses of their own.
type crowd struct {
	*testing.T
	world   *fakeEntities
	server  *http.Server
	address string
	// socket is the operators' socket.
	socket string
}

func newCrowd(t *testing.T, edit ...func(*http.Options)) *crowd {
	t.Helper()
	c := &crowd{T: t, world: newFakeEntities(), socket: filepath.Join(t.TempDir(), "admin")}
	edit = append(edit, func(o *http.Options) { // bodies that never arrive keep their slots
		o.Limits.HeaderTime, o.Limits.RequestTime = time.Hour, time.Hour
	})
	c.server = c.world.server(t, edit...)
	clients, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	operators, err := net.Listen("unix", c.socket)
	if err != nil {
		t.Fatal(err)
	}
	c.address = clients.Addr().String()
	served := make(chan error, 2)
	go func() { served <- c.server.Serve(clients) }()
	go func() { served <- c.server.ServeAdmin(operators) }()
	t.Cleanup(func() {
		ended, end := context.WithCancel(context.Background())
		end() // some requests never end
		_ = c.server.Shutdown(ended)
		for range 2 {
			if err := <-served; err != nil {
				t.Error(err)
			}
		}
	})
	return c
}

// dial connects from an address.
func (c *crowd) dial(from string) net.Conn {
	c.Helper()
	conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext(c.Context(), "tcp", c.address)
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() { conn.Close() })
	return conn
}

// get sends a request from an address over a connection of its own, and returns the status.
func (c *crowd) get(from, path, key string) int {
	c.Helper()
	conn := c.dial(from)
	defer conn.Close()
	return c.send(conn, "GET "+path+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer "+key+"\r\n\r\n")
}

// send sends the head of a request and returns the status of the response.
func (c *crowd) send(conn net.Conn, head string) int {
	c.Helper()
	if _, err := io.WriteString(conn, head); err != nil {
		c.Fatal(err)
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	status := 0
	if _, scanned := fmt.Sscanf(line, "HTTP/1.1 %d", &status); scanned != nil {
		c.Fatalf("the response is %q, %v", line, err)
	}
	return status
}

// crowdOut starts requests without ever sending their bodies, until one is refused. It returns their number and the status of the refusal.
func (c *crowd) crowdOut(from, line, header string) (accepted, refusal int) {
	c.Helper()
	return c.crowdOutWith(from, line, header+"\r\nContent-Length: 100")
}

// crowdOutWith is crowdOut with the header that says how long a body is.
func (c *crowd) crowdOutWith(from, line, header string) (accepted, refusal int) {
	c.Helper()
	for {
		// The server asks for the body when the request has its slot and is read.
		status := c.send(c.dial(from), line+" HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"+header+"\r\n\r\n")
		if status != nethttp.StatusContinue {
			return accepted, status
		}
		accepted++
	}
}

func (c *crowd) expect(what string, got, want int) {
	c.Helper()
	if got != want {
		c.Errorf("%s: %d, want %d", what, got, want)
	}
}

// Requests of one address without a credential leave room for the requests of other addresses.
func TestSlowFormsOfOneAddress(t *testing.T) {
	c := newCrowd(t, func(o *http.Options) { o.Limits.Requests, o.Limits.AddressBurst = 256, 1000 })
	forms, refusal := c.crowdOut("127.0.0.2", "POST /oauth/token", "Content-Type: application/x-www-form-urlencoded")
	if refusal != 429 || forms < 44 || forms >= 64 {
		t.Errorf("%d forms of one address are read, and the next is answered with %d", forms, refusal)
	}
	c.expect("the sign-in page for another address", c.get("127.0.0.3", "/sign-in", ""), 200)
	c.expect("a request with a key", c.get("127.0.0.2", "/v1/whoami", c.world.key(alice)), 200)
	c.expect("a probe", c.get("127.0.0.2", "/readyz", ""), 200)
	if text := request(t, c.server, "GET", "/metrics", "", "").Body.String(); !strings.Contains(text, `atelier_limit_refused_total{kind="public_requests"} 1`) {
		t.Error("the refusal is not counted")
	}
}

// Requests of one person, with whatever keys and from whatever addresses, leave room for the requests of other people.
func TestSlowBodiesOfOnePerson(t *testing.T) {
	c := newCrowd(t, func(o *http.Options) { o.Limits.Requests = 64 })
	total := 0
	for _, from := range []string{"127.0.0.2", "127.0.0.3", "127.0.0.4"} {
		n, refusal := c.crowdOut(from, "POST /v1/workspaces", "Content-Type: application/json\r\nAuthorization: Bearer "+c.world.key(alice))
		c.expect("the refusal", refusal, 429)
		total += n
	}
	if total < 44 || total >= 64 {
		t.Errorf("%d requests of one person are read", total)
	}
	c.expect("a request of another person", c.get("127.0.0.2", "/v1/whoami", c.world.key(bob)), 200)
	c.expect("a page without a credential", c.get("127.0.0.2", "/sign-in", ""), 200)
}

// Requests of the tools count as requests until their bodies have arrived, and then as streams.
func TestSlowToolsOfOnePerson(t *testing.T) {
	waiting := make(chan struct{})
	c := newCrowd(t, func(o *http.Options) {
		o.Limits.Requests, o.Tools = 64, toolsFunc(func(r *nethttp.Request) { waiting <- struct{}{}; <-r.Context().Done() })
	})
	header := "Content-Type: application/json\r\nAuthorization: Bearer " + c.world.key(alice)
	var calls []net.Conn
	for range 100 { // more than there are slots of requests
		call := c.dial("127.0.0.2")
		if _, err := io.WriteString(call, "POST /mcp HTTP/1.1\r\nHost: x\r\n"+header+"\r\nContent-Length: 2\r\n\r\n{}"); err != nil {
			t.Fatal(err)
		}
		<-waiting
		calls = append(calls, call)
	}
	accepted, refusal := c.crowdOut("127.0.0.2", "POST /mcp", header)
	if refusal != 429 || accepted < 44 || accepted >= 64 {
		t.Errorf("%d requests of one person are read, and the next is answered with %d", accepted, refusal)
	}
	c.expect("a request of another person", c.get("127.0.0.2", "/v1/whoami", c.world.key(bob)), 200)
	for _, call := range calls {
		call.Close()
	}
}

type toolsFunc func(*nethttp.Request)

func (f toolsFunc) ServeTools(_ nethttp.ResponseWriter, r *nethttp.Request, _ *wirev1.Principal, _ string, _ func() error, _ mcp.Wait) {
	f(r)
}

// The memory for bodies is shared by person, and is free again when the requests have ended.
func TestMemoryOfBodies(t *testing.T) {
	const memory = 16 << 20
	for name, test := range map[string]struct {
		length      string
		least, most int
	}{
		"announced": {"Content-Length: 300000", 13, 18},
		"small":     {"Content-Length: 16000", 80, 97}, // the remaining slots are slots of requests
	} {
		t.Run(name, func(t *testing.T) {
			c := newCrowd(t, func(o *http.Options) { o.Limits.Requests, o.Limits.BodyMemory = 109, memory })
			header := "Content-Type: application/json\r\n" + test.length + "\r\nAuthorization: Bearer "
			accepted, refusal := c.crowdOutWith("127.0.0.2", "POST /v1/workspaces", header+c.world.key(alice))
			if refusal != 429 || accepted < test.least || accepted > test.most {
				t.Errorf("%d bodies of one person are read, and the next is answered with %d", accepted, refusal)
			}
			status := c.send(c.dial("127.0.0.2"), "POST /v1/workspaces HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"+header+c.world.key(bob)+"\r\n\r\n")
			c.expect("a body of another person", status, 100)
		})
	}
}

// A body without an announced length is admitted as it arrives.
func TestMemoryOfBodiesWithoutLength(t *testing.T) {
	c := newCrowd(t, func(o *http.Options) { o.Limits.BodyMemory = 1 << 20 })
	key, part := c.world.key(alice), strings.Repeat(" ", 64<<10)
	send := func(parts int) int {
		body := strings.Repeat(fmt.Sprintf("%x\r\n%s\r\n", len(part), part), parts) + "0\r\n\r\n"
		return c.send(c.dial("127.0.0.2"), "POST /v1/workspaces HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"+
			"Transfer-Encoding: chunked\r\nAuthorization: Bearer "+key+"\r\n\r\n"+body)
	}
	c.expect("a body that fits", send(2), 400) // read, and no JSON
	c.expect("a body that does not fit", send(12), 429)
	c.expect("a body that fits after it", send(2), 400)
	if text := request(t, c.server, "GET", "/metrics", "", "").Body.String(); !strings.Contains(text, `atelier_limit_used_slots{kind="body_bytes"} 0`) {
		t.Error("memory of bodies is still taken")
	}
}

// appEdge serves the host "app".
type appEdge struct{}

func (appEdge) Serves(r *nethttp.Request) bool                         { return r.Host == "app" }
func (appEdge) ServeHTTP(w nethttp.ResponseWriter, _ *nethttp.Request) { w.WriteHeader(204) }
func (appEdge) Drain()                                                 {}

// A connection without a slot gets the answers of probes at the hosts of the platform alone.
func TestProbesOfAppsBeyondTheLimit(t *testing.T) {
	c := newCrowd(t, func(o *http.Options) { o.Limits.Connections, o.Edge = 1, appEdge{} })
	probe := func(host string) string { return "GET /healthz HTTP/1.1\r\nHost: " + host + "\r\n\r\n" }
	c.expect("the app", c.send(c.dial("127.0.0.2"), probe("app")), 204) // is idle then, and gives way
	for isBusy := false; !isBusy; {                                     // until the server knows that the first connection is idle
		isBusy = c.send(c.dial("127.0.0.3"), "POST /oauth/token HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\nExpect: 100-continue\r\n"+
			"Content-Type: application/x-www-form-urlencoded\r\n\r\n") == 100
	}
	c.expect("the app beyond the limit", c.send(c.dial("127.0.0.2"), probe("app")), 503)
	c.expect("the platform beyond the limit", c.send(c.dial("127.0.0.2"), probe("localhost")), 200)
}

// Probes and operators have slots that no other request can take.
func TestProbesAndOperatorsHaveSlots(t *testing.T) {
	c := newCrowd(t, func(o *http.Options) { o.Limits.Requests = 1 })
	_, refusal := c.crowdOut("127.0.0.2", "POST /v1/workspaces", "Content-Type: application/json\r\nAuthorization: Bearer "+c.world.key(alice))
	c.expect("the refusal", refusal, 503)
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		c.expect(path, c.get("127.0.0.3", path, ""), 200)
	}
	operator, err := net.Dial("unix", c.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer operator.Close()
	c.expect("an operator", c.send(operator, "POST /admin/users HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"), 415)
}

// Streams of one person leave room for the streams of other people.
func TestStreamsOfOnePerson(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.world.follow = func(ctx context.Context, _ activity.Subscription) error { <-ctx.Done(); return nil }
		open := func(key string) *nethttp.Response {
			return b.request("GET", events, nil, "Authorization", "Bearer "+key)
		}
		total := 0
		for range 3 {
			key := b.world.key(alice)
			for {
				response := open(key)
				if response.StatusCode != 200 {
					if text := b.text(response); response.StatusCode != 429 || !strings.Contains(text, "this person") {
						b.Errorf("%d %s", response.StatusCode, text)
					}
					break
				}
				defer response.Body.Close()
				total++
			}
			synctest.Wait()
		}
		if total < 44 || total >= 64 {
			b.Errorf("one person has %d streams", total)
		}
		other := open(b.world.key(bob))
		other.Body.Close()
		if other.StatusCode != 404 { // has its slot, and is refused by the workspace
			b.Errorf("a stream of another person: %d", other.StatusCode)
		}
	}, func(o *http.Options) { o.Limits.Streams = 64 })
}

// Connections of one address, idle or busy, leave room for the connections of other addresses, and give way to each other.
func TestConnectionsOfOneAddress(t *testing.T) {
	for name, busy := range map[string]bool{"idle": false, "busy": true} {
		t.Run(name, func(t *testing.T) {
			c := newCrowd(t, func(o *http.Options) { o.Limits.Connections = 64 })
			form := "POST /v1/workspaces HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\nExpect: 100-continue\r\n" +
				"Content-Type: application/json\r\nAuthorization: Bearer " + c.world.key(alice) + "\r\n\r\n"
			for range 200 {
				conn := c.dial("127.0.0.2")
				if busy {
					if _, err := io.WriteString(conn, form); err != nil {
						break // it was closed at once
					}
				}
			}
			// Connections are accepted in order.
			c.expect("another address", c.get("127.0.0.3", "/v1/whoami", c.world.key(bob)), 200)
			c.expect("a probe of another address", c.get("127.0.0.3", "/readyz", ""), 200)
			if !busy {
				c.expect("the same address", c.get("127.0.0.2", "/v1/whoami", c.world.key(bob)), 200)
			}
		})
	}
}

// For a new connection, the address with many idle connections gives way, however long the idle connection of another address is idle.
func TestFewIdleConnectionsStay(t *testing.T) {
	c := newCrowd(t, func(o *http.Options) { o.Limits.Connections = 64 })
	const head = "GET /v1/whoami HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "
	first := c.dial("127.0.0.2")
	c.expect("the first request", c.send(first, head+c.world.key(alice)+"\r\n\r\n"), 200)
	for range 64 {
		c.dial("127.0.0.3")
	}
	for address := range 40 { // more than there are slots for; each connection is idle after its request
		c.expect("another address", c.send(c.dial(fmt.Sprint("127.0.0.", 10+address)), head+c.world.key(bob)+"\r\n\r\n"), 200)
	}
	c.expect("the second request", c.send(first, head+c.world.key(alice)+"\r\n\r\n"), 200)
}
