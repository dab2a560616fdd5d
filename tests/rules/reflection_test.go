package rules

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestNoMethodIsCalledByName verifies that the program calls no method by a name or index that the compiler does not know. If a
// single function that is linked does so (reflect's Method or MethodByName), the linker has to keep every exported method of
// every reachable type, with all that these methods call: the template packages and some libraries for command lines make the
// program a quarter larger.
func TestNoMethodIsCalledByName(t *testing.T) {
	if found := callersByName(t, "./cmd/atelier"); len(found) > 0 {
		t.Errorf("the linker keeps all exported methods, because these functions, or some that keep the others, call methods by name:\n%s", strings.Join(found, "\n"))
	}
}

// TestCallersByName verifies that callersByName finds a function that calls a method by name.
func TestCallersByName(t *testing.T) {
	const program = `package main

import (
	"os"
	"reflect"
)

func main() { reflect.ValueOf(os.Stdin).MethodByName(os.Args[1]).Call(nil) }
`
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	if found := callersByName(t, file); !slices.Equal(found, []string{"main.main"}) {
		t.Errorf("found %q", found)
	}
}

// callersByName links a program and returns its functions that call methods by name, without the functions of reflect itself. Lines of
// the linker's output are "from -> to", and a mark follows the name of such a function.
func callersByName(t *testing.T, program string) []string {
	t.Helper()
	build := exec.Command("go", "build", "-o", filepath.Join(t.TempDir(), "program"), "-ldflags=-w -dumpdep", program)
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	var out bytes.Buffer
	build.Stderr = &out // go prints the output of the linker
	if err := build.Run(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out.Bytes()[max(0, out.Len()-4096):])
	}
	var found []string
	for line := range strings.Lines(out.String()) {
		for name := range strings.SplitSeq(strings.TrimSpace(line), " -> ") {
			if name, marked := strings.CutSuffix(name, " <ReflectMethod>"); marked && !strings.HasPrefix(name, "reflect.") {
				found = append(found, name)
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}
