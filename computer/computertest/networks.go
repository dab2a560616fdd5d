package computertest

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/computer/computertest/probe"
	"github.com/atelier-run/atelier/entity"
)

// networkPort is the port on which the processes of these tests listen.
const networkPort = 18274

func loopbackAddress(host string) string { return net.JoinHostPort(host, strconv.Itoa(networkPort)) }

// exchange sends a text over a connection and returns the answer.
func exchange(t *testing.T, c net.Conn, text string) string {
	t.Helper()
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Error(err)
	}
	if _, err := io.WriteString(c, text); err != nil {
		t.Error(err)
	}
	if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Error(err)
	}
	answer, err := io.ReadAll(c)
	if err != nil {
		t.Error(err)
	}
	return string(answer)
}

// ask returns the answer of the program that listens in the network of a process.
func (r *running) ask(t *testing.T, text string) string {
	t.Helper()
	c, err := r.Dial(limit(t), networkPort)
	if err != nil {
		t.Fatalf("Dial: %v", err)
	}
	return exchange(t, c, text)
}

// serve starts a process that listens on networkPort of an address, and waits until it does.
func (w *workspace) serve(t *testing.T, own bool, host, name string, prepare func(context.Context, computer.Network) error) *running {
	t.Helper()
	s := w.probe(probe.Serve, loopbackAddress(host), name)
	s.OwnNetwork, s.Prepare = own, prepare
	r := w.start(t, s)
	r.expect(t, "ready")
	return r
}

// greet starts a process that sends a text to each connection and closes it, and verifies that a client that sends nothing and stays
// connected receives the text and the end: so do servers of HTTP without the length of the body.
func (w *workspace) greet(t *testing.T, own bool, text string) {
	t.Helper()
	s := w.probe(probe.Greet, loopbackAddress("127.0.0.1"), text)
	s.OwnNetwork = own
	r := w.start(t, s)
	r.expect(t, "ready")
	c, err := r.Dial(limit(t), networkPort)
	if err != nil {
		t.Fatalf("Dial: %v", err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Error(err)
	}
	if got, err := io.ReadAll(c); string(got) != text || err != nil {
		t.Errorf("received %d bytes instead of %d, %v", len(got), len(text), err)
	}
	if err := r.End(limit(t)); err != nil {
		t.Errorf("End: %v", err)
	}
}

// testProcessNetwork verifies Dial, Listen and Spec.Prepare with a process in the network of its computer, and in its own.
func testProcessNetwork(t *testing.T, w *workspace) {
	modes := map[string]bool{"network of the computer": false}
	if w.Host.OwnNetworks() {
		modes["own network"] = true
	}
	for name, own := range modes {
		t.Run(name, func(t *testing.T) {
			w.greet(t, own, strings.Repeat("hello ", 10_000))
			for _, host := range []string{"127.0.0.1", "::1"} {
				r := w.serve(t, own, host, host, nil)
				if got := r.ask(t, "text"); got != host+":text" {
					t.Errorf("the process that listens on %s has answered %q", host, got)
				}
				if _, err := r.Dial(limit(t), networkPort+1); code(err) != entity.Unavailable {
					t.Errorf("Dial of a port on which nothing listens: %v", err)
				}
				for _, invalid := range []int{-1, 65536} {
					_, err := r.Dial(limit(t), invalid)
					checkCode(t, err, entity.InvalidRequest)
					_, err = r.Listen(limit(t), invalid)
					checkCode(t, err, entity.InvalidRequest)
				}
				if err := r.End(limit(t)); err != nil {
					t.Fatal(err)
				}
				_, err := r.Dial(limit(t), networkPort)
				checkCode(t, err, entity.Unavailable)
				_, err = r.Listen(limit(t), 0)
				checkCode(t, err, entity.Unavailable)
			}
			w.testPrepare(t, own)
		})
	}
}

// testPrepare opens a listener before a process that connects to it at once, and another while a process runs. Both end with their
// processes.
func (w *workspace) testPrepare(t *testing.T, own bool) {
	var first net.Listener
	var ended <-chan struct{}
	attributed := false
	s := w.probe(probe.Send, loopbackAddress("127.0.0.1"))
	s.OwnNetwork = own
	s.Attribute = func(int) error { attributed = true; return nil }
	s.Prepare = func(ctx context.Context, n computer.Network) (err error) {
		if !attributed {
			t.Error("Prepare is called before Attribute")
		}
		if first, err = n.Listen(ctx, networkPort); err == nil {
			ended = serve(first, "prepared")
		}
		return err
	}
	r := w.start(t, s)
	if want := loopbackAddress("127.0.0.1"); first.Addr().String() != want {
		t.Errorf("the listener is at %s, want %s", first.Addr(), want)
	}
	_, err := r.Listen(limit(t), networkPort)
	checkCode(t, err, entity.Unavailable)
	second, err := r.Listen(limit(t), 0)
	if err != nil {
		t.Fatal(err)
	}
	secondEnded := serve(second, "second")
	_, _ = io.WriteString(r.Streams().Stdin, "text")
	if got, exit := r.finish(t); got != "prepared:text" || exit.Status != 0 {
		t.Errorf("the process has received %q, %+v", got, exit)
	}
	awaitClosed(t, "a listener of Prepare", ended)
	awaitClosed(t, "a listener of the process", secondEnded)
	for _, l := range []net.Listener{first, second} {
		if err := l.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
}

// testPrepareFails verifies that no process runs after an error of Prepare, and that the listeners that Prepare has opened end.
func testPrepareFails(t *testing.T, w *workspace) {
	for _, own := range []bool{false, w.Host.OwnNetworks()} {
		s := w.spec("echo ran > ran")
		s.OwnNetwork = own
		refused := errors.New("refused")
		var ended <-chan struct{}
		s.Prepare = func(ctx context.Context, n computer.Network) error {
			l, err := n.Listen(ctx, 0)
			if err != nil {
				return err
			}
			ended = serve(l, "")
			return refused
		}
		if _, err := w.Host.Start(limit(t), w.id, s); !errors.Is(err, refused) {
			t.Fatalf("Start returned %v", err)
		}
		awaitClosed(t, "a listener of a process that was not started", ended)
	}
	w.run(t, "test ! -e ran")
}

// testOwnNetworks starts two generations of a server on the same port, and a third in the network of the computer.
func testOwnNetworks(t *testing.T, w *workspace) {
	if !w.Host.OwnNetworks() {
		s := w.spec("true")
		s.OwnNetwork = true
		_, err := w.Host.Start(limit(t), w.id, s)
		checkCode(t, err, entity.InvalidRequest)
		return
	}
	listener := func(name string) func(context.Context, computer.Network) error {
		return func(ctx context.Context, n computer.Network) error {
			l, err := n.Listen(ctx, networkPort+1)
			if err == nil {
				serve(l, name)
			}
			return err
		}
	}
	old := w.serve(t, true, "127.0.0.1", "old", listener("listener of old"))
	again := w.serve(t, true, "127.0.0.1", "new", listener("listener of new"))
	_, err := w.Host.Dial(limit(t), w.id, networkPort)
	checkCode(t, err, entity.Unavailable)
	common := w.serve(t, false, "127.0.0.1", "common", listener("listener of common"))
	for want, r := range map[string]*running{"old": old, "new": again, "common": common} {
		if got := r.ask(t, "text"); got != want+":text" {
			t.Errorf("%s has answered %q", want, got)
		}
	}
	c, err := w.Host.Dial(limit(t), w.id, networkPort)
	if err != nil {
		t.Fatal(err)
	}
	if got := exchange(t, c, "text"); got != "common:text" {
		t.Errorf("the computer has answered %q", got)
	}
	// A process reaches neither the servers nor the listeners of the other processes, and not the listener of the computer.
	computers := w.listen(t, networkPort+2)
	serve(computers, "computer")
	for _, port := range []int{networkPort, networkPort + 1, networkPort + 2} {
		s := w.probe(probe.Send, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		s.OwnNetwork = true
		if got, exit := w.start(t, s).finish(t); exit.Status != probe.Unreachable {
			t.Errorf("a process in its own network reaches port %d: %q, %+v", port, got, exit)
		}
	}
	if got, _ := w.send(t, computers.Addr().String(), "text"); got != "computer:text" {
		t.Errorf("a process in the network of the computer has received %q", got)
	}
	if err := old.End(limit(t)); err != nil {
		t.Fatal(err)
	}
	if got := again.ask(t, "text"); got != "new:text" {
		t.Errorf("after the end of the old one: %q", got)
	}
}

// testOwnNetworksEnd verifies that a process in its own network is as any other: its descendants are in the network, and end with it
// and with the computer.
func testOwnNetworksEnd(t *testing.T, w *workspace) {
	if !w.Host.OwnNetworks() {
		return
	}
	w.makePipe(t, "held")
	start := func() (*running, <-chan struct{}, net.Conn) {
		s := w.spec("exec 3<>held; " + computer.ProgramPath + " " + probe.Command + " " + probe.Serve + " " + loopbackAddress("127.0.0.1") +
			" descendant & wait")
		s.OwnNetwork = true
		r := w.start(t, s)
		r.expect(t, "ready")
		if got := r.ask(t, "text"); got != "descendant:text" {
			t.Errorf("a descendant has answered %q", got)
		}
		l, err := r.Listen(limit(t), 0)
		if err != nil {
			t.Fatal(err)
		}
		open, err := r.Dial(limit(t), networkPort)
		if err != nil {
			t.Fatal(err)
		}
		return r, serve(l, ""), open
	}
	for name, end := range map[string]func(*running) error{
		"end":  func(r *running) error { return r.End(limit(t)) },
		"stop": func(*running) error { return w.Host.Stop(limit(t), w.id) },
		"replacement": func(*running) error {
			_, err := w.Driver.Provision(limit(t), w.id, "vm-2")
			return err
		},
	} {
		r, listener, open := start()
		if err := end(r); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		_ = r.wait(t)
		if w.isHeld(t, "held") {
			t.Errorf("%s: a process is left", name)
		}
		awaitClosed(t, name+": the listener", listener)
		connection := make(chan struct{})
		go func() {
			defer close(connection)
			_, _ = io.Copy(io.Discard, open)
		}()
		awaitClosed(t, name+": the connection", connection)
		_ = open.Close()
	}
}

// testUsageOfApps verifies that the processes of an app are measured together.
func testUsageOfApps(t *testing.T, w *workspace) {
	for range 2 {
		s := w.spec("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo ready; read x")
		s.Group, s.OwnNetwork = "app:app_1", w.Host.OwnNetworks()
		w.start(t, s).expect(t, "ready")
	}
	all, err := w.Host.Usage(limit(t), w.id)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 1 || all[0].Group != "app:app_1" {
		t.Fatalf("the usage is %+v", all)
	}
	if w.LimitsMemory && (all[0].MemoryBytes == 0 || all[0].Processor == 0 || all[0].Processes != 2) {
		t.Errorf("the usage is %+v", all[0])
	}
}
