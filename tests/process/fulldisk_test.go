package process

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/tests/testmachine"
	"github.com/atelier-run/atelier/volume"
)

// TestFullDisk fills the volume of a node in the two ways that there are: with empty files, and with bytes. First a
// user fills it until the drives' reserve, and then another program fills all of it, again after each step. The node serves reads,
// deletions and operators, refuses other changes, starts on the full volume after it was killed, and accepts everything without a restart
// as soon as there is space.
func TestFullDisk(t *testing.T) {
	for name, test := range map[string]struct {
		options string
		// settings are reserves for so small a disk. content is the content of the files of the user.
		settings []string
		content  string
		fill     func(t testing.TB, dir string)
	}{
		"inodes": {"size=1g,nr_inodes=2300", []string{"--drive-reserve=64MiB"}, "", testmachine.FillInodes},
		"bytes": {
			"size=192m", []string{"--min-free-space=32MiB", "--drive-reserve=64MiB"}, strings.Repeat("x", 1<<20), testmachine.FillBytes,
		},
	} {
		t.Run(name, func(t *testing.T) {
			disk := testmachine.Volume(t, test.options)
			others := filepath.Join(disk, "others")
			if err := os.Mkdir(others, 0o700); err != nil {
				t.Fatal(err)
			}
			n := start(t, filepath.Join(disk, "data"), test.settings...)
			_, key := newPerson(t, n, "ada@example.org")
			newPerson(t, n, "bob@example.org")
			c := newClient(n.address, key)
			newWorkspace(t, c)

			// A user cannot fill the disk so far that anything else fails.
			files := fillDrive(t, c, test.content)
			if files < 10 {
				t.Fatalf("%d files were made", files)
			}
			newPerson(t, n, "eve@example.org")
			c.expect(t, http.StatusNoContent, "DELETE", drivePath("0"), "")
			eventually(t, "the space of a deleted file is free", func() bool {
				status, _, err := c.do(t.Context(), "PUT", drivePath("0"), []byte(test.content))
				return err == nil && status == http.StatusCreated
			})

			next, names := 0, 0
			expectService := func() {
				t.Helper()
				test.fill(t, others)
				eventually(t, "changes are refused", func() bool {
					names++
					name := fmt.Sprintf(`{"slug":"factory","name":"Factory %d","publicUrlBreakAcknowledged":true}`, names)
					status, answer, err := c.do(t.Context(), "PATCH", "/v1/workspaces/factory", []byte(name), "Content-Type", "application/json")
					test.fill(t, others)
					if status != http.StatusOK && status != http.StatusServiceUnavailable && status != http.StatusInsufficientStorage {
						t.Fatalf("renaming the workspace: %d %s %v", status, answer, err)
					}
					return err == nil && status == http.StatusServiceUnavailable
				})
				if got := c.expect(t, http.StatusOK, "GET", drivePath(fmt.Sprint(next)), ""); got != test.content {
					t.Errorf("a file has %d bytes", len(got))
				}
				c.expect(t, http.StatusInsufficientStorage, "PUT", drivePath("more"), test.content)
				c.expect(t, http.StatusNoContent, "DELETE", drivePath(fmt.Sprint(next)), "")
				test.fill(t, others)
				next++
				c.expect(t, http.StatusNotFound, "GET", drivePath("0"), "")
				for _, command := range [][]string{
					{"user", "disable", "--email=bob@example.org"}, {"user", "enable", "--email=bob@example.org"},
					{"user", "link", "--email=bob@example.org"},
					{"workspace", "suspend", "--slug=factory"}, {"workspace", "resume", "--slug=factory"},
				} {
					if _, errs, code := atelier(append([]string{"admin", command[0], command[1], "--data=" + n.dir}, command[2:]...)...); code != 0 {
						t.Errorf("admin %s: exit %d, %s", command, code, errs)
					}
				}
			}
			expectService()
			for _, end := range []string{"killed", "killed again", "terminated"} {
				if end == "terminated" {
					if code := n.terminate(t); code != 0 {
						t.Errorf("exit %d\n%s", code, n.logs)
					}
				} else {
					n.kill()
				}
				test.fill(t, others)
				n = start(t, n.dir, test.settings...)
				c = newClient(n.address, key)
				expectService()
			}
			if err := os.RemoveAll(others); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the node accepts changes without a restart", func() bool {
				status, _, err := c.do(t.Context(), "PUT", drivePath("more"), []byte(test.content))
				return err == nil && status == http.StatusCreated
			})
			newPerson(t, n, "dan@example.org")
		})
	}
}

// fillDrive uploads files named 0, 1, … until one is refused because the disk is full. It returns their number.
func fillDrive(t *testing.T, c *client, content string) int {
	t.Helper()
	for i := range 10_000 {
		status, answer, err := c.do(t.Context(), "PUT", drivePath(fmt.Sprint(i)), []byte(content))
		switch {
		case err == nil && status == http.StatusInsufficientStorage && strings.Contains(string(answer), "the disk of the server"):
			return i
		case err != nil || status != http.StatusCreated:
			t.Fatalf("PUT %d: %d %s %v", i, status, answer, err)
		}
	}
	t.Fatal("no upload was refused")
	return 0
}

// TestBackUpOntoTheSameDisk backs a node up to a folder on the disk of its data directory, which has no space for it: the backup ends before
// the reserve of the drives is touched, and leaves nothing. Another disk has no such limit.
func TestBackUpOntoTheSameDisk(t *testing.T) {
	disk := testmachine.Volume(t, "size=192m")
	n := start(t, filepath.Join(disk, "data"), "--min-free-space=32MiB", "--drive-reserve=64MiB")
	_, key := newPerson(t, n, "ada@example.org")
	c := newClient(n.address, key)
	newWorkspace(t, c)
	noise := rand.NewChaCha8([32]byte{}) // cannot be compressed
	content := make([]byte, 1<<20)
	for i := range 50 {
		_, _ = noise.Read(content)
		c.expect(t, http.StatusCreated, "PUT", drivePath(fmt.Sprint(i)), string(content))
	}
	const reserve = 64 << 20
	free := func() uint64 {
		u, err := volume.Measure(disk)
		if err != nil {
			t.Fatal(err)
		}
		return u.FreeBytes
	}
	if free() < reserve {
		t.Fatalf("%d bytes are free before", free())
	}
	backUp := func(to string) (errs string, code int) {
		_, errs, code = atelier("admin", "backup", "node", "--data="+n.dir, "--to="+to)
		return errs, code
	}
	same := filepath.Join(disk, "backups")
	expectRefused := func() {
		t.Helper()
		if errs, code := backUp(same); code != 1 || !strings.Contains(errs, "less free space than the reserve") || !strings.Contains(errs, "another disk") {
			t.Errorf("exit %d, %s", code, errs)
		}
		err := filepath.WalkDir(same, func(path string, entry os.DirEntry, err error) error {
			if err == nil && !entry.IsDir() {
				t.Errorf("%s is left", path)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	expectRefused()
	c.expect(t, http.StatusCreated, "PUT", drivePath("more"), "small")
	if errs, code := backUp(t.TempDir()); code != 0 {
		t.Errorf("onto another disk: exit %d, %s", code, errs)
	}
	if err := os.WriteFile(filepath.Join(disk, "others"), make([]byte, free()-reserve/2), 0o600); err != nil {
		t.Fatal(err)
	}
	expectRefused()
}
