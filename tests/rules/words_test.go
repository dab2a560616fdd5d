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
				t.Errorf("%s: %q says nothing of what it holds", s.path, part)
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				if banned.MatchString(n.Name.Name) {
					s.complain(t, n, "%s says nothing of what it is", n.Name.Name)
				}
			case *ast.FuncDecl:
				if getter(n.Name.Name) {
					s.complain(t, n, "%s: the Get says nothing", n.Name.Name)
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

func TestNothingIsLeftForLater(t *testing.T) {
	marks := regexp.MustCompile(`\b(TODO|FIXME|XXX|HACK)\b`)
	for _, s := range sources(t) {
		for _, group := range s.file.Comments {
			if marks.MatchString(group.Text()) {
				s.complain(t, group, "a mark for later: do it, or leave it out")
			}
		}
	}
}

// The style's figures are medians and habits; these are where a file is surely more than one thought.
func TestSizes(t *testing.T) {
	const mostLines, mostOfFunction = 450, 100
	for _, s := range sources(t) {
		if lines := s.set.Position(s.file.End()).Line; lines > mostLines {
			t.Errorf("%s has %d lines: more than one thought", s.path, lines)
		}
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				lines := s.set.Position(f.End()).Line - s.set.Position(f.Pos()).Line + 1
				if lines > mostOfFunction {
					s.complain(t, f, "%s has %d lines", f.Name.Name, lines)
				}
			}
		}
	}
}

func TestPackagesSayWhatTheyAre(t *testing.T) {
	said, where := map[string]bool{}, map[string]string{}
	for _, s := range sources(t) {
		if s.test() {
			continue
		}
		dir := path.Dir(s.path)
		where[dir] = s.file.Name.Name
		said[dir] = said[dir] || s.file.Doc != nil
	}
	for dir, name := range where {
		if !said[dir] && !generated(dir) {
			t.Errorf("%s: package %s has no comment", dir, name)
		}
	}
}

// generated tells of a folder whose package comment is in generated code.
func generated(dir string) bool {
	found, _ := filepath.Glob(filepath.Join(root, dir, "*.pb.go"))
	return len(found) > 0
}

// The repository speaks of the project alone.
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
				t.Errorf("%s:%d speaks of a machine: %s", name, number+1, strings.TrimSpace(line))
			}
		}
	}
}
