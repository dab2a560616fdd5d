package meta

// PlatformServer is the name of the platform's MCP server in mcpServers of session/new.
const PlatformServer = "atelier"

// The tools of the platform's MCP server that the built-in agent uses. Their results are structured content, and the same JSON
// as text.
const (
	ToolAsk            = "ask"             // AskArguments
	ToolSleep          = "sleep_until"     // SleepArguments
	ToolReportProgress = "report_progress" // ProgressArguments
	ToolStartSession   = "start_session"   // StartArguments, StartResult
	ToolAwaitSessions  = "await_sessions"  // AwaitArguments, AwaitResult
	ToolMessageSession = "message_session" // MessageArguments
)

// AskArguments are a question to the people of the session, and the answers that it offers.
type AskArguments struct {
	Text    string   `json:"text"`
	Options []string `json:"options,omitempty"`
}

// SleepArguments have the time at which the session continues: At in milliseconds since 1970, or Seconds from now.
type SleepArguments struct {
	At      int64 `json:"at,omitempty"`
	Seconds int64 `json:"seconds,omitempty"`
}

// ProgressArguments say how far a job is.
type ProgressArguments struct {
	Step      string `json:"step"`
	Completed int64  `json:"completed"`
	Total     int64  `json:"total"`
}

// StartArguments describe a child session; an omitted Cwd or Tier is the Cwd or Tier of its parent.
type StartArguments struct {
	Prompt string `json:"prompt"`
	Title  string `json:"title,omitempty"`
	Cwd    string `json:"cwd,omitempty"`
	Tier   string `json:"tier,omitempty"`
}

// StartResult names the child session.
type StartResult struct {
	SessionID string `json:"sessionId"`
}

// AwaitArguments name child sessions, by default all, and how long the call may take.
type AwaitArguments struct {
	SessionIDs     []string `json:"sessionIds,omitempty"`
	TimeoutSeconds int64    `json:"timeoutSeconds"`
}

// AwaitResult has the sessions that have ended their turns, and the ids of the sessions that run.
type AwaitResult struct {
	Done    []DoneSession `json:"done"`
	Running []string      `json:"running"`
}

// A DoneSession is a session that has ended its turn, with the text of its last reply.
type DoneSession struct {
	SessionID  string `json:"sessionId"`
	TurnStatus string `json:"turnStatus"`
	Text       string `json:"text,omitempty"`
}

// MessageArguments are a message to another session of the workspace.
type MessageArguments struct {
	SessionID string `json:"sessionId"`
	Text      string `json:"text"`
}
