package rules

import (
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

var banned = regexp.MustCompile(`^(utils?|helpers?|common|misc|managers?|impl|base)$|(Util|Utils|Helper|Manager|Impl)$`)

func TestNames(t *testing.T) {
	for _, s := range sources(t) {
		for _, part := range strings.Split(strings.TrimSuffix(s.path, ".go"), "/") {
			if banned.MatchString(strings.TrimSuffix(part, "_test")) {
				t.Errorf("%s: the name %q does not say what the file contains", s.path, part)
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				if banned.MatchString(n.Name.Name) {
					s.complain(t, n, "the name %s does not say what the type is", n.Name.Name)
				}
			case *ast.FuncDecl:
				if getter(n.Name.Name) {
					s.complain(t, n, "%s: omit the prefix Get", n.Name.Name)
				}
			}
			return true
		})
	}
}

func getter(name string) bool {
	rest, found := strings.CutPrefix(name, "Get")
	return found && rest != "" && unicode.IsUpper(rune(rest[0]))
}

func TestNoMarksForLaterWork(t *testing.T) {
	marks := regexp.MustCompile(`\b(TODO|FIXME|XXX|HACK)\b`)
	for _, s := range sources(t) {
		for _, group := range s.file.Comments {
			if marks.MatchString(group.Text()) {
				s.complain(t, group, "a comment marks later work: do the work or remove the mark")
			}
		}
	}
}

// TestSizes limits the length of functions. TestSizesOfTypes limits types; a file may be as long as its subject.
func TestSizes(t *testing.T) {
	const mostOfFunction = 100
	for _, s := range sources(t) {
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				lines := s.set.Position(f.End()).Line - s.set.Position(f.Pos()).Line + 1
				if lines > mostOfFunction {
					s.complain(t, f, "%s has %d lines, at most %d are allowed", f.Name.Name, lines, mostOfFunction)
				}
			}
		}
	}
}

// TestNodeOnlyWires bounds the lines of package cmd/node, which constructs and connects the parts of a node. Rules belong in the parts.
func TestNodeOnlyWires(t *testing.T) {
	const most = 1500
	lines := 0
	for _, s := range sources(t) {
		if path.Dir(s.path) == "cmd/node" && !s.isTest() {
			lines += s.set.Position(s.file.FileEnd).Line
		}
	}
	if lines > most || lines == 0 {
		t.Errorf("cmd/node has %d lines of production code, at most %d are allowed", lines, most)
	}
}

func TestPackagesHaveComments(t *testing.T) {
	documented, names := map[string]bool{}, map[string]string{}
	for _, s := range sources(t) {
		if s.isTest() {
			continue
		}
		dir := path.Dir(s.path)
		names[dir] = s.file.Name.Name
		documented[dir] = documented[dir] || s.file.Doc != nil
	}
	for dir, name := range names {
		if !documented[dir] && !isGenerated(dir) {
			t.Errorf("%s: package %s has no comment", dir, name)
		}
	}
}

// isGenerated reports whether a folder has generated code, which has the package comment.
func isGenerated(dir string) bool {
	found, _ := filepath.Glob(filepath.Join(root, dir, "*.pb.go"))
	return len(found) > 0
}

// TestNoPathsOfOneMachine finds absolute paths and registry hosts of the machines on which the code is written.
func TestNoPathsOfOneMachine(t *testing.T) {
	machine := regexp.MustCompile(`(^|[\s"'=(` + "`" + `])/(work|farm|root|home/[a-z]+|Users/[a-z]+)/`)
	hosts := regexp.MustCompile(`proxy\.golang` + `\.org|registry\.npmjs` + `\.org|deb\.debian` + `\.org`)
	for _, name := range files(t) {
		content, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		for number, line := range strings.Split(string(content), "\n") {
			if machine.MatchString(line) || hosts.MatchString(line) {
				t.Errorf("%s:%d has a path or host of one machine: %s", name, number+1, strings.TrimSpace(line))
			}
		}
	}
}
