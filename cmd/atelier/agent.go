package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/atelier-run/atelier/runner/builtin"
)

// runAgent runs the built-in agent of sessions until its client is gone, and returns the exit status. The agent is no command
// of the parser: its settings are not settings of the command line, and it starts for each session.
func runAgent(arguments []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	surviveBrokenPipes() // a client that has gone must not end the agent before its commands
	return builtin.Run(ctx, os.Stdin, os.Stdout, os.Stderr, os.Environ(), arguments)
}
