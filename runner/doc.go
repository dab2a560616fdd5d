// Package runner runs the agents of sessions: it is the host side of the Agent Client Protocol (ACP).
//
// # A turn
//
// Runner.RunTurn executes the task of a turn (session.TurnTask):
//
//  1. It describes the session and the workspace. If an earlier run has taken the turn, that run has ended with its process: the turn is
//     not run again, but ends as interrupted with the code runner_lost. While the workspace is suspended, or its computer is not ready,
//     RunTurn fails, and the task is tried again later.
//  2. It chooses the agent and the model of the turn's tier (Config), and takes the process of the session's last turn (pool), or
//     starts one in the computer (Runner.start), in the process group of the session.
//  3. It takes the turn (ClaimTurn). From now on the turn ends in this call in every case.
//  4. It gives the agent the inputs (turn.begin), and follows the agent, the session and the limits (turn.follow). The updates of the agent
//     pass through updates, which makes rows, and output, which sends deltas at once and rows in batches.
//  5. It returns EndTurn, which the executor sends to the session. If the node stops, turn.close sends it.
//
// A turn that loses its computer ends as interrupted with the code computer_lost, and the session continues by itself, at most
// session.MaxResumes times in succession: with the same inputs if the agent has sent no state and called no tool (repeat.go), and
// otherwise with the request to continue. The turns of a session use its agent one after another (pool.enter). The turns of a workspace use
// at most half of the agents of a node.
//
// In a turn, the agent has the capabilities that the credential of the input grants (package session, bounds.go): the principal of its tools
// has these capabilities (Session.Capabilities), the built-in agent offers no tools beyond them (meta.Capabilities), and any other agent
// runs only with the capabilities that processes need (checkBounds). A process works only for turns with the same bounds.
//
// A request for permission is granted in the mode auto. In the mode confirm it becomes a question: the turn ends while the agent
// waits, and the turn of the answer continues in the same process. If the process has ended meanwhile, the agent gets the answer as
// text. Questions and sleeps of the platform's tools (Session) take effect when the agent ends its turn.
//
// An agent that knows the extension of package meta gets inputs that steer as a request, and its state in a new process. Any other
// agent is cancelled and prompted again, and loads its session in a new process if it can; otherwise it is given the
// instructions and the end of the conversation as text.
//
// A turn runs on behalf of the session's participant: the participant of the last input that the turn has taken (session.ParticipantOf).
// RunTurn checks the access of the participant before the start of the agent, before the first input, and every two seconds while the turn
// runs (participant.go). The participant must be a member with a role that may take part, the account must not be disabled, the OAuth grant
// or the limited API key of the input must be in force, and the app of the input must have the scopes of the turn. Otherwise the turn ends
// as interrupted with the code access_lost, and the processes of the agent end. The same check is made for the turn that follows a sleep,
// and every five seconds for idle agents. The inputs that an agent sends to other sessions, such as its children, have the participant of
// the agent's turn (Session.Participant), so that the same loss of access ends the turns of these sessions.
//
// # The gateway
//
// Each computer with agents has a listener on its loopback interface (addresses), with package gateway: the models, and the tools
// of the platform. The token of an agent is valid while it opens the session, and while a turn with its bounds runs.
//
// # Configuration
//
// ReadConfig reads a YAML or JSON file. Without a file, every tier has the built-in agent without a model.
//
//	models:
//	  sonnet:
//	    wire: anthropic                 # chat, responses or anthropic
//	    baseUrl: https://api.anthropic.com/v1
//	    model: claude-sonnet-4-5        # the name on the server
//	    keyFile: anthropic.key          # or keyEnv: ANTHROPIC_API_KEY; neither: no authentication
//	agents:
//	  codex: {preset: codex}            # codex-acp, configured for the gateway; also opencode
//	  mine:
//	    command: [my-agent, --url, "{{url}}/v1", --model, "{{model}}"]
//	    env: {MY_TOKEN: "{{token}}"}
//	tiers:
//	  balanced: {agent: builtin, model: sonnet}
//	  frontier: {agent: mine, model: sonnet}
//	budgets:
//	  sessionTokens: 1000000            # per session, until a person allows it to go on
//	  sessionMinutes: 120
//	  workspaceTokensPerDay: 10000000
//	  workspaceMinutesPerDay: 1440
//
// The programs of agents must be in the image of computers. In commands and variables, {{url}} is the address of the model in the
// gateway, below which are the paths of its wire format with and without /v1; {{model}} is the name of the model on its server, and
// {{wire}} its wire format. {{token}} is the token of the agent; it is replaced in variables only, because every process of the computer
// can read the arguments of a command. Every agent has the variable ATELIER_DRIVE, the path of the drive. Every agent except the built-in
// agent also has ATELIER_GATEWAY and ATELIER_TOKEN, and, with a model, ATELIER_MODEL_URL, ATELIER_MODEL and ATELIER_MODEL_WIRE. A turn of a
// tier that the file does not name ends with model_unavailable; no other model is used instead.
//
// # Budgets
//
// When a budget is exhausted, the runner interrupts the agent, and the turn ends with a question (budget.go). The answer continue lets the
// session, or the workspace for the day, use as much again. A turn reads the use of the workspace when the turn begins, and adds its own use
// when it ends: turns that run at the same time can together exceed the budget of the workspace.
//
// # Other tasks
//
// Runner.Delete executes the deletion of a session. Runner.Suspend executes the interruption of all sessions of a workspace.
package runner
