package runner

import (
	"sync"

	"github.com/coder/acp-go-sdk"

	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	"github.com/atelier-run/atelier/runner/meta"
)

// A dialog is the agent's own session, which the protocol opens, and the abilities of the agent. Its methods may be called concurrently: an
// agent can send requests and updates before its session is open.
type dialog struct {
	mu           sync.Mutex
	capabilities acp.AgentCapabilities
	// hasExtension is set if the agent knows the extension of package meta.
	hasExtension bool
	// session is the agent's own id of the session. isOpen is set when the session is open. Until then, the updates of the agent repeat the
	// session that the agent loads.
	session acp.SessionId
	isOpen  bool
	// isBlank is set until the first prompt of an agent that could not load the session.
	isBlank bool
	// state is the state of the session that an agent with the extension has sent.
	state []byte
}

// initialize takes the capabilities of the agent.
func (d *dialog) initialize(c acp.AgentCapabilities) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.capabilities = c
	d.hasExtension, _ = c.Meta[meta.Steer].(bool)
}

// isExtended reports whether the agent knows the extension of package meta.
func (d *dialog) isExtended() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.hasExtension
}

// canLoad reports whether a new process of the agent can load the session by its id.
func (d *dialog) canLoad() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.capabilities.LoadSession && !d.hasExtension
}

// canConnect reports whether the agent can connect to tools over HTTP.
func (d *dialog) canConnect() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.capabilities.McpCapabilities.Http || d.hasExtension
}

// canSee reports whether the prompts of the agent may have images.
func (d *dialog) canSee() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.capabilities.PromptCapabilities.Image || d.hasExtension
}

// load records that the agent has loaded a session.
func (d *dialog) load(id acp.SessionId) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.session, d.isOpen = id, true
}

// create records that the agent has created a session.
func (d *dialog) create(id acp.SessionId) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.session, d.isOpen, d.isBlank = id, true, !d.hasExtension
}

// id returns the agent's own id of the session.
func (d *dialog) id() acp.SessionId {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.session
}

// accepts reports whether an update of a session belongs to the open session.
func (d *dialog) accepts(id acp.SessionId) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.isOpen && id == d.session
}

// needsPreamble reports whether the next prompt is the first prompt of an agent that knows nothing of the session.
func (d *dialog) needsPreamble() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.isBlank
}

// introduce records that the agent knows of the session.
func (d *dialog) introduce() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.isBlank = false
}

// setState takes the state of the session of an agent with the extension.
func (d *dialog) setState(state []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.state = state
}

// agentState returns the values that a new process of an agent needs to continue the session.
func (d *dialog) agentState(agent string) *sessionv1.AgentState {
	d.mu.Lock()
	defer d.mu.Unlock()
	return &sessionv1.AgentState{Agent: agent, AgentSessionId: string(d.session), State: d.state}
}
