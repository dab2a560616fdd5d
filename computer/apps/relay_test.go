package apps

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/computer"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
)

func TestReplacement(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.programs["old"], w.programs["new"] = program{ignoresTerm: true}, program{after: 20 * time.Second}
		w.register(&appv1.Runtime{Command: "old"})
		open, _ := w.dial()
		defer open.Close()
		w.offer(testPort + 1)
		w.do(&appv1.UpdateApp{Command: proto.String("new"), Port: proto.Uint32(testPort + 1)})
		time.Sleep(10 * time.Second)
		if c, name := w.dial(); name != "old" {
			t.Errorf("%q answers while the new process starts", name)
		} else {
			c.Close()
		}
		w.expectStatus(w.reconciled(), reconciledStatus)
		at := time.Now()
		if c, name := w.dial(); name != "new" {
			t.Errorf("%q answers after the replacement", name)
		} else {
			c.Close()
		}
		time.Sleep(20 * time.Second)
		if len(w.alive()) != 2 {
			t.Error("the old process has ended although a connection is open")
		}
		if busy := w.state().GetPorts().GetBusy(); len(busy) != 1 || busy[0] != testPort {
			t.Errorf("while the old process serves its connections, the busy ports are %d", busy)
		}
		time.Sleep(time.Minute)
		if busy := w.state().GetPorts().GetBusy(); len(busy) > 0 {
			t.Errorf("the old process has ended, and the ports %d are busy", busy)
		}
		old := w.started()[0]
		if len(w.alive()) != 1 || old.termAt.Sub(at) != 30*time.Second || old.endedAt.Sub(at) != 40*time.Second {
			t.Errorf("the old process was asked to end after %s and has ended after %s", old.termAt.Sub(at), old.endedAt.Sub(at))
		}
	})
}

// throughComputer connects to the app's port in the computer, as one of its processes does, and returns the name of the process that has answered.
func (w *world) throughComputer() (net.Conn, string) {
	w.t.Helper()
	c, err := w.Dial(w.t.Context(), testWorkspace, testPort)
	if err != nil {
		return nil, err.Error()
	}
	name, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return c, err.Error()
	}
	return c, strings.TrimSuffix(name, "\n")
}

func TestReplacementOnTheSamePort(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.programs["old"], w.programs["new"] = program{}, program{after: 20 * time.Second}
		w.register(&appv1.Runtime{Command: "old"})
		open, name := w.throughComputer()
		if name != "old" {
			t.Fatalf("at the port in the computer, %q answers", name)
		}
		w.do(&appv1.UpdateApp{Command: proto.String("new")})
		time.Sleep(10 * time.Second)
		if w.hasNetworks {
			if c, name := w.throughComputer(); name != "old" {
				t.Errorf("%q answers while the new process starts", name)
			} else {
				c.Close()
			}
		} else if len(w.alive()) != 1 {
			t.Error("both processes use the port of the computer")
		}
		w.expectStatus(w.reconciled(), reconciledStatus)
		if c, name := w.throughComputer(); name != "new" {
			t.Errorf("%q answers after the replacement", name)
		} else {
			c.Close()
		}
		time.Sleep(20 * time.Second)
		if w.hasNetworks && len(w.alive()) != 2 {
			t.Error("the old process has ended although a connection is open")
		}
		open.Close()
		synctest.Wait()
		if len(w.alive()) != 1 {
			t.Error("the old process runs on although its last connection is closed")
		}
	})
}

func TestOccupiedPort(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.programs["serve"] = program{}
		other, err := w.Listen(t.Context(), testWorkspace, testPort)
		if err != nil {
			t.Fatal(err)
		}
		a := w.register(&appv1.Runtime{Command: "serve"})
		w.expectStatus(a, failedStatus)
		if !strings.Contains(a.GetReconciliationError(), "port 8080 is in use by another process") || len(w.started()) > 0 {
			t.Errorf("%d processes were started; the error is %q", len(w.started()), a.GetReconciliationError())
		}
		other.Close()
	})
}

// TestCrashDuringAReplacement ends the old process while the new one, on the same port, is starting.
func TestCrashDuringAReplacement(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.programs["old"], w.programs["new"] = program{}, program{after: 20 * time.Second}
		w.register(&appv1.Runtime{Command: "old"})
		w.do(&appv1.UpdateApp{Command: proto.String("new")})
		time.Sleep(10 * time.Second)
		w.started()[0].fail <- computer.Exit{Status: 1}
		w.expectStatus(w.reconciled(), reconciledStatus)
		if c, name := w.throughComputer(); name != "new" {
			t.Errorf("at the port in the computer, %q answers", name)
		} else {
			c.Close()
		}
	})
}

func TestCrashEndsRelayedConnections(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.programs["serve"] = program{}
		w.register(&appv1.Runtime{Command: "serve"})
		c, _ := w.throughComputer()
		w.started()[0].fail <- computer.Exit{Status: 1}
		if n, err := c.Read(make([]byte, 1)); err == nil {
			t.Errorf("read %d bytes from a process that has ended", n)
		}
	})
}

// Processes of the computer cannot take all descriptors of the server by connecting to an app.
func TestRelayedConnectionsAreBounded(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.programs["serve"] = program{}
		w.register(&appv1.Runtime{Command: "serve"})
		if !w.hasNetworks {
			return
		}
		for i := range maxRelayed {
			c, name := w.throughComputer()
			if name != "serve" {
				t.Errorf("connection %d was answered with %q", i, name)
			}
			defer c.Close()
		}
		c, name := w.throughComputer()
		if name != io.EOF.Error() {
			t.Errorf("a connection beyond the limit was answered with %q", name)
		}
		c.Close()
	})
}

// Nor by connecting to the API: further connections wait until others end.
func TestConnectionsOfAGateAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, listening: network{}}
		listener, err := w.Listen(t.Context(), testWorkspace, firstGatePort)
		if err != nil {
			t.Fatal(err)
		}
		l := &loop{s: New(Options{API: http.NotFoundHandler(), Dir: t.TempDir()})}
		g := l.serveGate(listener)
		defer g.close()
		request := func() (net.Conn, <-chan string) {
			c, err := w.Dial(t.Context(), testWorkspace, firstGatePort)
			if err != nil {
				t.Fatal(err)
			}
			answered := make(chan string, 1)
			go func() {
				_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: api\r\n\r\n")
				line, _ := bufio.NewReader(c).ReadString('\n')
				answered <- strings.TrimSpace(line)
			}()
			return c, answered
		}
		var open []net.Conn
		for range maxGateConns {
			c, answered := request()
			open = append(open, c)
			if line := <-answered; line != "HTTP/1.1 404 Not Found" {
				t.Fatalf("a connection within the limit was answered with %q", line)
			}
		}
		waiting, answered := request()
		synctest.Wait()
		select {
		case line := <-answered:
			t.Errorf("a connection beyond the limit was answered with %q", line)
		default:
		}
		for _, c := range open {
			c.Close()
		}
		if line := <-answered; line != "HTTP/1.1 404 Not Found" {
			t.Errorf("the connection was answered with %q after others had ended", line)
		}
		waiting.Close()
	})
}

// TestRelayWithoutDescriptors has no descriptor for a connection for a moment.
func TestRelayWithoutDescriptors(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.programs["serve"] = program{}
		w.register(&appv1.Runtime{Command: "serve"})
		if !w.hasNetworks {
			return
		}
		w.listeners[0].failures <- &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
		c, err := w.Dial(t.Context(), testWorkspace, testPort)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if name, err := bufio.NewReader(c).ReadString('\n'); name != "serve\n" {
			t.Errorf("a later connection was answered with %q, %v", name, err)
		}
	})
}
