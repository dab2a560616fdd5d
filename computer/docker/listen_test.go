package docker_test

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/computer/computertest/probe"
	"github.com/atelier-run/atelier/computer/docker"
	"github.com/atelier-run/atelier/computer/docker/dockertest"
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

// testLostContainer kills a container. Its processes are lost, its listener ends, and the computer can be used again.
func testLostContainer(t *testing.T, engine *dockertest.Engine) {
	f := start(t, engine)
	l, err := f.Listen(t.Context(), workspace, 0)
	if err != nil {
		t.Fatal(err)
	}
	p, err := f.Start(t.Context(), workspace, shell("p1", "echo ready; sleep 1000"))
	if err != nil {
		t.Fatal(err)
	}
	expectLine(t, p, "ready")
	all := f.containers(t)
	if len(all) != 1 {
		t.Fatalf("%d containers run", len(all))
	}
	if _, err := engine.Client(t).ContainerKill(t.Context(), all[0].ID, client.ContainerKillOptions{Signal: "KILL"}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if exit, err := p.Wait(ctx); err != nil || exit.Reason != computer.EndedLost {
		t.Errorf("got %+v, %v", exit, err)
	}
	awaitListenerEnd(t, l)
	if r := f.run(t, shell("p2", "echo again")); r.out != "again\n" {
		t.Errorf("got %+v", r)
	}
}

// testKilledListener lets a process of the container end the agent that listens. Only the listener ends.
func testKilledListener(t *testing.T, engine *dockertest.Engine) {
	f := start(t, engine)
	l, err := f.Listen(t.Context(), workspace, 0)
	if err != nil {
		t.Fatal(err)
	}
	// The pattern does not match the command of the shell itself.
	const script = `for p in /proc/[0-9]*; do tr '\0' ' ' < $p/cmdline | grep -q ' [l]isten 0' && kill -KILL ${p#/proc/}; done; echo done`
	if r := f.run(t, shell("p1", script)); r.out != "done\n" {
		t.Errorf("got %+v", r)
	}
	awaitListenerEnd(t, l)
	if l, err = f.Listen(t.Context(), workspace, 0); err != nil {
		t.Fatal(err)
	}
	go func() {
		if c, err := l.Accept(); err == nil {
			_, _ = io.WriteString(c, "answer")
			_ = c.Close()
		}
	}()
	s := shell("p2", "")
	s.Argv = []string{computer.ProgramPath, probe.Command, probe.Send, l.Addr().String()}
	if r := f.run(t, s); r.out != "answer" {
		t.Errorf("got %+v", r)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// testIdleListener checks that a listener does not keep the container running.
func testIdleListener(t *testing.T, engine *dockertest.Engine) {
	f := start(t, engine, func(o *docker.Options) { o.IdleAfter = 100 * time.Millisecond })
	l, err := f.Listen(t.Context(), workspace, 0)
	if err != nil {
		t.Fatal(err)
	}
	awaitListenerEnd(t, l)
}
