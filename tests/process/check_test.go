package process

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/persistence"
)

// TestCheck checks a data directory: whole, after a kill, with a damaged table, a file that is gone from a drive, another secret, and while
// a node runs.
func TestCheck(t *testing.T) {
	dir, key := newUsedDirectory(t)
	check := func(code int, parts ...string) {
		t.Helper()
		before := checksums(t, dir)
		out, errs, got := atelier("check", "--data="+dir)
		if got != code {
			t.Errorf("exit %d, want %d:\n%s%s", got, code, out, errs)
		}
		for _, part := range parts {
			if !strings.Contains(out+errs, part) {
				t.Errorf("the output lacks %q:\n%s%s", part, out, errs)
			}
		}
		for path, sum := range checksums(t, dir) {
			if before[path] != sum {
				t.Errorf("the check has changed %s", path)
			}
		}
	}
	check(0, "No fault was found")

	table := newest(t, filepath.Join(dir, "journal", "store", "*.sst"))
	restore := damage(t, table, 100)
	check(1, table+": ", "checksum", "faults remain")
	restore()

	restore = damage(t, filepath.Join(dir, "secret"), 1)
	check(1, filepath.Join(dir, "secret")+": ", "secret.sum")
	restore()

	files, err := filepath.Glob(filepath.Join(dir, "drives", "*", "files", t.Name()+"*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no file on the drive: %v", err)
	}
	if err := os.Rename(files[0], files[0]+".away"); err != nil {
		t.Fatal(err)
	}
	check(1, files[0]+": ", "says that it exists")
	out, _, code := atelier("check", "--data="+dir, "--json", "--repair")
	var fault persistence.Fault
	if err := json.Unmarshal([]byte(out), &fault); code != 1 || err != nil || fault.File != files[0] {
		t.Errorf("exit %d: %s: %v", code, out, err)
	}
	if err := os.Rename(files[0]+".away", files[0]); err != nil {
		t.Fatal(err)
	}

	n := start(t, dir)
	newClient(n.address, key).expect(t, http.StatusCreated, "PUT", drivePath("more"), "hello\n")
	check(3, "in use")
	if out, errs, code := atelier("admin", "check", "--data="+dir); code != 0 || out != "" || !strings.Contains(errs, "No fault") {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
	n.kill()
	check(0, "No fault was found")
	if out, errs, code := atelier("check", "--data="+dir, "--repair"); code != 0 || !strings.Contains(errs, "No fault") {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
	start(t, dir)
	if _, errs, code := atelier("check", "--data="+dir+".none"); code != 1 || !strings.Contains(errs, ".none") {
		t.Errorf("no directory: exit %d: %s", code, errs)
	}
}

// expectNoFault checks the data directory of a node that has ended. However the node was killed, nothing in the directory contradicts
// anything else.
func expectNoFault(t *testing.T, dir string) {
	t.Helper()
	if out, errs, code := atelier("check", "--data="+dir); code != 0 {
		t.Errorf("atelier check: exit %d:\n%s%s", code, out, errs)
	}
}
