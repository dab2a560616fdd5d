package runner

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/atelier-run/atelier/runner/gateway"
)

// The placeholders in the commands and variables of agents.
const (
	// placeholderURL is the address of the model in the gateway, without a slash at its end. The wire formats' paths, with or
	// without /v1, follow it.
	placeholderURL = "{{url}}"
	// placeholderToken is the token for the gateway.
	placeholderToken = "{{token}}"
	// placeholderModel is the name of the model on its server, placeholderWire its wire format.
	placeholderModel = "{{model}}"
	placeholderWire  = "{{wire}}"
)

// presets are the agents of others that the runner can configure for the gateway, by name.
var presets = map[string]agentConfig{
	"codex":    {command: []string{"codex-acp"}, forModel: configureCodex},
	"opencode": {command: []string{"opencode", "acp"}, forModel: configureOpencode},
}

const (
	maxArguments = 64
	maxVariables = 64
	maxValue     = 32 << 10
)

// newAgent returns the agent of a configuration.
func newAgent(name, preset string, command []string, env map[string]string) (agentConfig, error) {
	if !configName.MatchString(name) {
		return agentConfig{}, errors.New("a name consists of at most 64 lower-case letters, digits, dots, hyphens and underscores")
	}
	var a agentConfig
	if preset != "" {
		var ok bool
		if a, ok = presets[preset]; !ok {
			return agentConfig{}, fmt.Errorf("preset: %q is none of %s", preset, strings.Join(slices.Sorted(maps.Keys(presets)), ", "))
		}
	}
	if len(command) > 0 {
		a.command = command
	}
	a.env = env
	switch {
	case name == Builtin && (preset != "" || len(command) > 0):
		return agentConfig{}, errors.New("the command of the built-in agent cannot be changed; use another name")
	case name != Builtin && len(a.command) == 0:
		return agentConfig{}, errors.New("command: is missing")
	case len(a.command) > maxArguments, len(env) > maxVariables:
		return agentConfig{}, fmt.Errorf("at most %d arguments and %d variables are possible", maxArguments, maxVariables)
	case slices.Contains(a.command[:min(1, len(a.command))], ""):
		return agentConfig{}, errors.New("command: the program is empty")
	}
	for _, argument := range a.command {
		if len(argument) > maxValue || strings.Contains(argument, "\x00") {
			return agentConfig{}, errors.New("command: an argument is too long or has a zero byte")
		}
	}
	for variable, value := range env {
		if variable == "" || strings.ContainsAny(variable, "=\x00") || len(value) > maxValue || strings.Contains(value, "\x00") {
			return agentConfig{}, fmt.Errorf("env: %q is no variable, or its value is too long or has a zero byte", variable)
		}
	}
	return a, nil
}

// configureCodex adds the arguments with which codex-acp uses the gateway. The computer isolates the agent, so that its own
// sandbox, which computers do not permit, is off.
func configureCodex(a agentConfig, m gateway.Model) (agentConfig, error) {
	if m.Wire != gateway.Responses && m.Wire != gateway.Chat {
		return a, fmt.Errorf("codex needs a model with the wire format responses or chat, and %s has %s", m.Name, m.Wire)
	}
	provider := fmt.Sprintf(`model_providers.atelier={name="Atelier",base_url=%q,wire_api=%q,env_key="ATELIER_TOKEN"}`,
		placeholderURL+"/v1", string(m.Wire))
	a.command = append(slices.Clone(a.command), "-c", provider, "-c", `model_provider="atelier"`,
		"-c", "model="+strconv.Quote(m.ID), "-c", `sandbox_mode="danger-full-access"`)
	return a, nil
}

// opencodePackages has the package of the AI SDK for a wire format.
var opencodePackages = map[gateway.Wire]string{
	gateway.Chat: "@ai-sdk/openai-compatible", gateway.Responses: "@ai-sdk/openai", gateway.Anthropic: "@ai-sdk/anthropic",
}

// configureOpencode adds the variable with which opencode uses the gateway.
func configureOpencode(a agentConfig, m gateway.Model) (agentConfig, error) {
	content, err := json.Marshal(map[string]any{
		"model":       "atelier/" + m.ID,
		"small_model": "atelier/" + m.ID,
		"autoupdate":  false,
		"share":       "disabled",
		"provider": map[string]any{"atelier": map[string]any{
			"npm":     opencodePackages[m.Wire],
			"name":    "Atelier",
			"options": map[string]any{"baseURL": placeholderURL + "/v1", "apiKey": placeholderToken},
			"models":  map[string]any{m.ID: map[string]any{"name": m.ID}},
		}},
	})
	if err != nil {
		return a, err
	}
	env := map[string]string{"OPENCODE_CONFIG_CONTENT": string(content), "OPENCODE_DISABLE_AUTOUPDATE": "1"}
	maps.Copy(env, a.env)
	a.env = env
	return a, nil
}

// expand returns the command and the environment of the agent with the values of the placeholders. address is that of the gateway.
// The built-in agent gets its own variables (package builtin), which it hides from the commands that it starts; every other agent
// ATELIER_GATEWAY, ATELIER_TOKEN, and, if it has a model, ATELIER_MODEL_URL, ATELIER_MODEL and ATELIER_MODEL_WIRE.
func (c Choice) expand(builtin []string, address, token string) (argv, env []string) {
	values := map[string]string{}
	isBuiltin := c.Agent == Builtin
	if !isBuiltin {
		values["ATELIER_GATEWAY"], values["ATELIER_TOKEN"] = address, token
	}
	replace := []string{placeholderToken, token}
	if c.HasModel {
		at := address + "/model/" + c.Model.Name
		replace = append(replace, placeholderURL, at, placeholderModel, c.Model.ID, placeholderWire, string(c.Model.Wire))
		names := []string{"ATELIER_MODEL_URL", "ATELIER_MODEL", "ATELIER_MODEL_WIRE"}
		if isBuiltin {
			names = []string{"ATELIER_AGENT_BASE_URL", "ATELIER_AGENT_MODEL", "ATELIER_AGENT_WIRE"}
			values["ATELIER_AGENT_API_KEY"] = token
		}
		values[names[0]], values[names[1]], values[names[2]] = at, c.Model.ID, string(c.Model.Wire)
	}
	replacer := strings.NewReplacer(replace...)
	argv = slices.Clone(c.agent.command)
	if isBuiltin {
		argv = slices.Clone(builtin)
	}
	for i := range argv {
		argv[i] = replacer.Replace(argv[i])
	}
	for name, value := range c.agent.env {
		values[name] = replacer.Replace(value)
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		env = append(env, name+"="+values[name])
	}
	return argv, env
}
