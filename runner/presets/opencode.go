package presets

import (
	"encoding/json"
	"maps"

	"github.com/atelier-run/atelier/runner/gateway"
	"github.com/atelier-run/atelier/runner/meta"
)

var opencode = Preset{
	name:      "opencode",
	program:   []string{"opencode"},
	wires:     []gateway.Wire{gateway.Chat, gateway.Responses, gateway.Anthropic},
	configure: configureOpencode,
	// opencode installs a package for plugins into its folder, unless a lock file there has it.
	script: `state="${ATELIER_AGENT_STATE:-/var/tmp}/opencode"
export XDG_CONFIG_HOME="$state/config" XDG_DATA_HOME="$state/data" XDG_STATE_HOME="$state/state" XDG_CACHE_HOME="$state/cache"
lock="$XDG_CONFIG_HOME/opencode/package-lock.json"
if [ ! -e "$lock" ]; then
	mkdir -p "$XDG_CONFIG_HOME/opencode/node_modules" &&
		printf '{"packages":{"":{"dependencies":{"@opencode-ai/plugin":"*"}}}}
' >"$lock"
fi
exec "$@"`,
}

// opencodePackages has the package of the AI SDK for each wire format. They are parts of opencode's program.
var opencodePackages = map[gateway.Wire]string{
	gateway.Chat: "@ai-sdk/openai-compatible", gateway.Responses: "@ai-sdk/openai", gateway.Anthropic: "@ai-sdk/anthropic",
}

// opencodeVariables make opencode load and send nothing.
var opencodeVariables = map[string]string{
	"OPENCODE_DISABLE_AUTOUPDATE":      "1",
	"OPENCODE_DISABLE_MODELS_FETCH":    "1",
	"OPENCODE_DISABLE_LSP_DOWNLOAD":    "1",
	"OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
	"OPENCODE_DISABLE_SHARE":           "1",
}

// opencodePermissions has the tools that need no permission. The platform's tools are opencode's with the name of their server.
var opencodePermissions = map[string]string{
	"*": "ask", "read": "allow", "glob": "allow", "grep": "allow", "list": "allow", "todowrite": "allow", "todoread": "allow",
	"skill": "allow", "task": "allow", meta.PlatformServer + "_*": "allow",
}

func configureOpencode(t Target) ([]string, map[string]string, error) {
	const provider = "atelier"
	content, err := json.Marshal(map[string]any{
		"model":             provider + "/" + t.Model,
		"small_model":       provider + "/" + t.Model,
		"enabled_providers": []string{provider},
		"provider": map[string]any{provider: map[string]any{
			"npm":     opencodePackages[t.Wire],
			"name":    "Atelier",
			"options": map[string]any{"baseURL": t.URL + "/v1", "apiKey": t.Token},
			"models": map[string]any{t.Model: map[string]any{
				"name": t.Model, "tool_call": true, "attachment": true,
				"modalities": map[string]any{"input": []string{"text", "image"}, "output": []string{"text"}},
			}},
		}},
		"permission": opencodePermissions,
		// The titles of opencode's sessions are not shown, and each costs a request.
		"agent":        map[string]any{"title": map[string]any{"disable": true}},
		"autoupdate":   false,
		"share":        "disabled",
		"lsp":          false,
		"formatter":    false,
		"snapshot":     false,
		"experimental": map[string]any{"continue_loop_on_deny": true},
	})
	if err != nil {
		return nil, nil, err
	}
	env := map[string]string{"OPENCODE_CONFIG_CONTENT": string(content)}
	maps.Copy(env, opencodeVariables)
	return []string{"acp", "--pure"}, env, nil
}
