package http_test

import (
	"bufio"
	"context"
	"io"
	"net"
	nethttp "net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/http"
	"github.com/atelier-run/atelier/http/server"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

func TestRequestsHaveADeadline(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.world.before = func(ctx context.Context, c entity.Command) (proto.Message, error) {
			if _, ok := c.Message.(*userv1.DescribeUser); ok {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return nil, nil
		}
		began := time.Now()
		got := b.request("GET", "/v1/whoami", nil)
		if text := b.text(got); got.StatusCode != 503 || got.Header.Get("Retry-After") == "" || time.Since(began) != 30*time.Second {
			b.Errorf("%d %s after %v", got.StatusCode, text, time.Since(began))
		}
	})
}

func TestRequestsInFlight(t *testing.T) {
	inBubble(t, func(b *bubble) {
		release := make(chan struct{})
		b.world.drive = func(nethttp.ResponseWriter, *nethttp.Request) { <-release }
		done := make(chan struct{})
		go func() { b.request("GET", "/v1/ws/acme/drive/a", nil).Body.Close(); close(done) }()
		synctest.Wait()
		refused := request(b, b.server, "GET", "/v1/whoami", b.key, "")
		expect(b, refused, 503, `{"error":"unavailable","message":"the server is busy"}`)
		if refused.Header().Get("Retry-After") != "1" {
			b.Errorf("%v", refused.Header())
		}
		stream := b.request("GET", events, nil) // streams have their own limit
		stream.Body.Close()
		close(release)
		<-done
		expect(b, request(b, b.server, "GET", "/v1/whoami", b.key, ""), 200, "")
	}, func(o *http.Options) { o.Limits.Requests = 1 })
}

// Slow requests without a credential do not use up the room of requests with one.
func TestPublicRequestsLeaveRoomForOthers(t *testing.T) {
	inBubble(t, func(b *bubble) {
		done := make(chan struct{})
		for range 2 {
			go func() {
				b.request("POST", "/oauth/token", &slowBody{parts: 1 << 10, every: 7 * time.Second}, "Content-Type", "application/x-www-form-urlencoded").Body.Close()
				done <- struct{}{}
			}()
		}
		synctest.Wait()
		for path, want := range map[string]int{"/sign-in": 503, "/v1/openapi.json": 503, "/v1/whoami": 200, "/healthz": 200} {
			if got := request(b, b.server, "GET", path, b.key, ""); got.Code != want {
				b.Errorf("%s: %d %s", path, got.Code, got.Body)
			}
		}
		<-done
		<-done
		expect(b, request(b, b.server, "GET", "/sign-in", "", ""), 200, "")
	}, func(o *http.Options) { o.Limits.Requests = 8 })
}

// hold keeps a connection busy until release is called.
func (b *bubble) hold() (release func()) {
	b.Helper()
	held, ended := make(chan struct{}), make(chan struct{})
	b.world.drive = func(nethttp.ResponseWriter, *nethttp.Request) { <-held }
	go func() {
		defer close(ended)
		b.request("GET", "/v1/ws/acme/drive/a", nil).Body.Close()
	}()
	synctest.Wait()
	return func() { close(held); <-ended }
}

func TestConnections(t *testing.T) {
	inBubble(t, func(b *bubble) {
		release := b.hold()
		if got := b.request("GET", "/readyz", nil); got.StatusCode != 200 {
			b.Errorf("a probe beyond the limit: %d", got.StatusCode)
		}
		b.client.CloseIdleConnections()
		synctest.Wait()
		refused := b.request("GET", "/v1/whoami", nil)
		if text := b.text(refused); refused.StatusCode != 503 || !refused.Close || refused.Header.Get("Retry-After") != "1" {
			b.Errorf("%d %s", refused.StatusCode, text)
		}
		var more []net.Conn
		for range 40 {
			c, err := b.pipes.dial(b.Context(), "", "")
			if err != nil {
				b.Fatal(err)
			}
			more = append(more, c)
		}
		if _, err := more[39].Read(make([]byte, 1)); err != io.EOF {
			b.Errorf("connection far beyond the limit: %v", err)
		}
		for _, c := range more {
			c.Close()
		}
		release()
		synctest.Wait()
		if got := b.request("GET", "/v1/whoami", nil); got.StatusCode != 200 {
			b.Errorf("afterwards: %d", got.StatusCode)
		}
	}, func(o *http.Options) { o.Limits.Connections = 1 })
}

// A connection without a request is closed for a new one, the connection that has been idle for the longest time first.
func TestIdleConnectionsGiveWay(t *testing.T) {
	inBubble(t, func(b *bubble) {
		var idle []net.Conn
		for range 2 {
			c, err := b.pipes.dial(b.Context(), "", "")
			if err != nil {
				b.Fatal(err)
			}
			idle = append(idle, c)
		}
		synctest.Wait()
		// A request makes the first one the last to be idle.
		if answer := exchange(b, idle[0], "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"); answer.StatusCode != 200 {
			b.Errorf("%d", answer.StatusCode)
		}
		if got := b.request("GET", "/v1/whoami", nil); got.StatusCode != 200 {
			b.Errorf("a new connection: %d", got.StatusCode)
		}
		if _, err := idle[1].Read(make([]byte, 1)); err != io.EOF {
			b.Errorf("the connection that was idle for the longest time: %v", err)
		}
		if answer := exchange(b, idle[0], "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"); answer.StatusCode != 200 {
			b.Errorf("the other one: %d", answer.StatusCode)
		}
		idle[0].Close()
	}, func(o *http.Options) { o.Limits.Connections = 2 })
}

// TestOperatorsConnectBeyondTheLimit has clients take every connection.
func TestOperatorsConnectBeyondTheLimit(t *testing.T) {
	inBubble(t, func(b *bubble) {
		operators := newPipes()
		served := make(chan error, 1)
		go func() { served <- b.server.ServeAdmin(operators) }()
		idle, err := b.pipes.dial(b.Context(), "", "")
		if err != nil {
			b.Fatal(err)
		}
		synctest.Wait()
		c, err := operators.dial(b.Context(), "", "")
		if err != nil {
			b.Fatal(err)
		}
		if answer := exchange(b, c, "GET /admin/keys HTTP/1.1\r\nHost: x\r\n\r\n"); answer.StatusCode != 405 || answer.Close {
			b.Errorf("%d, closed: %v", answer.StatusCode, answer.Close)
		}
		idle.Close()
		synctest.Wait()
		if got := b.request("GET", "/healthz", nil); got.StatusCode != 200 { // operators do not count
			b.Errorf("%d", got.StatusCode)
		}
		c.Close()
	}, func(o *http.Options) { o.Limits.Connections = 1 })
}

// exchange sends a request as text and reads the head of the response.
func exchange(b *bubble, c net.Conn, request string) *nethttp.Response {
	b.Helper()
	if _, err := io.WriteString(c, request); err != nil {
		b.Fatal(err)
	}
	answer, err := nethttp.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		b.Fatal(err)
	}
	return answer
}

// TestRefusedBodiesLeaveRoom lets clients announce bodies of refused requests and send none. The server must still accept the
// requests of others meanwhile.
func TestRefusedBodiesLeaveRoom(t *testing.T) {
	const head = "PUT /v1/ws/acme/drive/a HTTP/1.1\r\nHost: x\r\n"
	for _, test := range []struct {
		name   string
		status int
		busy   bool
	}{
		{"no credential", 401, false},
		{"too many requests", 503, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				release, done := make(chan struct{}), make(chan struct{})
				b.world.drive = func(nethttp.ResponseWriter, *nethttp.Request) { <-release }
				if test.busy {
					go func() { b.request("GET", "/v1/ws/acme/drive/a", nil).Body.Close(); done <- struct{}{} }()
					synctest.Wait()
				}
				for range 2 {
					go func() {
						c, err := b.pipes.dial(b.Context(), "", "")
						if err != nil {
							b.Error(err)
							return
						}
						if answer := exchange(b, c, head+"Content-Length: 10\r\n\r\n"); answer.StatusCode != test.status {
							b.Errorf("the refused upload is answered with %d", answer.StatusCode)
						}
						c.Close()
						done <- struct{}{}
					}()
					synctest.Wait() // until it is refused: one request at a time has room
				}
				close(release)
				if test.busy {
					<-done
				}
				expect(b, request(b, b.server, "GET", "/v1/whoami", b.key, ""), 200, "")
				<-done
				<-done
			}, func(o *http.Options) { o.Limits.Requests = 1 })
		})
	}
}

// TestAnnouncedBodiesThatNeverArrive has clients announce a body and send none: each gets a response, and its connection
// ends.
func TestAnnouncedBodiesThatNeverArrive(t *testing.T) {
	const minute, request = time.Minute, 30 * time.Second
	for _, test := range []struct {
		name, line string
		key        bool
		limit      func(*server.Limits)
		status     int
		within     time.Duration
	}{
		{"no such path", "POST /nope", false, nil, 404, request},
		{"no such method", "POST /v1/whoami", false, nil, 405, request},
		{"no credential", "POST /v1/workspaces", false, nil, 401, request},
		{"no credential for the drive", "PUT /v1/ws/acme/drive/a", false, nil, 401, request},
		{"too many requests", "POST /v1/workspaces", true, func(l *server.Limits) { l.Requests = -1 }, 503, request},
		{"too many connections", "GET /v1/whoami", false, func(l *server.Limits) { l.Connections = -1 }, 503, request},
		{"an answer that needs no body", "GET /v1/whoami", true, nil, 200, request},
		{"a refusal by the drive", "PUT /v1/ws/acme/drive/a", true, nil, 412, minute},
		{"a stream", "GET " + events, true, nil, 200, 19 * time.Minute},
	} {
		for _, body := range []string{"Content-Length: 10\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n3\r\n"} {
			t.Run(test.name, func(t *testing.T) {
				inBubble(t, func(b *bubble) {
					b.world.drive = func(w nethttp.ResponseWriter, _ *nethttp.Request) {
						time.Sleep(10 * time.Minute)
						w.WriteHeader(412)
					}
					c, err := b.pipes.dial(b.Context(), "", "")
					if err != nil {
						b.Fatal(err)
					}
					head := test.line + " HTTP/1.1\r\nHost: x\r\n"
					if test.key {
						head += "Authorization: Bearer " + b.key + "\r\n"
					}
					began := time.Now()
					if test.status == 412 {
						began = began.Add(10 * time.Minute)
					}
					answer := exchange(b, c, head+body)
					io.Copy(io.Discard, answer.Body)
					c.SetReadDeadline(time.Now().Add(time.Hour))
					_, err = io.Copy(io.Discard, c)
					if took := time.Since(began); answer.StatusCode != test.status || err != nil || took > test.within+time.Second {
						b.Errorf("%d, %v after %v", answer.StatusCode, err, took)
					}
				}, func(o *http.Options) {
					if test.limit != nil {
						test.limit(&o.Limits)
					}
				})
			})
		}
	}
}

// TestBodyArrivesAfterTheRefusal has the drive refuse a body that is still arriving: the connection serves the next request.
func TestBodyArrivesAfterTheRefusal(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.world.drive = func(w nethttp.ResponseWriter, r *nethttp.Request) {
			time.Sleep(10 * time.Minute)
			w.WriteHeader(412)
		}
		c, err := b.pipes.dial(b.Context(), "", "")
		if err != nil {
			b.Fatal(err)
		}
		head := " /v1/ws/acme/drive/a HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + b.key + "\r\n"
		go func() {
			io.WriteString(c, "PUT"+head+"Content-Length: 10\r\n\r\n")
			time.Sleep(10*time.Minute + 50*time.Second)
			io.WriteString(c, "0123456789")
		}()
		reader := bufio.NewReader(c)
		for _, next := range []string{"GET" + head + "\r\n", ""} {
			answer, err := nethttp.ReadResponse(reader, nil)
			if err != nil || answer.StatusCode != 412 || answer.Close {
				b.Fatalf("%v, %v", answer, err)
			}
			io.WriteString(c, next)
		}
		c.Close()
	})
}

// TestReadAfterCloseSetsNoDeadline has a drive that reads from a body after closing it, and then works for a long time.
func TestReadAfterCloseSetsNoDeadline(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.world.drive = func(w nethttp.ResponseWriter, r *nethttp.Request) {
			r.Body.Close()
			for range 3 {
				time.Sleep(10 * time.Minute)
				r.Body.Read(make([]byte, 1))
			}
			time.Sleep(10 * time.Minute)
			if err := r.Context().Err(); err != nil {
				t.Error(err)
			}
			w.WriteHeader(201)
		}
		if got := b.request("PUT", "/v1/ws/acme/drive/a", strings.NewReader("x")); got.StatusCode != 201 {
			b.Errorf("%d", got.StatusCode)
		}
	})
}

func TestHeadsTakeBoundedMemory(t *testing.T) {
	s := newFakeEntities().server(t)
	if n := s.Stats().MaxHeadBytes; n > 96<<20 {
		t.Errorf("heads can take %d bytes", n)
	}
	if l := s.Options().Limits; l.Connections <= l.Streams {
		t.Errorf("%d streams leave nothing of %d connections", l.Streams, l.Connections)
	}
}

func TestLargeBodiesCostNoMemory(t *testing.T) {
	inBubble(t, func(b *bubble) {
		got := b.request("POST", "/v1/workspaces", io.LimitReader(neverEnding{}, 8<<20), "Content-Type", "application/json")
		if got.StatusCode != 413 {
			b.Errorf("%d", got.StatusCode)
		}
		got.Body.Close()
	})
}

type neverEnding struct{}

func (neverEnding) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}
