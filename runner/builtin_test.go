package runner_test

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	"github.com/atelier-run/atelier/runner"
	"github.com/atelier-run/atelier/runner/builtin"
	"github.com/atelier-run/atelier/runner/runnertest"
)

// builtinComputer runs the built-in agent in this process, with a folder as the drive.
type builtinComputer struct {
	runnertest.Computers
	drive string

	mu  sync.Mutex
	all []*builtinProcess
}

type builtinProcess struct {
	stdin  io.WriteCloser
	stdout io.Reader
	cancel context.CancelFunc
	ended  chan struct{}
}

func (c *builtinComputer) Launch(_ context.Context, l runner.Launch) (runner.Process, error) {
	ctx, cancel := context.WithCancel(context.Background())
	fromRunner, stdin := io.Pipe()
	stdout, toRunner := io.Pipe()
	p := &builtinProcess{stdin: stdin, stdout: stdout, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		defer toRunner.Close()
		_, _ = io.WriteString(toRunner, c.drive+"\n")
		environ := append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + c.drive, "ATELIER_DRIVE=" + c.drive}, l.Env...)
		builtin.Run(ctx, fromRunner, toRunner, io.Discard, environ, nil)
	}()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, p)
	return p, nil
}

func (c *builtinComputer) Listen(ctx context.Context, workspaceID string, port int) (net.Listener, error) {
	return c.Computers.Listen(ctx, workspaceID, port)
}

func (p *builtinProcess) Stdin() io.WriteCloser { return p.stdin }
func (p *builtinProcess) Stdout() io.Reader     { return p.stdout }
func (p *builtinProcess) Stderr() io.Reader     { return nil }

func (p *builtinProcess) End(context.Context) error {
	p.cancel()
	return p.stdin.Close()
}

func (*builtinProcess) OutOfMemory() uint64 { return 0 }
func (*builtinProcess) Rest()               {}
func (*builtinProcess) Resume() error       { return nil }

func (p *builtinProcess) Wait(ctx context.Context) (status int, reason string, err error) {
	select {
	case <-p.ended:
		return 0, "", nil
	case <-ctx.Done():
		return 0, "", ctx.Err()
	}
}

// TestBuiltinAgent runs whole turns of the built-in agent, with its own shell and files.
func TestBuiltinAgent(t *testing.T) {
	computer := &builtinComputer{drive: t.TempDir()}
	if err := os.Mkdir(filepath.Join(computer.drive, "src"), 0o700); err != nil {
		t.Fatal(err)
	}
	f := newFixture(t, nil, func(o *runner.Options) {
		o.Computers, o.Tools = computer, nil
		o.IdleTimeout = time.Hour
	})
	defer func() {
		f.runner.Close()
		for _, p := range computer.all {
			<-p.ended
		}
	}()
	f.start("say Hello.\nwrite notes.txt\n    one\n$ cat notes.txt\n", auto)
	f.mustRun()
	got := f.world.Timeline(sessionID)
	if !slices.Contains(got, "text Hello.") || got[len(got)-1] != "terminal complete" {
		t.Errorf("timeline %q", got)
	}
	if i := slices.IndexFunc(got, func(l string) bool { return strings.HasPrefix(l, "tool") && strings.HasSuffix(l, "one") }); i < 0 {
		t.Errorf("no tool has the output: %q", got)
	}
	if content, err := os.ReadFile(filepath.Join(computer.drive, "src", "notes.txt")); err != nil || string(content) != "one\n" {
		t.Errorf("%q %v", content, err)
	}

	f.send("fail It broke.")
	f.mustRun()
	f.last(t, 1, "terminal interrupted runbook_failed")

	f.send("$ sleep 20\nsay never")
	go func() {
		f.world.Await(t.Context(), func() bool {
			return slices.ContainsFunc(f.world.Timeline(sessionID), func(l string) bool { return strings.HasPrefix(l, "tool") && strings.Contains(l, "sleep 20") })
		})
		f.must(alice, &sessionv1.Interrupt{})
	}()
	f.mustRun()
	f.last(t, 1, "terminal interrupted")
}
