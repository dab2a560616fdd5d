package http_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	nethttp "net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	"github.com/atelier-run/atelier/http"
	"github.com/atelier-run/atelier/http/mcp"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	"github.com/atelier-run/atelier/tests/halfclosed"
)

// noticing is a listener that sends to noticed when a client has closed its sending side.
type noticing struct {
	net.Listener
	noticed chan struct{}
}

func (n noticing) Accept() (net.Conn, error) {
	c, err := n.Listener.Accept()
	return noticingConn{c, sync.OnceFunc(func() { n.noticed <- struct{}{} })}, err
}

type noticingConn struct {
	net.Conn
	notice func()
}

func (c noticingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err == io.EOF {
		c.notice()
	}
	return n, err
}

// halfClosedStage is a stage with clients that close their sending side after the request.
type halfClosedStage struct {
	*stage
	noticing
}

func newHalfClosedStage(t *testing.T) *halfClosedStage {
	s := &halfClosedStage{stage: newWaitingStage(t), noticing: noticing{noticed: make(chan struct{}, 1)}}
	s.as = "alice"
	s.person(s.as)
	var created struct{ WorkspaceID string }
	s.decode(s.send("POST", "/v1/workspaces", `{"slug":"acme","name":"Acme"}`), 201, &created)
	s.supervise(created.WorkspaceID, "accepts", "")
	var err error
	if s.Listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.node.Server.Serve(s.noticing) }()
	t.Cleanup(func() {
		if err := s.node.Server.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return s
}

// exchange sends a request and returns the status and the body of the response. The journal records nothing before the server has noticed
// that the client has closed its sending side. meanwhile, if it is set, is called then.
func (s *halfClosedStage) exchange(method, path, body string, meanwhile func()) (status int, answer string) {
	s.Helper()
	s.node.Server.Flush()
	notice := sync.OnceFunc(func() { <-s.noticed })
	s.watch(func(op errorfs.Op) error {
		if slices.Contains([]errorfs.OpKind{errorfs.OpFileWrite, errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo}, op.Kind) {
			notice()
		}
		return nil
	})
	defer s.watch(nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		notice()
		if meanwhile != nil {
			meanwhile()
		}
	}()
	text := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"+
		"Accept: application/json, text/event-stream\r\n", method, path, s.keys[s.as])
	if method == "MOVE" {
		text += "Destination: " + body + "\r\n"
		body = ""
	}
	if body != "" {
		text += fmt.Sprintf("Content-Length: %d\r\n", len(body))
	}
	answered := make(chan struct{})
	var working sync.WaitGroup
	working.Go(func() {
		for isOver := false; !isOver; {
			select {
			case <-answered:
				isOver = true
			default:
			}
			s.reportOnApps()
		}
	})
	defer working.Wait()
	defer close(answered)
	status, answer = halfclosed.Send(s, s.Addr().String(), text+"\r\n"+body)
	<-done
	return status, answer
}

// A client that closes its sending side after a request that changes something gets the answer, and its change is made once.
func TestChangesOfClientsThatSendNoMore(t *testing.T) {
	s := newHalfClosedStage(t)
	for _, c := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"MKCOL", "/v1/ws/acme/drive/site", "", 201, ""},
		{"PUT", "/v1/ws/acme/drive/site/a", "content", 201, ""},
		{"MOVE", "/v1/ws/acme/drive/site/a", "/v1/ws/acme/drive/site/b", 201, ""},
		{"DELETE", "/v1/ws/acme/drive/site/b", "", 204, ""},
		{"POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"write_file","arguments":{"workspace":"acme","path":"c","text":"by a tool"}}}`, 200, `created\":true`},
		{"POST", "/v1/ws/acme/apps", `{"path":"site","slug":"shop","command":"serve","apiScopes":[]}`, 201, `"slug":"shop"`},
		{"PATCH", "/v1/ws/acme/apps/shop", `{"command":"serve more"}`, 200, `"serve more"`},
		{"POST", "/v1/ws/acme/apps/shop/restart", "", 200, `"slug":"shop"`},
		{"DELETE", "/v1/ws/acme/apps/shop", "", 200, `{"ok":true}`},
	} {
		if status, answer := s.exchange(c.method, c.path, c.body, nil); status != c.status || !strings.Contains(answer, c.says) {
			t.Errorf("%s %s: %d %s", c.method, c.path, status, answer)
		}
	}
	var rows struct {
		Items []struct{ Event struct{ Kind, Path string } }
	}
	s.decode(s.send("GET", "/v1/ws/acme/file-activity/feed", ""), 200, &rows)
	if got := fmt.Sprint(rows.Items); got != "[{{create site}} {{create site/a}} {{rename site/b}} {{delete site/b}} {{create c}}]" {
		t.Errorf("the activity is %s", got)
	}
	s.expectNoFailure()
}

// A client that closes its sending side and waits for a session gets the terminal.
func TestWaitsOfClientsThatSendNoMore(t *testing.T) {
	s := newHalfClosedStage(t)
	var page struct{ Items []struct{ ID string } }
	status, answer := s.exchange("POST", "/v1/ws/acme/agent/sessions/wait", waitBody, func() {
		for len(page.Items) == 0 {
			s.decode(s.send("GET", "/v1/ws/acme/agent/sessions", ""), 200, &page)
		}
		identity := session.Identity(s.apps.workspace, page.Items[0].ID)
		if refused := s.run("claim", identity, "") + s.run("end", identity, `{"status":"TURN_STATUS_COMPLETE"}`); refused != "" {
			t.Error(refused)
		}
	})
	if status != 200 || !strings.Contains(answer, `"turnStatus":"complete"`) {
		t.Errorf("%d %s", status, answer)
	}
	s.decode(s.send("GET", "/v1/ws/acme/agent/sessions", ""), 200, &page)
	if len(page.Items) != 1 {
		t.Errorf("there are %d sessions", len(page.Items))
	}
	s.expectNoFailure()
}

// expectNoFailure checks that no request has failed and no client has gone, for the metrics.
func (s *halfClosedStage) expectNoFailure() {
	s.Helper()
	for line := range strings.Lines(s.send("GET", "/metrics", "").Body.String()) {
		isFailure := strings.Contains(line, `status="0xx"`) || strings.Contains(line, `status="5xx"`)
		if strings.Contains(line, "atelier_http_requests_total{") && isFailure && !strings.HasSuffix(line, " 0\n") {
			s.Error(line)
		}
	}
}

// halfPipe is a connection inside a synctest bubble that can be closed in one direction. It embeds the part that receives.
type halfPipe struct {
	net.Conn
	sends net.Conn
}

func newHalfPipe() (near, far halfPipe) {
	toNear, fromFar := net.Pipe()
	toFar, fromNear := net.Pipe()
	return halfPipe{toNear, fromNear}, halfPipe{toFar, fromFar}
}

func (p halfPipe) Write(b []byte) (int, error)        { return p.sends.Write(b) }
func (p halfPipe) SetWriteDeadline(t time.Time) error { return p.sends.SetWriteDeadline(t) }
func (p halfPipe) CloseWrite() error                  { return p.sends.Close() }

func (p halfPipe) SetDeadline(t time.Time) error {
	if err := p.Conn.SetDeadline(t); err != nil {
		return err
	}
	return p.sends.SetDeadline(t)
}

func (p halfPipe) Close() error {
	if err := p.Conn.Close(); err != nil {
		return err
	}
	return p.sends.Close()
}

// A request that waits for a client that has closed its sending side is answered as at its own deadline after the time of an ordinary request,
// also if the answer is an error.
func TestLongWaitsOfClientsThatSendNoMore(t *testing.T) {
	for status, listed := range map[int]error{202: nil, 503: entity.Errorf(entity.Unavailable, "retry")} {
		t.Run(strconv.Itoa(status), func(t *testing.T) { testLongWait(t, listed, status) })
	}
}

func testLongWait(t *testing.T, listed error, status int) {
	inBubble(t, func(b *bubble) {
		var hasWaited atomic.Bool
		b.world.before = func(ctx context.Context, c entity.Command) (proto.Message, error) {
			switch m := c.Message.(type) {
			case *wirev1.List:
				if hasWaited.Load() {
					return &wirev1.Page{}, listed
				}
				return &wirev1.Page{}, nil
			case *sessionv1.StartSession:
				return &sessionv1.Accepted{InputSeq: 1, Created: true, Digest: m.GetPrompt().GetDigest()}, nil
			case *sessionv1.AwaitInput:
				<-ctx.Done()
				hasWaited.Store(true)
				return nil, entity.Errorf(entity.Unavailable, "retry")
			}
			return nil, nil
		}
		near, far := newHalfPipe()
		b.pipes.accepted <- far
		go func() {
			fmt.Fprintf(near, "POST /v1/ws/acme/agent/sessions/wait HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n"+
				"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", b.key, len(waitBody), waitBody)
			near.CloseWrite()
		}()
		began := time.Now()
		response, err := nethttp.ReadResponse(bufio.NewReader(near), nil)
		if err != nil {
			b.Fatal(err)
		}
		var view struct{ InputSeq int }
		if err := json.NewDecoder(response.Body).Decode(&view); err != nil || response.StatusCode != status || listed == nil && view.InputSeq != 1 {
			b.Errorf("%s %+v, %v", response.Status, view, err)
		}
		if waited := time.Since(began); waited != 30*time.Second {
			b.Errorf("the answer came after %s", waited)
		}
		near.Close()
	}, func(o *http.Options) { o.Sessions.WaitTime = 10 * time.Minute })
}

// waitingTools is a tool that waits for an hour and answers then, as await_sessions does at the end of its time.
type waitingTools struct{}

func (waitingTools) ServeTools(
	w nethttp.ResponseWriter, r *nethttp.Request, _ *wirev1.Principal, _ string, _ func() error, wait mcp.Wait,
) {
	waiting, end := wait(r.Context(), time.Hour)
	defer end()
	<-waiting.Done()
	if r.Context().Err() == nil {
		fmt.Fprint(w, "waited")
	}
}

// A tool that waits for a client that has closed its sending side is answered as at its own deadline after the time of an ordinary request.
func TestToolsOfClientsThatSendNoMore(t *testing.T) {
	inBubble(t, func(b *bubble) {
		near, far := newHalfPipe()
		b.pipes.accepted <- far
		go func() {
			fmt.Fprintf(near, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Length: 2\r\n\r\n{}", b.key)
			near.CloseWrite()
		}()
		began := time.Now()
		response, err := nethttp.ReadResponse(bufio.NewReader(near), nil)
		if err != nil {
			b.Fatal(err)
		}
		answer, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != 200 || string(answer) != "waited" {
			b.Errorf("%s %q, %v", response.Status, answer, err)
		}
		if waited := time.Since(began); waited != 30*time.Second {
			b.Errorf("the answer came after %s", waited)
		}
		near.Close()
	}, func(o *http.Options) { o.Tools = waitingTools{} })
}

// TestExecOfAClientThatSendsNoMore closes the sending side of the connection. The command runs until the client has gone.
func TestExecOfAClientThatSendsNoMore(t *testing.T) {
	m := newMachine(t)
	open := func(c command) *net.TCPConn {
		body, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		return halfclosed.Open(t, m.host, fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n"+
			"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", execPath, m.key, len(body), body))
	}
	response, err := nethttp.ReadResponse(bufio.NewReader(open(shell(untilFile("go")+"; echo done"))), nil)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(response.Body)
	for range 2 { // the server has noticed, and the client is still there
		if line, err := lines.ReadString('\n'); err != nil || line != "{\"stdout\":\"\"}\n" {
			t.Fatalf("%q, %v", line, err)
		}
	}
	m.create("go")
	rest, err := io.ReadAll(lines)
	if want := "{\"stdout\":\"done\\n\"}\n{\"exit\":0}\n"; err != nil || !strings.HasSuffix(string(rest), want) {
		t.Errorf("%q, %v", rest, err)
	}
	gone := open(shell("sleep 1000"))
	m.waitRunning(1)
	gone.Close()
	m.waitRunning(0)
}
