package openapi

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/atelier-run/atelier/cmd/node"
	atelier "github.com/atelier-run/atelier/http"
	"github.com/atelier-run/atelier/http/server"
	"github.com/atelier-run/atelier/persistence"
	"github.com/atelier-run/atelier/tests/nodetest"
	"github.com/atelier-run/atelier/tests/testmachine"
)

// TestTools runs each tool on the document. It needs Node.js and the packages that npm ci installs in tests/openapi.
func TestTools(t *testing.T) {
	if _, err := exec.LookPath("node"); err != nil {
		testmachine.Lacks(t, "Node.js is not installed")
	}
	if _, err := os.Stat("node_modules/typescript/package.json"); err != nil {
		testmachine.Lacks(t, "the npm packages are not installed: run npm ci in tests/openapi")
	}
	dir := t.TempDir()
	document := filepath.Join(dir, "openapi.json")
	write(t, document, servedDocument(t))

	t.Run("redocly", func(t *testing.T) {
		run(t, "node_modules/@redocly/cli/bin/cli.js", "lint", "--config=redocly.yaml", "--max-problems=1000",
			"--format=stylish", document)
	})
	t.Run("spectral", func(t *testing.T) {
		run(t, "node_modules/@stoplight/spectral-cli/dist/index.js", "lint", "--ruleset=spectral.yaml", "--fail-severity=warn", document)
	})
	t.Run("openapi-typescript", func(t *testing.T) {
		run(t, "node_modules/openapi-typescript/bin/cli.js", document, "--output="+filepath.Join(dir, "api.ts"))
		for _, name := range []string{"program.ts", "tsconfig.json"} {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, name), text)
		}
		run(t, "node_modules/typescript/bin/tsc", "--project", dir)
	})
}

// run runs a script of an npm package with Node.js. It fails the test with the output if the script fails.
func run(t *testing.T, script string, arguments ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "node", append([]string{script}, arguments...)...)
	command.Env = append(os.Environ(), "REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true", "NO_COLOR=1")
	if out, err := command.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", script, err, out)
	}
}

// write writes a file.
func write(t *testing.T, name string, text []byte) {
	t.Helper()
	if err := os.WriteFile(name, text, 0o666); err != nil {
		t.Fatal(err)
	}
}

// servedDocument starts a node and returns the OpenAPI document that it serves.
func servedDocument(t *testing.T) []byte {
	t.Helper()
	public, err := url.Parse("http://localhost")
	if err != nil {
		t.Fatal(err)
	}
	n := nodetest.Start(t, node.Start, node.Options{
		Dir: t.TempDir(), HTTP: atelier.Options{Options: server.Options{PublicURL: public, Hosts: []string{"example.com"}}},
		Journal: persistence.Options{FS: vfs.NewMem(), CacheBytes: 4 << 20, Partitions: 4},
	})
	w := httptest.NewRecorder()
	n.Server.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/openapi.json", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("GET /v1/openapi.json: status %d: %s", w.Code, w.Body)
	}
	return w.Body.Bytes()
}
