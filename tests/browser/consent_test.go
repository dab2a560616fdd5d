package browser

import (
	"context"
	"os/exec"
	"testing"
)

// TestConsent runs consent.mjs: the redirect URI of an application redirects further, after each answer that the application can get.
func TestConsent(t *testing.T) {
	chromium := findChromium(t)
	s := newSite(t)
	s.workspace(s.person("alice", "Alice Liddell"), "wonderland", "Wonderland")
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	script := exec.CommandContext(ctx, "node", "consent.mjs", s.scene(map[string]string{
		"url": s.url, "chromium": chromium, "link": s.link("alice"),
	}))
	if out, err := script.CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("%v\n%s", err, out)
	}
}
