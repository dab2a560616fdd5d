package presets

import (
	"encoding/json"

	"github.com/coder/acp-go-sdk"

	"github.com/atelier-run/atelier/runner/gateway"
	"github.com/atelier-run/atelier/runner/meta"
)

// tokenVariable is the variable in which codex finds the token. Commands that it runs see it, too.
const tokenVariable = "ATELIER_TOKEN"

var codex = Preset{
	name:      "codex",
	program:   []string{"codex-acp"},
	wires:     []gateway.Wire{gateway.Responses},
	configure: configureCodex,
	notices:   []string{"Model metadata for `"},
	isPlatformCall: func(r acp.RequestPermissionRequest) bool {
		input, _ := r.ToolCall.RawInput.(map[string]any)
		return input["server_name"] == meta.PlatformServer
	},
	script: `export CODEX_HOME="${ATELIER_AGENT_STATE:-/var/tmp}/codex"
mkdir -p "$CODEX_HOME" && exec "$@"`,
}

// codexSettings are the settings that do not depend on the target.
var codexSettings = []string{
	`model_provider="atelier"`,
	// Each request is repeated once, with and without its stream. More would hide a server that does not work for minutes.
	`model_providers.atelier.request_max_retries=1`,
	`model_providers.atelier.stream_max_retries=1`,
	`sandbox_mode="danger-full-access"`,
	// Commands that do not only read known files need a permission. The policies that ask less depend on the sandbox.
	`approval_policy="untrusted"`,
	// Commands of the other tool for commands go on when the prompt is cancelled.
	`features.unified_exec=false`,
	// Tools that only OpenAI's own service knows.
	`web_search="disabled"`,
	`features.multi_agent=false`,
	`features.goals=false`,
	`features.shell_snapshot=false`,
	`skills.bundled.enabled=false`,
	`history.persistence="none"`,
	`check_for_update_on_startup=false`,
	`analytics.enabled=false`,
	`feedback.enabled=false`,
}

func configureCodex(t Target) ([]string, map[string]string, error) {
	model, err := quoteTOML(t.Model)
	if err != nil {
		return nil, nil, err
	}
	address, err := quoteTOML(t.URL + "/v1")
	if err != nil {
		return nil, nil, err
	}
	settings := append([]string{
		"model=" + model,
		`model_providers.atelier={name="Atelier",base_url=` + address + `,wire_api="responses",env_key="` + tokenVariable + `"}`,
	}, codexSettings...)
	var arguments []string
	for _, s := range settings {
		arguments = append(arguments, "-c", s)
	}
	return arguments, map[string]string{tokenVariable: t.Token}, nil
}

// quoteTOML returns a text as a string of TOML, which has all escapes that JSON has.
func quoteTOML(text string) (string, error) {
	quoted, err := json.Marshal(text)
	return string(quoted), err
}
