// Package presets has the agents of others that the runner can configure: their programs, and the arguments and variables
// that make them use the gateway of a computer, and nothing else.
//
// An agent is configured for a Target: the address of its model in the gateway, the token that the gateway accepts, and the name
// and the wire format of the model. The agent has no key, no login and no other model. It needs no file: its
// command begins with a short shell script that prepares settings that arguments and variables cannot have. The versions that
// tests/agents runs are
//
//	preset    npm package                       program      wire formats
//	codex     @zed-industries/codex-acp 0.16    codex-acp    responses
//	opencode  opencode-ai 1.18                  opencode     chat, responses, anthropic
//
// # What the presets have in common
//
// Agents run inside the computer, which isolates them: their own sandboxes, which computers do not permit, are off. They request
// a permission for each command and each change of a file, and for nothing that only reads: the runner grants it, or asks.
// They look for no updates, send no telemetry, and load neither lists of models nor packages. They record their sessions below
// /var/tmp, or the folder in the variable ATELIER_AGENT_STATE, and not on the drive, where the records would be activity. A
// later process in the same computer loads them from there. The records have a few megabytes, which the sessions of a computer
// share, together with permissions of the kind allow_always, which a client must therefore not choose.
//
// Both accept images and links to files, load sessions, use the platform's tools over HTTP and over standard streams, and report
// tool calls with kinds, diffs and locations. If a prompt is cancelled, both end it with the reason cancelled, and end the commands
// that it has started. Neither must get a prompt while another runs: codex joins the two and answers only one.
//
// # codex
//
// codex-acp speaks Responses only. It gives a model that it does not know the context of 272,000 tokens; for another model, an
// operator adds the arguments -c and model_context_window=N to its command. It
//
//   - starts each prompt with a message about such a model, which IsNotice recognizes;
//   - requests a permission for each call of a tool of an MCP server, too, which IsPlatformCall recognizes;
//   - ends its prompt as cancelled when a permission is denied;
//   - repeats requests that fail with a status of 500 or above three times, and requests with other statuses not at all, and has
//     its reason in the data of the error that ends the prompt;
//   - can ignore a prompt that follows such an error at once: a new process does not;
//   - reports no tokens, but the size of its context;
//   - goes on when its input is closed, so that its process group has to be ended.
//
// # opencode
//
// The tools that opencode offers depend on the name of the model: models of OpenAI patch files, others write and edit them. It
//
//   - repeats requests that fail with 429 or a status of 500 or above, six times at the most, with pauses that grow from two
//     seconds to thirty or that the model's server requests, and has its reason in the message of the error;
//   - goes on with the model when a permission is denied;
//   - sends fs/write_text_file after an edit although the client does not offer it, and ignores the refusal;
//   - reports the tokens of the prompt in its response;
//   - answers a prompt that arrives while another runs after that.
package presets

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/coder/acp-go-sdk"

	"github.com/atelier-run/atelier/runner/gateway"
)

// A Target is the model that an agent is configured for.
type Target struct {
	// URL is the address of the model in the gateway, without a slash and without /v1 at its end.
	URL string
	// Token authenticates the agent to the gateway.
	Token string
	// Model is the name of the model on its server.
	Model string
	Wire  gateway.Wire
}

// A Preset configures an agent.
type Preset struct {
	name    string
	program []string
	wires   []gateway.Wire
	// script prepares the agent. Its arguments are the agent's command, which it becomes.
	script    string
	configure func(Target) (arguments []string, env map[string]string, err error)
	// notices are the beginnings of messages that are the agent's own and not the model's.
	notices []string
	// isPlatformCall reports whether a request for permission is for a tool of the platform; nil: the agent requests none.
	isPlatformCall func(acp.RequestPermissionRequest) bool
}

var all = map[string]Preset{"codex": codex, "opencode": opencode}

// Names returns the names of the presets, sorted.
func Names() []string { return slices.Sorted(maps.Keys(all)) }

// Find returns a preset.
func Find(name string) (_ Preset, ok bool) {
	p, ok := all[name]
	return p, ok
}

var errNoModel = errors.New("model: is missing; the agent needs one")

// Configure returns the command and the variables of the agent for a target. program replaces the program of the preset;
// its arguments come before the arguments of Configure. nil: the program of the preset. Errors: the agent does not speak the wire format.
func (p Preset) Configure(program []string, t Target) (command []string, env map[string]string, err error) {
	if t.Model == "" {
		return nil, nil, errNoModel
	}
	if !slices.Contains(p.wires, t.Wire) {
		return nil, nil, fmt.Errorf("%s needs a model with the wire format %s, and %s has %s", p.name, wireNames(p.wires), t.Model, t.Wire)
	}
	if len(program) == 0 {
		program = p.program
	}
	arguments, env, err := p.configure(t)
	if err != nil {
		return nil, nil, err
	}
	command = append([]string{"/bin/sh", "-c", p.script, p.name}, program...)
	return append(command, arguments...), env, nil
}

func wireNames(wires []gateway.Wire) string {
	names := make([]string, len(wires))
	for i, w := range wires {
		names[i] = string(w)
	}
	return strings.Join(names, " or ")
}

// IsNotice reports whether a message is about the agent's configuration and not a part of its reply.
func (p Preset) IsNotice(message string) bool {
	return slices.ContainsFunc(p.notices, func(start string) bool { return strings.HasPrefix(message, start) })
}

// IsPlatformCall reports whether a request for permission is for a call of one of the platform's tools, which need none.
func (p Preset) IsPlatformCall(r acp.RequestPermissionRequest) bool {
	return p.isPlatformCall != nil && p.isPlatformCall(r)
}
