package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	nethttp "net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/atelier-run/atelier/client"
)

// workspace creates a workspace, and returns its owner.
func (s *site) workspace(slug string) *client.Client {
	s.Helper()
	owner := s.person("ada")
	must[client.WorkspaceCreated](s)(owner.CreateWorkspace(s.Context(), client.NewWorkspace{Slug: slug, Name: slug}))
	return owner
}

func TestExec(t *testing.T) {
	s := newSite(t)
	ada := s.workspace("acme")
	var stdout, stderr bytes.Buffer
	status, err := ada.Exec(t.Context(), "acme", client.ExecRequest{
		Argv: []string{"sh", "-c", "cat; echo $NAME >&2; exit 9"}, Env: map[string]string{"NAME": "value"}, Stdin: "in\n",
	}, &stdout, &stderr)
	if status != 9 || err != nil || stdout.String() != "in\n" || stderr.String() != "value\n" {
		t.Errorf("%d, %v, %q, %q", status, err, stdout.String(), stderr.String())
	}
	_, err = ada.Exec(t.Context(), "acme", client.ExecRequest{Argv: []string{"sleep", "1000"}, TimeoutSeconds: 1}, io.Discard, io.Discard)
	s.mustRefuse("timeout", err)
	_, err = ada.Exec(t.Context(), "acme", client.ExecRequest{}, io.Discard, io.Discard)
	s.mustRefuse("invalid_request", err)
	_, err = s.person("bob").Exec(t.Context(), "acme", client.ExecRequest{Argv: []string{"true"}}, io.Discard, io.Discard)
	s.mustRefuse("not_found", err)

	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	_, err = ada.Exec(ctx, "acme", client.ExecRequest{Argv: []string{"sh", "-c", "echo started; sleep 1000"}}, writer(func([]byte) error {
		cancel(stop)
		return nil
	}), io.Discard)
	if !errors.Is(err, stop) {
		t.Error(err)
	}
	_, err = ada.Exec(t.Context(), "acme", client.ExecRequest{Argv: []string{"yes"}}, writer(func([]byte) error { return stop }), io.Discard)
	if !errors.Is(err, stop) {
		t.Error(err)
	}
}

// writer is a function as an io.Writer.
type writer func([]byte) error

func (w writer) Write(p []byte) (int, error) { return len(p), w(p) }

// cable is a connection to a server that the test can cut.
type cable struct {
	listener net.Listener
	server   string

	mu    sync.Mutex
	isCut bool
	conns []net.Conn
}

func newCable(s *site) *cable {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		s.Fatal(err)
	}
	k := &cable{listener: l, server: strings.TrimPrefix(s.url, "http://")}
	go k.serve()
	s.Cleanup(func() {
		l.Close()
		k.cut()
	})
	return k
}

func (k *cable) serve() {
	for {
		near, err := k.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp4", k.server)
		k.mu.Lock()
		if err != nil || k.isCut {
			near.Close()
			if err == nil {
				far.Close()
			}
			k.mu.Unlock()
			continue
		}
		k.conns = append(k.conns, near, far)
		k.mu.Unlock()
		go func() { _, _ = io.Copy(near, far); near.Close() }()
		go func() { _, _ = io.Copy(far, near); far.Close() }()
	}
}

// cut breaks all connections, and refuses others until mend is called.
func (k *cable) cut() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.isCut = true
	for _, c := range k.conns {
		c.Close()
	}
	k.conns = nil
}

func (k *cable) mend() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.isCut = false
}

// screen reads the output of a terminal all the time, as a program for people does: a terminal that is not read does not notice
// that its connection has broken.
type screen struct {
	*testing.T
	*client.Terminal

	mu   sync.Mutex
	text strings.Builder
	err  error
	// changed is closed and replaced when text or err changes.
	changed chan struct{}
}

func newScreen(t *testing.T, terminal *client.Terminal) *screen {
	s := &screen{T: t, Terminal: terminal, changed: make(chan struct{})}
	go s.read()
	return s
}

func (s *screen) read() {
	buffer := make([]byte, 7) // a message in several parts
	for {
		n, err := s.Terminal.Read(buffer)
		s.mu.Lock()
		s.text.Write(buffer[:n])
		s.err = err
		close(s.changed)
		s.changed = make(chan struct{})
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// look returns the text so far, a channel that is closed when it changes, and the error of the last read.
func (s *screen) look() (string, <-chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String(), s.changed, s.err
}

// until waits until a text has been read.
func (s *screen) until(want string) {
	s.Helper()
	for {
		text, changed, err := s.look()
		if strings.Contains(text, want) {
			return
		}
		if err != nil {
			s.Fatalf("%v after %q", err, text)
		}
		select {
		case <-changed:
		case <-time.After(timeout):
			s.Fatalf("the output is %q", text)
		}
	}
}

func (s *screen) enter(line string) {
	s.Helper()
	if _, err := s.Write([]byte(line + "\r")); err != nil {
		s.Fatal(err)
	}
}

// expectEnd expects the end of the output, the exit status, and the code of the error; empty: none.
func (s *screen) expectEnd(status int, code string) {
	s.Helper()
	got, err := s.Wait()
	if got != status || (err == nil) != (code == "") || err != nil && !client.HasCode(err, code) {
		s.Errorf("%d, %v", got, err)
	}
	for {
		_, changed, err := s.look()
		if err == io.EOF {
			return
		}
		if err != nil {
			s.Fatal(err)
		}
		<-changed
	}
}

func TestTerminal(t *testing.T) {
	s := newSite(t)
	ada := s.workspace("acme")
	terminal, err := ada.OpenTerminal(t.Context(), "acme", client.TerminalOptions{Columns: 99, Rows: 11})
	if err != nil {
		t.Fatal(err)
	}
	first := newScreen(t, terminal)
	first.enter("stty size")
	first.until("11 99")
	if err := first.Resize(88, 22); err != nil {
		t.Error(err)
	}
	first.enter("stty size")
	first.until("22 88")
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	if _, err := first.Terminal.Read(make([]byte, 1)); err == nil {
		t.Error("a closed terminal can be read")
	}
	again, err := ada.OpenTerminal(t.Context(), "acme", client.TerminalOptions{ID: first.ID()})
	if err != nil {
		t.Fatal(err)
	}
	second := newScreen(t, again)
	second.until("22 88")
	second.enter("exit 6")
	second.expectEnd(6, "")
	_, err = ada.OpenTerminal(t.Context(), "acme", client.TerminalOptions{ID: first.ID()})
	s.mustRefuse("not_found", err)

	if again, err = ada.OpenTerminal(t.Context(), "acme", client.TerminalOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := again.End(); err != nil {
		t.Error(err)
	}
	newScreen(t, again).expectEnd(137, "")
}

func TestTerminalReconnects(t *testing.T) {
	s := newSite(t)
	owner := s.workspace("acme")
	k := newCable(s)
	keyed := must[client.APIKeyCreated](s)(owner.CreateAPIKey(t.Context(), client.NewAPIKey{Name: "k"}))
	ada, err := client.New("http://"+k.listener.Addr().String(), keyed.Key)
	if err != nil {
		t.Fatal(err)
	}
	defer ada.Close()
	changes := make(chan error, 10)
	terminal, err := ada.OpenTerminal(t.Context(), "acme", client.TerminalOptions{Notify: func(err error) { changes <- err }})
	if err != nil {
		t.Fatal(err)
	}
	p := newScreen(t, terminal)
	p.enter("stty -echo; echo is-$((1+1)); read line; echo away-$((1+1)); read line; echo got-$line")
	p.until("is-2")
	other := must[*client.Terminal](s)(owner.OpenTerminal(t.Context(), "acme", client.TerminalOptions{ID: p.ID()}))
	k.cut()
	if err := <-changes; err == nil {
		t.Error("the break has no error")
	}
	if _, err := p.Write([]byte("x")); !errors.Is(err, client.ErrDisconnected) {
		t.Errorf("input without a connection: %v", err)
	}
	if err := p.Resize(71, 31); err != nil {
		t.Error(err)
	}
	beside := newScreen(t, other)
	beside.enter("")
	beside.until("away-2")
	k.mend()
	if err := <-changes; err != nil {
		t.Error(err)
	}
	p.until("away-2")
	p.enter("back")
	p.until("got-back")
	if got, _, _ := p.look(); strings.Count(got, "is-2") != 1 || strings.Count(got, "away-2") != 1 {
		t.Errorf("output is repeated: %q", got)
	}
	p.enter("stty size")
	p.until("31 71")

	k.cut()
	<-changes
	if err := other.End(); err != nil {
		t.Error(err)
	}
	beside.expectEnd(137, "")
	k.mend()
	p.expectEnd(0, "not_found") // it has ended while there was no connection
}

func TestTerminalEndsWithTheServer(t *testing.T) {
	s := newSite(t)
	terminal := must[*client.Terminal](s)(s.workspace("acme").OpenTerminal(t.Context(), "acme", client.TerminalOptions{}))
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := s.node.Server.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	newScreen(t, terminal).expectEnd(0, "unavailable")
}

// TestExecReportsBrokenLines has servers that break off within a line of the response. A broken line is no mistake of the response.
func TestExecReportsBrokenLines(t *testing.T) {
	for _, isAborted := range []bool{true, false} {
		server := httptest.NewServer(nethttp.HandlerFunc(func(w nethttp.ResponseWriter, _ *nethttp.Request) {
			_, _ = io.WriteString(w, `{"stdout":"a"}`+"\n"+`{"stdout":"b`)
			if isAborted {
				_ = nethttp.NewResponseController(w).Flush()
				panic(nethttp.ErrAbortHandler)
			}
		}))
		c, err := client.New(server.URL, "atl_key")
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		_, err = c.Exec(t.Context(), "acme", client.ExecRequest{Argv: []string{"true"}}, &out, io.Discard)
		if err == nil || !strings.Contains(err.Error(), "the connection ended before the command") || out.String() != "a" {
			t.Errorf("%v after %q", err, out.String())
		}
		if isAborted && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%v does not say why", err)
		}
		server.Close()
	}
}

// TestExecReportsBrokenConnections has servers that break off, or send something else than a server of Atelier.
func TestExecReportsBrokenConnections(t *testing.T) {
	for _, lines := range []string{"", `{"stdout":"a"}`, "<html>\n", `{"stdout":"` + strings.Repeat("x", 2<<20) + `"}`, `{"stdout":1}`} {
		server := httptest.NewServer(nethttp.HandlerFunc(func(w nethttp.ResponseWriter, _ *nethttp.Request) {
			_, _ = io.WriteString(w, lines)
		}))
		c, err := client.New(server.URL, "atl_key")
		if err != nil {
			t.Fatal(err)
		}
		if status, err := c.Exec(t.Context(), "acme", client.ExecRequest{Argv: []string{"true"}}, io.Discard, io.Discard); err == nil {
			t.Errorf("%.20q: exit status %d", lines, status)
		}
		server.Close()
	}
}
