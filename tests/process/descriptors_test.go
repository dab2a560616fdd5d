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

	api "github.com/atelier-run/atelier/client"
)

// descriptorLimit is much lower than a node needs: it is not enough for a connection of each client and an open drive of each
// workspace in the test.
const descriptorLimit = 264

// TestFewDescriptors uploads to more workspaces than a node can keep open, over more connections than it can serve.
// Requests that are not served must get 503 with Retry-After or a closed connection, and the node must keep running.
func TestFewDescriptors(t *testing.T) {
	const workspaces, clients = 80, 150
	n := startLimited(t, filepath.Join(t.TempDir(), "data"), descriptorLimit)
	_, key := newPerson(t, n, "ada@example.org")
	c := newClient(n.address, key)
	typed, err := api.New(c.address, c.key, api.WithHTTPClient(c.http))
	if err != nil {
		t.Fatal(err)
	}
	for i := range workspaces {
		slug := fmt.Sprintf("space-%d", i)
		if _, err := typed.CreateWorkspace(t.Context(), api.NewWorkspace{Slug: slug, Name: slug}); err != nil {
			t.Fatal(err)
		}
	}
	most := watchDescriptors(t, n)
	var group sync.WaitGroup
	var stored, refused atomic.Int64
	for i := range clients {
		group.Go(func() {
			own := newClient(n.address, key)
			defer own.close()
			for range 3 {
				putUntilStored(t, own, fmt.Sprintf("/v1/ws/space-%d/drive/file-%d", i%workspaces, i), fmt.Sprint(i), &stored, &refused)
			}
		})
	}
	group.Wait()
	for i := range clients {
		path := fmt.Sprintf("/v1/ws/space-%d/drive/file-%d", i%workspaces, i)
		if got := c.expect(t, http.StatusOK, "GET", path, ""); got != fmt.Sprint(i) {
			t.Errorf("%s has the content %q, want %q", path, got, fmt.Sprint(i))
		}
	}
	t.Logf("%d uploads, %d attempts not served, at most %d descriptors", stored.Load(), refused.Load(), most.Load())
	if stored.Load() != 3*clients || most.Load() >= descriptorLimit {
		t.Errorf("got %d uploads and %d descriptors, want %d uploads and fewer than %d descriptors", stored.Load(), most.Load(), 3*clients, descriptorLimit)
	}

	// Idle connections must not use up the descriptors of the journal and the operators' socket.
	for range 2 * descriptorLimit {
		idle, err := net.Dial("tcp", strings.TrimPrefix(n.address, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer idle.Close()
	}
	newPerson(t, n, "bob@example.org")
	if logs := n.logs.String(); strings.Contains(logs, "too many open files") || strings.Contains(logs, "the journal waits for a file descriptor") {
		t.Errorf("the node ran out of descriptors:\n%s", logs)
	}
	if code := n.terminate(t); code != 0 {
		t.Errorf("exit %d:\n%s", code, n.logs)
	}
}

func TestStartWithTooFewDescriptorsIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	n, err := launchLimited(dir, 100)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.kill)
	if code := n.end(t); code != 1 || !strings.Contains(n.logs.String(), "the limit of open files is") {
		t.Errorf("exit %d:\n%s", code, n.logs)
	}
	if _, err := os.Stat(filepath.Join(dir, "journal")); err == nil {
		t.Error("the node has created a journal")
	}
}

// putUntilStored repeats an upload until the node stores it. Until then each attempt must end with 503 and Retry-After,
// or with a closed connection.
func putUntilStored(t *testing.T, c *client, path, content string, stored, refused *atomic.Int64) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for pause := time.Millisecond; ctx.Err() == nil; pause = min(2*pause, 200*time.Millisecond) {
		request, err := http.NewRequestWithContext(ctx, http.MethodPut, c.address+path, strings.NewReader(content))
		if err != nil {
			t.Error(err)
			return
		}
		request.Header.Set("Authorization", "Bearer "+c.key)
		response, err := c.http.Do(request)
		if err == nil {
			_, _ = io.Copy(io.Discard, response.Body)
			response.Body.Close()
			switch response.StatusCode {
			case http.StatusCreated, http.StatusNoContent:
				stored.Add(1)
				return
			case http.StatusServiceUnavailable:
				if response.Header.Get("Retry-After") == "" {
					t.Error("503 without Retry-After")
				}
			default:
				t.Errorf("%s: %d", path, response.StatusCode)
				return
			}
		}
		refused.Add(1)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	t.Errorf("%s was not stored within %v", path, patience)
}

// watchDescriptors samples the number of a node's descriptors until the end of the test, and returns the maximum so far.
func watchDescriptors(t *testing.T, n *node) *atomic.Int64 {
	var most atomic.Int64
	ended := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", n.command.Process.Pid))
			most.Store(max(most.Load(), int64(len(entries))))
			select {
			case <-ctx.Done():
			case <-time.After(2 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return &most
}

// startLimited is start with a limit for open files.
func startLimited(t *testing.T, dir string, limit int) *node {
	t.Helper()
	n, err := launchLimited(dir, limit)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.kill)
	if !n.ready() {
		t.Fatalf("the node did not start:\n%s", n.logs)
	}
	return n
}

// launchLimited starts a node with a hard limit for open files. Its soft limit is lower; the node has to raise it.
func launchLimited(dir string, limit int) (*node, error) {
	script := fmt.Sprintf(`ulimit -Sn 64 && ulimit -Hn %d && exec "$@"`, limit)
	return launchBy([]string{"sh", "-c", script, "sh"}, dir)
}
