package runner

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/atelier-run/atelier/runner/gateway"
	"github.com/atelier-run/atelier/runner/presets"
)

// The placeholders in the commands and variables of agents. placeholderToken is replaced in variables only.
const (
	// placeholderURL is the address of the model in the gateway, without a slash at its end. The wire formats' paths, with or
	// without /v1, follow it.
	placeholderURL = "{{url}}"
	// placeholderToken is the token for the gateway.
	placeholderToken = "{{token}}"
	// placeholderModel is the name of the model on its server. placeholderWire is the wire format of the model.
	placeholderModel = "{{model}}"
	placeholderWire  = "{{wire}}"
)

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
		found, ok := presets.Find(preset)
		if !ok {
			return agentConfig{}, fmt.Errorf("preset: %q is none of %s", preset, strings.Join(presets.Names(), ", "))
		}
		a.preset = &found
	}
	a.command, a.env = command, env
	switch {
	case name == Builtin && (preset != "" || len(command) > 0):
		return agentConfig{}, errors.New("the command of the built-in agent cannot be changed; use another name")
	case name != Builtin && preset == "" && len(a.command) == 0:
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
		if strings.Contains(argument, placeholderToken) {
			return agentConfig{}, fmt.Errorf("command: %s in an argument would show the token to every process of the computer; set a variable in env "+
				"to it, or let the agent read ATELIER_TOKEN", placeholderToken)
		}
	}
	for variable, value := range env {
		if variable == "" || strings.ContainsAny(variable, "=\x00") || len(value) > maxValue || strings.Contains(value, "\x00") {
			return agentConfig{}, fmt.Errorf("env: %q is no variable, or its value is too long or has a zero byte", variable)
		}
	}
	return a, nil
}

// configure returns the agent of a preset, configured for a model. The variables of the configuration replace the variables of the preset.
func (a agentConfig) configure(m gateway.Model) (agentConfig, error) {
	command, env, err := a.preset.Configure(a.command, presets.Target{
		URL: placeholderURL, Token: placeholderToken, Model: m.ID, Wire: m.Wire,
	})
	if err != nil {
		return a, err
	}
	maps.Copy(env, a.env)
	a.command, a.env = command, env
	return a, nil
}

// expand returns the command and the environment of the agent with the values of the placeholders. address is the address of the gateway.
// The built-in agent gets its own variables (package builtin), without the token, which it gets when it opens the session
// (meta.ModelKey). Every other agent gets ATELIER_GATEWAY, ATELIER_TOKEN, and, if it has a model, ATELIER_MODEL_URL, ATELIER_MODEL and
// ATELIER_MODEL_WIRE.
func (c Choice) expand(builtin []string, address, token string) (argv, env []string) {
	values := map[string]string{}
	isBuiltin := c.Agent == Builtin
	if !isBuiltin {
		values["ATELIER_GATEWAY"], values["ATELIER_TOKEN"] = address, token
	}
	var replace []string
	if c.HasModel {
		at := address + "/model/" + c.Model.Name
		replace = []string{placeholderURL, at, placeholderModel, c.Model.ID, placeholderWire, string(c.Model.Wire)}
		names := []string{"ATELIER_MODEL_URL", "ATELIER_MODEL", "ATELIER_MODEL_WIRE"}
		if isBuiltin {
			names = []string{"ATELIER_AGENT_BASE_URL", "ATELIER_AGENT_MODEL", "ATELIER_AGENT_WIRE"}
		}
		values[names[0]], values[names[1]], values[names[2]] = at, c.Model.ID, string(c.Model.Wire)
	}
	arguments, variables := strings.NewReplacer(replace...), strings.NewReplacer(append(replace, placeholderToken, token)...)
	argv = slices.Clone(c.agent.command)
	if isBuiltin {
		argv = slices.Clone(builtin)
	}
	for i := range argv {
		argv[i] = arguments.Replace(argv[i])
	}
	for name, value := range c.agent.env {
		values[name] = variables.Replace(value)
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		env = append(env, name+"="+values[name])
	}
	return argv, env
}
