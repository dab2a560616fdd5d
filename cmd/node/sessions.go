package node

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/actors"
	"github.com/atelier-run/atelier/cmd/build"
	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/drive/skills"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	"github.com/atelier-run/atelier/entity/workspace"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/runner"
	"github.com/atelier-run/atelier/runner/builtin"
	"github.com/atelier-run/atelier/runner/tools"
)

// newRunner returns the runner of sessions, and the tools of their agents.
func (n *Node) newRunner(o Options) (*runner.Runner, *tools.Tools, error) {
	var config runner.Config
	if o.Agents != "" {
		var err error
		if config, err = runner.ReadConfig(o.Agents, os.LookupEnv); err != nil {
			return nil, nil, fmt.Errorf("the file of agents and models: %w", err)
		}
	}
	offered, err := n.newTools(o)
	if err != nil {
		return nil, nil, err
	}
	settings := o.Sessions
	if settings.Computers == nil {
		settings.Computers = agentComputers{n.Computers}
	}
	settings.Asker, settings.Images, settings.Tools = n.Router, n.Drives, sessionTools{offered}
	settings.Instructions = skills.NewInstructions(skills.New(n.Drives), n.Router)
	settings.Builtin, settings.Config = []string{computer.ProgramPath, builtin.Command}, config
	settings.Version, settings.Clock, settings.Log = build.Read().Version, o.Clock, o.Log
	return runner.New(settings), offered, nil
}

// maxTurns is the number of turns that run at the same time in this process.
const maxTurns = 256

// sessionExecutors returns the executors that run the turns of sessions, delete sessions, and interrupt the sessions of a workspace.
func (n *Node) sessionExecutors(o Options) map[string]actors.Executor {
	run := func(ctx context.Context, t actors.Task, m *sessionv1.TurnTask) (proto.Message, error) {
		if o.HoldTurns {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return n.runner.RunTurn(ctx, t.Identity, m)
	}
	remove := func(ctx context.Context, t actors.Task, m *sessionv1.DeletionTask) (proto.Message, error) {
		return n.runner.Delete(ctx, t.Identity, m)
	}
	suspend := func(ctx context.Context, t actors.Task, m *workspacev1.SessionStop) (proto.Message, error) {
		return n.runner.Suspend(ctx, t.Identity, m)
	}
	return map[string]actors.Executor{
		session.TurnTask:      {Limit: maxTurns, Timeout: 25 * time.Hour, LongestPause: 30 * time.Second, Run: actors.RunTyped(run)},
		session.DeletionTask:  {Limit: 8, Timeout: 10 * time.Minute, LongestPause: 30 * time.Second, Run: actors.RunTyped(remove)},
		workspace.SuspendTask: {Limit: 8, Timeout: 5 * time.Minute, LongestPause: 30 * time.Second, Run: actors.RunTyped(suspend)},
	}
}

// agentComputers implements runner.Computers with the fleet.
type agentComputers struct{ fleet *computer.Fleet }

// Launch implements runner.Computers.
func (c agentComputers) Launch(ctx context.Context, l runner.Launch) (runner.Process, error) {
	running, err := c.fleet.Launch(ctx, computer.Launch{
		WorkspaceID: l.WorkspaceID, Principal: entity.Platform(), Kind: computerv1.ProcessKind_PROCESS_KIND_SESSION,
		SessionID: l.SessionID, UserID: l.UserID, Argv: l.Argv, Env: l.Env,
	})
	if err != nil {
		return nil, err
	}
	return process{running}, nil
}

// Listen implements runner.Computers.
func (c agentComputers) Listen(ctx context.Context, workspaceID string, port int) (net.Listener, error) {
	return c.fleet.Listen(ctx, workspaceID, port)
}

// sessionTools implements runner.Tools.
type sessionTools struct{ offered *tools.Tools }

// Handler implements runner.Tools.
func (t sessionTools) Handler(s runner.Session) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller := tools.SessionCaller(s.WorkspaceID(), s.SessionID(), s.UserID(), s.Capabilities(), s.Participant(), s)
		t.offered.ServeTools(w, r, caller)
	})
}
