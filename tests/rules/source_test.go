package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/atelier-run/atelier/"

// source is a Go file that people write.
type source struct {
	path string // below the module
	file *ast.File
	set  *token.FileSet
}

func (s source) test() bool { return strings.HasSuffix(s.path, "_test.go") }

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

func (s source) complain(t *testing.T, at ast.Node, format string, arguments ...any) {
	t.Helper()
	position := s.set.Position(at.Pos())
	t.Errorf("%s:%d: "+format, append([]any{s.path, position.Line}, arguments...)...)
}

// tracked are the repository's files, those that are not committed yet included.
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

func files(t *testing.T) []string {
	t.Helper()
	names, err := tracked()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	return names
}

func sources(t *testing.T) []source {
	t.Helper()
	all, err := parsed()
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
})

// calls visits each use of a function of another package, as "time.Now".
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
