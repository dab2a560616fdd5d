package local_test

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/computer/computertest/probe"
	"github.com/atelier-run/atelier/computer/egress"
	"github.com/atelier-run/atelier/computer/local"
)

// awaitListenerEnd accepts until the listener ends.
func awaitListenerEnd(t *testing.T, l net.Listener) {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			_ = c.Close()
		}
		ended <- err
	}()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("Accept returned a connection")
		}
	case <-time.After(3 * time.Minute):
		t.Error("the listener does not end")
	}
}

// TestListenerOfLostComputer kills an init. The listener ends, and so do the processes; another listener starts the computer again.
func TestListenerOfLostComputer(t *testing.T) {
	d, _ := openHost(t, nil)
	if _, err := d.Provision(t.Context(), "ws_1", "vm-1"); err != nil {
		t.Fatal(err)
	}
	l, err := d.Listen(t.Context(), "ws_1", 0)
	if err != nil {
		t.Fatal(err)
	}
	p, init := start(t, d, "p1", "read x")
	if err := unix.PidfdSendSignal(int(init.Fd()), unix.SIGKILL, nil, 0); err != nil {
		t.Fatal(err)
	}
	awaitListenerEnd(t, l)
	if exit, err := p.Wait(t.Context()); err != nil || exit.Reason != computer.EndedLost {
		t.Errorf("got %+v, %v", exit, err)
	}
	if l, err = d.Listen(t.Context(), "ws_1", 0); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// TestListenerDoesNotKeepComputerRunning listens in a computer that never has a process, and in a computer after its last process.
func TestListenerDoesNotKeepComputerRunning(t *testing.T) {
	d, _ := openHost(t, nil)
	if _, err := d.Provision(t.Context(), "ws_1", "vm-1"); err != nil {
		t.Fatal(err)
	}
	l, err := d.Listen(t.Context(), "ws_1", 0)
	if err != nil {
		t.Fatal(err)
	}
	endIdleTime(t, d)
	awaitListenerEnd(t, l)
	p, _ := start(t, d, "p1", "read x")
	if l, err = d.Listen(t.Context(), "ws_1", 0); err != nil {
		t.Fatal(err)
	}
	if ended, err := local.EndIdleTime(d, "ws_1"); err != nil || ended {
		t.Errorf("the idle time has begun beside a process: %v, %v", ended, err)
	}
	if err := p.Streams().Stdin.Close(); err != nil {
		t.Fatal(err)
	}
	endIdleTime(t, d)
	awaitListenerEnd(t, l)
}

// TestListenerOfNetwork reaches the listener in computers with each kind of network, and with none.
func TestListenerOfNetwork(t *testing.T) {
	proxied, err := egress.Parse("http://127.0.0.1:9")
	if err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]egress.Mode{"on": egress.On, "proxy": proxied, "off": egress.Off} {
		t.Run(name, func(t *testing.T) {
			network, err := egress.New(egress.Options{Mode: mode})
			if err != nil {
				t.Fatal(err)
			}
			d, _ := openHost(t, func(o *local.Options) { o.Network = network })
			if _, err := d.Provision(t.Context(), "ws_1", "vm-1"); err != nil {
				t.Fatal(err)
			}
			l, err := d.Listen(t.Context(), "ws_1", 0)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go func() {
				if c, err := l.Accept(); err == nil {
					_, _ = io.WriteString(c, "answer")
					_ = c.Close()
				}
			}()
			p, err := d.Start(t.Context(), "ws_1", computer.Spec{
				ID: "p1", Group: "session:s1",
				Argv: []string{computer.ProgramPath, probe.Command, probe.Send, l.Addr().String()},
			})
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(p.Streams().Stdout); string(got) != "answer" || err != nil {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

// TestListenerLimitsConnections opens as many connections as a listener accepts, and one more.
func TestListenerLimitsConnections(t *testing.T) {
	socket, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	l := local.NewListener(socket, ended)
	var open []net.Conn
	for range computer.MaxAccepted + 1 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if len(open) == computer.MaxAccepted {
			break
		}
		accepted, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, accepted)
	}
	next := make(chan error, 1)
	accept := func() {
		_, err := l.Accept()
		next <- err
	}
	go accept()
	select {
	case err := <-next:
		t.Fatalf("Accept of one connection too many returned %v", err)
	default:
	}
	for range 2 { // closing twice frees one slot
		_ = open[0].Close()
	}
	if err := <-next; err != nil {
		t.Errorf("Accept after a connection was closed: %v", err)
	}
	go accept()
	close(ended)
	if err := <-next; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after the end: %v", err)
	}
	if _, err := open[1].Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Read of an accepted connection after the end: %v", err)
	}
}

// TestListenAtTheIdleTime opens a listener when the computer is about to stop because it was idle. The time begins again.
func TestListenAtTheIdleTime(t *testing.T) {
	d, _ := openHost(t, nil)
	if _, err := d.Provision(t.Context(), "ws_1", "vm-1"); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Listen(t.Context(), "ws_1", 0); err != nil {
		t.Fatal(err)
	}
	runTimer, err := local.HoldIdleTimer(d, "ws_1") // the timer waits for its turn, which Listen has
	if err != nil {
		t.Fatal(err)
	}
	l, err := d.Listen(t.Context(), "ws_1", 0)
	if err != nil {
		t.Fatal(err)
	}
	runTimer()
	c, err := d.Dial(t.Context(), "ws_1", l.Addr().(*net.TCPAddr).Port)
	if err != nil {
		t.Fatalf("the computer has stopped: %v", err)
	}
	defer c.Close()
	accepted, err := l.Accept()
	if err != nil {
		t.Fatalf("the listener has ended: %v", err)
	}
	defer accepted.Close()
	if runTimer, err = local.HoldIdleTimer(d, "ws_1"); err != nil {
		t.Fatal(err)
	}
	runTimer()
	awaitListenerEnd(t, l)
}
