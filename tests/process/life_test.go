package process

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/atelier-run/atelier/tests/loopback"
)

// TestSeparateMetrics serves the metrics on a socket, and not on the address of the API.
func TestSeparateMetrics(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "m")
	n := start(t, filepath.Join(t.TempDir(), "data"), "--metrics-listen=unix:"+socket)
	newClient(n.address, "").expect(t, http.StatusNotFound, "GET", "/metrics", "")
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	defer client.CloseIdleConnections()
	for path, want := range map[string]int{"/metrics": http.StatusOK, "/v1/whoami": http.StatusNotFound} {
		response, err := client.Get("http://localhost" + path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || response.StatusCode != want || want == http.StatusOK && !strings.Contains(string(text), "go_goroutines") {
			t.Errorf("%s: status %d, %v", path, response.StatusCode, err)
		}
	}
	if code := n.terminate(t); code != 0 {
		t.Errorf("exit %d after SIGTERM:\n%s", code, n.logs)
	}
}

func TestStartServeAndStop(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	n := start(t, dir)
	_, key := newPerson(t, n, "ada@example.org")
	c := newClient(n.address, key)
	c.expect(t, http.StatusOK, "GET", "/healthz", "")
	c.expect(t, http.StatusOK, "GET", "/readyz", "")
	if metrics := c.expect(t, http.StatusOK, "GET", "/metrics", ""); !strings.Contains(metrics, "go_goroutines") {
		t.Error("/metrics has no metrics")
	}
	newWorkspace(t, c)
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
		t.Errorf("the stream has the row %+v, want the creation of hello.txt", r)
	}
	if code := n.terminate(t); code != 0 {
		t.Errorf("exit %d after SIGTERM:\n%s", code, n.logs)
	}
	if err := <-ended; err != nil {
		t.Errorf("the connection of the stream broke: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "atelier.sock")); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}

	address := loopback.Address(t)
	again := start(t, dir, "--listen="+address)
	if again.address != "http://"+address {
		t.Errorf("the node listens at %s, want %s", again.address, address)
	}
	c = newClient(again.address, key)
	if got := c.expect(t, http.StatusOK, "GET", drivePath("hello.txt"), ""); got != "hello\n" {
		t.Errorf("after a restart the file has %q, want \"hello\\n\"", got)
	}
	if feed, err := c.feed(t.Context()); err != nil || len(feed) == 0 || feed[0].Event.Path != "hello.txt" {
		t.Errorf("after a restart the feed is %v, %v; want the row of hello.txt first", feed, err)
	}
}

// TestDrainFinishesRunningUpload verifies that a request that is running when SIGTERM arrives is answered.
func TestDrainFinishesRunningUpload(t *testing.T) {
	n := start(t, filepath.Join(t.TempDir(), "data"))
	_, key := newPerson(t, n, "ada@example.org")
	c := newClient(n.address, key)
	newWorkspace(t, c)
	body := newSlowBody("slow and ", "whole\n")
	status := c.beginUpload(t, "slow.txt", body)
	draining := n.logs.wait("draining")
	signal(t, n)
	wait(t, draining, "the node is draining")
	close(body.rest)
	if got := <-status; got != http.StatusCreated {
		t.Errorf("the running upload got %d, want 201", got)
	}
	if code := n.end(t); code != 0 {
		t.Errorf("exit %d:\n%s", code, n.logs)
	}
	c = newClient(start(t, n.dir).address, key)
	if got := c.expect(t, http.StatusOK, "GET", drivePath("slow.txt"), ""); got != "slow and whole\n" {
		t.Errorf("the uploaded file has %q", got)
	}
}

// beginUpload sends the first half of a file, and returns when the node serves the request. The channel gets the status of the answer; 0 if
// there is none.
func (c *client) beginUpload(t *testing.T, path string, body *slowBody) <-chan int {
	t.Helper()
	status := make(chan int, 1)
	go func() {
		request, _ := http.NewRequestWithContext(t.Context(), "PUT", c.address+drivePath(path), body)
		request.Header.Set("Authorization", "Bearer "+c.key)
		response, err := c.http.Do(request)
		if err != nil {
			status <- 0
			return
		}
		response.Body.Close()
		status <- response.StatusCode
	}()
	wait(t, body.half, "the first half of the upload is sent")
	other := newClient(c.address, c.key)
	eventually(t, "the node is serving the upload", func() bool {
		return strings.Contains(other.expect(t, http.StatusOK, "GET", "/metrics", ""), "atelier_http_requests_in_flight 2\n")
	})
	return status
}

// TestDrainDeadlineNamesWhatIsCutOff stops a node while a client uploads a file, an app runs, and a command runs. The command ends at once. The
// log and the last error name the request and the app, which are cut off at the drain deadline.
func TestDrainDeadlineNamesWhatIsCutOff(t *testing.T) {
	requireRoot(t)
	n := start(t, filepath.Join(t.TempDir(), "data"), "--drain-deadline=1s")
	_, key := newPerson(t, n, "ada@example.org")
	c := newClient(n.address, key)
	newWorkspace(t, c)
	c.expect(t, http.StatusCreated, "MKCOL", drivePath("site"), "")
	c.expect(t, http.StatusCreated, "POST", workspacePath+"/apps", `{"path":"site","slug":"site","name":"Site","command":"exec /.atelier/atelier site","apiScopes":[]}`,
		"Content-Type", "application/json")
	body := newSlowBody("begun and ", "never ended\n")
	uploaded := c.beginUpload(t, "slow.txt", body)
	command := make(chan string, 1)
	go func() {
		_, answer, err := newClient(n.address, key).do(t.Context(), "POST", workspacePath+"/computer/exec",
			[]byte(`{"argv":["sh","-c","echo >started; exec sleep 100000"]}`), "Content-Type", "application/json")
		command <- fmt.Sprintf("%s %v", answer, err)
	}()
	eventually(t, "the command runs", func() bool {
		status, _, err := c.do(t.Context(), "GET", drivePath("started"), nil)
		return err == nil && status == http.StatusOK
	})

	if code := n.terminate(t); code != 1 {
		t.Errorf("exit %d, want 1", code)
	}
	if got := <-command; !strings.Contains(got, "the server is shutting down") {
		t.Errorf("the command ended with %s", got)
	}
	close(body.rest) // the client waits for the body before it reports that the connection is closed
	if status := <-uploaded; status != 0 {
		t.Errorf("the upload was answered with %d", status)
	}
	log := n.logs.String()
	for _, want := range []string{
		`"msg":"cutting off a request at the drain deadline","method":"PUT","route":"/v1/ws/{workspaceSlug}/drive/`,
		`"msg":"cutting off processes at the drain deadline","workspace":"ws_`,
		"requests in flight were cut off at the drain deadline: PUT /v1/ws/{workspaceSlug}/drive/",
		"processes were cut off at the drain deadline: 1 app of workspace ws_",
	} {
		if !strings.Contains(log, want) {
			t.Errorf("nothing says %s", want)
		}
	}
	if strings.Contains(log, "context ") || t.Failed() {
		t.Errorf("the log is\n%s", log)
	}
}

func TestSecondProcessIsRefused(t *testing.T) {
	n := start(t, filepath.Join(t.TempDir(), "data"))
	_, errs, code := atelier("serve", "--data="+n.dir, "--listen=127.0.0.1:0")
	if code != 3 || !strings.Contains(errs, "in use by another process") || !strings.Contains(errs, n.dir) {
		t.Errorf("exit %d: %s", code, errs)
	}
	newPerson(t, n, "ada@example.org") // the first process still serves its socket
}

func TestSocketOfKilledNodeIsReplaced(t *testing.T) {
	n := start(t, filepath.Join(t.TempDir(), "data"))
	n.kill()
	if _, err := os.Lstat(filepath.Join(n.dir, "atelier.sock")); err != nil {
		t.Fatalf("a killed node leaves its socket: %v", err)
	}
	if _, errs, code := atelier("admin", "key", "create", "--data="+n.dir, "--email=a@example.org"); code != 1 || !strings.Contains(errs, "no node runs over this data directory") {
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
		t.Errorf("the second start has created another key")
	}
}

// quickstartKey returns the key that a node has printed and stored, after using it for a request.
func quickstartKey(t *testing.T, n *node) string {
	t.Helper()
	eventually(t, "the text of --quickstart is printed", func() bool { return strings.Contains(n.logs.String(), "Ctrl+C") })
	text, err := os.ReadFile(filepath.Join(n.dir, "quickstart.key"))
	key := strings.TrimSpace(string(text))
	if err != nil || !strings.Contains(n.logs.String(), key) {
		t.Fatalf("the stored key is not the printed one: %v", err)
	}
	newClient(n.address, key).expect(t, http.StatusOK, "GET", "/v1/ws/demo/file-activity/feed", "")
	return key
}

// TestFailedJournalEndsTheNode verifies that a node exits when its journal cannot write, so that its supervisor restarts it.
func TestFailedJournalEndsTheNode(t *testing.T) {
	n := start(t, filepath.Join(t.TempDir(), "data"), "--cache-size=4MiB", "--rate=0")
	_, key := newPerson(t, n, "ada@example.org")
	newWorkspace(t, newClient(n.address, key))
	store := filepath.Join(n.dir, "journal", "store")
	if err := os.Rename(store, store+".away"); err != nil {
		t.Fatal(err)
	}
	var writers sync.WaitGroup
	var number atomic.Int64
	for range 8 {
		writers.Go(func() { writeUntilGone(t, newClient(n.address, key), &number) })
	}
	if code := n.end(t); code != 1 || !strings.Contains(n.logs.String(), "the journal cannot write any more") {
		t.Errorf("exit %d:\n%s", code, n.logs)
	}
	writers.Wait()
}

// writeUntilGone creates folders until the node does not answer.
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
