package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/atelier-run/atelier/"

// A source is a Go file that is not generated.
type source struct {
	path string // relative to the module
	file *ast.File
	set  *token.FileSet
}

func (s source) isTest() bool { return strings.HasSuffix(s.path, "_test.go") }

// in reports whether the file is below one of the folders.
func (s source) in(folders ...string) bool {
	for _, folder := range folders {
		if strings.HasPrefix(s.path, folder+"/") {
			return true
		}
	}
	return false
}

func (s source) imports(path string) bool {
	for _, i := range s.file.Imports {
		if i.Path.Value == `"`+path+`"` {
			return true
		}
	}
	return false
}

// complain fails the test with a message that has the position of a node.
func (s source) complain(t *testing.T, at ast.Node, format string, arguments ...any) {
	t.Helper()
	position := s.set.Position(at.Pos())
	t.Errorf("%s:%d: "+format, append([]any{s.path, position.Line}, arguments...)...)
}

// tracked returns the repository's files, including new files that git does not ignore.
var tracked = sync.OnceValues(func() ([]string, error) {
	list := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = root
	out, err := list.Output()
	var files []string
	for name := range strings.SplitSeq(string(out), "\x00") {
		if at, err := os.Stat(filepath.Join(root, name)); err == nil && at.Mode().IsRegular() {
			files = append(files, name)
		}
	}
	return files, err
})

var root = filepath.Join("..", "..")

// files returns the paths of the repository's files.
func files(t *testing.T) []string {
	t.Helper()
	names, err := tracked()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	return names
}

// sources returns the repository's Go files.
func sources(t *testing.T) []source {
	t.Helper()
	all, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// sourcesIn returns the repository's Go files below folders. It parses no others.
func sourcesIn(t *testing.T, folders ...string) []source {
	t.Helper()
	all, err := parse(slices.DeleteFunc(slices.Clone(files(t)), func(name string) bool { return !source{path: name}.in(folders...) }))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var parsed = sync.OnceValues(func() ([]source, error) {
	names, err := tracked()
	if err != nil {
		return nil, err
	}
	return parse(names)
})

// parse returns the Go files among files that are not generated.
func parse(names []string) ([]source, error) {
	var all []source
	for _, name := range names {
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, ".pb.go") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, filepath.Join(root, name), nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		all = append(all, source{name, file, set})
	}
	return all, nil
}

// calls calls visit for each use of an identifier of another package, with a name like "time.Now".
func (s source) calls(visit func(at ast.Node, name string)) {
	names := map[string]string{}
	for _, i := range s.file.Imports {
		path := strings.Trim(i.Path.Value, `"`)
		local := strings.TrimSuffix(path, "/v2")
		local = local[strings.LastIndex(local, "/")+1:]
		if i.Name != nil {
			local = i.Name.Name
		}
		names[local] = path
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		selector, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := selector.X.(*ast.Ident); ok && names[x.Name] != "" {
			visit(n, names[x.Name]+"."+selector.Sel.Name)
		}
		return true
	})
}
