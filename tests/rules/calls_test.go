package rules

import (
	"go/ast"
	"strings"
	"testing"
)

// libraries are the folders of which commands are made.
var libraries = []string{"messages", "entity", "actors", "persistence", "cluster", "http", "drive", "computer", "runner", "edge", "mail", "client"}

func TestRulesHaveNoClockAndNoGoroutine(t *testing.T) {
	clocks := map[string]bool{
		"time.Now": true, "time.Since": true, "time.Until": true, "time.Sleep": true, "time.After": true,
		"time.AfterFunc": true, "time.Tick": true, "time.NewTimer": true, "time.NewTicker": true,
	}
	for _, s := range sources(t) {
		if !s.in("entity") || s.test() {
			continue
		}
		s.calls(func(at ast.Node, name string) {
			if clocks[name] {
				s.complain(t, at, "%s in a rule: time is an argument", name)
			}
		})
		ast.Inspect(s.file, func(n ast.Node) bool {
			if _, ok := n.(*ast.GoStmt); ok {
				s.complain(t, n, "a goroutine in a rule")
			}
			return true
		})
	}
}

// Inside a bubble of testing/synctest a sleep moves the clock and costs no time.
func TestNoSleepsInTests(t *testing.T) {
	for _, s := range sources(t) {
		if !s.test() || s.imports("testing/synctest") || bubbled(t, s) {
			continue
		}
		s.calls(func(at ast.Node, name string) {
			if name == "time.Sleep" {
				s.complain(t, at, "a sleep in a test: wait for the event, or use testing/synctest")
			}
		})
	}
}

// bubbled tells whether a file only serves tests of its package that run in bubbles.
func bubbled(t *testing.T, s source) bool {
	t.Helper()
	folder := s.path[:strings.LastIndex(s.path, "/")]
	for _, other := range sources(t) {
		if other.test() && strings.HasPrefix(other.path, folder+"/") && other.imports("testing/synctest") {
			return !declaresTests(s)
		}
	}
	return false
}

func declaresTests(s source) bool {
	for _, d := range s.file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") {
			return true
		}
	}
	return false
}

func TestLibrariesDoNotPrint(t *testing.T) {
	for _, s := range sources(t) {
		if !s.in(libraries...) || s.test() || s.file.Name.Name == "main" {
			continue
		}
		s.calls(func(at ast.Node, name string) {
			printing := strings.HasPrefix(name, "fmt.Print") || name == "os.Stdout" || name == "os.Stderr" ||
				strings.HasPrefix(name, "log.")
			if printing || name == "os.Exit" {
				s.complain(t, at, "%s in a library", name)
			}
		})
	}
}
