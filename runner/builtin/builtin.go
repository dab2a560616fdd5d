// Package builtin is Atelier's own agent: `atelier agent`, an agent of the Agent Client Protocol (ACP,
// https://agentclientprotocol.com) over its standard streams. The runner starts it in the computer of a workspace, in the
// process group of a session, so that everything that it does is attributed to the session. Any client of ACP can run it, too.
//
// Without a model it carries out runbooks (package runbook) and says so when it is asked for something else. With one, it
// works in a loop: the model's reply is shown as it arrives, the tools that the model calls are carried out, and their
// results are the next request, until a reply calls no tool.
//
// # Settings
//
// They are environment variables:
//
//	ATELIER_AGENT_MODEL       the model; empty for runbooks
//	ATELIER_AGENT_WIRE        the format of its server: chat (the default), responses or anthropic
//	ATELIER_AGENT_BASE_URL    the server's address before /chat/completions, /responses or /v1/messages
//	ATELIER_AGENT_API_KEY     the key for the server, unless session/new has it (meta.ModelKey)
//	ATELIER_AGENT_MAX_TOKENS  the most tokens of one reply
//	ATELIER_DRIVE             the folder of the drive; by default /drive, or the session's folder if there is none
//
// Commands and MCP servers that the agent starts get its environment without the variables ATELIER_AGENT_*. The agent also forbids
// other processes of its user to read its memory, which has the keys of MCP servers, and its environment.
//
// # A turn, step by step
//
// agent.go receives session/prompt. input.go reads the content blocks and their values of package meta. session.go begins
// the turn, unless another turn of the session runs: ACP's library cancels the running turn. With a model, converse.go runs the loop,
// calls.go carries out the calls, and conversation.go keeps the conversation within bounds; without one, runbook.go runs the
// interpreter. Both report through updates.go, which joins texts, so that a fast model does not flood the client; ask for
// permission in permission.go, in the mode confirm; use the drive and the shell by package tools; and reach the platform, and
// the MCP servers of session/new, by servers.go. The response of session/prompt carries the values of package meta about
// the end of a turn.
//
// # Cancelling and losing the agent
//
// session/cancel ends the context of the turn: requests to the model, calls of MCP tools and permission requests end at once,
// and commands as process groups. When the client goes away, or ctx of Run is done, all turns are cancelled and Run returns.
// The agent stores nothing itself: the state of a runbook and the conversation come back with the next session/new. The state says
// whether the running line waits for a permission, so that the answer is carried out also if it arrives in another process.
package builtin

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/coder/acp-go-sdk"
)

// Command is the first argument of the program that makes it call Run.
const Command = "agent"

// exits of Run.
const (
	exitClean = 0
	// exitInvalid is EX_CONFIG of sysexits(3), and not 2: the Go runtime exits with 2 after a panic or a fatal error.
	exitInvalid = 78
)

// stopping bounds how long Run waits for its turns after the client has gone.
const stopping = 10 * time.Second

// Run serves one client until it closes in, or ctx is done, and returns the exit status of the program. arguments are the
// arguments after Command, environ is in the form of os.Environ.
func Run(ctx context.Context, in io.Reader, out, errors io.Writer, environ, arguments []string) int {
	if len(arguments) > 0 {
		fmt.Fprintln(errors, "atelier: agent has no arguments; it speaks the Agent Client Protocol on its standard streams")
		return exitInvalid
	}
	s, err := newSettings(environ)
	if err != nil {
		fmt.Fprintln(errors, "atelier: agent:", err)
		return exitInvalid
	}
	if err := protect(); err != nil {
		fmt.Fprintln(errors, "atelier: agent: protect the keys from other processes:", err)
		return exitInvalid
	}
	a := newAgent(s)
	// NewAgentSideConnection starts a goroutine that reads from in and uses the logger, which SetLogger changes without a lock.
	input := &delayedReader{in: in, begin: make(chan struct{})}
	connection := acp.NewAgentSideConnection(a, out, input)
	connection.SetLogger(slog.New(slog.NewTextHandler(errors, &slog.HandlerOptions{
		Level: slog.LevelWarn,
		ReplaceAttr: func(_ []string, attribute slog.Attr) slog.Attr {
			if attribute.Key == "raw" {
				return slog.Attr{} // a message that could not be read, which may have anything in it
			}
			return attribute
		},
	})))
	a.connect(connection)
	close(input.begin)
	select {
	case <-connection.Done():
	case <-ctx.Done():
	}
	a.close(stopping)
	return exitClean
}

// A delayedReader reads from in after begin is closed.
type delayedReader struct {
	in    io.Reader
	begin chan struct{}
}

func (r *delayedReader) Read(p []byte) (int, error) {
	<-r.begin
	return r.in.Read(p)
}
