package main

import (
	"fmt"

	"github.com/alecthomas/kong"

	"github.com/atelier-run/atelier/cmd/node"
)

// versionCommand is atelier version. It prints the same line as versionFlag.
type versionCommand struct{}

// Run prints the version.
func (versionCommand) Run(out console) error { return printVersion(out) }

// versionFlag is the flag --version. It prints the version instead of running the command.
type versionFlag bool

// BeforeReset prints the version and exits. The parser calls it after it has read the flag and before it reports a missing
// command.
func (versionFlag) BeforeReset(app *kong.Kong) error {
	if err := printVersion(console{out: app.Stdout}); err != nil {
		return err
	}
	app.Exit(0)
	return nil
}

// printVersion prints the name of the program and its build.
func printVersion(out console) error {
	_, err := fmt.Fprintln(out.out, "atelier", node.ReadBuild())
	return err
}
