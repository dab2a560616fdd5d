package http_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	nethttp "net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/activity"
	"github.com/atelier-run/atelier/http"
	"github.com/atelier-run/atelier/http/mcp"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	"github.com/atelier-run/atelier/tests/halfclosed"
)

// begunTools are waitingTools that report the beginning of a wait.
type begunTools struct{ begin func() }

func (b begunTools) ServeTools(
	w nethttp.ResponseWriter, r *nethttp.Request, caller *wirev1.Principal, id string, authenticate func() error, wait mcp.Wait,
) {
	b.begin()
	waitingTools{}.ServeTools(w, r, caller, id, authenticate, wait)
}

// postText returns the text of a request with a body.
func postText(path, key, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"+
		"Content-Length: %d\r\n\r\n%s", path, key, len(body), body)
}

// getText returns the text of a request without a body.
func getText(path, key string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + key + "\r\n\r\n"
}

// beginWaiting returns the hook of fake entities with one session. It calls begin when a wait for the session begins.
func beginWaiting(begin func()) func(context.Context, entity.Command) (proto.Message, error) {
	return func(ctx context.Context, c entity.Command) (proto.Message, error) {
		switch m := c.Message.(type) {
		case *wirev1.List:
			return &wirev1.Page{}, nil
		case *sessionv1.StartSession:
			return &sessionv1.Accepted{InputSeq: 1, Created: true, Digest: m.GetPrompt().GetDigest()}, nil
		case *sessionv1.AwaitInput:
			begin()
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return nil, nil
	}
}

// Over TCP, a new stream takes over the only slot of its credential from a wait or a stream of a client that has closed its sending
// side. The wait is answered at once. The new stream, with a client that is there, keeps the slot.
func TestSlotOfAClientThatSendsNoMore(t *testing.T) {
	for name, first := range map[string]struct {
		request func(key string) string
		status  int
		says    string
		// isStream reports that the rest of the answer may be cut off: the time for it is short.
		isStream bool
	}{
		"a tool": {request: func(key string) string { return postText("/mcp", key, "{}") }, status: 200, says: "waited"},
		"a session": {
			request: func(key string) string { return postText("/v1/ws/acme/agent/sessions/wait", key, waitBody) },
			status:  202, says: `"inputSeq":1`,
		},
		"a stream of events": {request: func(key string) string { return getText(events, key) }, status: 200, says: "retry: ", isStream: true},
	} {
		t.Run(name, func(t *testing.T) {
			begun, mayEnd := make(chan struct{}), make(chan struct{})
			begin := sync.OnceFunc(func() { close(begun) })
			c := newCrowd(t, func(o *http.Options) {
				o.Limits.CredentialStreams, o.Limits.Rate, o.Sessions.WaitTime, o.Tools = 1, -1, time.Hour, begunTools{begin}
			})
			c.world.before = beginWaiting(begin)
			c.world.follow = func(ctx context.Context, _ activity.Subscription) error {
				begin()
				<-ctx.Done()
				<-mayEnd // the slot does not wait for the end of the stream
				return nil
			}
			key := c.world.key(alice)
			conn := c.dial("127.0.0.1").(*net.TCPConn)
			if _, err := io.WriteString(conn, first.request(key)); err != nil {
				t.Fatal(err)
			}
			<-begun
			c.expect("a second stream beside a client that is there", c.send(c.dial("127.0.0.1"), getText(events, key)), 429)
			if err := conn.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			second := c.admit(getText(events, key))
			c.expect("a third stream", c.send(c.dial("127.0.0.1"), getText(events, key)), 429)
			close(mayEnd)
			response, err := nethttp.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := io.ReadAll(response.Body)
			if err != nil && !first.isStream || response.StatusCode != first.status || !strings.Contains(string(answer), first.says) {
				t.Errorf("%s %q, %v", response.Status, answer, err)
			}
			c.expect("a third stream after the end of the first", c.send(c.dial("127.0.0.1"), getText(events, key)), 429)
			second.Close()
			c.admit(getText(events, key))
		})
	}
}

// admit sends the text of a request until the answer is not a refusal: the server may not have noticed yet that another client has gone. It
// returns the connection.
func (c *crowd) admit(text string) net.Conn {
	c.Helper()
	for deadline := time.Now().Add(3 * time.Minute); ; {
		conn := c.dial("127.0.0.1")
		switch status := c.send(conn, text); {
		case status == 200:
			return conn
		case status != 429 || time.Now().After(deadline):
			c.Fatalf("the answer to %.20q is %d", text, status)
		}
		conn.Close()
	}
}

// A command goes on for a client that has closed its sending side, and keeps its slot.
func TestSlotOfACommandOfAClientThatSendsNoMore(t *testing.T) {
	m := newMachine(t, func(o *http.Options) { o.Limits.CredentialStreams = 1 })
	body, err := json.Marshal(shell(untilFile("go") + "; echo done"))
	if err != nil {
		t.Fatal(err)
	}
	conn := halfclosed.Open(t, m.host, postText(execPath, m.key, string(body)))
	response, err := nethttp.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(response.Body)
	for range 2 { // the server has noticed
		if line, err := lines.ReadString('\n'); err != nil || line != "{\"stdout\":\"\"}\n" {
			t.Fatalf("%q, %v", line, err)
		}
	}
	beside, err := nethttp.NewRequestWithContext(m.patience(), "GET", "http://"+m.host+events, nil)
	if err != nil {
		t.Fatal(err)
	}
	beside.Header.Set("Authorization", "Bearer "+m.key)
	refused, err := m.client.Do(beside)
	if err != nil {
		t.Fatal(err)
	}
	refused.Body.Close()
	if refused.StatusCode != 429 {
		t.Errorf("a stream beside the command: %s", refused.Status)
	}
	m.create("go")
	rest, err := io.ReadAll(lines)
	if want := "{\"stdout\":\"done\\n\"}\n{\"exit\":0}\n"; err != nil || !strings.HasSuffix(string(rest), want) {
		t.Errorf("%q, %v", rest, err)
	}
}

// leaving calls a tool that waits, as a client that closes its sending side then, and returns the answer once there is one.
func (b *bubble) leaving(key string) <-chan string {
	near, far := newHalfPipe()
	b.pipes.accepted <- far
	answer := make(chan string, 1)
	go func() {
		defer near.Close()
		fmt.Fprint(near, postText("/mcp", key, "{}"))
		near.CloseWrite()
		response, err := nethttp.ReadResponse(bufio.NewReader(near), nil)
		if err != nil {
			answer <- err.Error()
			return
		}
		text, err := io.ReadAll(response.Body)
		answer <- fmt.Sprint(response.StatusCode, " ", string(text), " ", err)
	}()
	synctest.Wait()
	return answer
}

// expectSlots expects a number of streams with a slot.
func (b *bubble) expectSlots(n int) {
	b.Helper()
	synctest.Wait()
	text := request(b, b.server, "GET", "/metrics", "", "").Body.String()
	for _, name := range []string{`atelier_limit_used_slots{kind="streams"}`, "atelier_http_streams"} {
		want := fmt.Sprintf("\n%s %d\n", name, n)
		if !strings.Contains(text, want) {
			b.Errorf("the metrics have no %q", want)
		}
	}
}

// If a person has its share of the slots, a new stream takes over a slot of the same person, with whatever credential, and no other slot.
func TestShareOfAClientThatSendsNoMore(t *testing.T) {
	inBubble(t, func(b *bubble) {
		open := b.request("GET", events, nil)
		defer open.Body.Close()
		others := b.leaving(b.world.key(bob))
		own := b.leaving(b.world.key(alice))
		b.expectSlots(3)
		began := time.Now()
		next := b.request("GET", events, nil)
		defer next.Body.Close()
		if next.StatusCode != 200 {
			b.Errorf("%s", next.Status)
		}
		if got := <-own; got != "200 waited <nil>" || time.Since(began) != 0 {
			b.Errorf("%s, after %s", got, time.Since(began))
		}
		b.expectSlots(3)
		expect(b, request(b, b.server, "GET", events, b.key, ""), 429, "too many open streams of this person")
		if got := <-others; got != "200 waited <nil>" || time.Since(began) != 30*time.Second {
			b.Errorf("the wait of another person: %s, after %s", got, time.Since(began))
		}
		b.expectSlots(2)
		next.Body.Close()
		b.expectSlots(1)
	}, func(o *http.Options) { o.Limits.Streams, o.Tools = 3, waitingTools{} })
}

// If no slot is free, a new stream takes over a slot of any person.
func TestSlotOfAnotherClientThatSendsNoMore(t *testing.T) {
	inBubble(t, func(b *bubble) {
		open := b.request("GET", events, nil)
		defer open.Body.Close()
		left := b.leaving(b.key)
		b.expectSlots(2)
		began := time.Now()
		newcomer := b.leaving(b.world.key(bob))
		if got := <-left; got != "200 waited <nil>" || time.Since(began) != 0 {
			b.Errorf("%s, after %s", got, time.Since(began))
		}
		b.expectSlots(2)
		if got := <-newcomer; got != "200 waited <nil>" || time.Since(began) != 30*time.Second {
			b.Errorf("the newcomer: %s, after %s", got, time.Since(began))
		}
		b.expectSlots(1)
	}, func(o *http.Options) { o.Limits.Streams, o.Tools = 2, waitingTools{} })
}
