package process

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestLife(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	n := start(t, dir)
	_, key := newPerson(t, n, "ada@example.org")
	c := newClient(n.address, key)
	c.expect(t, http.StatusOK, "GET", "/healthz", "")
	c.expect(t, http.StatusOK, "GET", "/readyz", "")
	if metrics := c.expect(t, http.StatusOK, "GET", "/metrics", ""); !strings.Contains(metrics, "go_goroutines") {
		t.Error("/metrics has no metrics")
	}
	newSpace(t, c)
	c.expect(t, http.StatusCreated, "PUT", drivePath("hello.txt"), "hello\n")

	opened, ended := make(chan struct{}), make(chan error, 1)
	rows := make(chan row, 10)
	go func() {
		ended <- c.follow(t.Context(), "", func() { close(opened) }, func(_ string, data []byte) {
			r, _ := parseRow(data)
			rows <- r
		})
	}()
	select {
	case <-opened:
	case err := <-ended:
		t.Fatalf("the stream does not open: %v", err)
	}
	if r := <-rows; r.Event.Path != "hello.txt" || r.Event.Kind != "create" {
		t.Errorf("the stream's row: %+v", r)
	}
	if code := n.terminate(t); code != 0 {
		t.Errorf("exit %d after SIGTERM:\n%s", code, n.logs)
	}
	if err := <-ended; err != nil {
		t.Errorf("the stream did not end as the protocol has it: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "atelier.sock")); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}

	again := startAtPort(t, dir)
	c = newClient(again.address, key)
	if got := c.expect(t, http.StatusOK, "GET", drivePath("hello.txt"), ""); got != "hello\n" {
		t.Errorf("after a start the file holds %q", got)
	}
	if feed, err := c.feed(t.Context()); err != nil || len(feed) == 0 || feed[0].Event.Path != "hello.txt" {
		t.Errorf("after a start the feed holds %v, %v", feed, err)
	}
}

// A command that is under way when SIGTERM comes is answered.
func TestDrainFinishesWhatIsUnderWay(t *testing.T) {
	n := start(t, filepath.Join(t.TempDir(), "data"))
	_, key := newPerson(t, n, "ada@example.org")
	c := newClient(n.address, key)
	newSpace(t, c)
	body := newSlowBody("slow and ", "whole\n")
	status := make(chan int, 1)
	go func() {
		request, _ := http.NewRequestWithContext(t.Context(), "PUT", n.address+drivePath("slow.txt"), body)
		request.Header.Set("Authorization", "Bearer "+key)
		response, err := c.http.Do(request)
		if err != nil {
			t.Error(err)
			status <- 0
			return
		}
		response.Body.Close()
		status <- response.StatusCode
	}()
	wait(t, body.half, "half of the upload is on its way")
	other := newClient(n.address, key)
	eventually(t, "the node works on the upload", func() bool {
		return strings.Contains(other.expect(t, http.StatusOK, "GET", "/metrics", ""), "atelier_http_requests_in_flight 2\n")
	})
	draining := n.logs.wait("draining")
	signal(t, n)
	wait(t, draining, "the node drains")
	close(body.rest)
	if got := <-status; got != http.StatusCreated {
		t.Errorf("the upload under way was answered %d", got)
	}
	if code := n.end(t); code != 0 {
		t.Errorf("exit %d:\n%s", code, n.logs)
	}
	c = newClient(start(t, n.dir).address, key)
	if got := c.expect(t, http.StatusOK, "GET", drivePath("slow.txt"), ""); got != "slow and whole\n" {
		t.Errorf("it holds %q", got)
	}
}

func TestSecondProcessIsRefused(t *testing.T) {
	n := start(t, filepath.Join(t.TempDir(), "data"))
	_, errs, code := atelier("serve", "--data="+n.dir, "--listen=127.0.0.1:0")
	if code != 3 || !strings.Contains(errs, "in use by another process") || !strings.Contains(errs, n.dir) {
		t.Errorf("exit %d: %s", code, errs)
	}
	newPerson(t, n, "ada@example.org") // the first one's socket is still its own
}

func TestStaleSocket(t *testing.T) {
	n := start(t, filepath.Join(t.TempDir(), "data"))
	n.kill()
	if _, err := os.Lstat(filepath.Join(n.dir, "atelier.sock")); err != nil {
		t.Fatalf("a killed node leaves its socket: %v", err)
	}
	if _, errs, code := atelier("admin", "key", "create", "--data="+n.dir, "--email=a@example.org"); code != 1 || !strings.Contains(errs, "no node runs there") {
		t.Errorf("exit %d: %s", code, errs)
	}
	newPerson(t, start(t, n.dir), "ada@example.org")
}

func TestQuickstartKeepsItsKey(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	var keys [2]string
	for i := range keys {
		n := start(t, dir, "--quickstart")
		keys[i] = quickstartKey(t, n)
		if code := n.terminate(t); code != 0 {
			t.Errorf("exit %d", code)
		}
	}
	if keys[0] != keys[1] {
		t.Errorf("another start made another key")
	}
}

// quickstartKey is the key that the node prints, which opens the workspace.
func quickstartKey(t *testing.T, n *node) string {
	t.Helper()
	eventually(t, "the quickstart's text", func() bool { return strings.Contains(n.logs.String(), "Ctrl+C") })
	text, err := os.ReadFile(filepath.Join(n.dir, "quickstart.key"))
	key := strings.TrimSpace(string(text))
	if err != nil || !strings.Contains(n.logs.String(), key) {
		t.Fatalf("the key that is kept is not the one that is printed: %v", err)
	}
	newClient(n.address, key).expect(t, http.StatusOK, "GET", "/v1/ws/demo/file-activity/feed", "")
	return key
}

// A node whose journal can write no more ends by itself, for its supervisor to start it again.
func TestFailedJournalEndsTheNode(t *testing.T) {
	n := start(t, filepath.Join(t.TempDir(), "data"), "--cache-size=4MiB", "--rate=0")
	_, key := newPerson(t, n, "ada@example.org")
	newSpace(t, newClient(n.address, key))
	store := filepath.Join(n.dir, "journal", "store")
	if err := os.Rename(store, store+".away"); err != nil {
		t.Fatal(err)
	}
	var writers sync.WaitGroup
	var number atomic.Int64
	for range 8 {
		writers.Go(func() { writeUntilGone(t, newClient(n.address, key), &number) })
	}
	if code := n.end(t); code != 1 || !strings.Contains(n.logs.String(), "the journal can write no more") {
		t.Errorf("exit %d:\n%s", code, n.logs)
	}
	writers.Wait()
}

func writeUntilGone(t *testing.T, c *client, number *atomic.Int64) {
	defer c.close()
	long := strings.Repeat("x", 200)
	for {
		folder := drivePath(long + "-" + time.Duration(number.Add(1)).String())
		if _, _, err := c.do(t.Context(), "MKCOL", folder, nil); err != nil {
			return
		}
	}
}
