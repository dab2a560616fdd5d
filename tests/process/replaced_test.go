package process

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/computer/docker/dockertest"
	"github.com/atelier-run/atelier/tests/place"
)

// TestProgramIsReplaced replaces the program of a running node by another program and then removes it, as an upgrade does. The computers
// that run, and the computers that start then, have the program that the node runs.
func TestProgramIsReplaced(t *testing.T) {
	t.Run("isolated", func(t *testing.T) {
		requireRoot(t)
		testReplacedProgram(t, "")
	})
	t.Run("unisolated", func(t *testing.T) {
		requireRoot(t)
		// Without the right to create namespaces, processes cannot be isolated.
		testReplacedProgram(t, program(t, "setpriv")+" --bounding-set=-sys_admin", "--computer-isolation=none")
	})
	t.Run("docker", func(t *testing.T) {
		place.Take(t)
		engine := dockertest.Start(t, "")
		testReplacedProgram(t, "", "--computer-driver=docker", "--computer-image="+dockertest.Image, "--computer-engine="+engine.Address)
	})
}

// testReplacedProgram runs a node by a command, if by is not empty, with a copy of the program.
func testReplacedProgram(t *testing.T, by string, settings ...string) {
	dir := t.TempDir()
	path := filepath.Join(dir, "bin", "atelier")
	if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cp", binary, path).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	n, err := launchBy([]string{"sh", "-c", "shift; exec " + by + ` "$0" "$@"`, path}, filepath.Join(dir, "data"), settings...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.kill)
	if !n.ready() {
		t.Fatalf("the node did not start:\n%s", n.logs)
	}
	_, key := newPerson(t, n, "ada@example.org")
	c := newClient(n.address, key)
	defer c.close()
	want, _, _ := atelier("version")
	expectVersion := func(when, slug string) {
		t.Helper()
		status, answer, err := c.do(t.Context(), http.MethodPost, "/v1/ws/"+slug+"/computer/exec",
			[]byte(`{"argv": ["`+computer.ProgramPath+`", "version"], "timeoutSeconds": 60}`), "Content-Type", "application/json")
		var output struct{ Stdout string }
		line, rest, _ := strings.Cut(string(answer), "\n")
		if json.Unmarshal([]byte(line), &output); err != nil || status != http.StatusOK || output.Stdout != want || rest != `{"exit":0}`+"\n" {
			t.Errorf("%s: %d %v %s\nwant the version %q", when, status, err, answer, want)
		}
	}
	newWorkspaceAt(t, c, "first")
	expectVersion("before", "first")

	other := filepath.Join(dir, "other")
	if err := os.WriteFile(other, []byte("#!/bin/sh\necho other\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(other, path); err != nil {
		t.Fatal(err)
	}
	newWorkspaceAt(t, c, "second")
	expectVersion("a computer that runs, after the program was replaced", "first")
	expectVersion("a new computer, after the program was replaced", "second")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	newWorkspaceAt(t, c, "third")
	expectVersion("a computer that runs, after the program was removed", "first")
	expectVersion("a new computer, after the program was removed", "third")
	if code := n.terminate(t); code != 0 {
		t.Errorf("the node ended with %d:\n%s", code, n.logs)
	}
}
