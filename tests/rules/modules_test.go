package rules

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// mostModules is the number of modules that are linked into the program, its own included. It only goes down: each module
// is code that runs in production, with vulnerabilities that have to be followed. A change that adds a module removes
// another module, or explains in docs/dependencies.md why it cannot. It rose by two for libraries that call no methods by name (cobra
// with pflag, gomponents): the program has a fifth less code since.
const mostModules = 105

// TestLinkedModules also fails when the number has fallen far below the limit, so that the limit follows it.
func TestLinkedModules(t *testing.T) {
	list := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "./cmd/atelier")
	list.Dir = root
	list.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	modules := strings.Fields(string(out))
	slices.Sort(modules)
	modules = slices.Compact(modules)
	switch linked := len(modules); {
	case linked > mostModules:
		t.Errorf("%d modules are linked into the program, and the limit is %d:\n%s", linked, mostModules, strings.Join(modules, "\n"))
	case linked < mostModules-3:
		t.Errorf("only %d modules are linked into the program: lower mostModules from %d to it", linked, mostModules)
	}
}
