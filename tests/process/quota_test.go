package process

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// TestDriveQuota verifies that the settings of quotas reach the drive: an upload that does not fit is refused, and the rest of the
// quota is told. A reserve that the disk cannot have refuses all uploads, and the node starts and reads nevertheless.
func TestDriveQuota(t *testing.T) {
	n := start(t, filepath.Join(t.TempDir(), "data"), "--drive-quota=1MiB", "--drive-files=100")
	_, key := newPerson(t, n, "ada@example.org")
	c := newClient(n.address, key)
	newWorkspace(t, c)
	content := strings.Repeat("x", 600<<10)
	c.expect(t, http.StatusCreated, "PUT", drivePath("a"), content)
	if got := c.expect(t, http.StatusInsufficientStorage, "PUT", drivePath("b"), content); !strings.Contains(got, "quota of 1048576 bytes and 100 files") {
		t.Errorf("the answer is %s", got)
	}
	const wanted = `<propfind xmlns="DAV:"><prop><quota-available-bytes/></prop></propfind>`
	answer := c.expect(t, http.StatusMultiStatus, "PROPFIND", drivePath(""), wanted, "Depth", "0")
	_, after, _ := strings.Cut(answer, "<D:quota-available-bytes>")
	if available, _, found := strings.Cut(after, "<"); !found || len(available) != len("400000") {
		t.Errorf("available are %q: %s", available, answer)
	}
	if code := n.terminate(t); code != 0 {
		t.Errorf("exit %d", code)
	}
	n = start(t, n.dir, "--drive-reserve=1000000GiB")
	c = newClient(n.address, key)
	c.expect(t, http.StatusInsufficientStorage, "PUT", drivePath("b"), "x")
	if got := c.expect(t, http.StatusOK, "GET", drivePath("a"), ""); got != content {
		t.Errorf("the file has %d bytes", len(got))
	}
}
