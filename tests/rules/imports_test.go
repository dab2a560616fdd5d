package rules

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
)

// directions has, for each folder of the module, the folders that its packages may import.
var directions = map[string][]string{
	"messages":    {"messages"},
	"entity":      {"entity", "messages", "retry"},
	"retry":       {"retry"},
	"answer":      {"answer", "entity"},
	"persistence": {"persistence", "entity", "messages", "lru", "volume", "retry"},
	"drive":       {"drive", "entity", "messages", "answer", "limit", "volume", "retry"},
	"computer":    {"computer", "entity", "messages", "keys", "retry"},
	"service":     {"service", "entity", "messages", "keys", "limit", "retry"},
	"runner":      {"runner", "service", "entity", "messages", "retry"},
	"cache":       {"cache", "entity"},
	"keys":        {"keys", "entity"},
	"limit":       {"limit"},
	"lru":         {"lru"},
	"volume":      {"volume"},
	"edge":        {"edge", "entity", "messages", "answer", "cache", "keys", "limit", "lru", "retry"},
	"mail":        {"mail"},
	"actors":      {"actors", "entity", "messages", "persistence", "drive", "computer", "runner", "edge", "retry"},
	"cluster":     {"cluster", "actors", "entity", "messages", "persistence", "retry"},
	"http":        {"http", "service", "entity", "messages", "answer", "cache", "keys", "limit", "retry"},
	"client":      {"client", "retry"},
}

// forbidden has, for packages, the packages that they must not import. Doors share operations by packages below
// service, which know no door.
var forbidden = map[string][]string{
	module + "http/browser":  {module + "http/api", module + "http/operator"},
	module + "http/operator": {module + "http/browser"},
	module + "http/api":      {module + "http/browser", module + "http/operator"},
	module + "runner/tools":  {module + "runner"},
	module + "drive/files":   {module + "drive/webdav"},
}

// soleImporters has, for a module or package of others, the only folders that may import it or packages below it.
var soleImporters = map[string][]string{
	"github.com/asynkron/protoactor-go/actor":   {"actors", "cluster"},
	"github.com/asynkron/protoactor-go/cluster": {"cluster"},
	"github.com/asynkron/protoactor-go/remote":  {"cluster"},
	"github.com/cockroachdb/pebble":             {"persistence", "cluster"},
	"github.com/hashicorp":                      {"cluster"},
	"github.com/gorilla/mux":                    {"http", "edge"},
	"github.com/spf13/cobra":                    {"cmd"},
	"github.com/wneessen/go-mail":               {"mail"},
	"maragu.dev/gomponents":                     {"http", "edge"},
}

// impure are standard packages with a clock, randomness, concurrency or I/O, which entity rules may not import. net/mail
// is allowed, because it only parses.
var impure = []string{
	"context", "crypto/rand", "database/", "io/fs", "log", "log/slog", "math/rand", "net", "net/http", "os", "os/",
	"runtime", "sync", "sync/", "syscall", "unsafe", module + "retry",
}

// listed is a package as go list describes it.
type listed struct {
	ImportPath    string
	Imports, Deps []string
}

func packages(t *testing.T) []listed {
	t.Helper()
	all, err := list()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var list = sync.OnceValues(func() ([]listed, error) {
	command := exec.Command("go", "list", "-json=ImportPath,Imports,Deps", "./...")
	command.Dir = root
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var all []listed
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		switch err := decoder.Decode(&p); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, err
		}
		all = append(all, p)
	}
})

// folder returns the first segment of a package's path below the module, or "" for packages of other modules.
func folder(path string) string {
	below, own := strings.CutPrefix(path, module)
	if !own {
		return ""
	}
	first, _, _ := strings.Cut(below, "/")
	return first
}

// isForeign reports whether a package belongs to another module.
func isForeign(path string) bool {
	host, _, _ := strings.Cut(path, "/")
	return strings.Contains(host, ".") && folder(path) == ""
}

func TestDirections(t *testing.T) {
	for _, p := range packages(t) {
		allowed, ruled := directions[folder(p.ImportPath)]
		if !ruled {
			continue
		}
		for _, path := range p.Imports {
			to := folder(path)
			if to == "tests" && strings.HasSuffix(p.ImportPath, "test") { // the package is a part of tests
				continue
			}
			if to != "" && !slices.Contains(allowed, to) {
				t.Errorf("%s imports %s", p.ImportPath, path)
			}
		}
	}
}

func TestForbiddenImports(t *testing.T) {
	for _, p := range packages(t) {
		for _, banned := range forbidden[p.ImportPath] {
			if slices.Contains(p.Imports, banned) {
				t.Errorf("%s imports %s", p.ImportPath, banned)
			}
		}
	}
}

func TestForeignPackagesHaveSoleImporters(t *testing.T) {
	for _, p := range packages(t) {
		for _, path := range p.Imports {
			for owned, folders := range soleImporters {
				if strings.HasPrefix(path, owned) && !slices.Contains(folders, folder(p.ImportPath)) {
					t.Errorf("%s imports %s, which only %v may import", p.ImportPath, path, folders)
				}
			}
		}
	}
}

// TestHTTPReachesNeitherActorsNorJournal verifies that http does not depend on actors or the journal, not even indirectly.
func TestHTTPReachesNeitherActorsNorJournal(t *testing.T) {
	for _, p := range packages(t) {
		if folder(p.ImportPath) != "http" {
			continue
		}
		for _, path := range p.Deps {
			if strings.HasPrefix(path, "github.com/asynkron/") || strings.HasPrefix(path, "github.com/cockroachdb/pebble") {
				t.Errorf("%s depends on %s", p.ImportPath, path)
			}
		}
	}
}

// TestEntityImportsNoImpurePackages verifies that rules depend on their arguments alone. Package entity itself declares Asker, with a
// context for its commands, and AskUntilAnswered, which waits between them.
func TestEntityImportsNoImpurePackages(t *testing.T) {
	for _, p := range packages(t) {
		if folder(p.ImportPath) != "entity" {
			continue
		}
		for _, path := range p.Imports {
			if isImpure(path) && !(p.ImportPath == module+"entity" && (path == "context" || folder(path) == "retry")) {
				t.Errorf("%s imports %s", p.ImportPath, path)
			}
		}
	}
}

func isImpure(path string) bool {
	return slices.ContainsFunc(impure, func(banned string) bool {
		return path == banned || strings.HasSuffix(banned, "/") && strings.HasPrefix(path, banned) ||
			path == banned+"/v2"
	})
}

func TestMessagesImportOnlyProtobuf(t *testing.T) {
	for _, p := range packages(t) {
		if folder(p.ImportPath) != "messages" {
			continue
		}
		for _, path := range p.Imports {
			if isForeign(path) && !strings.HasPrefix(path, "google.golang.org/protobuf/") {
				t.Errorf("%s imports %s", p.ImportPath, path)
			}
		}
	}
}
