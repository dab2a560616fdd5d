package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// waits has the functions with loops that may contain a pause of their own, with the reason. All others pause with package retry.
var waits = map[string]string{
	"computer/docker/agent.sweep": "it also waits for a signal of the kernel",
	"http/server.gather":          "the budget of a rate says how long",
}

// TestPausesAreOfRetry finds pauses that are written by hand: timers in loops, and pauses that double. Package retry has both, with
// jitter. The timer of a loop that waits for several events is made before the loop.
func TestPausesAreOfRetry(t *testing.T) {
	used := map[string]bool{}
	for _, s := range sources(t) {
		if s.isTest() || s.in("retry", "tests") || strings.HasSuffix(s.file.Name.Name, "test") {
			continue
		}
		for _, d := range s.file.Decls {
			f, is := d.(*ast.FuncDecl)
			if !is || f.Body == nil {
				continue
			}
			name := s.path[:strings.LastIndex(s.path, "/")] + "." + f.Name.Name
			for _, found := range handwrittenPauses(f.Body) {
				if used[name] = true; waits[name] == "" {
					s.complain(t, found.at, "%s in %s; use package retry", found.what, name)
				}
			}
		}
	}
	for name := range waits {
		if !used[name] {
			t.Errorf("%s has no pause of its own any more", name)
		}
	}
}

func TestHandwrittenPauses(t *testing.T) {
	for body, want := range map[string]int{
		"for pause := first; ; pause = min(2*pause, longest) { select { case <-time.After(pause): case <-ctx.Done(): } }": 2,
		"for again := first; !ended(); again *= 2 { wait(again) }":                                                        1,
		"for attempt := range 3 { time.Sleep(firstPause << attempt) }":                                                    1,
		"retryAt = now.Add(min(firstPause<<failures, longestPause))":                                                      1,
		"timer := time.NewTimer(0); for { timer.Reset(next()); <-timer.C }":                                               0,
		"for _, one := range all { go func() { <-time.After(limit); one.Close() }() }":                                    0,
		"for n := range policy.Attempts(ctx) { if try() == nil { return }; _ = n }":                                       0,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "", "package p; func f() {"+body+"}", 0)
		if err != nil {
			t.Fatal(err)
		}
		if found := handwrittenPauses(file.Decls[0].(*ast.FuncDecl).Body); len(found) != want {
			t.Errorf("%s: %v, want %d", body, found, want)
		}
	}
}

type finding struct {
	at   ast.Node
	what string
}

// handwrittenPauses returns the pauses in the loops of a function, and the expressions that double a pause.
func handwrittenPauses(body ast.Node) (found []finding) {
	loops := 0
	var visit func(n ast.Node)
	visit = func(n ast.Node) {
		ast.Inspect(n, func(at ast.Node) bool {
			switch at := at.(type) {
			case *ast.ForStmt, *ast.RangeStmt:
				if at == n {
					return true
				}
				loops++
				visit(at)
				loops--
				return false
			case *ast.FuncLit:
				if at == n {
					return true
				}
				outer := loops
				loops = 0
				visit(at)
				loops = outer
				return false
			case *ast.CallExpr:
				switch name := calledName(at); {
				case loops > 0 && (name == "time.NewTimer" || name == "time.After" || name == "time.Sleep"):
					found = append(found, finding{at, name + " in a loop"})
				case name == "min" && len(at.Args) > 0 && isDoubled(at.Args[0]):
					found = append(found, finding{at, "a pause that doubles"})
				}
			case *ast.AssignStmt:
				if at.Tok == token.MUL_ASSIGN && isPause(at.Lhs[0]) {
					found = append(found, finding{at, "a pause that doubles"})
				}
			}
			return true
		})
	}
	visit(body)
	return found
}

// calledName returns the name of the function that an expression calls, such as time.After.
func calledName(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		if of, is := f.X.(*ast.Ident); is {
			return of.Name + "." + f.Sel.Name
		}
	}
	return ""
}

// isDoubled reports whether an expression is a pause that is doubled or shifted: 2*pause, pause<<n.
func isDoubled(e ast.Expr) bool {
	b, is := e.(*ast.BinaryExpr)
	return is && (b.Op == token.MUL && (isTwo(b.X) && isPause(b.Y) || isPause(b.X) && isTwo(b.Y)) || b.Op == token.SHL && isPause(b.X))
}

func isTwo(e ast.Expr) bool {
	l, is := e.(*ast.BasicLit)
	return is && l.Value == "2"
}

// isPause reports whether an expression has the name of a pause.
func isPause(e ast.Expr) bool {
	name := ""
	switch e := e.(type) {
	case *ast.Ident:
		name = e.Name
	case *ast.SelectorExpr:
		name = e.Sel.Name
	}
	name = strings.ToLower(name)
	for _, part := range []string{"pause", "wait", "delay", "retry", "again", "backoff", "interval"} {
		if strings.Contains(name, part) {
			return true
		}
	}
	return false
}

// patient has the functions of tests that may wait for a time outside testing/synctest, with the reason.
var patient = map[string]string{
	"computer/docker/dockertest.remove": "an engine that does not end by itself is killed",
}

// TestTestsWaitForEvents finds tests that wait for a time in place of an event: receives from time.After, outside testing/synctest, that do
// not fail the test. An event that must not happen is excluded by an event that comes after it; package tests/await looks for an event
// again and again.
func TestTestsWaitForEvents(t *testing.T) {
	used := map[string]bool{}
	for _, s := range sources(t) {
		isSupport := strings.HasSuffix(s.file.Name.Name, "test") // a package of fixtures
		if !s.isTest() && !isSupport || s.in("tests") || s.imports("testing/synctest") || usesBubble(s) || isSynctestSupport(t, s) {
			continue
		}
		for _, d := range s.file.Decls {
			f, is := d.(*ast.FuncDecl)
			if !is || f.Body == nil {
				continue
			}
			name := s.path[:strings.LastIndex(s.path, "/")] + "." + f.Name.Name
			for _, at := range timedWaits(f.Body) {
				if used[name] = true; patient[name] == "" {
					s.complain(t, at, "%s waits for a time; wait for an event, fail the test, or use testing/synctest", name)
				}
			}
		}
	}
	for name := range patient {
		if !used[name] {
			t.Errorf("%s waits for no time any more", name)
		}
	}
}

func TestTimedWaits(t *testing.T) {
	for body, want := range map[string]int{
		"<-time.After(pause)":                                                         1,
		"for ; !ended(); <-time.After(pause) {}":                                      1,
		"at := <-time.After(pause); _ = at":                                           1,
		"select { case <-done: t.Fatal(1); case <-time.After(pause): }":               1,
		"select { case <-done: case <-time.After(pause): return }":                    1,
		"select { case <-done: case <-time.After(pause): stop(); t.Fatal(1) }":        0,
		"select { case <-done: case <-time.After(pause): t.Error(1); return }":        0,
		"select { case <-done: case <-time.After(pause): if x { t.Fatal(1) } }":       1,
		"select { case <-done: case <-time.After(pause): <-time.After(1); t.Fail() }": 1,
		"deadline := time.After(pause); <-done; _ = deadline":                         0,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "", "package p; func f() {"+body+"}", 0)
		if err != nil {
			t.Fatal(err)
		}
		if found := timedWaits(file.Decls[0].(*ast.FuncDecl).Body); len(found) != want {
			t.Errorf("%s: %d, want %d", body, len(found), want)
		}
	}
}

// timedWaits returns the receives from time.After in a function, without the receives of the cases of select statements that fail the test.
func timedWaits(body ast.Node) (found []ast.Node) {
	failing := map[ast.Node]bool{}
	ast.Inspect(body, func(at ast.Node) bool {
		switch at := at.(type) {
		case *ast.CommClause:
			if sent, is := at.Comm.(*ast.ExprStmt); is && slices.ContainsFunc(at.Body, isFailure) {
				failing[sent.X] = true
			}
		case *ast.UnaryExpr:
			if call, is := at.X.(*ast.CallExpr); is && at.Op == token.ARROW && calledName(call) == "time.After" && !failing[at] {
				found = append(found, at)
			}
		}
		return true
	})
	return found
}

// isFailure reports whether a statement fails the test.
func isFailure(s ast.Stmt) bool {
	expression, is := s.(*ast.ExprStmt)
	if !is {
		return false
	}
	call, is := expression.X.(*ast.CallExpr)
	if !is {
		return false
	}
	called, is := call.Fun.(*ast.SelectorExpr)
	return is && slices.Contains([]string{"Fatal", "Fatalf", "Error", "Errorf", "Fail", "FailNow"}, called.Sel.Name)
}
