package runner

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/atelier-run/atelier/entity"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/runner/gateway"
	"github.com/atelier-run/atelier/runner/presets"
	"github.com/atelier-run/atelier/runner/yamlfile"
)

// Builtin is the name of the built-in agent in a Config.
const Builtin = "builtin"

// A Config maps the tiers of the API to agents and models. The zero Config has the built-in agent without a model for every
// tier, which carries out runbooks.
type Config struct {
	models  map[string]gateway.Model
	agents  map[string]agentConfig
	tiers   map[workspacev1.Tier]Choice
	Budgets Budgets
}

// Budgets limit the use of agents; 0 means no limit. A session may continue beyond its budget when a person allows it.
type Budgets struct {
	// SessionTokens and SessionTime limit the use of a session since a person last allowed the session to continue.
	SessionTokens uint64
	SessionTime   time.Duration
	// WorkspaceTokens and WorkspaceTime limit all sessions of a workspace on one day (UTC).
	WorkspaceTokens uint64
	WorkspaceTime   time.Duration
}

// A Choice is the agent and the model of a tier.
type Choice struct {
	// Agent is the name of the agent.
	Agent string
	// Model is unset if HasModel is false.
	Model    gateway.Model
	HasModel bool
	agent    agentConfig
}

// agentConfig is the command and the environment of an agent. Their values have placeholders.
type agentConfig struct {
	command []string
	env     map[string]string
	// preset adds arguments and variables; nil: command and env are complete.
	preset *presets.Preset
}

// file is the form of the configuration file. JSON is YAML, too.
type file struct {
	Models map[string]struct {
		Wire    string `yaml:"wire"`
		BaseURL string `yaml:"baseUrl"`
		Model   string `yaml:"model"`
		KeyFile string `yaml:"keyFile"`
		KeyEnv  string `yaml:"keyEnv"`
	} `yaml:"models"`
	Agents map[string]struct {
		Preset  string            `yaml:"preset"`
		Command []string          `yaml:"command"`
		Env     map[string]string `yaml:"env"`
	} `yaml:"agents"`
	Tiers map[string]struct {
		Agent string `yaml:"agent"`
		Model string `yaml:"model"`
	} `yaml:"tiers"`
	Budgets struct {
		SessionTokens    uint64 `yaml:"sessionTokens"`
		SessionMinutes   uint64 `yaml:"sessionMinutes"`
		WorkspaceTokens  uint64 `yaml:"workspaceTokensPerDay"`
		WorkspaceMinutes uint64 `yaml:"workspaceMinutesPerDay"`
	} `yaml:"budgets"`
}

const (
	// maxConfig is the maximum length of the configuration file, and maxKey the maximum length of a key file, in bytes.
	maxConfig = 1 << 20
	maxKey    = 16 << 10
	// maxMinutes is the maximum time of a budget: ten years.
	maxMinutes = 10 * 366 * 24 * 60
)

// ReadConfig reads the configuration file; lookup returns variables of the environment (os.LookupEnv). Paths of key files are
// relative to the folder of the configuration. The package comment describes the file. Errors name the field.
func ReadConfig(path string, lookup func(string) (string, bool)) (Config, error) {
	text, err := readBounded(path, maxConfig)
	if err != nil {
		return Config{}, err
	}
	c, err := parseConfig(text, filepath.Dir(path), lookup)
	if err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

func readBounded(path string, most int64) ([]byte, error) {
	found, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if found.Size() > most {
		return nil, fmt.Errorf("%s is longer than %d bytes", path, most)
	}
	return os.ReadFile(path)
}

func parseConfig(text []byte, dir string, lookup func(string) (string, bool)) (Config, error) {
	var f file
	if err := yamlfile.Decode(text, &f, yaml.Strict()); err != nil {
		return Config{}, err
	}
	b := f.Budgets
	if b.SessionMinutes > maxMinutes || b.WorkspaceMinutes > maxMinutes {
		return Config{}, fmt.Errorf("budgets: at most %d minutes are possible", maxMinutes)
	}
	c := Config{
		models: map[string]gateway.Model{}, agents: map[string]agentConfig{}, tiers: map[workspacev1.Tier]Choice{},
		Budgets: Budgets{
			SessionTokens: b.SessionTokens, SessionTime: time.Duration(b.SessionMinutes) * time.Minute,
			WorkspaceTokens: b.WorkspaceTokens, WorkspaceTime: time.Duration(b.WorkspaceMinutes) * time.Minute,
		},
	}
	for _, name := range slices.Sorted(maps.Keys(f.Models)) {
		m := f.Models[name]
		model, err := newModel(name, m.Wire, m.BaseURL, m.Model)
		if err == nil {
			model.Key, err = readKey(dir, m.KeyFile, m.KeyEnv, lookup)
		}
		if err != nil {
			return Config{}, fmt.Errorf("models.%s: %w", name, err)
		}
		c.models[name] = model
	}
	for _, name := range slices.Sorted(maps.Keys(f.Agents)) {
		a := f.Agents[name]
		agent, err := newAgent(name, a.Preset, a.Command, a.Env)
		if err != nil {
			return Config{}, fmt.Errorf("agents.%s: %w", name, err)
		}
		c.agents[name] = agent
	}
	for _, name := range slices.Sorted(maps.Keys(f.Tiers)) {
		tier, err := entity.ParseTier(name)
		if err != nil {
			names := slices.Sorted(maps.Values(entity.TierNames))
			return Config{}, fmt.Errorf("tiers.%s: no tier has this name; tiers are %s", name, strings.Join(names, ", "))
		}
		choice, err := c.choose(f.Tiers[name].Agent, f.Tiers[name].Model)
		if err != nil {
			return Config{}, fmt.Errorf("tiers.%s: %w", name, err)
		}
		c.tiers[tier] = choice
	}
	if len(c.tiers) == 0 {
		return Config{}, errors.New("tiers: no tier is configured, so that no session could run")
	}
	return c, nil
}

var configName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)

func newModel(name, wire, base, id string) (gateway.Model, error) {
	if !configName.MatchString(name) {
		return gateway.Model{}, errors.New("a name consists of at most 64 lower-case letters, digits, dots, hyphens and underscores")
	}
	if !gateway.Wire(wire).IsKnown() {
		return gateway.Model{}, fmt.Errorf("wire: %q is none of chat, responses and anthropic", wire)
	}
	u, err := url.Parse(base)
	switch {
	case err != nil, u.Scheme != "https" && u.Scheme != "http", u.Host == "":
		return gateway.Model{}, errors.New("baseUrl: must be an http or https URL, such as https://api.example.com/v1")
	case u.User != nil, u.RawQuery != "", u.Fragment != "":
		return gateway.Model{}, errors.New("baseUrl: must have no credentials, query or fragment; use keyFile or keyEnv")
	case id == "":
		return gateway.Model{}, errors.New("model: is missing; it is the name of the model on its server")
	}
	return gateway.Model{Name: name, Wire: gateway.Wire(wire), URL: u, ID: id}, nil
}

// readKey returns the key in a file or a variable; empty if neither is configured.
func readKey(dir, path, variable string, lookup func(string) (string, bool)) (gateway.Key, error) {
	var key string
	switch {
	case path != "" && variable != "":
		return gateway.Key{}, errors.New("keyFile and keyEnv are both set")
	case path == "" && variable == "":
		return gateway.Key{}, nil
	case variable != "":
		key, _ = lookup(variable)
	default:
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		text, err := readBounded(path, maxKey)
		if err != nil {
			return gateway.Key{}, fmt.Errorf("keyFile: %w", err)
		}
		key = string(text)
	}
	key = strings.TrimSpace(key)
	switch {
	case key == "":
		return gateway.Key{}, fmt.Errorf("%s: %s has no key", cmp.Or(keyField(path), "keyEnv"), cmp.Or(path, variable))
	case strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return gateway.Key{}, errors.New("the key has characters that no HTTP header can carry")
	}
	return gateway.NewKey(key), nil
}

func keyField(path string) string {
	if path != "" {
		return "keyFile"
	}
	return ""
}

// choose returns the choice of an agent and a model by their names.
func (c Config) choose(agent, model string) (Choice, error) {
	chosen := Choice{Agent: cmp.Or(agent, Builtin)}
	configured, ok := c.agents[chosen.Agent]
	if !ok && chosen.Agent != Builtin {
		return Choice{}, fmt.Errorf("agent: %q is not configured", chosen.Agent)
	}
	chosen.agent = configured
	if model != "" {
		if chosen.Model, chosen.HasModel = c.models[model]; !chosen.HasModel {
			return Choice{}, fmt.Errorf("model: %q is not configured", model)
		}
	}
	if configured.preset == nil {
		return chosen, nil
	}
	if !chosen.HasModel {
		return Choice{}, fmt.Errorf("model: is missing; the agent %q needs one", chosen.Agent)
	}
	var err error
	chosen.agent, err = configured.configure(chosen.Model)
	return chosen, err
}

// Choose returns the agent and the model of a tier; ok is false if the tier is not configured.
func (c Config) Choose(tier workspacev1.Tier) (_ Choice, ok bool) {
	if c.tiers == nil {
		return Choice{Agent: Builtin}, true
	}
	chosen, ok := c.tiers[tier]
	return chosen, ok
}
