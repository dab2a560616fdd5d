package agents

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/runner"
)

// TestDocumentedConfiguration reads the example in docs/operations.md.
func TestDocumentedConfiguration(t *testing.T) {
	document, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(document), "\n## Agents\n")
	_, example, _ := strings.Cut(section, "```yaml\n")
	example, _, complete := strings.Cut(example, "```")
	if !complete {
		t.Fatal("the section has no example")
	}
	dir := t.TempDir()
	for _, name := range []string{"openai.key", "anthropic.key"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("key"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "agents.yaml")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(example, "/etc/atelier/", "")), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := runner.ReadConfig(path, os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	for n := workspacev1.Tier_TIER_FRONTIER; workspacev1.Tier_name[int32(n)] != ""; n++ {
		if _, ok := config.Choose(n); !ok {
			t.Errorf("the example has no agent for %s", n)
		}
	}
}
