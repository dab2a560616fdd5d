// Command atelier runs a node of Atelier and administers it.
//
//	atelier serve              run a node over a data directory
//	atelier admin user         create, list, disable people; one-time links; act as a person
//	atelier admin key          issue a further API key for a person
//	atelier admin workspace    list, suspend, archive, retire, delete workspaces
//	atelier admin backup       take, schedule, verify and restore backups of a workspace's drive; back up the whole node
//	atelier admin audit        export the audit logs
//	atelier admin check        check the journal of the node while it runs
//	atelier restore            make a data directory from a backup of a whole node
//	atelier exec               run a command in the computer of a workspace
//	atelier shell              open a shell in the computer of a workspace
//	atelier session            start, follow, answer and list the sessions of agents
//	atelier app                register, change, follow and list apps, and their custom domains
//	atelier site               serve a folder of static files, as the command of an app
//	atelier accept             accept a data directory with a missing or older part
//	atelier check              check everything in the data directory of a node that does not run
//	atelier reference          print every setting of serve as Markdown
//	atelier agent              the built-in agent of sessions; started by the node in the computer of a workspace
//	atelier version            print the version, commit, date and Go version of this program; so does --version
//
// The admin commands speak to the node over a socket in its data directory, and print JSON, one value a line. exec, shell,
// session and app speak to any node over HTTP, with a key.
//
// Each setting of serve is a flag, an environment variable and a key of a YAML file; the first of them that is given
// counts, in this order. The exit code is 0 after a clean end, 1 after a failure, 3 where another process has the data
// directory, 4 where a command has ended, by an interrupt or its --wait, while the node continues what the command has begun,
// 5 where a backup lacks what the node could not read, and 78 where the command line or the settings are wrong, for all
// commands. The Go runtime exits with 2 after a panic or a fatal error. The exit code of exec and shell is the status of the
// command in the computer, or 255 if they fail themselves. The exit code of session with --wait or --tail says how the turn has
// ended: 0 complete, 3 it asks, 4 it was interrupted or has failed, 5 it sleeps.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/atelier-run/atelier/cmd/commandline"
	"github.com/atelier-run/atelier/computer/docker/agent"
	"github.com/atelier-run/atelier/runner/builtin"
)

const (
	exitFailure = 1
	exitInUse   = 3
	// exitUnfinished: a command has ended, and the node continues what the command has begun.
	exitUnfinished = 4
	// exitIncomplete: a backup was stored, or restored, and lacks files or drives that the node could not read.
	exitIncomplete = 5
	// exitConfig: the command line or the settings are wrong. It is EX_CONFIG of sysexits(3), after which deploy/atelier.service does not
	// start the node again, and not 2: the Go runtime exits with 2 after a panic or a fatal error.
	exitConfig = 78
)

type commands struct {
	Serve     serveCommand     `cmd:"" help:"Run a node."`
	Admin     adminCommands    `cmd:"" help:"Administer the node that runs on this machine."`
	Restore   restoreCommand   `cmd:"" help:"Make a data directory from a backup of a whole node."`
	Exec      execCommand      `cmd:"" help:"Run a command in the computer of a workspace, and exit with its status."`
	Shell     shellCommand     `cmd:"" help:"Open a shell in the computer of a workspace. It survives broken connections. \"~.\" at the beginning of a line detaches from it."`
	Session   sessionCommands  `cmd:"" help:"Sessions of agents: start, follow, answer and list them."`
	App       appsCommands     `cmd:"" help:"Apps: folders with addresses of their own. Register, change, follow and list them."`
	Site      siteCommand      `cmd:"" help:"Serve a folder of static files over HTTP: a command for apps."`
	Accept    acceptCommand    `cmd:"" help:"Accept a data directory that serve refuses because a part is missing or older than the others."`
	Check     checkCommand     `cmd:"" help:"Check everything in the data directory of a node that does not run, and print a line for each fault."`
	Reference referenceCommand `cmd:"" help:"Print every setting of serve as Markdown."`
	Version   versionCommand   `cmd:"" help:"Print the version, commit, date and Go version of this program."`
}

// A command is a command of the command line.
type command interface {
	Run(ctx context.Context, out console) error
}

// console has the outputs of a command: for its result, and for logs and errors.
type console struct {
	out, errors io.Writer
}

func main() {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case agent.Command:
			os.Exit(agent.Main(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
		case builtin.Command:
			os.Exit(runAgent(os.Args[2:]))
		}
	}
	os.Exit(run(os.Args[1:], console{os.Stdout, os.Stderr}))
}

// run runs a command line and returns the exit code.
func run(arguments []string, c console) int {
	chosen, err := newCommands(c.out).Parse(arguments)
	if err != nil {
		code := report(c, err, exitConfig)
		fmt.Fprintln(c.errors, "Run with --help for the commands and settings.")
		return code
	}
	if chosen == nil { // the help, for example
		return 0
	}
	interrupted, stop := untilSignal()
	defer stop()
	return report(c, chosen.Target.(command).Run(interrupted, c), exitFailure)
}

func newCommands(out io.Writer) *commandline.Command {
	return commandline.New(&commands{}, commandline.Program{
		Name: "atelier", About: "Workspaces with a drive whose every change is a row of one sequence.",
		Prefix: "ATELIER", Variables: map[string]string{"siteProgram": siteProgram},
		File: readFile, Version: printVersion, Out: out,
	})
}

// coded is an error with its own exit code.
type coded struct {
	error
	code int
}

func (c coded) Unwrap() error { return c.error }

// report prints an error and returns its exit code, by default code; 0 without an error.
func report(c console, err error, code int) int {
	if err == nil {
		return 0
	}
	if status := exitStatus(0); errors.As(err, &status) {
		return int(status)
	}
	if own := (coded{}); errors.As(err, &own) {
		code = own.code
	}
	fmt.Fprintln(c.errors, "atelier:", err)
	return code
}
