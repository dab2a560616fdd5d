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

// directions say which of the module's folders those of one folder may import.
var directions = map[string][]string{
	"messages":    {"messages"},
	"entity":      {"entity", "messages"},
	"persistence": {"persistence", "entity", "messages"},
	"drive":       {"drive", "entity", "messages"},
	"computer":    {"computer", "entity", "messages"},
	"runner":      {"runner", "entity", "messages"},
	"edge":        {"edge", "entity", "messages"},
	"mail":        {"mail"},
	"actors":      {"actors", "entity", "messages", "persistence", "drive", "computer", "runner", "edge"},
	"cluster":     {"cluster", "actors", "entity", "messages", "persistence"},
	"http":        {"http", "entity", "messages"},
	"client":      {"client"},
}

// owners are the folders that alone know a foreign module; what is below it counts.
var owners = map[string][]string{
	"github.com/asynkron/protoactor-go/actor":   {"actors", "cluster"},
	"github.com/asynkron/protoactor-go/cluster": {"cluster"},
	"github.com/asynkron/protoactor-go/remote":  {"cluster"},
	"github.com/cockroachdb/pebble":             {"persistence", "cluster"},
	"github.com/hashicorp":                      {"cluster"},
	"github.com/gorilla/mux":                    {"http", "edge"},
	"github.com/alecthomas/kong":                {"cmd", "client"},
	"github.com/wneessen/go-mail":               {"mail"},
}

// impure are standard packages that bring a clock, randomness, concurrency or the outside world. net/mail parses.
var impure = []string{
	"context", "crypto/rand", "database/", "io/fs", "log", "log/slog", "math/rand", "net", "net/http", "os", "os/",
	"runtime", "sync", "sync/", "syscall", "unsafe",
}

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

// folder is the first segment of a package's path below the module; empty for foreign ones.
func folder(path string) string {
	below, own := strings.CutPrefix(path, module)
	if !own {
		return ""
	}
	first, _, _ := strings.Cut(below, "/")
	return first
}

func foreign(path string) bool {
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
			if to := folder(path); to != "" && !slices.Contains(allowed, to) {
				t.Errorf("%s imports %s", p.ImportPath, path)
			}
		}
	}
}

func TestForeignPackagesHaveOwners(t *testing.T) {
	for _, p := range packages(t) {
		for _, path := range p.Imports {
			for owned, folders := range owners {
				if strings.HasPrefix(path, owned) && !slices.Contains(folders, folder(p.ImportPath)) {
					t.Errorf("%s imports %s, which only %v may", p.ImportPath, path, folders)
				}
			}
		}
	}
}

// The HTTP layer must not come to know actors or the journal through a third package.
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

func TestRulesArePure(t *testing.T) {
	for _, p := range packages(t) {
		if folder(p.ImportPath) != "entity" {
			continue
		}
		for _, path := range p.Imports {
			if isImpure(path) {
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

func TestMessagesAreProtobufAlone(t *testing.T) {
	for _, p := range packages(t) {
		if folder(p.ImportPath) != "messages" {
			continue
		}
		for _, path := range p.Imports {
			if foreign(path) && !strings.HasPrefix(path, "google.golang.org/protobuf/") {
				t.Errorf("%s imports %s", p.ImportPath, path)
			}
		}
	}
}
