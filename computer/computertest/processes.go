package computertest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/entity"
)

// A Subject is the driver that TestHost tests, and its properties. Computers have a copy of a program that calls probe.Run if
// probe.IsRequested. The other programs that the tests run are sh, cat, env, head, kill, ls, mkfifo, rm, setsid, nohup, stty and tail,
// with the options that BusyBox knows.
type Subject struct {
	Driver computer.Driver
	Host   computer.Host
	// Files returns the folder of this machine that holds the files of a workspace's drive.
	Files func(workspaceID string) string
	// Serve returns a program that listens on a TCP port of its loopback interface, prints the line "ready", and copies the bytes
	// that it receives to its standard output, until the first connection ends. nil: the network is not tested.
	Serve func(port int) []string
	// Isolated is true if processes see neither the files of other workspaces nor the network of this machine.
	Isolated bool
	// Exposes has the ways to a private process that the driver leaves open; see ExposedInOneNamespace.
	Exposes []string
	// LimitsMemory and LimitsProcesses are true if the driver enforces these limits.
	LimitsMemory, LimitsProcesses bool
	// Freezes is true if Freeze suspends the processor time of processes.
	Freezes bool
}

// patience limits each wait of the tests.
const patience = 30 * time.Second

// A hostTest is a test of TestHost. ends is true if it starts, ends, suspends, limits or measures processes.
type hostTest struct {
	name string
	ends bool
	test func(*testing.T, *workspace)
}

var hostTests = []hostTest{
	{"streams", false, testStreams},
	{"big output with a slow reader", false, testSlowReader},
	{"end of input", false, testEndOfInput},
	{"status", true, testStatus},
	{"signals", true, testSignals},
	{"environment", false, testEnvironment},
	{"working directory", false, testCwd},
	{"invalid specs", false, testInvalidSpecs},
	{"program that does not exist", true, testUnknownProgram},
	{"attribution", true, testAttribution},
	{"terminal", false, testTerminal},
	{"interrupt of a terminal", false, testTerminalInterrupt},
	{"files of processes and of the server", false, testFiles},
	{"descendants that stay behind", true, testDescendants},
	{"end", true, testEnd},
	{"wait by several callers", true, testWait},
	{"stop", true, testStop},
	{"replacement", true, testReplacement},
	{"release", true, testRelease},
	{"freeze", true, testFreeze},
	{"end of a frozen process", true, testEndFrozen},
	{"usage", true, testUsage},
	{"canceled context", true, testCanceled},
	{"many processes", true, testMany},
	{"connections", false, testDial},
	{"program", false, testProgram},
	{"listeners", false, testListen},
	{"concurrent connections", false, testListenConcurrently},
	{"end of listeners", false, testListenEnds},
	{"network of a process", false, testProcessNetwork},
	{"preparation that fails", true, testPrepareFails},
	{"own networks", false, testOwnNetworks},
	{"end of own networks", true, testOwnNetworksEnd},
	{"usage of apps", true, testUsageOfApps},
	{"limits", true, testLimits},
	{"isolation", false, testIsolation},
	{"private processes", true, testPrivate},
}

// TestHost tests a driver that runs processes.
func TestHost(t *testing.T, s Subject) { s.run(t, func(hostTest) bool { return true }) }

// TestEnds is the part of TestHost that starts, ends, suspends, limits and measures processes. It suffices for a driver that was
// tested with TestHost, and that does these things in a second way.
func TestEnds(t *testing.T, s Subject) { s.run(t, func(one hostTest) bool { return one.ends }) }

func (s Subject) run(t *testing.T, isSelected func(hostTest) bool) {
	for _, one := range hostTests {
		if isSelected(one) {
			t.Run(one.name, func(t *testing.T) {
				one.test(t, s.provision(t, "ws_"+strings.ReplaceAll(one.name, " ", "_")))
			})
		}
	}
}

// A workspace is a workspace of a test, with its computer.
type workspace struct {
	Subject
	id string

	mu      sync.Mutex
	started int
}

// provision provisions a computer until the end of the test.
func (s Subject) provision(t *testing.T, id string) *workspace {
	t.Helper()
	if _, err := s.Driver.Provision(t.Context(), id, "vm-1"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.Driver.Release(ctx, id); err != nil {
			t.Errorf("Release: %v", err)
		}
	})
	return &workspace{Subject: s, id: id}
}

// spec returns the spec of a process that runs a shell script.
func (w *workspace) spec(script string) computer.Spec {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.started++
	return computer.Spec{ID: w.id + "_" + strconv.Itoa(w.started), Group: "session:s1", Argv: []string{"sh", "-c", script}}
}

// limit returns a context that ends before the test hangs.
func limit(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// A running process has a reader of its output by lines, and collects its standard error.
type running struct {
	computer.Process
	lines  *bufio.Reader
	stderr bytes.Buffer
	// drained is closed when standard error has ended.
	drained chan struct{}
}

// start starts a process and fails the test if it cannot.
func (w *workspace) start(t *testing.T, s computer.Spec) *running {
	t.Helper()
	p, err := w.Host.Start(limit(t), w.id, s)
	if err != nil {
		t.Fatalf("Start(%q): %v", s.Argv, err)
	}
	r := &running{Process: p, lines: bufio.NewReader(p.Streams().Stdout), drained: make(chan struct{})}
	go func() {
		defer close(r.drained)
		if stderr := p.Streams().Stderr; stderr != nil {
			_, _ = io.Copy(&r.stderr, stderr)
		}
	}()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := p.End(ctx); err != nil {
			t.Errorf("End(%q): %v", s.Argv, err)
		}
	})
	return r
}

func (w *workspace) sh(t *testing.T, script string) *running {
	t.Helper()
	return w.start(t, w.spec(script))
}

// expect reads a line of output and compares it.
func (r *running) expect(t *testing.T, want string) {
	t.Helper()
	line := make(chan string, 1)
	go func() {
		got, err := r.lines.ReadString('\n')
		if err != nil {
			got += err.Error()
		}
		line <- strings.TrimRight(got, "\r\n")
	}()
	select {
	case got := <-line:
		if got == io.EOF.Error() {
			exit, err := r.Wait(limit(t))
			<-r.drained
			t.Fatalf("got no line, want %q; exit %+v, %v; standard error %q", want, exit, err, &r.stderr)
		}
		if got != want {
			t.Fatalf("got the line %q, want %q", got, want)
		}
	case <-time.After(patience):
		t.Fatalf("no output, want %q", want)
	}
}

// write writes to the standard input.
func (r *running) write(t *testing.T, text string) {
	t.Helper()
	if _, err := io.WriteString(r.Streams().Stdin, text); err != nil {
		t.Fatalf("write to the standard input: %v", err)
	}
}

// finish closes the input, and returns the rest of the output and how the process has ended.
func (r *running) finish(t *testing.T) (string, computer.Exit) {
	t.Helper()
	if r.Streams().Stderr != nil {
		_ = r.Streams().Stdin.Close()
	}
	output := make(chan string, 1)
	go func() {
		all, err := io.ReadAll(r.lines)
		if err != nil {
			all = append(all, err.Error()...)
		}
		output <- string(all)
	}()
	select {
	case all := <-output:
		exit := r.wait(t)
		<-r.drained
		return all, exit
	case <-time.After(patience):
		t.Fatal("the output does not end")
		return "", computer.Exit{}
	}
}

func (r *running) wait(t *testing.T) computer.Exit {
	t.Helper()
	exit, err := r.Wait(limit(t))
	if err != nil {
		t.Fatalf("Wait: %v", err)
	}
	return exit
}

// run runs a script to its end, which must be successful, and returns its output.
func (w *workspace) run(t *testing.T, script string) string {
	t.Helper()
	r := w.sh(t, script)
	output, exit := r.finish(t)
	if exit.Status != 0 || exit.Reason != "" {
		t.Fatalf("%s: ended with %+v: %s%s", script, exit, output, r.stderr.String())
	}
	return output
}

func (w *workspace) path(name string) string { return filepath.Join(w.Files(w.id), name) }

// makePipe creates a named pipe on the drive. A process that has it open for reading is alive.
func (w *workspace) makePipe(t *testing.T, name string) {
	t.Helper()
	w.run(t, "mkfifo "+name)
}

// isHeld reports whether a process has a named pipe of the drive open.
func (w *workspace) isHeld(t *testing.T, name string) bool {
	t.Helper()
	file, err := os.OpenFile(w.path(name), os.O_WRONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ENXIO) {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = file.Close()
	return true
}

// hold is a script that opens the pipe "held", prints "ready", and blocks.
const hold = `exec 3<>held; echo ready; read x <&3`

// code returns the code of an error, or "" if it has none.
func code(err error) entity.Code {
	if e, ok := errors.AsType[*entity.Error](err); ok {
		return e.Code
	}
	return ""
}

// checkCode fails the test if an error does not have the code.
func checkCode(t *testing.T, err error, want entity.Code) {
	t.Helper()
	if code(err) != want {
		t.Errorf("got the error %v, want one of code %s", err, want)
	}
}

// checkExit fails the test unless a process has ended with the status by itself.
func checkExit(t *testing.T, got computer.Exit, want int) {
	t.Helper()
	if got.Status != want || got.Reason != "" || got.At.IsZero() {
		t.Errorf("ended with %+v, want status %d", got, want)
	}
}

func testMany(t *testing.T, w *workspace) {
	const each = 8
	workspaces := []*workspace{w, w.provision(t, "ws_many_2"), w.provision(t, "ws_many_3")}
	var group sync.WaitGroup
	for _, one := range workspaces {
		for i := range each {
			s := one.spec(fmt.Sprintf("cat; echo %s; exit %d", one.id, i))
			group.Go(func() {
				p, err := one.Host.Start(t.Context(), one.id, s)
				if err != nil {
					t.Errorf("Start: %v", err)
					return
				}
				_, _ = io.WriteString(p.Streams().Stdin, s.ID)
				_ = p.Streams().Stdin.Close()
				go func() { _, _ = io.Copy(io.Discard, p.Streams().Stderr) }()
				output, _ := io.ReadAll(p.Streams().Stdout)
				exit, err := p.Wait(t.Context())
				if want := s.ID + one.id + "\n"; string(output) != want || err != nil || exit.Status != i {
					t.Errorf("%s: got %q, %+v, %v", s.ID, output, exit, err)
				}
			})
		}
	}
	group.Wait()
}
