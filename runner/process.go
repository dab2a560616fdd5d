package runner

import (
	"context"
	"io"
	"strings"
	"time"
)

// A process is the process of an agent, with the end of its standard error.
type process struct {
	Process
	// token is the agent's secret; it is redacted in the standard error.
	token  string
	stderr *tail
	// exited is closed when the process has ended and all its output is handled. status and reason are set before: see Process.Wait.
	exited chan struct{}
	status int
	reason string
}

func newProcess(p Process, token string) *process {
	return &process{Process: p, token: token, stderr: &tail{}, exited: make(chan struct{})}
}

// follow waits for the end of the process and of its standard error. It then calls drain, and closes exited after drain has returned.
func (p *process) follow(drain func()) {
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		if stderr := p.Stderr(); stderr != nil {
			_, _ = io.Copy(p.stderr, stderr)
		}
	}()
	p.status, p.reason, _ = p.Wait(context.Background()) // fails only when its context ends
	<-copied
	drain()
	close(p.exited)
}

// awaitExit waits until the end of the process is known, and reports false if it is not known in time.
func (p *process) awaitExit(ctx context.Context, most time.Duration) bool {
	return await(ctx, p.exited, most)
}

// await waits until a channel is closed, and reports false if the channel is not closed in time.
func await(ctx context.Context, closed <-chan struct{}, most time.Duration) bool {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-closed:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// exit returns the status and the reason of the end of the process: see Process.Wait. The end must be known.
func (p *process) exit() (status int, reason string) { return p.status, p.reason }

// isComputerLost reports whether the process was ended because its computer was stopped or lost. The end must be known.
func (p *process) isComputerLost() bool { return isLoss(p.reason) }

// isLoss reports whether a process was ended for a reason that also ends its computer.
func isLoss(reason string) bool { return reason == "stopped" || reason == "lost" }

// hasEnded reports whether the process has ended, and the reason why its computer has ended it. It returns true before exited is closed,
// because follow closes exited only after all output of the process is handled: a turn that begins after the computer was replaced must not
// get an agent of the replaced computer.
func (p *process) hasEnded() (reason string, hasEnded bool) {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	_, reason, err := p.Wait(over)
	return reason, err == nil
}

// endTimeout bounds the end of a process.
const endTimeout = 30 * time.Second

// stop closes the input of the process and ends the process. It does not wait for the end. It calls fail if the process cannot be ended.
func (p *process) stop(fail func(error)) {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	go func() {
		defer cancel()
		_ = p.Stdin().Close()
		if err := p.End(ctx); err != nil {
			fail(err)
		}
	}()
}

// lastWords returns the end of the standard error of the process, for the log.
func (p *process) lastWords() string { return p.redacted(p.stderr.String()) }

// redacted returns a text without the token of the agent.
func (p *process) redacted(text string) string {
	return strings.ReplaceAll(text, p.token, redactedToken)
}
