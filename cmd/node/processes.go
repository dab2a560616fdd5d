package node

import (
	"context"
	"io"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/http/api"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"

	"github.com/atelier-run/atelier/drive/observe"
)

// computers implements api.Computers with the fleet.
type computers struct{ fleet *computer.Fleet }

// Exec implements api.Computers.
func (c computers) Exec(ctx context.Context, workspaceID string, p *wirev1.Principal, o api.ExecOptions) (api.Process, error) {
	running, err := c.fleet.Launch(ctx, computer.Launch{
		WorkspaceID: workspaceID, Principal: p, Kind: computerv1.ProcessKind_PROCESS_KIND_EXEC, Argv: o.Argv, Cwd: o.Cwd, Env: o.Env,
	})
	if err != nil {
		return nil, err
	}
	return process{running}, nil
}

// OpenTerminal implements api.Computers.
func (c computers) OpenTerminal(ctx context.Context, workspaceID string, p *wirev1.Principal, o api.TerminalOptions) (api.Terminal, error) {
	opened, err := c.fleet.OpenTerminal(ctx, computer.Launch{
		WorkspaceID: workspaceID, Principal: p, Argv: o.Argv, Cwd: o.Cwd, Env: o.Env,
		Terminal: &computer.TerminalSize{Columns: o.Columns, Rows: o.Rows},
	})
	if err != nil {
		return nil, err
	}
	return terminal{opened, process{opened.Running}}, nil
}

// Terminal implements api.Computers.
func (c computers) Terminal(_ context.Context, workspaceID string, p *wirev1.Principal, id string) (api.Terminal, error) {
	found, err := c.fleet.Terminal(workspaceID, p, id)
	if err != nil {
		return nil, err
	}
	return terminal{found, process{found.Running}}, nil
}

// process implements api.Process.
type process struct{ running *computer.Running }

func (p process) Stdin() io.WriteCloser         { return p.running.Streams().Stdin }
func (p process) Stdout() io.Reader             { return p.running.Streams().Stdout }
func (p process) Stderr() io.Reader             { return p.running.Streams().Stderr }
func (p process) End(ctx context.Context) error { return p.running.End(ctx) }

func (p process) OutOfMemory() uint64 { return p.running.OutOfMemory() }
func (p process) Rest()               { p.running.Rest() }
func (p process) Resume() error       { return p.running.Resume() }

func (p process) Wait(ctx context.Context) (status int, reason string, err error) {
	exit, err := p.running.Wait(ctx)
	return exit.Status, string(exit.Reason), err
}

// terminal implements api.Terminal.
type terminal struct {
	*computer.Terminal
	process process
}

func (t terminal) ID() string { return t.Running.ID }

func (t terminal) Resize(columns, rows uint16) error {
	return t.Terminal.Resize(computer.TerminalSize{Columns: columns, Rows: rows})
}

func (t terminal) Wait(ctx context.Context) (status int, reason string, err error) {
	return t.process.Wait(ctx)
}

// observer implements computer.Observer.
type observer struct{ *observe.Observer }

func (o observer) Begin(ctx context.Context, workspaceID string, author *activityv1.Author) (computer.Watch, error) {
	return o.Observer.Begin(ctx, workspaceID, author)
}
