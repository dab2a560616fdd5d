package process

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// patience limits every wait of a test. It is generous, because a busy machine may need a hundred times as long as an
// idle one; it is not a performance requirement.
const patience = 3 * time.Minute

var binary string

func TestMain(m *testing.M) {
	if dir := os.Getenv(journalRole); dir != "" {
		if err := exerciseJournal(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if plan := os.Getenv(soakRole); plan != "" {
		if err := runAttackers(plan); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	dir, err := os.MkdirTemp("", "atelier-process-")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "atelier")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-w", "-o", binary, "../../cmd/atelier")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as the Makefile builds it
	build.Stdout, build.Stderr = os.Stdout, os.Stderr
	if err := build.Run(); err != nil {
		panic(fmt.Sprint("go build: ", err))
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// A node is a running process.
type node struct {
	dir     string
	address string
	command *exec.Cmd
	logs    *logs
	// exited is closed when the process has ended. code is then its exit code, or -1 if a signal ended it.
	exited chan struct{}
	code   int
}

// start starts a node with a data directory and waits until it is ready. It kills the node at the end of the test.
func start(t *testing.T, dir string, settings ...string) *node {
	t.Helper()
	n, err := launch(dir, settings...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.kill)
	if !n.ready() {
		t.Fatalf("the node did not start:\n%s", n.logs)
	}
	return n
}

func launch(dir string, settings ...string) (*node, error) { return launchBy(nil, dir, settings...) }

// launchBy starts a node. If through is not empty, it is a command that executes the node's command line, its last arguments.
func launchBy(through []string, dir string, settings ...string) (*node, error) {
	arguments := append([]string{"serve", "--data=" + dir, "--listen=127.0.0.1:0", "--log-format=json", "--log-level=info"}, settings...)
	line := append(append(through, binary), arguments...)
	n := &node{dir: dir, command: exec.Command(line[0], line[1:]...), exited: make(chan struct{})}
	stderr, err := n.command.StderrPipe()
	if err != nil {
		return nil, err
	}
	n.command.Stdout = n.command.Stderr
	n.logs = newLogs()
	if err := n.command.Start(); err != nil {
		return nil, err
	}
	go func() {
		n.logs.read(stderr)
		_ = n.command.Wait() // the exit code has the result
		n.code = n.command.ProcessState.ExitCode()
		close(n.exited)
	}()
	return n, nil
}

// ready waits until the node is ready. It returns false if the node ends first.
func (n *node) ready() bool {
	select {
	case n.address = <-n.logs.address:
		return true
	case <-n.exited:
		return false
	case <-time.After(patience):
		return false
	}
}

func (n *node) kill() {
	_ = n.command.Process.Kill() // the process may have ended already
	<-n.exited
}

// terminate sends SIGTERM, waits for the end of the process, and returns its exit code.
func (n *node) terminate(t *testing.T) int {
	t.Helper()
	signal(t, n)
	return n.end(t)
}

// end waits for the end of the process and returns its exit code.
func (n *node) end(t *testing.T) int {
	t.Helper()
	select {
	case <-n.exited:
		return n.code
	case <-time.After(patience):
		t.Fatalf("the node does not end:\n%s", n.logs)
		return 0
	}
}

// atelier runs a command of the program and returns its output and exit code.
func atelier(arguments ...string) (stdout, stderr string, code int) {
	command := exec.Command(binary, arguments...)
	var out, errs bytes.Buffer
	command.Stdout, command.Stderr = &out, &errs
	err := command.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return "", err.Error(), -1
	}
	return out.String(), errs.String(), command.ProcessState.ExitCode()
}

// logs holds the last keptLines lines that a node has logged.
type logs struct {
	address chan string

	mu      sync.Mutex
	lines   []string
	waiting map[string]chan struct{}
}

const keptLines = 200

func newLogs() *logs {
	return &logs{address: make(chan string, 1), waiting: map[string]chan struct{}{}}
}

// wait returns a channel that is closed when the node logs a message.
func (l *logs) wait(message string) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting[message] = make(chan struct{})
	return l.waiting[message]
}

// add adds a line and wakes the caller that waits for its message.
func (l *logs) add(message, line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines[max(0, len(l.lines)-keptLines):], line)
	if logged := l.waiting[message]; logged != nil {
		delete(l.waiting, message)
		close(logged)
	}
}

// read reads a node's log until its end.
func (l *logs) read(from io.Reader) {
	for lines := bufio.NewScanner(from); lines.Scan(); {
		var line struct{ Msg, Address string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "ready" {
			l.address <- line.Address
		}
		l.add(line.Msg, lines.Text())
	}
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b bytes.Buffer
	for _, line := range l.lines {
		fmt.Fprintln(&b, line)
	}
	return b.String()
}
