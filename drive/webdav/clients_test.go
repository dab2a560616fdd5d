package webdav_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// client finds a program; where it is missing a test is left out, but in continuous integration it fails.
func client(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil && os.Getenv("CI") == "true" {
		t.Fatalf("%s is not installed", name)
	}
	if err != nil {
		t.Skipf("%s is not installed", name)
	}
	return path
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), name, args...)
	command.Dir = t.TempDir()
	command.Env = append(os.Environ(), "HOME="+t.TempDir())
	var out bytes.Buffer
	command.Stdout, command.Stderr = &out, &out
	if err := command.Run(); err != nil {
		t.Errorf("%s %s: %v\n%s", filepath.Base(name), strings.Join(args, " "), err, out.String())
	}
	return out.String()
}

func TestLitmus(t *testing.T) {
	litmus := client(t, "litmus")
	for _, suite := range []string{"basic", "copymove", "props", "locks", "http"} {
		t.Run(suite, func(t *testing.T) {
			s := serve(t)
			t.Setenv("TESTS", suite)
			out := run(t, litmus, s.url("/"))
			if passed := regexp.MustCompile(`(\d+) tests run: (\d+) passed, 0 failed`).FindString(out); passed == "" {
				t.Errorf("litmus %s:\n%s", suite, out)
			} else {
				t.Log(passed)
			}
			if strings.Contains(out, "WARNING") {
				t.Log(out)
			}
		})
	}
}
