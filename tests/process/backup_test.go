package process

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// newBackedNode returns a running node with a workspace and files. One of the files takes some time to copy.
func newBackedNode(t *testing.T) (n *node, key string) {
	t.Helper()
	n = start(t, filepath.Join(t.TempDir(), "data"))
	_, key = newPerson(t, n, "ada@example.org")
	c := newClient(n.address, key)
	newWorkspace(t, c)
	for i := range 40 {
		c.expect(t, http.StatusCreated, "PUT", drivePath(fmt.Sprint("file", i)), fmt.Sprint("content ", i))
	}
	c.expect(t, http.StatusCreated, "PUT", drivePath("large"), strings.Repeat("0123456789abcdef", 1<<16))
	if err := os.Truncate(newest(t, filepath.Join(n.dir, "drives", "*", "files", "large")), 512<<20); err != nil {
		t.Fatal(err)
	}
	return n, key
}

// killWhen starts a command of the program, and kills it when a path matches the pattern. It reports false if the command has ended
// before.
func killWhen(t *testing.T, pattern string, arguments ...string) bool {
	t.Helper()
	command := exec.Command(binary, arguments...)
	var out bytes.Buffer
	command.Stdout, command.Stderr = &out, &out
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case err := <-ended:
			if err != nil {
				t.Fatalf("%v: %v\n%s", arguments, err, &out)
			}
			return false
		case <-ticker.C:
		}
		if found, err := filepath.Glob(pattern); err == nil && len(found) > 0 {
			_ = command.Process.Kill() // it may have ended
			<-ended
			return true
		}
	}
}

// TestKillDuringRestore kills a restore at several states of the directory. A node does not start until the restore, called again, is
// complete.
func TestKillDuringRestore(t *testing.T) {
	n, key := newBackedNode(t)
	to := filepath.Join(t.TempDir(), "backups")
	if out, errs, code := atelier("admin", "backup", "node", "--data", n.dir, "--to", to); code != 0 {
		t.Fatalf("exit %d:\n%s%s", code, out, errs)
	}
	n.kill()
	dir := filepath.Join(t.TempDir(), "restored")
	killed := 0
	for _, pattern := range []string{
		"restoring/backup", "restoring/secret", "restoring/journal.partial", "restoring/journal/store", "restoring/drives/ws_*",
		"restoring/drives/ws_*/tmp/*/file2*", "restoring/drives/ws_*/files/file2*", "restoring/complete",
	} {
		if !killWhen(t, filepath.Join(dir, pattern), "restore", "--from", to, "--data", dir) {
			break // it was complete before the kill
		}
		killed++
		if _, err := os.Stat(filepath.Join(dir, "restoring")); err != nil {
			break // it was complete, and was killed afterwards
		}
		if _, errs, code := atelier("serve", "--data", dir, "--listen=127.0.0.1:0"); code != 1 || !strings.Contains(errs, "has not ended") {
			t.Errorf("killed at %s: exit %d\n%s", pattern, code, errs)
		}
	}
	if killed < 3 {
		t.Errorf("the restore was killed %d times", killed)
	}
	_, missing := os.Stat(filepath.Join(dir, "journal"))
	_, ended := os.Stat(filepath.Join(dir, "restoring")) // the last kill may have come after the journal was in its place
	if missing != nil || ended == nil {
		if out, errs, code := atelier("restore", "--from", to, "--data", dir); code != 0 {
			t.Fatalf("exit %d:\n%s%s", code, out, errs)
		}
	}
	c := newClient(start(t, dir).address, key)
	for i := range 40 {
		if got := c.expect(t, http.StatusOK, "GET", drivePath(fmt.Sprint("file", i)), ""); got != fmt.Sprint("content ", i) {
			t.Errorf("file%d is %q", i, got)
		}
	}
	feed := c.expect(t, http.StatusOK, "GET", workspacePath+"/file-activity/feed?limit=100", "")
	if restores := strings.Count(feed, `"restore"`); restores != 1 {
		t.Errorf("%d rows of restores in %s", restores, feed)
	}
}

// TestKillDuringNodeBackup kills a node while it is backed up. The next node removes the leftovers in the data directory, and the
// backup is not the latest.
func TestKillDuringNodeBackup(t *testing.T) {
	n, _ := newBackedNode(t)
	to := filepath.Join(t.TempDir(), "backups")
	backup := func(n *node) (string, int) {
		_, errs, code := atelier("admin", "backup", "node", "--data", n.dir, "--to", to)
		return errs, code
	}
	ended := make(chan string, 1)
	go func() {
		errs, code := backup(n)
		ended <- fmt.Sprint(code, errs)
	}()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for begun := []string(nil); len(begun) == 0; <-ticker.C {
		begun, _ = filepath.Glob(filepath.Join(to, "nbk_*", "drives", "*.tmp"))
	}
	n.kill()
	if got := <-ended; !strings.HasPrefix(got, "1") || !strings.Contains(got, "atelier:") {
		t.Errorf("the command has ended with %s", got)
	}
	if _, errs, code := atelier("restore", "--from", to, "--data", filepath.Join(t.TempDir(), "r")); code != 1 || !strings.Contains(errs, "no complete backup") {
		t.Errorf("a restore of it: exit %d\n%s", code, errs)
	}
	n = start(t, n.dir)
	if _, err := os.Stat(filepath.Join(n.dir, "checkpoint")); !os.IsNotExist(err) {
		t.Errorf("the checkpoint is left: %v", err)
	}
	if errs, code := backup(n); code != 0 {
		t.Errorf("the next backup: exit %d\n%s", code, errs)
	}
}
