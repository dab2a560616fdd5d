package oauth

import (
	"os"
	"os/exec"
	"testing"

	"github.com/atelier-run/atelier/tests/testmachine"
)

func TestOpenIDClient(t *testing.T) { runScript(t, "openid-client.mjs") }

func TestOAuth4WebAPI(t *testing.T) { runScript(t, "oauth4webapi.mjs") }

func TestMCPClient(t *testing.T) { runScript(t, "mcp.mjs") }

// runScript runs an application against a node of its own. It needs node and what npm ci installs here.
func runScript(t *testing.T, name string) {
	t.Helper()
	for _, needed := range []string{"node", "npm"} {
		if _, err := exec.LookPath(needed); err != nil {
			testmachine.Lacks(t, "no "+needed)
		}
	}
	if _, err := os.Stat("node_modules/openid-client/package.json"); err != nil {
		testmachine.Lacks(t, "npm ci has not run in tests/oauth")
	}
	w := newWorld(t)
	alice := w.person("alice")
	w.workspace(alice, "acme")
	script := exec.CommandContext(t.Context(), "node", name, w.url, alice.cookie)
	if out, err := script.CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("%v\n%s", err, out)
	}
}
