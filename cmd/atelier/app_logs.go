package main

import (
	"context"
	"fmt"

	"github.com/atelier-run/atelier/client"
)

// appLogsCommand is atelier app logs.
type appLogsCommand struct {
	appFlags
	Follow bool `env:"-" short:"f" help:"Print further lines as they are written, until an interrupt. Without it, the command ends when it has printed the lines so far."`
	Times  bool `env:"-" short:"t" help:"Print the time of each line."`
	JSON   bool `name:"json" env:"-" help:"Print JSON, one line each, as the API has them."`
}

// Help returns the description of the streams, which follows the help of the command.
func (appLogsCommand) Help() string {
	return "Lines of the install command begin with \"install: \", those of the standard error with \"! \", and those of the platform, such as " +
		"the reason of a restart, with \"= \". The server has the last 4,096 lines of an app, and no more than 512 KiB."
}

// Run prints the log of an app. With Follow, it resumes the stream when the connection breaks.
func (c *appLogsCommand) Run(ctx context.Context, out console) error {
	api, err := c.connect()
	if err != nil {
		return err
	}
	defer api.Close()
	if _, err := api.App(ctx, c.Workspace, c.App); err != nil {
		return err
	}
	lines := api.StoredAppLog(ctx, c.Workspace, c.App, "")
	if c.Follow {
		lines = api.AppLog(ctx, c.Workspace, c.App, "")
	}
	for line, err := range lines {
		switch {
		case err != nil && ctx.Err() != nil:
			return exitStatus(exitInterrupted)
		case err != nil:
			return err
		}
		if err := c.print(line, out); err != nil {
			return err
		}
	}
	return nil
}

// The marks of the streams of a log. The standard output has none.
var streamMarks = map[string]string{"install": "install: ", "stderr": "! ", "platform": "= "}

// print prints a line of the log.
func (c *appLogsCommand) print(line client.AppLine, out console) error {
	if line.Missed {
		if _, err := fmt.Fprintln(out.errors, "(lines are missing here: the server does not have them any more)"); err != nil {
			return err
		}
	}
	if c.JSON {
		return writeJSON(out.out, line)
	}
	at := ""
	if c.Times {
		at = formatTime(line.At) + "  "
	}
	_, err := fmt.Fprintln(out.out, at+streamMarks[line.Stream]+printable(line.Text))
	return err
}
