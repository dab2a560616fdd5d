package process

import (
	"bytes"
	"crypto/sha256"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// checksums returns the checksum of every file below a directory by its path, and zeros for everything else.
func checksums(t *testing.T, dir string) map[string][32]byte {
	t.Helper()
	found := map[string][32]byte{}
	err := filepath.WalkDir(dir, func(path string, at fs.DirEntry, err error) error {
		if err != nil || !at.Type().IsRegular() {
			found[path] = [32]byte{}
			return err
		}
		content, err := os.ReadFile(path)
		found[path] = sha256.Sum256(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// expectRefusal starts a node with a damaged directory. The node must end with exit code 1 and a message that contains
// parts, and must not change the directory.
func expectRefusal(t *testing.T, dir string, parts ...string) {
	t.Helper()
	before := checksums(t, dir)
	_, errs, code := atelier("serve", "--data="+dir, "--listen=127.0.0.1:0")
	if code != 1 {
		t.Errorf("exit %d:\n%s", code, errs)
	}
	for _, part := range append(parts, "was not changed", "atelier accept") {
		if !strings.Contains(errs, part) {
			t.Errorf("the message lacks %q:\n%s", part, errs)
		}
	}
	after := checksums(t, dir)
	for path, sum := range after {
		if old, ok := before[path]; !ok || old != sum {
			t.Errorf("%s has changed", path)
		}
	}
	if len(before) != len(after) {
		t.Errorf("%d files and folders before, %d after", len(before), len(after))
	}
}

// newUsedDirectory returns the data directory of a node that has stopped, and a person's key. It has a workspace, files, and a
// journal with tables.
func newUsedDirectory(t *testing.T) (dir, key string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "data")
	n := start(t, dir)
	_, key = newPerson(t, n, "ada@example.org")
	newWorkspace(t, newClient(n.address, key))
	for range 2 { // a start flushes the log to tables
		newClient(n.address, key).expect(t, http.StatusCreated, "PUT", drivePath(t.Name()+filepath.Base(n.address)), "hello\n")
		if code := n.terminate(t); code != 0 {
			t.Fatalf("exit %d:\n%s", code, n.logs)
		}
		n = start(t, dir)
	}
	if code := n.terminate(t); code != 0 {
		t.Fatalf("exit %d:\n%s", code, n.logs)
	}
	return dir, key
}

// damage flips a bit of a file. restore writes the original content back.
func damage(t *testing.T, path string, at int) (restore func()) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	damaged := slices.Clone(content)
	damaged[at%len(damaged)] ^= 1
	write := func(content []byte) {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(damaged)
	return func() { write(content) }
}

// newest returns the last file name that matches a pattern.
func newest(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) == 0 {
		t.Fatalf("no file matches %s: %v", pattern, err)
	}
	return slices.Max(found)
}

// TestDamagedDirectoryIsRefused damages or removes parts of a data directory. The node must refuse to start, and must
// start after they are restored.
func TestDamagedDirectoryIsRefused(t *testing.T) {
	dir, key := newUsedDirectory(t)
	store := filepath.Join(dir, "journal", "store")
	for _, at := range []int{0, 9, 70, 150} {
		restore := damage(t, newest(t, store+"/MANIFEST-*"), at)
		expectRefusal(t, dir, "MANIFEST-", "differ from the bytes that were written")
		restore()
	}
	restore := damage(t, newest(t, store+"/*.sst"), 100)
	expectRefusal(t, dir, ".sst", "checksum")
	restore()
	for _, name := range []string{"secret", "secret.sum"} {
		restore := damage(t, filepath.Join(dir, name), 3)
		expectRefusal(t, dir, filepath.Join(dir, "secret"), filepath.Join(dir, "secret.sum"))
		restore()
	}
	for part, says := range map[string]string{
		"journal": "FORMAT is missing", "journal/store": "store is missing", "journal/FORMAT": "the copy was interrupted", "journal/SYNCED": "SYNCED is missing",
		"secret": "secret is missing", "drives": "drives is missing", "installation": "the marks of the journal are missing",
	} {
		path := filepath.Join(dir, part)
		if err := os.Rename(path, dir+".away"); err != nil {
			t.Fatal(err)
		}
		expectRefusal(t, dir, says)
		if err := os.Rename(dir+".away", path); err != nil {
			t.Fatal(err)
		}
	}
	n := start(t, dir)
	if rows, err := newClient(n.address, key).feed(t.Context()); err != nil || len(rows) != 2 {
		t.Errorf("the feed has %d rows, want 2: %v", len(rows), err)
	}
}

// TestLogCutOffAfterKill cuts the end of the last log of a killed node off. The node must refuse to start and name the log, rather than
// find files without a record of their changes.
func TestLogCutOffAfterKill(t *testing.T) {
	dir, key := newUsedDirectory(t)
	n := start(t, dir)
	newClient(n.address, key).expect(t, http.StatusCreated, "PUT", drivePath("last"), "hello\n")
	n.kill()
	log := newest(t, filepath.Join(dir, "journal", "store", "*.log"))
	content, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	written := bytes.TrimRight(content, "\x00")
	if err := os.Truncate(log, int64(len(written)-8)); err != nil {
		t.Fatal(err)
	}
	expectRefusal(t, dir, log, "had at least")
	out, errs, code := atelier("accept", "--data="+dir, "--yes")
	if code != 0 || !strings.Contains(out, "changes are missing") || !strings.Contains(out, log) {
		t.Fatalf("exit %d: %s%s", code, out, errs)
	}
	start(t, dir)
}

// TestAccept makes a directory start again after its secret was lost.
func TestAccept(t *testing.T) {
	dir, key := newUsedDirectory(t)
	if err := os.Remove(filepath.Join(dir, "secret")); err != nil {
		t.Fatal(err)
	}
	expectRefusal(t, dir, "secret is missing")
	if _, errs, code := atelier("accept", "--data="+dir); code != 78 || !strings.Contains(errs, "--yes") {
		t.Errorf("exit %d: %s", code, errs)
	}
	out, errs, code := atelier("accept", "--data="+dir, "--yes")
	if code != 0 || !strings.Contains(out, "0 more are known to be missing") {
		t.Fatalf("exit %d: %s%s", code, out, errs)
	}
	n := start(t, dir)
	newClient(n.address, key).expect(t, http.StatusOK, "GET", workspacePath+"/file-activity/feed", "")
	if _, errs, code := atelier("accept", "--data="+dir, "--yes"); code != 3 {
		t.Errorf("accept while a node is running: got exit code %d, want 3: %s", code, errs)
	}
}

// TestRestoreInvalidatesCursors replaces the data directory by an older copy. Cursors from before must be refused, also cursors
// beyond the last row. A restart alone must keep cursors valid.
func TestRestoreInvalidatesCursors(t *testing.T) {
	dir, key := newUsedDirectory(t)
	if err := os.CopyFS(dir+".copy", os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	n := start(t, dir)
	c := newClient(n.address, key)
	c.expect(t, http.StatusCreated, "PUT", drivePath("later.txt"), "later\n")
	_, next, err := c.page(t.Context(), "", 1)
	if err != nil || next == "" {
		t.Fatalf("no cursor: %v", err)
	}
	status := func(c *client) (page, stream int) {
		t.Helper()
		page, body, err := c.do(t.Context(), "GET", workspacePath+"/file-activity/feed?cursor="+next, nil)
		if err != nil || page != http.StatusOK && !bytes.Contains(body, []byte(`"invalid_cursor"`)) {
			t.Errorf("%d %s, %v", page, body, err)
		}
		if page == http.StatusOK {
			return page, 0
		}
		stream, body, err = c.do(t.Context(), "GET", workspacePath+"/file-activity/events", nil, "Last-Event-ID", next)
		if err != nil || !bytes.Contains(body, []byte(`"invalid_cursor"`)) {
			t.Errorf("%d %s, %v", stream, body, err)
		}
		return page, stream
	}
	n.terminate(t)
	n = start(t, dir)
	if page, _ := status(newClient(n.address, key)); page != http.StatusOK {
		t.Errorf("page with a cursor after a restart: got %d, want 200", page)
	}
	n.terminate(t)
	if err := os.Rename(dir, dir+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(dir, os.DirFS(dir+".copy")); err != nil {
		t.Fatal(err)
	}
	n = start(t, dir)
	if page, stream := status(newClient(n.address, key)); page != http.StatusBadRequest || stream != http.StatusBadRequest {
		t.Errorf("page and stream with a cursor after a restore: got %d and %d, want 400", page, stream)
	}
}
