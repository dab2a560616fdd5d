// Package meta is the extension of the Agent Client Protocol (ACP) that Atelier's runner and its built-in agent have in
// common. It has only names and JSON structures, so that both sides can import it.
//
// ACP lets both sides attach values to its messages under "_meta", and lets them define methods with names that begin with an
// underscore. An agent that does not know this extension ignores the values, and the runner does without them: it shows the
// agent's text and tool calls, sends a message that should steer as the next prompt, and keeps no state.
//
// # Starting a session
//
// session/new may carry [Mode], [Capabilities], [ModelKey], [Instructions], [State] and [History]. State is what the last prompt response, or the last
// update, of an earlier process has carried; the agent goes on from there. History is the conversation so far, oldest first,
// without the inputs of the next prompt, for an agent that keeps its conversation in memory.
//
// # A turn
//
// session/prompt carries [Inputs], one [Input] for each content block, in order. The sender of an input is known to the
// platform and is never taken from text. Notes are context and start no work. The next prompt after a question has an input of
// kind [KindAnswer]. The next prompt after a sleep is [SleepEnded], from [SenderSystem]. A turn that was cut off, because the
// agent's process was lost, is continued by the prompt [Continue], from SenderSystem, in a session with the last known State.
// The runner must not repeat the inputs of that turn: State, or History, has them. If it has received no State during the turn
// from an agent that sends it, the turn has had no effect, and its inputs are sent again instead.
//
// The _meta of session/update may carry [State] and [Usage]; each replaces the value before it. State in an update names
// the line that is being carried out; if the process is lost, that line is not repeated. The prompt response carries State, Usage,
// [Title] if the agent suggests one, and [Error] if the turn has failed. A failed turn has the stop reason end_turn, because ACP
// has none for it.
//
// The library of both sides reads messages of at most 10 MiB. Larger images are sent as resource links to files of the drive,
// with their media type, which the agent reads itself. A second prompt for a session cancels the prompt that runs.
//
// A turn that the runner cancels carries a State, too: [Continue] goes on from there, and any other prompt begins anew.
//
// # Steering
//
// An agent with the capability [Steer] takes further inputs while a turn runs, by the request [SteerMethod] with a
// [SteerRequest]. It answers at once, with a [SteerResponse]: accepted inputs belong to the running turn and end with
// the turn; inputs that are not accepted, because no turn runs or the State has no room for them, are to be sent as a prompt.
//
// # Tools of the platform
//
// The MCP server with the name [PlatformServer] has the tools in platform.go. After [ToolAsk] or [ToolSleep] succeeded the
// agent ends its turn, and the platform continues it when there is an answer, or the time has come.
package meta

// The keys below "_meta".
const (
	// Steer is true in agentCapabilities if the agent knows SteerMethod.
	Steer = "atelier.run/steer"
	// Mode in session/new is ModeAuto or ModeConfirm.
	Mode = "atelier.run/mode"
	// Capabilities in session/new is an array of the capabilities in the workspace that the agent may use; absent: all.
	Capabilities = "atelier.run/capabilities"
	// ModelKey in session/new is the key for the server of the model, in place of the key in the agent's environment, which other
	// processes can read while the agent starts.
	ModelKey = "atelier.run/model_key"
	// Instructions in session/new is a text for the model: AGENT.md and the list of skills.
	Instructions = "atelier.run/instructions"
	// History in session/new is an array of Entry.
	History = "atelier.run/history"
	// State is a JSON value of the agent's, of at most MaxState bytes, that the runner stores without reading it.
	State = "atelier.run/state"
	// Inputs in session/prompt and SteerRequest is an array of Input, parallel to the content blocks.
	Inputs = "atelier.run/inputs"
	// Error in a prompt response is a TurnError.
	Error = "atelier.run/error"
	// Usage in updates and prompt responses is a TokenUsage.
	Usage = "atelier.run/usage"
	// Title in a prompt response is a string, a title for the session.
	Title = "atelier.run/title"
)

// SteerMethod is the request that adds inputs to a running turn.
const SteerMethod = "_atelier.run/steer"

// MaxState is the maximum length of a State in bytes.
const MaxState = 256 << 10

// The modes of a session.
const (
	// ModeAuto: the agent asks for no permission.
	ModeAuto = "auto"
	// ModeConfirm: the agent asks for permission before it runs a command or changes a file.
	ModeConfirm = "confirm"
)

// The kinds of inputs.
const (
	KindPrompt  = "prompt"
	KindMessage = "message"
	KindNote    = "note"
	KindAnswer  = "answer"
)

// The behaviors of messages.
const (
	BehaviorSteer    = "steer"
	BehaviorFollowUp = "follow_up"
)

// The kinds of senders.
const (
	SenderUser    = "user"
	SenderApp     = "app"
	SenderSession = "session"
	SenderSystem  = "system"
)

// The texts of system messages.
const (
	// SleepEnded is the prompt after a sleep.
	SleepEnded = "The sleep has ended."
	// Continue is the prompt after the agent's process was lost in the middle of a turn.
	Continue = "The agent was restarted. Continue."
)

// An Input describes the kind and the author of a content block.
type Input struct {
	Kind string `json:"kind"`
	// Behavior is empty for BehaviorSteer. A follow-up that arrives while the agent waits for an answer or sleeps is for later.
	Behavior string `json:"behavior,omitempty"`
	Sender   Sender `json:"sender"`
}

// A Sender is the author of an input; the field that its kind names has the id.
type Sender struct {
	Kind      string `json:"kind"`
	UserID    string `json:"userId,omitempty"`
	AppID     string `json:"appId,omitempty"`
	SessionID string `json:"sessionId,omitempty"`
}

// The roles of entries.
const (
	RoleUser      = "user"
	RoleAssistant = "assistant"
	RoleTool      = "tool"
)

// An Entry is one part of the conversation before this process.
type Entry struct {
	Role string `json:"role"`
	Text string `json:"text"`
}

// A SteerRequest has the parameters of SteerMethod. Block is the type of ACP's content blocks.
type SteerRequest[Block any] struct {
	SessionID string  `json:"sessionId"`
	Prompt    []Block `json:"prompt"`
	Meta      struct {
		Inputs []Input `json:"atelier.run/inputs,omitempty"`
	} `json:"_meta"`
}

// A SteerResponse answers a SteerRequest.
type SteerResponse struct {
	// Accepted is false if no turn runs, or the State has no room for the inputs.
	Accepted bool `json:"accepted"`
}

// The codes of TurnErrors.
const (
	// CodeRunbookFailed: a line of a runbook has failed.
	CodeRunbookFailed = "runbook_failed"
	// CodeRunbookInvalid: a line of a runbook is invalid; no line was carried out.
	CodeRunbookInvalid = "runbook_invalid"
	// CodeModelUnavailable: the model is unknown, its server cannot be reached or refuses the key.
	CodeModelUnavailable = "model_unavailable"
	// CodeRateLimited: the model's server has refused the request several times because of its limits.
	CodeRateLimited = "rate_limited"
	// CodeModelError: the model's reply was cut off or malformed, or its server has rejected the request.
	CodeModelError = "model_error"
	// CodeModelRefused: the model has refused to reply.
	CodeModelRefused = "model_refused"
	// CodeTooManySteps: the model has called tools more often than a turn permits.
	CodeTooManySteps = "too_many_steps"
	// CodeAgentError: the agent itself has failed.
	CodeAgentError = "agent_error"
)

// A TurnError says why a turn has failed, for people and programs.
type TurnError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// TokenUsage counts the tokens of the current turn so far.
type TokenUsage struct {
	InputTokens  int64 `json:"inputTokens"`
	OutputTokens int64 `json:"outputTokens"`
}
