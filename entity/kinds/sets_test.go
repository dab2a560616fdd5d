package kinds_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/kinds"
)

// TestSealedSetsAreRegistered compares the files messages/<kind>/v1/sets.go with the registered kinds: the messages with a
// marker method of Command or Query are commands of the kind, and the messages with a marker method of Event are its events.
func TestSealedSetsAreRegistered(t *testing.T) {
	files, err := filepath.Glob("../../messages/*/v1/sets.go")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, file := range files {
		name := filepath.Base(filepath.Dir(filepath.Dir(file)))
		t.Run(name, func(t *testing.T) {
			found[name] = true
			checkSets(t, kindNamed(t, name), file)
		})
	}
	for _, k := range kinds.All {
		if !found[k.Name] {
			t.Errorf("messages/%s/v1/sets.go, with the commands and events of kind %s, is missing", k.Name, k.Name)
		}
	}
}

func kindNamed(t *testing.T, name string) entity.Kind {
	t.Helper()
	for _, k := range kinds.All {
		if k.Name == name {
			return k
		}
	}
	t.Fatalf("messages/%s exists, but the kind is not in kinds.All", name)
	return entity.Kind{}
}

func checkSets(t *testing.T, k entity.Kind, path string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, declaration := range file.Decls {
		marker, ok := declaration.(*ast.FuncDecl)
		if !ok {
			continue
		}
		receiver := marker.Recv.List[0].Type.(*ast.StarExpr).X.(*ast.Ident).Name
		message, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName("atelier." + k.Name + ".v1." + receiver))
		if err != nil {
			t.Errorf("%s: %v", receiver, err)
			continue
		}
		set := strings.TrimPrefix(marker.Name.Name, k.Name)
		seen[set]++
		m := message.New().Interface()
		switch set {
		case "Command", "Query":
			if !k.IsCommand(m) || k.IsEvent(m) {
				t.Errorf("%s has the marker method of %s but is not a command of the kind", receiver, set)
			}
		case "Event":
			if !k.IsEvent(m) || k.IsCommand(m) {
				t.Errorf("%s has the marker method of Event but is not an event of the kind", receiver)
			}
		default:
			t.Errorf("%s has the marker method %s: want %sCommand, %sQuery or %sEvent",
				receiver, marker.Name.Name, k.Name, k.Name, k.Name)
		}
	}
	if seen["Command"] == 0 {
		t.Error("the kind has no commands")
	}
}
