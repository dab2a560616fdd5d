package computertest

import (
	"context"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/computer/computertest/probe"
	"github.com/atelier-run/atelier/entity"
)

// probe returns the spec of a process that carries out a command of package probe.
func (w *workspace) probe(arguments ...string) computer.Spec {
	s := w.spec("")
	s.Argv = append([]string{computer.ProgramPath, probe.Command}, arguments...)
	return s
}

// testProgram runs the program of this process in the computer.
func testProgram(t *testing.T, w *workspace) {
	output, exit := w.start(t, w.probe(probe.Say, "hello", "there")).finish(t)
	checkExit(t, exit, 0)
	if output != "hello there\n" {
		t.Errorf("got %q", output)
	}
	if !w.Isolated {
		return
	}
	path := computer.ProgramPath
	if got := w.run(t, "exec "+path+" "+probe.Command+" "+probe.Say+" as a descendant"); got != "as a descendant\n" {
		t.Errorf("got %q", got)
	}
	w.run(t, "! echo x 2>/dev/null > "+path+" && ! rm -f "+path+" 2>/dev/null && ! touch "+path+".new 2>/dev/null && test -x "+path)
}

// listen returns a listener of the computer until the end of the test.
func (w *workspace) listen(t *testing.T, port int) net.Listener {
	t.Helper()
	l, err := w.Host.Listen(limit(t), w.id, port)
	if err != nil {
		t.Fatalf("Listen: %v", err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return l
}

// serve answers each connection with a name and the bytes that it has received, until the listener ends. It returns a channel that is
// closed when the listener has ended.
func serve(l net.Listener, name string) <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				all, _ := io.ReadAll(c)
				_, _ = io.WriteString(c, name+":")
				_, _ = c.Write(all)
			}()
		}
	}()
	return ended
}

// send has a process of the computer send a text to an address. It returns the output and the exit of the process.
func (w *workspace) send(t *testing.T, address, text string) (string, computer.Exit) {
	t.Helper()
	r := w.start(t, w.probe(probe.Send, address))
	_, _ = io.WriteString(r.Streams().Stdin, text) // fails if the process has ended
	return r.finish(t)
}

func awaitClosed(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("%s does not end", what)
	}
}

// testListen verifies that processes reach the listener of their computer, and nothing else of this machine.
func testListen(t *testing.T, w *workspace) {
	l := w.listen(t, 0) // starts the computer
	address := l.Addr().String()
	host, port, err := net.SplitHostPort(address)
	if err != nil || host != "127.0.0.1" || port == "0" {
		t.Fatalf("the address is %q", address)
	}
	ended := serve(l, w.id)
	for _, text := range []string{"", "text", strings.Repeat("a long text ", 100_000)} {
		if got, exit := w.send(t, address, text); got != w.id+":"+text || exit.Status != 0 {
			t.Errorf("received %d bytes for %d, %+v", len(got), len(text), exit)
		}
	}
	number, _ := strconv.Atoi(port)
	_, err = w.Host.Listen(limit(t), w.id, number)
	checkCode(t, err, entity.Unavailable)
	if w.Isolated {
		w.testOtherListeners(t, number)
	}
	for range 2 {
		if err := l.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	awaitClosed(t, "Accept of a closed listener", ended)
	if got, exit := w.send(t, address, "text"); exit.Status != probe.Unreachable {
		t.Errorf("after Close: received %q, %+v", got, exit)
	}
	again := w.listen(t, number)
	serve(again, "again")
	if got, _ := w.send(t, address, "text"); got != "again:text" {
		t.Errorf("received %q", got)
	}
	for _, invalid := range []int{-1, 65536} {
		_, err := w.Host.Listen(limit(t), w.id, invalid)
		checkCode(t, err, entity.InvalidRequest)
	}
	_, err = w.Host.Listen(limit(t), "ws_unknown", 0)
	checkCode(t, err, entity.NotFound)
}

// testOtherListeners verifies that two computers listen on the same port, and that neither reaches the listeners of this machine.
func (w *workspace) testOtherListeners(t *testing.T, port int) {
	other := w.provision(t, "ws_listeners_2")
	l := other.listen(t, port)
	serve(l, other.id)
	for _, one := range []*workspace{w, other} {
		if got, _ := one.send(t, l.Addr().String(), "text"); got != one.id+":text" {
			t.Errorf("%s received %q", one.id, got)
		}
	}
	machine, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer machine.Close()
	serve(machine, "machine")
	if got, exit := w.send(t, machine.Addr().String(), "text"); exit.Status != probe.Unreachable {
		t.Errorf("a process reaches this machine: %q, %+v", got, exit)
	}
}

// testListenConcurrently has many connections at the same time. One of them is not read.
func testListenConcurrently(t *testing.T, w *workspace) {
	l := w.listen(t, 0)
	stuck := w.start(t, w.probe(probe.Send, l.Addr().String()))
	go func() {
		_, _ = stuck.Streams().Stdin.Write(make([]byte, 64<<20))
	}()
	c, err := l.Accept() // and does not read it
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	serve(l, "")
	text := strings.Repeat("some text ", 50_000)
	var group sync.WaitGroup
	for range 8 {
		s := w.probe(probe.Send, l.Addr().String())
		group.Go(func() {
			p, err := w.Host.Start(t.Context(), w.id, s)
			if err != nil {
				t.Errorf("Start: %v", err)
				return
			}
			go func() { _, _ = io.Copy(io.Discard, p.Streams().Stderr) }()
			go func() {
				_, _ = io.WriteString(p.Streams().Stdin, text)
				_ = p.Streams().Stdin.Close()
			}()
			got, _ := io.ReadAll(p.Streams().Stdout)
			if exit, err := p.Wait(t.Context()); string(got) != ":"+text || err != nil || exit.Status != 0 {
				t.Errorf("received %d bytes, %+v, %v", len(got), exit, err)
			}
		})
	}
	group.Wait()
	// The process has sent only as much as fits between it and the reader, and its connection ends with it.
	if err := stuck.End(limit(t)); err != nil {
		t.Fatal(err)
	}
	rest := make(chan int64, 1)
	go func() {
		n, _ := io.Copy(io.Discard, c)
		rest <- n
	}()
	select {
	case n := <-rest:
		if n == 64<<20 {
			t.Error("everything was buffered")
		}
	case <-time.After(patience):
		t.Error("the connection does not end")
	}
}

// testListenEnds verifies that a listener, and the connections that it has accepted, end with the computer.
func testListenEnds(t *testing.T, w *workspace) {
	for name, end := range map[string]func() error{
		"stop":        func() error { return w.Host.Stop(limit(t), w.id) },
		"replacement": func() error { _, err := w.Driver.Provision(limit(t), w.id, "vm-2"); return err },
		"close":       nil,
	} {
		l := w.listen(t, 0)
		r := w.start(t, w.probe(probe.Send, l.Addr().String()))
		c, err := l.Accept()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		defer c.Close()
		if end == nil {
			end = l.Close
		}
		connection := make(chan struct{})
		go func() {
			defer close(connection)
			_, _ = io.Copy(io.Discard, c)
		}()
		if err := end(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		awaitClosed(t, name+": Accept", serve(l, "late"))
		awaitClosed(t, name+": the connection", connection)
		if err := l.Close(); err != nil {
			t.Errorf("%s: Close: %v", name, err)
		}
		_ = r.wait(t)
	}
	if err := w.Host.Freeze(limit(t), w.id, true); err != nil {
		t.Fatal(err)
	}
	_, err := w.Host.Listen(limit(t), w.id, 0)
	checkCode(t, err, entity.Unavailable)
	if err := w.Host.Freeze(limit(t), w.id, false); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if l, err := w.Host.Listen(ctx, w.id, 0); err == nil {
		t.Error("Listen returned no error although its context has ended")
		_ = l.Close()
	}
}
