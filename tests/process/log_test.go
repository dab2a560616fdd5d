package process

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/atelier-run/atelier/http/api/apitest"
)

// startUnread starts a node that logs to the file written, and reads the log from its other end until the node is ready. Then nothing reads
// the log until the caller does.
func startUnread(t *testing.T, log, written *os.File) *node {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	n := &node{dir: dir, exited: make(chan struct{}), logs: newLogs(), command: exec.Command(binary, "serve", "--data="+dir,
		"--listen=127.0.0.1:0", "--log-format=json", "--rate=0", "--address-rate=0")}
	n.command.Stderr = written
	if err := n.command.Start(); err != nil {
		t.Fatal(err)
	}
	written.Close()
	go func() {
		_ = n.command.Wait() // the exit code has the result
		n.code = n.command.ProcessState.ExitCode()
		close(n.exited)
	}()
	t.Cleanup(n.kill)
	for lines := bufio.NewScanner(log); lines.Scan(); {
		var line struct{ Msg, Address string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "ready" {
			n.address = line.Address
			return n
		}
	}
	t.Fatal("the node did not start")
	return nil
}

// droppedLines matches the metric with the number of dropped lines.
var droppedLines = regexp.MustCompile(`(?m)^atelier_log_dropped_lines_total (\d+)$`)

// countDropped returns the number of lines that the node says it has dropped.
func countDropped(t *testing.T, c *client) int {
	t.Helper()
	found := droppedLines.FindStringSubmatch(c.expect(t, http.StatusOK, "GET", "/metrics", ""))
	if found == nil {
		t.Fatal("the node has no metric of dropped lines")
	}
	count, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(err)
	}
	return count
}

// dropLines sends requests until lines of the log were dropped. Each has an answer.
func dropLines(t *testing.T, n *node) {
	t.Helper()
	c := newClient(n.address, "")
	defer c.close()
	path := "/" + strings.Repeat("long/", 200) // the log has 1,024 bytes of it
	for countDropped(t, c) == 0 {
		for range 100 {
			c.expect(t, http.StatusNotFound, "GET", path, "")
		}
	}
}

// readDropped reads a log, and returns a channel with the number of dropped lines in the first line that says so; 0 if the log ends before.
// It reads the log on until its end.
func readDropped(log *os.File) <-chan int {
	said := make(chan int, 1)
	go func() {
		defer close(said)
		for lines := bufio.NewScanner(log); lines.Scan(); {
			var line struct {
				Msg   string
				Lines int
			}
			if json.Unmarshal(lines.Bytes(), &line) == nil && strings.HasPrefix(line.Msg, "lines of the log were dropped") {
				said <- line.Lines
				break
			}
		}
		_, _ = io.Copy(io.Discard, log)
	}()
	return said
}

// TestLogWithoutReader verifies that no request and no end of a node waits for the reader of its log, which is a pipe or a terminal.
func TestLogWithoutReader(t *testing.T) {
	for name, open := range map[string]func() (log, written *os.File, err error){"pipe": os.Pipe, "terminal": apitest.OpenPTY} {
		start := func(t *testing.T) (*node, *os.File) {
			t.Helper()
			log, written, err := open()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { log.Close() })
			return startUnread(t, log, written), log
		}
		end := func(t *testing.T, n *node) {
			t.Helper()
			if code := n.terminate(t); code != 0 {
				t.Errorf("exit %d", code)
			}
		}
		t.Run(name+" pauses", func(t *testing.T) {
			n, _ := start(t)
			dropLines(t, n)
			end(t, n)
		})
		t.Run(name+" continues", func(t *testing.T) {
			n, log := start(t)
			dropLines(t, n)
			if <-readDropped(log) == 0 {
				t.Error("no line says that lines were dropped")
			}
			end(t, n)
		})
		t.Run(name+" has ended", func(t *testing.T) {
			n, log := start(t)
			log.Close()
			dropLines(t, n)
			end(t, n)
		})
	}
	t.Run("Ctrl-S", func(t *testing.T) {
		terminal, written, err := apitest.OpenPTY()
		if err != nil {
			t.Fatal(err)
		}
		defer terminal.Close()
		n := startUnread(t, terminal, written)
		said := readDropped(terminal)
		press := func(key byte) {
			t.Helper()
			if _, err := terminal.Write([]byte{key}); err != nil {
				t.Fatal(err)
			}
		}
		press(ctrlS)
		dropLines(t, n)
		newPerson(t, n, "ada@example.org") // the node goes on serving
		press(ctrlQ)
		c := newClient(n.address, "")
		defer c.close()
		if got, want := <-said, countDropped(t, c); got == 0 || got != want {
			t.Errorf("the log says that %d lines were dropped, want %d", got, want)
		}
		if code := n.terminate(t); code != 0 {
			t.Errorf("exit %d", code)
		}
	})
}

// ctrlS and ctrlQ are the characters that stop the output of a terminal and let it go on: VSTOP and VSTART of termios(3).
const ctrlS, ctrlQ = 'S' - '@', 'Q' - '@'

// TestHangup verifies that a node drains when its terminal is gone, unless nohup has started it.
func TestHangup(t *testing.T) {
	n := start(t, filepath.Join(t.TempDir(), "data"))
	draining := n.logs.wait("draining")
	if err := n.command.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if code := n.end(t); code != 0 {
		t.Errorf("exit %d after SIGHUP:\n%s", code, n.logs)
	}
	<-draining

	n, err := launchBy([]string{"nohup"}, filepath.Join(t.TempDir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.kill)
	if !n.ready() {
		t.Fatalf("the node did not start:\n%s", n.logs)
	}
	if err := n.command.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	c := newClient(n.address, "")
	defer c.close()
	c.expect(t, http.StatusOK, "GET", "/readyz", "") // the signal was delivered before the request
	if code := n.terminate(t); code != 0 {
		t.Errorf("exit %d after SIGTERM:\n%s", code, n.logs)
	}
}
