package node

import (
	"context"
	"net"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/actors"
	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	"github.com/atelier-run/atelier/entity/workspace"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/runner"
	"github.com/atelier-run/atelier/runner/builtin"
)

// newRunner returns the runner of the sessions' turns.
func (n *Node) newRunner(o Options) *runner.Runner {
	settings := o.Sessions
	settings.Asker, settings.Computers = n.Router, sessionComputers{n.Computers}
	settings.Builtin = []string{computer.ProgramPath, builtin.Command}
	settings.Version, settings.Log = ReadBuild().Version, o.Log
	return runner.New(settings)
}

// sessionExecutors returns the executors of turns, deletions and interruptions of sessions.
func (n *Node) sessionExecutors() map[string]actors.Executor {
	run := func(ctx context.Context, t actors.Task, m *sessionv1.TurnTask) (proto.Message, error) {
		return n.Runner.RunTurn(ctx, t.Identity, m)
	}
	remove := func(ctx context.Context, t actors.Task, m *sessionv1.DeletionTask) (proto.Message, error) {
		return n.Runner.Delete(ctx, t.Identity, m)
	}
	suspend := func(ctx context.Context, t actors.Task, m *workspacev1.SessionStop) (proto.Message, error) {
		return n.Runner.Suspend(ctx, t.Identity, m)
	}
	return map[string]actors.Executor{
		session.TurnTask: {
			// Longer than a day, the period of the budgets of workspaces.
			Limit: 256, Timeout: 25 * time.Hour, FirstPause: 500 * time.Millisecond, LongestPause: 30 * time.Second, Run: actors.RunTyped(run),
		},
		session.DeletionTask:  {Limit: 8, Timeout: 10 * time.Minute, FirstPause: time.Second, Run: actors.RunTyped(remove)},
		workspace.SuspendTask: {Limit: 8, Timeout: 5 * time.Minute, FirstPause: 500 * time.Millisecond, Run: actors.RunTyped(suspend)},
	}
}

// sessionComputers implements runner.Computers with the fleet.
type sessionComputers struct{ fleet *computer.Fleet }

// Launch implements runner.Computers.
func (c sessionComputers) Launch(ctx context.Context, l runner.Launch) (runner.Process, error) {
	running, err := c.fleet.Launch(ctx, computer.Launch{
		WorkspaceID: l.WorkspaceID, Principal: entity.Platform(), Kind: computerv1.ProcessKind_PROCESS_KIND_SESSION,
		SessionID: l.SessionID, UserID: l.UserID, Argv: l.Argv, Cwd: l.Cwd, Env: l.Env,
	})
	if err != nil {
		return nil, err
	}
	return process{running}, nil
}

// Listen implements runner.Computers.
func (c sessionComputers) Listen(ctx context.Context, workspaceID string, port int) (net.Listener, error) {
	return c.fleet.Listen(ctx, workspaceID, port)
}
