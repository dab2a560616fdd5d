package main

import (
	"context"
	"fmt"
	"io"

	"github.com/atelier-run/atelier/cmd/build"
)

// versionCommand is atelier version. It prints the same line as the flag --version.
type versionCommand struct{}

// Run prints the version.
func (versionCommand) Run(_ context.Context, out console) error { return printVersion(out.out) }

// printVersion prints the name of the program and its build.
func printVersion(w io.Writer) error {
	_, err := fmt.Fprintln(w, "atelier", build.Read())
	return err
}
