package rules

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// libraries are the folders with packages that commands import.
var libraries = []string{"messages", "entity", "actors", "persistence", "cluster", "http", "drive", "computer", "runner", "service", "edge", "mail", "client", "cache", "limit", "lru", "volume", "retry", "answer"}

func TestEntityRulesUseNoClockAndNoGoroutine(t *testing.T) {
	clocks := map[string]bool{
		"time.Now": true, "time.Since": true, "time.Until": true, "time.Sleep": true, "time.After": true,
		"time.AfterFunc": true, "time.Tick": true, "time.NewTimer": true, "time.NewTicker": true,
	}
	for _, s := range sources(t) {
		if !s.in("entity") || s.isTest() {
			continue
		}
		s.calls(func(at ast.Node, name string) {
			if clocks[name] {
				s.complain(t, at, "%s in an entity rule; pass the time as an argument", name)
			}
		})
		ast.Inspect(s.file, func(n ast.Node) bool {
			if _, ok := n.(*ast.GoStmt); ok {
				s.complain(t, n, "an entity rule starts a goroutine")
			}
			return true
		})
	}
}

// TestNoSleepsInTests finds time.Sleep in tests. In tests with testing/synctest, or with package http's bubble of it, it is allowed, because
// it takes no real time.
func TestNoSleepsInTests(t *testing.T) {
	for _, s := range sources(t) {
		if !s.isTest() || s.imports("testing/synctest") || usesBubble(s) || isSynctestSupport(t, s) {
			continue
		}
		s.calls(func(at ast.Node, name string) {
			if name == "time.Sleep" {
				s.complain(t, at, "time.Sleep in a test; wait for the event or use testing/synctest")
			}
		})
	}
}

// TestSkips finds tests that are skipped by themselves. Package testmachine decides which of them fail in continuous integration,
// and package race leaves out tests that are run without the race detector.
func TestSkips(t *testing.T) {
	for _, s := range sources(t) {
		if s.in("tests/testmachine") || s.in("tests/race") {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			called, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			receiver, ok := called.X.(*ast.Ident)
			if ok && (receiver.Name == "t" || receiver.Name == "b") && strings.HasPrefix(called.Sel.Name, "Skip") && called.Sel.Name != "Skipped" {
				s.complain(t, n, "a test is skipped by itself; call testmachine.Lacks, or return if the test has nothing to test")
			}
			return true
		})
	}
}

// usesBubble reports whether the tests of a file run in a bubble of package http, which calls synctest.Test.
func usesBubble(s source) (uses bool) {
	ast.Inspect(s.file, func(n ast.Node) bool {
		called, is := n.(*ast.Ident)
		uses = uses || is && called.Name == "inBubble"
		return !uses
	})
	return uses
}

// isSynctestSupport reports whether a file has no tests of its own and is in a package with tests that use testing/synctest.
func isSynctestSupport(t *testing.T, s source) bool {
	t.Helper()
	folder := s.path[:strings.LastIndex(s.path, "/")]
	for _, other := range sources(t) {
		if other.isTest() && strings.HasPrefix(other.path, folder+"/") && other.imports("testing/synctest") {
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
		if !s.in(libraries...) || s.isTest() || s.file.Name.Name == "main" {
			continue
		}
		s.calls(func(at ast.Node, name string) {
			printing := strings.HasPrefix(name, "fmt.Print") || name == "os.Stdout" || name == "os.Stderr" ||
				strings.HasPrefix(name, "log.")
			if printing || name == "os.Exit" {
				s.complain(t, at, "%s in a library; return the error or use the logger", name)
			}
		})
	}
}

// TestOperationsHaveOneImplementation finds the steps of the operations of package service in the API and the tools for agents, which must
// call the operations, so that each check holds for both. No other package starts sessions either.
func TestOperationsHaveOneImplementation(t *testing.T) {
	for _, operations := range []struct {
		home  string
		steps []string
		doors []string
	}{
		{"service/session", []string{"StartSession", "AdmitChild", "SendInput", "MoveCwd", "BindDefaultSession"}, slices.Concat(libraries, []string{"cmd"})},
		{"service/app", []string{
			"RegisterApp", "ReserveAppPort", "FindApp", "DescribeApp", "AwaitApp", "RestartApp", "RemoveApp", "AttachDomain",
		}, []string{"http", "runner/tools"}}, // other packages run apps and serve them
	} {
		for _, s := range sources(t) {
			if s.in("messages", "entity", operations.home) || !s.in(operations.doors...) || s.isTest() {
				continue
			}
			s.calls(func(at ast.Node, name string) {
				inMessages, is := strings.CutPrefix(name, module+"messages/")
				if _, command, _ := strings.Cut(inMessages, "."); is && slices.Contains(operations.steps, command) {
					s.complain(t, at, "%s outside %s", command, operations.home)
				}
			})
		}
	}
}
