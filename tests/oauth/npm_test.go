package oauth

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/tests/testmachine"
)

func TestOpenIDClient(t *testing.T) { runScript(t, "openid-client.mjs", publicHost) }

func TestOAuth4WebAPI(t *testing.T) { runScript(t, "oauth4webapi.mjs", publicHost) }

// The SDK knows the node by another host than the public one, and compares that host with the metadata (RFC 9728, section 3.3).
func TestMCPClient(t *testing.T) { runScript(t, "mcp.mjs", "localhost") }

// publicHost is the host in the public URL of the node.
const publicHost = "127.0.0.1"

// needPackages ends a test on a machine without node or the packages that npm ci installs here.
func needPackages(t *testing.T) {
	t.Helper()
	for _, needed := range []string{"node", "npm"} {
		if _, err := exec.LookPath(needed); err != nil {
			testmachine.Lacks(t, "no "+needed)
		}
	}
	if _, err := os.Stat("node_modules/oidc-provider/package.json"); err != nil {
		testmachine.Lacks(t, "npm ci has not run in tests/oauth")
	}
}

// runScript runs an application against a node of its own, which the application knows by a host.
func runScript(t *testing.T, name, host string) {
	t.Helper()
	needPackages(t)
	w := newWorld(t)
	alice := w.person("alice")
	w.workspace(alice, "acme")
	script := exec.CommandContext(t.Context(), "node", name, strings.Replace(w.url, publicHost, host, 1), alice.cookie)
	if out, err := script.CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("%v\n%s", err, out)
	}
}
