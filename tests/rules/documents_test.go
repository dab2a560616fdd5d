package rules

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// read returns the content of a file of the repository.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestEachDependencyHasAReason(t *testing.T) {
	reasons := read(t, "docs/dependencies.md")
	required := regexp.MustCompile(`(?m)^\t(\S+) v\S+$`) // a comment follows an indirect requirement, which does not match
	for _, found := range required.FindAllStringSubmatch(read(t, "go.mod"), -1) {
		if !strings.Contains(reasons, "`"+found[1]+"`") {
			t.Errorf("docs/dependencies.md has no reason for the required module %s", found[1])
		}
	}
}

func TestReasonsNameRequiredModules(t *testing.T) {
	mod := read(t, "go.mod")
	reason := regexp.MustCompile("(?m)^\\| `([^`]+)` \\|")
	for _, found := range reason.FindAllStringSubmatch(read(t, "docs/dependencies.md"), -1) {
		if !strings.Contains(mod, found[1]+" v") {
			t.Errorf("docs/dependencies.md has a reason for %s, which is not required", found[1])
		}
	}
}

// TestLinks verifies that relative links in documents lead to existing files.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:\s]+)(#[^)]*)?\)`)
	for _, name := range files(t) {
		if !strings.HasSuffix(name, ".md") {
			continue
		}
		for _, found := range link.FindAllStringSubmatch(read(t, name), -1) {
			if _, err := os.Stat(filepath.Join(root, filepath.Dir(name), found[1])); err != nil {
				t.Errorf("%s links to %s, which does not exist", name, found[1])
			}
		}
	}
}
