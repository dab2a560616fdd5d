package main

import (
	"fmt"

	"github.com/alecthomas/kong"

	"github.com/atelier-run/atelier/cmd/node"
)

// versionCommand prints what the program was built from, as versionFlag does.
type versionCommand struct{}

func (versionCommand) Run(out console) error { return printVersion(out) }

// versionFlag is --version: it prints instead of whatever the command line asks for besides.
type versionFlag bool

// BeforeReset is called by the parser once it has read the flag, before it misses a command.
func (versionFlag) BeforeReset(app *kong.Kong) error {
	if err := printVersion(console{out: app.Stdout}); err != nil {
		return err
	}
	app.Exit(0)
	return nil
}

func printVersion(out console) error {
	_, err := fmt.Fprintln(out.out, "atelier", node.ReadBuild())
	return err
}
