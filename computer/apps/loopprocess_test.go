package apps

import (
	"context"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/entity"
)

// A fakeNetwork implements Network.
type fakeNetwork struct {
	w *world
	network
}

func (n fakeNetwork) Dial(_ context.Context, port int) (net.Conn, error) {
	n.w.mu.Lock()
	accept := n.network[port]
	n.w.mu.Unlock()
	if accept == nil {
		return nil, syscall.ECONNREFUSED
	}
	ours, theirs := net.Pipe()
	go accept(theirs)
	return ours, nil
}

func (n fakeNetwork) Listen(_ context.Context, port int) (net.Listener, error) {
	l := &fakeListener{fakeNetwork: n, port: port, conns: make(chan net.Conn), failures: make(chan error), closed: make(chan struct{})}
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	if n.network[port] != nil {
		return nil, &entity.Error{Code: entity.Unavailable, Message: "the port is in use"}
	}
	n.network[port] = func(c net.Conn) {
		select {
		case l.conns <- halfClosable{c}:
		case <-l.closed:
			c.Close()
		}
	}
	n.w.listeners = append(n.w.listeners, l)
	return l, nil
}

// A halfClosable connection has one end of both directions: CloseWrite does not show at the other end.
type halfClosable struct{ net.Conn }

func (halfClosable) CloseWrite() error { return nil }

type fakeListener struct {
	fakeNetwork
	port     int
	conns    chan net.Conn
	failures chan error // Accept returns them
	once     sync.Once
	closed   chan struct{}
}

func (l *fakeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case err := <-l.failures:
		return nil, err
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *fakeListener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.w.mu.Lock()
		defer l.w.mu.Unlock()
		delete(l.network, l.port)
	})
	return nil
}

func (l *fakeListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: l.port} }

// A fakeProcess runs a program. It echoes what its connections send, after a line with its number.
type fakeProcess struct {
	program
	network        network
	w              *world
	l              Launch
	command        string
	at             time.Time
	stdout, stderr *io.PipeReader
	out, errs      *io.PipeWriter
	// term and kill are closed by the first SIGTERM and the first End. fail receives the end that the test causes.
	term, kill, ended  chan struct{}
	fail               chan computer.Exit
	termOnce, killOnce sync.Once
	termAt, endedAt    time.Time
	result             computer.Exit
}

// env returns the value of a variable of the environment, and whether it is set.
func (p *fakeProcess) env(name string) (string, bool) {
	for _, variable := range p.l.Env {
		if value, found := strings.CutPrefix(variable, name+"="); found {
			return value, true
		}
	}
	return "", false
}

func (p *fakeProcess) run() {
	_, _ = io.WriteString(p.out, strings.ReplaceAll(p.output, "$KEY", p.key()))
	var listens, exits <-chan time.Time
	port := p.port
	if port == 0 {
		text, _ := p.env("PORT")
		port, _ = strconv.Atoi(text)
	}
	if port > 0 {
		listens = time.After(p.after)
	}
	if p.life > 0 {
		exits = time.After(p.life)
	}
	term, listened := p.term, false
	if p.ignoresTerm || p.stuck {
		term = nil
	}
	for {
		select {
		case <-listens:
			p.w.mu.Lock()
			p.network[port], listened = p.serve, true
			p.w.mu.Unlock()
			continue
		case <-exits:
			p.result = p.exit
		case p.result = <-p.fail:
		case <-term:
			p.result = computer.Exit{Status: 143, Signal: syscall.SIGTERM}
		case <-p.kill:
			p.result = computer.Exit{Status: 137, Signal: syscall.SIGKILL}
		}
		break
	}
	p.w.mu.Lock()
	if listened {
		delete(p.network, port)
	}
	p.w.mu.Unlock()
	p.out.Close()
	p.errs.Close()
	p.endedAt = time.Now()
	close(p.ended)
}

func (p *fakeProcess) key() string {
	key, _ := p.env("SERVICE_APP_API_KEY")
	return key
}

// serve sends the command of the process, and then the bytes that it receives, until either side ends.
func (p *fakeProcess) serve(c net.Conn) {
	go func() {
		<-p.ended
		c.Close()
	}()
	_, _ = io.WriteString(c, p.command+"\n")
	_, _ = io.Copy(c, c)
	c.Close()
}

// Dial implements Process.
func (p *fakeProcess) Dial(ctx context.Context, port int) (net.Conn, error) {
	time.Sleep(p.connects)
	return fakeNetwork{p.w, p.network}.Dial(ctx, port)
}

// Streams implements Process.
func (p *fakeProcess) Streams() computer.Streams {
	return computer.Streams{Stdin: discard{}, Stdout: p.stdout, Stderr: p.stderr}
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }
func (discard) Close() error                { return nil }

// Signal implements Process.
func (p *fakeProcess) Signal(s syscall.Signal) error {
	if s == syscall.SIGTERM {
		p.termOnce.Do(func() { p.termAt = time.Now(); close(p.term) })
	}
	return nil
}

// End implements Process.
func (p *fakeProcess) End(ctx context.Context) error {
	if !p.stuck {
		p.killOnce.Do(func() { close(p.kill) })
	}
	select {
	case <-p.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Wait implements Process.
func (p *fakeProcess) Wait(ctx context.Context) (computer.Exit, error) {
	select {
	case <-p.ended:
		return p.result, nil
	case <-ctx.Done():
		return computer.Exit{}, ctx.Err()
	}
}
