package process

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// startUnread starts a node and reads its log until it is ready. The caller has the pipe of the log, from which nothing reads.
func startUnread(t *testing.T) (n *node, log *os.File) {
	t.Helper()
	log, written, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	dir := filepath.Join(t.TempDir(), "data")
	n = &node{dir: dir, exited: make(chan struct{}), logs: newLogs(), command: exec.Command(binary, "serve", "--data="+dir,
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
			return n, log
		}
	}
	t.Fatal("the node did not start")
	return nil, nil
}

// dropLines sends requests until lines of the log were dropped. Each has an answer.
func dropLines(t *testing.T, n *node) {
	t.Helper()
	c := newClient(n.address, "")
	defer c.close()
	path := "/" + strings.Repeat("long/", 200) // the log has 1,024 bytes of it
	dropped := regexp.MustCompile(`(?m)^atelier_log_dropped_lines_total [1-9]`)
	for !dropped.MatchString(c.expect(t, http.StatusOK, "GET", "/metrics", "")) {
		for range 100 {
			c.expect(t, http.StatusNotFound, "GET", path, "")
		}
	}
}

// TestLogWithoutReader verifies that no request and no end of a node waits for the reader of its log.
func TestLogWithoutReader(t *testing.T) {
	t.Run("it pauses", func(t *testing.T) {
		n, log := startUnread(t)
		dropLines(t, n)
		signal(t, n)
		if code := n.end(t); code != 0 {
			t.Errorf("exit %d", code)
		}
		log.Close()
	})
	t.Run("it continues", func(t *testing.T) {
		n, log := startUnread(t)
		dropLines(t, n)
		said := make(chan bool, 1)
		go func() {
			lines := bufio.NewScanner(log)
			for lines.Scan() && !strings.Contains(lines.Text(), "lines of the log were dropped") {
			}
			said <- lines.Err() == nil && len(lines.Bytes()) > 0
			for lines.Scan() {
			}
		}()
		if !<-said {
			t.Error("no line says that lines were dropped")
		}
		if code := n.terminate(t); code != 0 {
			t.Errorf("exit %d", code)
		}
	})
	t.Run("it has ended", func(t *testing.T) {
		n, log := startUnread(t)
		log.Close()
		dropLines(t, n)
		if code := n.terminate(t); code != 0 {
			t.Errorf("exit %d", code)
		}
	})
}

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
