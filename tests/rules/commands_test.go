package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// doors are the folders of the packages that decode the input of an operation and view its reply.
var doors = []string{"http/api", "http/browser", "http/operator", "runner/tools"}

// severalCommands has the functions of doors that may send more than one command, with the reason.
var severalCommands = map[string]string{
	"http/api.apiKeys.list":                      "it adds the last uses to the page of keys that it views",
	"http/api.limitedKeys.list":                  "it adds the last uses and the workspaces to the page of keys that it views",
	"http/api.viewGrant":                         "it adds the workspace and the tokens to the grant that it views",
	"http/api.describeSubject":                   "it reads the account and the workspaces that the operation whoami views",
	"http/api.describePayer":                     "it reads the workspace and the account that the operation whoami views",
	"http/api.computers.telemetry":               "it reads the samples that it views page by page",
	"http/api.awaitAnotherDefault":               "it repeats a waiting query",
	"http/browser.accountPages.buildAccountPage": "it reads the data that the page of an account shows",
	"http/browser.addGrants":                     "it reads the data that the page of an account shows",
	"http/browser.addKeys":                       "it reads the data that the page of an account shows",
	"http/browser.invitationPages.show":          "it reads the data that the page of an invitation shows",
	"http/browser.invitationPages.accept":        "it opens the link before the operation accepts the invitation",
	"http/browser.findActiveUser":                "it finds the account of an address, which only the sign-in by OpenID Connect needs",
	"http/browser.subjects.indexAll":             "it repeats an operation for all accounts after an upgrade, and records its progress in between",
	"runner/tools.listWorkspaces":                "it describes each workspace that it views",
}

// TestDoorsSendOneCommand finds functions of doors that send more than one command or query, as functions of package service do. On each way
// through a function, the calls count that send: the functions and methods with names that begin with Ask or ask, and the operations of
// packages below service. A loop counts twice.
func TestDoorsSendOneCommand(t *testing.T) {
	all := sourcesIn(t, append([]string{"service"}, doors...)...)
	operations := sendingOperations(all)
	needed := map[string]bool{}
	for _, s := range all {
		if s.isTest() || !s.in(doors...) {
			continue
		}
		w := ways{s.sends(operations)}
		for _, d := range s.file.Decls {
			f, is := d.(*ast.FuncDecl)
			if !is || f.Body == nil {
				continue
			}
			name := path.Dir(s.path) + "." + qualified(f)
			if sent := w.most(f.Body.List); sent > 1 {
				if needed[name] = true; severalCommands[name] == "" {
					s.complain(t, f, "%s sends %d commands; an operation of several commands belongs below package service", name, sent)
				}
			}
		}
	}
	for name := range severalCommands {
		if !needed[name] {
			t.Errorf("%s sends at most one command: remove it from the exceptions", name)
		}
	}
}

// qualified returns the name of a function, after the name of the type if it is a method.
func qualified(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	of := f.Recv.List[0].Type
	if pointer, is := of.(*ast.StarExpr); is {
		of = pointer.X
	}
	if name, is := of.(*ast.Ident); is {
		return name.Name + "." + f.Name.Name
	}
	return f.Name.Name
}

func TestWays(t *testing.T) {
	for body, want := range map[string]int{
		"return view(askOne())":                                                        1,
		"if a() { return askOne() }; return askOther()":                                1,
		"if err := askOne(); err != nil { return err }; return askOther()":             2,
		"switch a() { case 1: askOne(); case 2: askOne(); default: c.Ask() }":          1,
		"switch a() { case 1: return askOne() }; return entity.Ask[*T](ctx, a)":        1,
		"switch a() { case 1: askOne() }; return askOther()":                           2,
		"for range all { askOne() }":                                                   2,
		"f := func() { askOne() }; f(); return askOther()":                             2,
		"return account.Create(r)":                                                     1,
		"if !account.IsValid(r) { return session.For(r).Start() }; return":             1,
		"a, err := account.Create(r); return session.For(r).Start()":                   2,
		"select { case <-a: askOne(); return; case <-b: }; askOther()":                 1,
		"if a { if b { return askOne() } else { return askTwo() } }; askOne(); askB()": 2,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "", `package p; import "`+module+`service/account"; import "`+module+`service/session"; func f() {`+body+"}", 0)
		if err != nil {
			t.Fatal(err)
		}
		s := source{file: file}
		w := ways{s.sends(map[string][]string{"service/account": {"Create"}, "service/session": {"Start"}})}
		if got := w.most(file.Decls[len(file.Decls)-1].(*ast.FuncDecl).Body.List); got != want {
			t.Errorf("%s: %d, want %d", body, got, want)
		}
	}
}

// asks is the name of a function that sends a command.
var asks = regexp.MustCompile(`^[Aa]sk([A-Z]|$)`)

// callee returns the name of the function that is called, with the name in front of its dot. It is "" if that is not an identifier.
func callee(call *ast.CallExpr) (of, name string) {
	f := call.Fun
	switch generic := f.(type) {
	case *ast.IndexExpr:
		f = generic.X
	case *ast.IndexListExpr:
		f = generic.X
	}
	switch f := f.(type) {
	case *ast.Ident:
		return "", f.Name
	case *ast.SelectorExpr:
		if x, is := f.X.(*ast.Ident); is {
			of = x.Name
		}
		return of, f.Sel.Name
	}
	return "", ""
}

// sends returns the function that reports whether a call in a file sends a command. operations has the names of the functions and methods
// that send, by package.
func (s source) sends(operations map[string][]string) func(*ast.CallExpr) bool {
	functions, methods := map[string][]string{}, []string{}
	for _, i := range s.file.Imports {
		imported, _ := strings.CutPrefix(strings.Trim(i.Path.Value, `"`), module)
		local := path.Base(imported)
		if i.Name != nil {
			local = i.Name.Name
		}
		if names := operations[imported]; names != nil {
			functions[local] = names
			methods = append(methods, names...)
		}
	}
	return func(call *ast.CallExpr) bool {
		_, isMethod := call.Fun.(*ast.SelectorExpr)
		of, name := callee(call)
		if names, is := functions[of]; is {
			return slices.Contains(names, name)
		}
		return asks.MatchString(name) || isMethod && slices.Contains(methods, name)
	}
}

// sendingOperations returns the names of the exported functions and methods below package service that send commands, themselves or by
// another function of their package.
func sendingOperations(all []source) map[string][]string {
	bodies := map[string]map[string][]*ast.FuncDecl{}
	for _, s := range all {
		if dir := path.Dir(s.path); s.in("service") && !s.isTest() {
			if bodies[dir] == nil {
				bodies[dir] = map[string][]*ast.FuncDecl{}
			}
			for _, d := range s.file.Decls {
				if f, is := d.(*ast.FuncDecl); is && f.Body != nil {
					bodies[dir][f.Name.Name] = append(bodies[dir][f.Name.Name], f)
				}
			}
		}
	}
	sending := map[string][]string{}
	for dir, functions := range bodies {
		sends := map[string]bool{}
		for changed := true; changed; {
			changed = false
			for name, declared := range functions {
				for _, f := range declared {
					ast.Inspect(f.Body, func(n ast.Node) bool {
						call, is := n.(*ast.CallExpr)
						if !is || sends[name] {
							return !sends[name]
						}
						of, called := callee(call)
						isSent := asks.MatchString(called) || of == "service" && strings.HasPrefix(called, "Send") || sends[called] && functions[called] != nil
						sends[name], changed = isSent, changed || isSent
						return true
					})
				}
			}
		}
		for name, is := range sends {
			if is && ast.IsExported(name) {
				sending[dir] = append(sending[dir], name)
			}
		}
	}
	return sending
}

// ways counts the commands on the ways through a function.
type ways struct{ sends func(*ast.CallExpr) bool }

// most returns the largest number of commands on a way through statements.
func (w ways) most(list []ast.Stmt) int {
	if len(list) == 0 {
		return 0
	}
	rest := w.most(list[1:])
	branch := func(body []ast.Stmt) int {
		if isEnd(body) {
			return w.most(body)
		}
		return w.most(body) + rest
	}
	switch s := list[0].(type) {
	case *ast.IfStmt:
		other := rest
		if s.Else != nil {
			other = branch([]ast.Stmt{s.Else})
		}
		return w.count(s.Init) + w.count(s.Cond) + max(branch(s.Body.List), other)
	case *ast.BlockStmt:
		return branch(s.List)
	case *ast.SwitchStmt:
		return w.count(s.Init) + w.count(s.Tag) + w.clauses(s.Body, rest, branch)
	case *ast.TypeSwitchStmt:
		return w.count(s.Init) + w.count(s.Assign) + w.clauses(s.Body, rest, branch)
	case *ast.SelectStmt:
		return w.clauses(s.Body, 0, branch)
	case *ast.ForStmt:
		return w.count(s.Init) + 2*(w.count(s.Cond)+w.count(s.Post)+w.most(s.Body.List)) + rest
	case *ast.RangeStmt:
		return w.count(s.X) + 2*w.most(s.Body.List) + rest
	}
	return w.count(list[0]) + rest
}

// clauses returns the largest number of commands on a way through the clauses of a switch, or past them.
func (w ways) clauses(body *ast.BlockStmt, past int, branch func([]ast.Stmt) int) int {
	most := past
	for _, c := range body.List {
		switch c := c.(type) {
		case *ast.CaseClause:
			most = max(most, branch(c.Body))
		case *ast.CommClause:
			most = max(most, w.count(c.Comm)+branch(c.Body))
		}
	}
	return most
}

// isEnd reports whether the function or loop ends with statements.
func isEnd(list []ast.Stmt) bool {
	if len(list) == 0 {
		return false
	}
	switch last := list[len(list)-1].(type) {
	case *ast.ReturnStmt, *ast.BranchStmt:
		return true
	case *ast.BlockStmt:
		return isEnd(last.List)
	case *ast.IfStmt:
		return last.Else != nil && isEnd(last.Body.List) && isEnd([]ast.Stmt{last.Else})
	}
	return false
}

// count returns the number of calls in a node that send a command. Nodes may be nil.
func (w ways) count(n ast.Node) (sent int) {
	switch n := n.(type) {
	case nil:
		return 0
	case ast.Stmt, ast.Expr:
		if literal, is := n.(*ast.FuncLit); is {
			return w.most(literal.Body.List)
		}
	}
	ast.Inspect(n, func(at ast.Node) bool {
		if literal, is := at.(*ast.FuncLit); is {
			sent += w.most(literal.Body.List)
			return false
		}
		if call, is := at.(*ast.CallExpr); is && w.sends(call) {
			sent++
		}
		return true
	})
	return sent
}
