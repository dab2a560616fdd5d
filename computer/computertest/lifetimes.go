package computertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/entity"
)

func testAttribution(t *testing.T, w *workspace) {
	s := w.spec("touch ran; echo ran")
	called := 0
	s.Attribute = func(pid int) error {
		called++
		if _, err := os.Stat(w.path("ran")); err == nil {
			t.Error("the process ran before it was attributed")
		}
		if pid != 0 {
			if _, err := os.Stat(filepath.Join("/proc", strconv.Itoa(pid))); err != nil {
				t.Errorf("process %d: %v", pid, err)
			}
		}
		return nil
	}
	if output, _ := w.start(t, s).finish(t); output != "ran\n" || called != 1 {
		t.Errorf("got %q, called %d times", output, called)
	}
	s = w.spec("touch forbidden")
	refused := errors.New("refused by the test")
	s.Attribute = func(int) error { return refused }
	if _, err := w.Host.Start(limit(t), w.id, s); !errors.Is(err, refused) {
		t.Errorf("Start returned %v, want the error of Attribute", err)
	}
	w.run(t, "true")
	if _, err := os.Stat(w.path("forbidden")); err == nil {
		t.Error("a process ran that could not be attributed")
	}
}

// testDescendants verifies that no descendant outlives the process.
func testDescendants(t *testing.T, w *workspace) {
	w.makePipe(t, "held")
	for name, script := range map[string]string{
		"background":  `sh -c '` + hold + `' & read line; exit 3`,
		"double fork": `(sh -c '` + hold + `' &) ; read line; exit 3`,
		"session":     `setsid sh -c '` + hold + `' & read line; exit 3`,
		"no hang-up":  `nohup sh -c 'trap "" HUP INT TERM; ` + hold + `' & read line; exit 3`,
		"deep":        `(setsid sh -c '(setsid sh -c "` + hold + `" &)' &) ; read line; exit 3`,
	} {
		r := w.sh(t, script)
		r.expect(t, "ready")
		if !w.isHeld(t, "held") {
			t.Errorf("%s: the descendant does not run", name)
		}
		r.write(t, "go on\n")
		checkExit(t, r.wait(t), 3)
		if w.isHeld(t, "held") {
			t.Errorf("%s: a descendant is left", name)
		}
	}
}

func testEnd(t *testing.T, w *workspace) {
	w.makePipe(t, "held")
	for _, script := range []string{hold, `trap "" HUP INT TERM; (setsid sh -c '` + hold + `' &); read line`} {
		r := w.sh(t, script)
		r.expect(t, "ready")
		for range 2 {
			if err := r.End(limit(t)); err != nil {
				t.Fatal(err)
			}
		}
		if w.isHeld(t, "held") {
			t.Error("a process is left")
		}
		if exit := r.wait(t); exit.Status != 137 || exit.Reason != "" {
			t.Errorf("got %+v", exit)
		}
	}
}

func testWait(t *testing.T, w *workspace) {
	r := w.sh(t, "echo ready; read line; exit 4")
	r.expect(t, "ready")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Wait(ended); err == nil {
		t.Error("Wait returned no error although its context has ended")
	}
	exits := make(chan computer.Exit, 4)
	for range cap(exits) {
		go func() {
			exit, err := r.Wait(t.Context())
			if err != nil {
				t.Error(err)
			}
			exits <- exit
		}()
	}
	r.write(t, "\n")
	first := r.wait(t)
	checkExit(t, first, 4)
	for range cap(exits) {
		if exit := <-exits; exit != first {
			t.Errorf("got %+v and %+v", first, exit)
		}
	}
}

func testStop(t *testing.T, w *workspace) {
	if err := w.Host.Stop(limit(t), w.id); err != nil {
		t.Errorf("Stop of a computer that does not run: %v", err)
	}
	w.makePipe(t, "held")
	first, second := w.sh(t, hold), w.sh(t, "echo ready; read line")
	first.expect(t, "ready")
	second.expect(t, "ready")
	if err := w.Host.Stop(limit(t), w.id); err != nil {
		t.Fatal(err)
	}
	if w.isHeld(t, "held") {
		t.Error("a process is left")
	}
	for _, r := range []*running{first, second} {
		if exit := r.wait(t); exit.Reason != computer.EndedStopped || exit.Status != 137 {
			t.Errorf("got %+v", exit)
		}
	}
	if got := w.run(t, "echo again; test -p held"); got != "again\n" {
		t.Errorf("got %q", got)
	}
}

func testReplacement(t *testing.T, w *workspace) {
	r := w.sh(t, "echo ready; read line")
	r.expect(t, "ready")
	if _, err := w.Driver.Provision(limit(t), w.id, "vm-1"); err != nil {
		t.Fatal(err)
	}
	r.write(t, "\n")
	checkExit(t, r.wait(t), 0)
	r = w.sh(t, "touch file; echo ready; read line")
	r.expect(t, "ready")
	if _, err := w.Driver.Provision(limit(t), w.id, "vm-2"); err != nil {
		t.Fatal(err)
	}
	if exit := r.wait(t); exit.Reason != computer.EndedStopped {
		t.Errorf("got %+v", exit)
	}
	w.run(t, "test -e file")
}

func testRelease(t *testing.T, w *workspace) {
	r := w.sh(t, "echo ready; read line")
	r.expect(t, "ready")
	if err := w.Driver.Release(limit(t), w.id); err != nil {
		t.Fatal(err)
	}
	if exit := r.wait(t); exit.Reason != computer.EndedStopped {
		t.Errorf("got %+v", exit)
	}
	_, err := w.Host.Start(limit(t), w.id, w.spec("true"))
	checkCode(t, err, entity.NotFound)
	checkCode(t, w.Host.Freeze(limit(t), w.id, true), entity.NotFound)
	if err := w.Host.Stop(limit(t), w.id); err != nil {
		t.Errorf("Stop after Release: %v", err)
	}
}

func testFreeze(t *testing.T, w *workspace) {
	r := w.sh(t, "echo ready; cat")
	r.expect(t, "ready")
	for range 2 {
		if err := w.Host.Freeze(limit(t), w.id, true); err != nil {
			t.Fatal(err)
		}
	}
	_, err := w.Host.Start(limit(t), w.id, w.spec("true"))
	checkCode(t, err, entity.Unavailable)
	if w.Freezes {
		r.write(t, "thawed\n")
		answer := make(chan error, 1)
		go func() {
			_, err := r.lines.Peek(1)
			answer <- err
		}()
		later := exec.CommandContext(limit(t), "cat")
		later.Stdin = strings.NewReader("later\n")
		if out, err := later.Output(); err != nil || string(out) != "later\n" {
			t.Fatalf("the process of the test answered %q, %v", out, err)
		}
		select {
		case err := <-answer:
			t.Fatalf("a frozen process answered, %v", err)
		default: // although a process that got its line later has answered
		}
		defer r.expect(t, "thawed")
		defer func() { <-answer }()
	}
	for range 2 {
		if err := w.Host.Freeze(limit(t), w.id, false); err != nil {
			t.Fatal(err)
		}
	}
	w.run(t, "true")
}

func testEndFrozen(t *testing.T, w *workspace) {
	w.makePipe(t, "held")
	first, second := w.sh(t, hold), w.sh(t, "echo ready; read line")
	first.expect(t, "ready")
	second.expect(t, "ready")
	if err := w.Host.Freeze(limit(t), w.id, true); err != nil {
		t.Fatal(err)
	}
	if err := first.End(limit(t)); err != nil {
		t.Fatal(err)
	}
	if w.isHeld(t, "held") {
		t.Error("a process is left")
	}
	if err := w.Host.Stop(limit(t), w.id); err != nil {
		t.Fatal(err)
	}
	if exit := second.wait(t); exit.Reason != computer.EndedStopped {
		t.Errorf("got %+v", exit)
	}
	w.run(t, "true") // A computer that was stopped is not frozen.
}

func testUsage(t *testing.T, w *workspace) {
	if all, err := w.Host.Usage(limit(t), w.id); err != nil || len(all) != 0 {
		t.Errorf("without processes: got %+v, %v", all, err)
	}
	s := w.spec("echo ready; read line")
	s.Group = "app:one"
	first, second, app := w.sh(t, "echo ready; read line"), w.sh(t, "echo ready; read line"), w.start(t, s)
	for _, r := range []*running{first, second, app} {
		r.expect(t, "ready")
	}
	all, err := w.Host.Usage(limit(t), w.id)
	if err != nil {
		t.Fatal(err)
	}
	find := func(group string) *computer.Usage {
		at := slices.IndexFunc(all, func(u computer.Usage) bool { return u.Group == group })
		if at < 0 {
			return nil
		}
		return &all[at]
	}
	if session := find("session:s1"); session == nil || session.Processes != 0 && session.Processes < 2 {
		t.Errorf("the session uses %+v", session)
	}
	if find("app:one") == nil || len(all) != 2 {
		t.Errorf("got %+v", all)
	}
	if err := app.End(limit(t)); err != nil {
		t.Fatal(err)
	}
	if all, err = w.Host.Usage(limit(t), w.id); err != nil || find("app:one") != nil || find("session:s1") == nil {
		t.Errorf("after the end of the app: got %+v, %v", all, err)
	}
	_, err = w.Host.Usage(limit(t), "ws_unknown")
	checkCode(t, err, entity.NotFound)
}

// testCanceled ends the context in the middle of Start.
func testCanceled(t *testing.T, w *workspace) {
	w.makePipe(t, "held")
	for range 10 {
		ctx, cancel := context.WithCancel(t.Context())
		s := w.spec(hold)
		s.Attribute = func(int) error { cancel(); return nil }
		if p, err := w.Host.Start(ctx, w.id, s); err == nil {
			if err := p.End(limit(t)); err != nil {
				t.Fatal(err)
			}
		}
		if w.isHeld(t, "held") {
			t.Fatal("a process is left although its start was canceled")
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.Host.Start(ctx, w.id, w.spec(hold)); err == nil {
		t.Error("Start returned no error although its context has ended")
	}
	w.run(t, "true")
}

func testDial(t *testing.T, w *workspace) {
	const port = 18273
	_, err := w.Host.Dial(limit(t), w.id, port)
	checkCode(t, err, entity.Unavailable)
	servers := []*workspace{w}
	if w.Isolated {
		servers = append(servers, w.provision(t, "ws_connections_2"))
	}
	var group sync.WaitGroup
	for _, one := range servers {
		s := one.spec("")
		s.Argv = one.Serve(port)
		r := one.start(t, s)
		r.expect(t, "ready")
		connection, err := one.Host.Dial(limit(t), one.id, port)
		if err != nil {
			t.Fatal(err)
		}
		group.Go(func() {
			defer connection.Close()
			if _, err := io.WriteString(connection, "to "+one.id); err != nil {
				t.Errorf("%s: %v", one.id, err)
			}
		})
		group.Wait()
		if output, _ := r.finish(t); output != "to "+one.id {
			t.Errorf("%s received %q", one.id, output)
		}
	}
	_, err = w.Host.Dial(limit(t), w.id, port)
	checkCode(t, err, entity.Unavailable)
	for _, invalid := range []int{-1, 0, 65536} {
		_, err := w.Host.Dial(limit(t), w.id, invalid)
		checkCode(t, err, entity.InvalidRequest)
	}
	_, err = w.Host.Dial(limit(t), "ws_unknown", port)
	checkCode(t, err, entity.NotFound)
}

func testLimits(t *testing.T, w *workspace) {
	if w.LimitsMemory {
		s := w.spec("exec tail -n 1 /dev/zero")
		s.Group, s.Limits.MemoryBytes = "session:memory", 32<<20
		if _, exit := w.start(t, s).finish(t); exit.Reason != computer.EndedOutOfMemory || exit.Status != 137 {
			t.Errorf("memory: got %+v", exit)
		}
		s = w.spec("tail -n 1 /dev/zero; exit $?")
		s.Group, s.Limits.MemoryBytes = "session:memory", 32<<20
		if _, exit := w.start(t, s).finish(t); exit.Reason != computer.EndedOutOfMemory || exit.Status != 137 {
			t.Errorf("memory, below a shell: got %+v", exit)
		}
		if _, exit := w.start(t, w.spec("sh -c 'kill -KILL $$'; exit $?")).finish(t); exit.Reason != "" || exit.Status != 137 {
			t.Errorf("memory, killed by itself: got %+v", exit)
		}
	}
	testMemory(t, w)
	if w.LimitsProcesses {
		s := w.spec("mkfifo held; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do cat <held & done; echo all")
		s.Group, s.Limits.Processes = "session:processes", 10
		if output, exit := w.start(t, s).finish(t); exit.Status == 0 || strings.Contains(output, "all") {
			t.Errorf("processes: got %q, %+v", output, exit)
		}
	}
	w.run(t, "true")
}

// hoard is a script that holds 50 MB of memory.
const hoard = "x=$(head -c 50000000 /dev/zero | tr '\\0' x); echo held; read y"

func testMemory(t *testing.T, w *workspace) {
	if !w.LimitsMemory {
		return
	}
	r := w.sh(t, hoard)
	r.expect(t, "held")
	used, most, err := w.Host.Memory(limit(t), w.id)
	if err != nil || used < 50e6 || used > most {
		t.Errorf("a computer with a process of 50 MB uses %d of %d, %v", used, most, err)
	}
	if err := r.End(limit(t)); err != nil {
		t.Fatal(err)
	}
	if after, _, err := w.Host.Memory(limit(t), w.id); err != nil || used-after < 40e6 {
		t.Errorf("after its end the computer uses %d of %d, %v", after, most, err)
	}
}

// testIsolation looks from one workspace for the files of another and for the network of this machine.
func testIsolation(t *testing.T, w *workspace) {
	if !w.Isolated {
		return
	}
	secret := filepath.Join(w.provision(t, "ws_isolation_2").Files("ws_isolation_2"), "secret")
	if err := os.WriteFile(secret, []byte("secret of the other workspace"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := w.run(t, fmt.Sprintf("cat %s 2>&1 || true", secret)); strings.Contains(got, "secret of") {
		t.Errorf("read the file of another workspace: %q", got)
	}
	w.run(t, "! touch /usr/written 2>/dev/null && ! touch /etc/written 2>/dev/null")
	w.run(t, "! kill -KILL 1 2>/dev/null; echo alive")
	network, err := os.ReadFile("/proc/net/dev")
	if err != nil {
		t.Fatal(err)
	}
	if inside := w.run(t, "cat /proc/net/dev"); bytes.Equal([]byte(inside), network) {
		t.Error("the processes have the network of this machine")
	}
}
