package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

// wallClockUses are the functions that may use the machine's clock for times since the Unix epoch, by file and name, with the reason.
var wallClockUses = map[string]string{
	"drive/change.go commit":                 "the time of an intent is for people only",
	"drive/drivetest/activity.go append":     "it is a fake for tests",
	"drive/observe/scan.go recordCandidates": "the times of files are of the machine's clock",
	"persistence/accept.go recordAcceptance": "a program without a node writes a line for people",
}

// TestTimesAreOfTheNodesClock finds times of the machine's clock that are turned into a time since the Unix epoch, or that are compared with such
// a time. Times that are stored, sent or compared with stored times are of the node's clock (actors/clock), which does not go backwards. Pauses
// and limits that one process counts are differences of time.Time values, which are monotonic.
func TestTimesAreOfTheNodesClock(t *testing.T) {
	used := map[string]bool{}
	for _, s := range sources(t) {
		if !s.in(libraries...) || s.isTest() || !s.imports("time") {
			continue
		}
		for _, d := range s.file.Decls {
			found := wallClockTimes(d)
			if f, is := d.(*ast.FuncDecl); is && len(found) > 0 && wallClockUses[s.path+" "+f.Name.Name] != "" {
				used[s.path+" "+f.Name.Name] = true
				continue
			}
			for _, at := range found {
				s.complain(t, at, "a time of the machine's clock; use the clock of the options, or differences of time.Time values")
			}
		}
	}
	for use := range wallClockUses {
		if !used[use] {
			t.Errorf("%s does not use the machine's clock any more; remove it from wallClockUses", use)
		}
	}
}

func TestWallClockTimes(t *testing.T) {
	for body, want := range map[string]int{
		"a := time.Now(); b(a.Sub(began))":                        0,
		"a := now(); b(a.UnixMilli())":                            0,
		"use(time.Now().UnixMilli())":                             1,
		"use(time.Now().Add(time.Hour).UnixNano())":               1,
		"a := time.Now(); func() { use(a.Unix()) }()":             1,
		"a, b := now(), time.Now(); use(a.Unix(), b.UnixMicro())": 1,
		"var a = time.Now(); use(a.Add(time.Hour).UnixMilli())":   1,
		"use(time.Now().UTC())":                                   1,
		"use(time.Since(time.UnixMilli(at)))":                     1,
		"use(time.Until(time.Unix(0, at)))":                       1,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "", "package p; func f() {"+body+"}", 0)
		if err != nil {
			t.Fatal(err)
		}
		if found := wallClockTimes(file.Decls[0]); len(found) != want {
			t.Errorf("%d in %s, want %d", len(found), body, want)
		}
	}
}

// wallClockTimes returns the calls in a declaration that make a time since the Unix epoch from time.Now, or from a variable of time.Now, and the
// calls of time.Since and time.Until with a time since the Unix epoch.
func wallClockTimes(d ast.Node) (found []ast.Node) {
	read := map[string]bool{}
	assign := func(names []ast.Expr, values []ast.Expr) {
		for i, value := range values {
			if name, is := names[min(i, len(names)-1)].(*ast.Ident); is && len(names) == len(values) && isTimeCall(value, "Now") {
				read[name.Name] = true
			}
		}
	}
	ast.Inspect(d, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			assign(n.Lhs, n.Rhs)
		case *ast.ValueSpec:
			names := make([]ast.Expr, len(n.Names))
			for i, name := range n.Names {
				names[i] = name
			}
			assign(names, n.Values)
		}
		return true
	})
	ast.Inspect(d, func(n ast.Node) bool {
		call, is := n.(*ast.CallExpr)
		if !is {
			return true
		}
		method, is := call.Fun.(*ast.SelectorExpr)
		if is && (strings.HasPrefix(method.Sel.Name, "Unix") || method.Sel.Name == "UTC") && isReading(method.X, read) {
			found = append(found, call)
		}
		if (isTimeCall(call, "Since") || isTimeCall(call, "Until")) && len(call.Args) == 1 &&
			(isTimeCall(call.Args[0], "Unix") || isTimeCall(call.Args[0], "UnixMilli") || isTimeCall(call.Args[0], "UnixMicro")) {
			found = append(found, call)
		}
		return true
	})
	return found
}

// isReading reports whether an expression is time.Now, a variable that was read from it, or a time that Add has moved.
func isReading(e ast.Expr, read map[string]bool) bool {
	if name, is := e.(*ast.Ident); is {
		return read[name.Name]
	}
	call, is := e.(*ast.CallExpr)
	if !is {
		return false
	}
	method, is := call.Fun.(*ast.SelectorExpr)
	return isTimeCall(call, "Now") || is && method.Sel.Name == "Add" && isReading(method.X, read)
}

// isTimeCall reports whether an expression calls a function of package time.
func isTimeCall(e ast.Expr, function string) bool {
	call, is := e.(*ast.CallExpr)
	return is && calledName(call) == "time."+function
}
