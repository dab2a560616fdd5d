package oauth

import (
	"os"
	"os/exec"
	"testing"
)

// TestClientLibrary runs client.mjs, which needs node and what npm ci installs here.
func TestClientLibrary(t *testing.T) {
	for _, needed := range []string{"node", "npm"} {
		if _, err := exec.LookPath(needed); err != nil {
			leaveOut(t, "no "+needed)
		}
	}
	if _, err := os.Stat("node_modules/openid-client/package.json"); err != nil {
		leaveOut(t, "npm ci has not run in tests/oauth")
	}
	w := newWorld(t)
	alice := w.person("alice")
	w.workspace(alice, "acme")
	script := exec.CommandContext(t.Context(), "node", "client.mjs", w.url, alice.cookie)
	if out, err := script.CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("%v\n%s", err, out)
	}
}

// leaveOut skips a test that cannot run here; continuous integration has what it needs.
func leaveOut(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip(why)
}
