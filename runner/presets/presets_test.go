package presets_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/runner/gateway"
	"github.com/atelier-run/atelier/runner/presets"
)

func target(wire gateway.Wire) presets.Target {
	return presets.Target{URL: "http://127.0.0.1:4000/model/fast", Token: "secret", Model: `org/a "model"`, Wire: wire}
}

func TestConfigure(t *testing.T) {
	for _, test := range []struct {
		preset string
		wire   gateway.Wire
		error  string
	}{
		{"codex", gateway.Responses, ""},
		{"codex", gateway.Chat, "codex needs a model with the wire format responses, and "},
		{"codex", gateway.Anthropic, "codex needs a model with the wire format responses, and "},
		{"opencode", gateway.Chat, ""},
		{"opencode", gateway.Responses, ""},
		{"opencode", gateway.Anthropic, ""},
		{"opencode", "other", "opencode needs a model with the wire format chat or responses or anthropic, and "},
	} {
		t.Run(test.preset+"/"+string(test.wire), func(t *testing.T) {
			p, ok := presets.Find(test.preset)
			if !ok || !slices.Contains(presets.Names(), test.preset) {
				t.Fatal("the preset is missing")
			}
			command, env, err := p.Configure(nil, target(test.wire))
			if test.error != "" {
				if err == nil || !strings.HasPrefix(err.Error(), test.error) {
					t.Fatalf("error %v, want %q", err, test.error)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			all := strings.Join(command, "\n")
			for name, value := range env {
				all += "\n" + name + "=" + value
			}
			if !strings.Contains(all, "http://127.0.0.1:4000/model/fast/v1") || strings.Contains(strings.Join(command, " "), "secret") {
				t.Fatal("the address is missing, or the token is in an argument, which all processes can read:\n" + all)
			}
		})
	}
}

func TestConfigureWithoutModel(t *testing.T) {
	p, _ := presets.Find("codex")
	if _, _, err := p.Configure(nil, presets.Target{URL: "http://127.0.0.1", Wire: gateway.Responses}); err == nil {
		t.Fatal("an agent without a model was configured")
	}
}

func TestConfigureOtherProgram(t *testing.T) {
	p, _ := presets.Find("codex")
	command, _, err := p.Configure([]string{"/opt/agents/codex", "-c", "model_context_window=32768"}, target(gateway.Responses))
	at := slices.Index(command, "/opt/agents/codex")
	if err != nil || at < 0 || command[at+2] != "model_context_window=32768" || command[at+3] != "-c" || slices.Contains(command, "codex-acp") {
		t.Fatalf("%q, %v", command, err)
	}
	if want := `model="org/a \"model\""`; !slices.Contains(command, want) {
		t.Errorf("%q does not have %s", command, want)
	}
}

func TestOpencodeConfiguration(t *testing.T) {
	p, _ := presets.Find("opencode")
	_, env, err := p.Configure(nil, target(gateway.Anthropic))
	if err != nil {
		t.Fatal(err)
	}
	var content struct {
		Model      string
		Provider   map[string]struct{ NPM string }
		Permission map[string]string
	}
	if err := json.Unmarshal([]byte(env["OPENCODE_CONFIG_CONTENT"]), &content); err != nil {
		t.Fatal(err)
	}
	if content.Model != `atelier/org/a "model"` || content.Provider["atelier"].NPM != "@ai-sdk/anthropic" || content.Permission["*"] != "ask" {
		t.Fatalf("%+v", content)
	}
}

func TestIsNotice(t *testing.T) {
	p, _ := presets.Find("codex")
	if !p.IsNotice("Model metadata for `x` not found. Defaulting to fallback metadata; this can degrade performance and cause issues.") {
		t.Error("the message of codex is not recognized")
	}
	if p.IsNotice("Model") || p.IsNotice("") {
		t.Error("a reply is taken for a notice")
	}
}
