package docker_test

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/computer/computertest/probe"
	"github.com/atelier-run/atelier/computer/docker/agent"
	"github.com/atelier-run/atelier/computer/docker/dockertest"
)

// servedPort is the port of the program that serveEcho starts.
const servedPort = 8000

// serveEcho starts a program that answers each connection with "echo:" and the bytes that it has received.
func (f *fixture) serveEcho(t *testing.T) {
	t.Helper()
	s := shell("p1", "")
	s.Argv = []string{computer.ProgramPath, probe.Command, probe.Serve, "127.0.0.1:8000", "echo"}
	p, err := f.Start(t.Context(), workspace, s)
	if err != nil {
		t.Fatal(err)
	}
	expectLine(t, p, "ready")
}

// dial connects to the program of serveEcho.
func (f *fixture) dial(t *testing.T) net.Conn {
	t.Helper()
	c, err := f.Dial(t.Context(), workspace, servedPort)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(3 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	return c
}

// expectEcho sends a text, and reads the answer to it.
func expectEcho(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Error(err)
	}
	if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Error(err)
	}
	if got, err := io.ReadAll(c); string(got) != "echo:"+text || err != nil {
		t.Errorf("received %q, %v", got, err)
	}
}

// testManyConnections opens more connections than one process of the agent has. All are open at the same time, and none waits for the
// others.
func testManyConnections(t *testing.T, engine *dockertest.Engine) {
	f := start(t, engine)
	f.serveEcho(t)
	open := make([]net.Conn, agent.MaxStreams+10)
	for i := range open {
		open[i] = f.dial(t)
	}
	for i := len(open) - 1; i >= 0; i-- {
		expectEcho(t, open[i], "text")
		_ = open[i].Close()
	}
	expectEcho(t, f.dial(t), "again")
}

// testKilledDialer lets a process of the container end the agent that makes connections. They end, and others can be made.
func testKilledDialer(t *testing.T, engine *dockertest.Engine) {
	f := start(t, engine)
	f.serveEcho(t)
	c := f.dial(t)
	// The pattern does not match the command of the shell itself.
	const script = `for p in /proc/[0-9]*; do tr '\0' ' ' < $p/cmdline | grep -q ' [d]ial ' && kill -KILL ${p#/proc/}; done; echo done`
	if r := f.run(t, shell("p2", script)); r.out != "done\n" {
		t.Errorf("got %+v", r)
	}
	if got, err := io.ReadAll(c); len(got) > 0 || err != nil {
		t.Errorf("received %q, %v from a connection that was lost", got, err)
	}
	expectEcho(t, f.dial(t), "text")
}
