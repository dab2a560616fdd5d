package runner

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

func write(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"agents.yaml": text, "good.key": " sk-secret\n", "empty.key": "\n", "bad.key": "a b"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "agents.yaml")
}

func lookup(name string) (string, bool) {
	return map[string]string{"GOOD_KEY": "sk-variable"}[name], name == "GOOD_KEY"
}

const goodModel = `
models:
  big: {wire: responses, baseUrl: "https://models.example/v1/", model: big-1, keyFile: good.key}
  small: {wire: anthropic, baseUrl: "https://other.example/v1", model: small-1, keyEnv: GOOD_KEY}
`

func TestReadConfig(t *testing.T) {
	c, err := ReadConfig(write(t, goodModel+`
agents:
  codex: {preset: codex}
  open: {preset: opencode, env: {EXTRA: "1"}}
  mine: {command: [mine, "--url={{url}}/x", "{{model}}", "{{wire}}"], env: {T: "<{{token}}>"}}
tiers:
  balanced: {model: small}
  frontier: {agent: codex, model: big}
  openai-max: {agent: mine, model: big}
  anthropic-max: {agent: open, model: small}
budgets: {sessionTokens: 10, sessionMinutes: 2, workspaceTokensPerDay: 30, workspaceMinutesPerDay: 4}
`), lookup)
	if err != nil {
		t.Fatal(err)
	}
	if c.Budgets != (Budgets{10, 2 * time.Minute, 30, 4 * time.Minute}) {
		t.Errorf("budgets %+v", c.Budgets)
	}
	builtin := []string{"/.atelier/atelier", "agent"}
	expand := func(tier workspacev1.Tier) (argv []string, env string) {
		chosen, ok := c.Choose(tier)
		if !ok {
			t.Fatalf("%s is not configured", tier)
		}
		argv, all := chosen.expand(builtin, "http://127.0.0.1:1", "tok")
		return argv, strings.Join(all, "\n")
	}
	argv, env := expand(workspacev1.Tier_TIER_BALANCED)
	if !slices.Equal(argv, builtin) || env != "ATELIER_AGENT_BASE_URL=http://127.0.0.1:1/model/small\n"+
		"ATELIER_AGENT_MODEL=small-1\nATELIER_AGENT_WIRE=anthropic" {
		t.Errorf("built-in: %q\n%s", argv, env)
	}
	argv, _ = expand(workspacev1.Tier_TIER_FRONTIER)
	if !slices.Contains(argv, "codex-acp") || !strings.Contains(strings.Join(argv, " "), `base_url="http://127.0.0.1:1/model/big/v1",wire_api="responses",env_key="ATELIER_TOKEN"`) ||
		!slices.Contains(argv, `model="big-1"`) {
		t.Errorf("codex: %q", argv)
	}
	argv, env = expand(workspacev1.Tier_TIER_OPENAI_MAX)
	if !slices.Equal(argv, []string{"mine", "--url=http://127.0.0.1:1/model/big/x", "big-1", "responses"}) ||
		env != "ATELIER_GATEWAY=http://127.0.0.1:1\nATELIER_MODEL=big-1\nATELIER_MODEL_URL=http://127.0.0.1:1/model/big\n"+
			"ATELIER_MODEL_WIRE=responses\nATELIER_TOKEN=tok\nT=<tok>" {
		t.Errorf("mine: %q\n%s", argv, env)
	}
	argv, env = expand(workspacev1.Tier_TIER_ANTHROPIC_MAX)
	if !slices.Equal(argv[len(argv)-3:], []string{"opencode", "acp", "--pure"}) || !strings.Contains(env, `"apiKey":"tok","baseURL":"http://127.0.0.1:1/model/small/v1"`) ||
		!strings.Contains(env, "@ai-sdk/anthropic") || !strings.Contains(env, "EXTRA=1") {
		t.Errorf("opencode: %q\n%s", argv, env)
	}
	if _, ok := c.Choose(workspacev1.Tier_TIER_OPENAI_FRONTIER); ok {
		t.Error("a tier that the file does not name has an agent")
	}
	var out bytes.Buffer
	slog.New(slog.NewTextHandler(&out, nil)).Info("x", slog.Any("config", c))
	fmt.Fprintf(&out, "%+v", c)
	if strings.Contains(out.String(), "sk-") {
		t.Errorf("a key is shown: %s", out.String())
	}
}

func TestConfigWithoutAFile(t *testing.T) {
	if chosen, ok := (Config{}).Choose(workspacev1.Tier_TIER_OPENAI_MAX); !ok || chosen.Agent != Builtin || chosen.HasModel {
		t.Errorf("%+v %t", chosen, ok)
	}
}

func TestConfigErrors(t *testing.T) {
	const tiers = "tiers: {balanced: {model: big}}\n"
	for text, want := range map[string]string{
		"":                                      "tiers: no tier",
		"unknown: 1":                            "unknown field",
		"tiers: {fast: {}}":                     "tiers.fast: no tier has this name",
		"tiers: {balanced: {model: none}}":      `tiers.balanced: model: "none" is not configured`,
		"tiers: {balanced: {agent: none}}":      `tiers.balanced: agent: "none" is not configured`,
		"models: {big: {wire: x}}\n" + tiers:    "models.big: wire:",
		"models: {Big: {wire: chat}}\n" + tiers: "models.Big: a name consists",
		"models: {big: {wire: chat, baseUrl: ftp://x, model: m}}\n" + tiers:                             "baseUrl: must be",
		"models: {big: {wire: chat, baseUrl: 'https://u:p@x', model: m}}\n" + tiers:                     "baseUrl: must have no credentials",
		"models: {big: {wire: chat, baseUrl: 'https://x'}}\n" + tiers:                                   "model: is missing",
		"models: {big: {wire: chat, baseUrl: 'https://x', model: m, keyFile: empty.key}}\n" + tiers:     "keyFile: ",
		"models: {big: {wire: chat, baseUrl: 'https://x', model: m, keyFile: none.key}}\n" + tiers:      "no such file",
		"models: {big: {wire: chat, baseUrl: 'https://x', model: m, keyFile: bad.key}}\n" + tiers:       "no HTTP header",
		"models: {big: {wire: chat, baseUrl: 'https://x', model: m, keyEnv: NONE}}\n" + tiers:           "keyEnv: NONE has no key",
		"models: {big: {wire: chat, baseUrl: 'https://x', model: m, keyEnv: A, keyFile: b}}\n" + tiers:  "both set",
		goodModel + "agents: {a: {preset: x}}\n" + tiers:                                                "agents.a: preset",
		goodModel + "agents: {a: {}}\n" + tiers:                                                         "agents.a: command: is missing",
		goodModel + "agents: {builtin: {command: [x]}}\n" + tiers:                                       "cannot be changed",
		goodModel + "agents: {a: {command: [x], env: {'A=B': c}}}\n" + tiers:                            "is no variable",
		goodModel + "agents: {a: {command: [x, '--key={{token}}']}}\n" + tiers:                          "every process of the computer",
		goodModel + "agents: {a: {preset: codex, command: [x, '{{token}}']}}\n" + tiers:                 "every process of the computer",
		goodModel + "agents: {codex: {preset: codex}}\ntiers: {balanced: {agent: codex}}":               "needs one",
		goodModel + "agents: {codex: {preset: codex}}\ntiers: {balanced: {agent: codex, model: small}}": "codex needs a model",
		goodModel + "budgets: {sessionMinutes: 99999999}\n" + tiers:                                     "budgets: at most",
	} {
		_, err := ReadConfig(write(t, text), lookup)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n  error %v, want %q", text, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "sk-") {
			t.Errorf("a key is shown: %v", err)
		}
	}
}
