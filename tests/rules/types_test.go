package rules

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strings"
	"testing"
)

// mostFields and mostMethods bound a struct type of production code. A type with more is several types.
const mostFields, mostMethods = 24, 40

// A size is the number of fields and methods of a struct type. An embedded type is one field; its methods are not counted.
type size struct{ fields, methods int }

// An exception is a type that may exceed the bound, but not its own size.
type exception struct {
	size
	reason string
}

// largeTypes has the exceptions. A type that becomes smaller must be entered with its new size, or be removed if it is within the bound.
var largeTypes = map[string]exception{
	"actors.System":            {size{37, 39}, "it has the options, the metrics and the tables of all actors of a process"},
	"actors.entityActor":       {size{15, 49}, "its methods are the turns of one actor, which share the state without locks"},
	"actors.metrics":           {size{29, 2}, "each field is a metric"},
	"client.App":               {size{28, 0}, "each field is a property of the API's object"},
	"client.Client":            {size{5, 107}, "each method is an operation of the API"},
	"client.Provenance":        {size{36, 0}, "each field is a property of the API's object"},
	"cmd/atelier.serveCommand": {size{47, 16}, "each field is a setting of a node"},
	"cmd/node.Options":         {size{30, 4}, "each field is an argument of a node"},
	"computer.Fleet":           {size{9, 49}, "it has the executors, the processes and the samples of all computers; to be split"},
	"drive.Drive":              {size{21, 94}, "the bound on the length of files has hidden its size; to be split"},
	"drive.Drives":             {size{21, 47}, "it has the drives, the metrics and the clean-ups of a machine; to be split"},
	"drive/quota.Limiter":      {size{13, 43}, "one lock guards the use of all drives; to be split"},
	"drive/webdav.call":        {size{13, 55}, "most methods are a method, or a property, of WebDAV"},
	"edge.Edge":                {size{26, 47}, "it has the routes, the caches and the limits of all hosts; to be split"},
	"edge.exchange":            {size{37, 16}, "its fields are the facts of one request, for the log and the watcher; to be split"},
	"http/api.appView":         {size{28, 0}, "each field is a property of the API's object"},
	"http/api.provenanceView":  {size{36, 0}, "each field is a property of the API's object"},
	"http/api.sessions":        {size{3, 44}, "most methods are an operation of the API"},
	"http/server.Call":         {size{9, 62}, "its methods are the services of the server to handlers; to be split"},
	"http/server.Server":       {size{28, 45}, "it has the routes, the limits and the counters of all requests; to be split"},
	"runner.agent":             {size{28, 44}, "it has the tools, the timeline and the work of a process besides its parts; to be split"},
	"runner.turn":              {size{13, 41}, "its methods are the messages of the protocol that belong to a turn"},
}

// TestSizesOfTypes bounds the fields and the methods of struct types.
func TestSizesOfTypes(t *testing.T) {
	all := declarations{}
	for _, s := range sources(t) {
		if !s.isTest() && !s.in("tests") {
			all.add(path.Dir(s.path), s.file)
		}
	}
	for _, complaint := range oversized(all.sizes(), largeTypes) {
		t.Error(complaint)
	}
}

// declarations has the fields and the methods of the types, by the folder and the name of the type. It has the names, because a type may be
// declared once for each operating system.
type declarations map[string]struct{ fields, methods map[string]bool }

// add adds the types of a file. A type that is no struct has no fields.
func (d declarations) add(folder string, file *ast.File) {
	of := func(name string) struct{ fields, methods map[string]bool } {
		name = folder + "." + name
		if _, exists := d[name]; !exists {
			d[name] = struct{ fields, methods map[string]bool }{map[string]bool{}, map[string]bool{}}
		}
		return d[name]
	}
	for _, declared := range file.Decls {
		switch declared := declared.(type) {
		case *ast.FuncDecl:
			if declared.Recv != nil {
				of(nameOf(declared.Recv.List[0].Type)).methods[declared.Name.Name] = true
			}
		case *ast.GenDecl:
			for _, spec := range declared.Specs {
				spec, isType := spec.(*ast.TypeSpec)
				if !isType {
					continue
				}
				if structure, is := spec.Type.(*ast.StructType); is {
					addFields(of(spec.Name.Name).fields, structure)
				}
			}
		}
	}
}

func addFields(to map[string]bool, of *ast.StructType) {
	for _, field := range of.Fields.List {
		for _, name := range field.Names {
			if name.Name != "_" {
				to[name.Name] = true
			}
		}
		if len(field.Names) == 0 {
			to[nameOf(field.Type)] = true
		}
	}
}

func (d declarations) sizes() map[string]size {
	all := map[string]size{}
	for name, of := range d {
		all[name] = size{len(of.fields), len(of.methods)}
	}
	return all
}

// nameOf returns the name of the type of a receiver or an embedded field, without its package and its type parameters.
func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return nameOf(e.X)
	case *ast.IndexExpr:
		return nameOf(e.X)
	case *ast.IndexListExpr:
		return nameOf(e.X)
	case *ast.ParenExpr:
		return nameOf(e.X)
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// oversized returns a complaint about each type above the bound that is not an exception, and about each exception with a wrong size.
func oversized(all map[string]size, exceptions map[string]exception) []string {
	var complaints []string
	for name, is := range all {
		e, isException := exceptions[name]
		isLarge := is.fields > mostFields || is.methods > mostMethods
		switch {
		case isLarge && !isException:
			complaints = append(complaints, fmt.Sprintf("%s has %d fields and %d methods, at most %d and %d are allowed; split the type",
				name, is.fields, is.methods, mostFields, mostMethods))
		case isException && (is.fields > e.fields || is.methods > e.methods):
			complaints = append(complaints, fmt.Sprintf("%s has grown to %d fields and %d methods, at most %d and %d are allowed; split the type",
				name, is.fields, is.methods, e.fields, e.methods))
		case isException && !isLarge:
			complaints = append(complaints, fmt.Sprintf("%s is within the bound: remove the exception", name))
		case isException && is != e.size:
			complaints = append(complaints, fmt.Sprintf("%s has %d fields and %d methods: lower the exception from %d and %d",
				name, is.fields, is.methods, e.fields, e.methods))
		}
	}
	for name, e := range exceptions {
		if _, exists := all[name]; !exists {
			complaints = append(complaints, fmt.Sprintf("%s does not exist: remove the exception", name))
		}
		if e.reason == "" {
			complaints = append(complaints, fmt.Sprintf("the exception of %s has no reason", name))
		}
	}
	slices.Sort(complaints)
	return complaints
}

func TestOversized(t *testing.T) {
	const code = `package p
type small struct { a, b int; *other.embedded }
type generic[T any] struct { T T }
func (g *generic[T]) One() {}
func (generic[T]) Two() {}
func (s small) Three() {}
func outside() {}`
	file, err := parser.ParseFile(token.NewFileSet(), "", code, 0)
	if err != nil {
		t.Fatal(err)
	}
	read := declarations{}
	read.add("folder", file)
	read.add("folder", file) // for a second operating system
	all := read.sizes()
	if all["folder.small"] != (size{3, 1}) || all["folder.generic"] != (size{1, 2}) || len(all) != 2 {
		t.Errorf("the sizes are %v", all)
	}
	large := size{mostFields + 6, mostMethods + 1}
	listed := map[string]exception{"p.T": {large, "why"}}
	const split = ", at most 24 and 40 are allowed; split the type"
	for name, of := range map[string]struct {
		is         size
		exceptions map[string]exception
		want       string
	}{
		"at the bound":         {is: size{mostFields, mostMethods}},
		"one field too many":   {is: size{mostFields + 1, 0}, want: "p.T has 25 fields and 0 methods" + split},
		"one method too many":  {is: size{0, mostMethods + 1}, want: "p.T has 0 fields and 41 methods" + split},
		"an exception":         {is: large, exceptions: listed},
		"a needless exception": {is: size{24, 40}, exceptions: listed, want: "p.T is within the bound: remove the exception"},
		"a larger exception": {
			is: size{31, 41}, exceptions: listed,
			want: "p.T has grown to 31 fields and 41 methods, at most 30 and 41 are allowed; split the type",
		},
		"a smaller exception": {
			is: size{29, 41}, exceptions: listed, want: "p.T has 29 fields and 41 methods: lower the exception from 30 and 41",
		},
		"without a reason": {
			is: large, exceptions: map[string]exception{"p.T": {large, ""}}, want: "the exception of p.T has no reason",
		},
		"a forgotten exception": {
			is: large, exceptions: map[string]exception{"p.T": {large, "why"}, "p.U": {large, "why"}},
			want: "p.U does not exist: remove the exception",
		},
	} {
		if got := strings.Join(oversized(map[string]size{"p.T": of.is}, of.exceptions), "; "); got != of.want {
			t.Errorf("%s: %q, want %q", name, got, of.want)
		}
	}
}
