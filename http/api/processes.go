package api

import (
	"context"
	"io"
	"net/http"
	"strings"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/http/server"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// Computers runs processes in the computers of workspaces. Errors are *entity.Error: unavailable if the computer cannot run
// processes now, limit_reached, forbidden if this server must not run code, and the errors of the workspace's rules.
type Computers interface {
	// Exec starts a process with pipes. The context bounds the start only.
	Exec(ctx context.Context, workspaceID string, p *wirev1.Principal, o ExecOptions) (Process, error)
	// OpenTerminal starts a shell, or Argv, with a terminal. The context bounds the start only.
	OpenTerminal(ctx context.Context, workspaceID string, p *wirev1.Principal, o TerminalOptions) (Terminal, error)
	// Terminal returns a terminal of this workspace that is open and was opened by the same user. Errors: not_found.
	Terminal(ctx context.Context, workspaceID string, p *wirev1.Principal, id string) (Terminal, error)
}

// ExecOptions describe a process. Argv has at least the program. Cwd is a path of the drive; empty: its root. Each string of Env
// has the form NAME=value.
type ExecOptions struct {
	Argv []string
	Cwd  string
	Env  []string
}

// TerminalOptions describe a terminal and its process. Without Argv the process is a shell.
type TerminalOptions struct {
	Argv []string
	Cwd  string
	Env  []string
	// Columns and Rows are the size in characters, each from 1 to entity.MaxTerminalSize.
	Columns, Rows uint16
}

// Process is a process with pipes. All methods may be called concurrently. The caller reads Stdout and Stderr until they end;
// they end after the process tree has.
type Process interface {
	Stdin() io.WriteCloser
	Stdout() io.Reader
	Stderr() io.Reader
	// Wait returns after the process tree has ended and everything that it changed is recorded. reason is empty, or why the
	// computer ended it: out_of_memory, disk_full, stopped, lost.
	Wait(ctx context.Context) (status int, reason string, err error)
	// End ends the process and its descendants.
	End(ctx context.Context) error
}

// Terminal is a terminal with a process. It outlives its connections. All methods may be called concurrently.
type Terminal interface {
	ID() string
	// Read copies output from the position, at most len(b) bytes, and blocks until there is some. It returns the position of
	// the first byte, which is later than asked for if the scroll-back no longer has it; io.EOF after the last byte of a
	// terminal that has ended. Errors: invalid_request for a position after the end of the output.
	Read(ctx context.Context, position uint64, b []byte) (n int, at uint64, err error)
	// Write writes input. Some input waits in memory for the process to read it; beyond that Write blocks, until ctx or the
	// terminal ends, and drops b then.
	Write(ctx context.Context, b []byte)
	Resize(columns, rows uint16) error
	// Attach marks a client as connected until the returned function is called; a terminal without clients ends after a time.
	Attach() (detach func())
	Wait(ctx context.Context) (status int, reason string, err error)
	End(ctx context.Context) error
	// Ended is closed when the terminal's process has ended.
	Ended() <-chan struct{}
}

// processes serves processes and terminals in the computers of workspaces. Package server describes the flow of both.
type processes struct{ computers Computers }

func (p processes) routes() []server.Route {
	const computerPath = server.WorkspacePath + "/computer"
	return []server.Route{
		{Method: http.MethodPost, Path: computerPath + "/exec", Scope: server.ScopeRunServices, Summary: "Run a command in the workspace's computer",
			Handler: p.exec, Timing: server.Streaming},
		{Method: http.MethodGet, Path: computerPath + "/terminal", Scope: server.ScopeRunServices, Summary: "Open or resume a terminal in the workspace's computer",
			Handler: p.terminal, Timing: server.Streaming, Changes: true},
	}
}

// errNoProcesses is the refusal of a server without Computers.
var errNoProcesses = entity.Errorf(entity.Forbidden, "this server does not run processes")

// checkCwd checks a working directory; empty is the root of the drive.
func checkCwd(cwd string) error {
	if cwd == "" {
		return nil
	}
	return server.CheckPath("cwd", cwd)
}

// endReasons has the message for each reason why a computer ends a process.
var endReasons = map[string]string{
	"out_of_memory": "the process was ended because it exceeded a limit on memory",
	"disk_full":     "the process was ended because the workspace's drive is full",
	"stopped":       "the process was ended because its computer was stopped or replaced",
	"lost":          "the process was ended because its computer has failed",
}

// endView is the last line of the output of a process, and the last message of a terminal.
type endView struct {
	Exit  *int       `json:"exit,omitzero"`
	Error *errorView `json:"error,omitzero"`
}

type errorView struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// viewEnd returns how a process has ended, from the results of its Wait.
func viewEnd(c *server.Call, status int, reason string, err error) endView {
	switch {
	case err != nil:
		return viewRefusal(c.PublicError(err))
	case reason == "":
		return endView{Exit: &status}
	}
	message := endReasons[reason]
	if message == "" {
		message = "the process was ended by its computer: " + strings.ReplaceAll(reason, "_", " ")
	}
	return endView{Error: &errorView{reason, message}}
}

// viewRefusal returns the end of a process that was ended by an error.
func viewRefusal(refused *entity.Error) endView {
	return endView{Error: &errorView{string(refused.Code), refused.Message}}
}
