package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// untilSignal returns a context that is cancelled by the first SIGTERM or SIGINT. The second signal ends the process at once, with
// the exit code exitFailure.
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

// untilHangup returns a context that is cancelled by SIGHUP, too, which the kernel sends when the terminal of the process is gone. A
// program that nohup has started ignores the signal, and goes on to do so.
func untilHangup(ctx context.Context) (context.Context, context.CancelFunc) {
	if signal.Ignored(syscall.SIGHUP) {
		return context.WithCancel(ctx)
	}
	return signal.NotifyContext(ctx, syscall.SIGHUP)
}

// surviveBrokenPipes lets writes to a pipe without a reader fail. Otherwise the Go runtime ends a process that writes to its standard
// output or standard error then (os/signal, "SIGPIPE"). If the signal were ignored, child processes would inherit that.
func surviveBrokenPipes() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }
