package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// untilSignal ends a context with the first SIGTERM or SIGINT, and the process with the second.
func untilSignal() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	go func() {
		<-signals
		cancel()
		<-signals
		os.Exit(exitFailure)
	}()
	return ctx, cancel
}
