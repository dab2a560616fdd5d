package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/atelier-run/atelier/client"
)

const (
	// exitRemote is the exit code of exec and shell if they fail themselves, as of ssh: other codes come from the command.
	exitRemote = 255
	// exitInterrupted is the exit code of exec after an interrupt, as of a shell.
	exitInterrupted = 130
	// maxInput limits the input of a command, in bytes. The request with it may have 1 MiB.
	maxInput = 1 << 20
)

// exitStatus is the exit status of a command in a computer, which becomes the exit status of the program. It is not printed.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// execCommand is atelier exec.
type execCommand struct {
	serverFlags
	Cwd     string            `env:"-" placeholder:"PATH" help:"Working directory, a path of the drive. Default: its root."`
	Env     map[string]string `env:"-" mapsep:"none" placeholder:"NAME=VALUE" help:"Environment variable; may be repeated."`
	Timeout time.Duration     `env:"-" default:"10m" help:"Time after which the command is ended, from 1s to 24h."`
	NoInput bool              `env:"-" short:"n" help:"Give the command no input. Without it, the input is read to its end first, unless it is a terminal."`

	Workspace string   `arg:"" help:"Slug of the workspace."`
	Argv      []string `arg:"" passthrough:"" placeholder:"COMMAND" help:"Program and arguments, after --. It is not run by a shell."`
}

// Validate is called by the parser when every flag has its value.
func (c *execCommand) Validate() error {
	return between("timeout", c.Timeout, time.Second, 24*time.Hour)
}

// Run runs a command in the computer of a workspace, and exits with its status.
func (c *execCommand) Run(ctx context.Context, out console) error {
	api, err := c.connect()
	if err != nil {
		return err
	}
	defer api.Close()
	if len(c.Argv) > 0 && c.Argv[0] == "--" {
		c.Argv = c.Argv[1:]
	}
	input, err := c.input(os.Stdin)
	if err != nil {
		return err
	}
	status, err := api.Exec(ctx, c.Workspace, client.ExecRequest{
		Argv: c.Argv, Cwd: c.Cwd, Env: c.Env, Stdin: input, TimeoutSeconds: int(math.Ceil(c.Timeout.Seconds())),
	}, out.out, out.errors)
	return remoteResult(ctx, status, err)
}

// input returns the input of the command.
func (c *execCommand) input(from *os.File) (string, error) {
	if c.NoInput || term.IsTerminal(int(from.Fd())) {
		return "", nil
	}
	text, err := io.ReadAll(io.LimitReader(from, maxInput+1))
	switch {
	case err != nil:
		return "", coded{fmt.Errorf("read the input: %w", err), exitRemote}
	case len(text) > maxInput:
		return "", coded{fmt.Errorf("the input has more than %d bytes: put it on the drive, or use --no-input", maxInput), exitConfig}
	case !utf8.Valid(text):
		return "", coded{errors.New("the input is not UTF-8: put it on the drive, or use --no-input"), exitConfig}
	}
	return string(text), nil
}

// remoteResult returns the result of a command that ran in a computer.
func remoteResult(ctx context.Context, status int, err error) error {
	switch {
	case err != nil && ctx.Err() != nil:
		return coded{errors.New("interrupted: the command was ended"), exitInterrupted}
	case err != nil:
		return coded{err, exitRemote}
	case status != 0:
		return exitStatus(status)
	}
	return nil
}
