// Package apitest provides api.Computers for tests of the layers above it: processes of this machine, without any isolation.
package apitest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/http/api"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// Computers runs processes in a directory of the test. It authorizes no caller.
type Computers struct {
	dir string
	// Refuse, if it is set, returns the error for a process to start.
	Refuse func(argv []string) error
	// ScrollBack is the number of bytes of output that a terminal keeps; 0: 64 KiB.
	ScrollBack int
	// Reason is the reason why processes have ended; empty: they ended by themselves.
	Reason string

	mu        sync.Mutex
	started   int
	processes map[*process]struct{}
	terminals map[string]*terminal
	// changed is closed and replaced when processes changes.
	changed chan struct{}
}

// NewComputers returns Computers. The processes end with the test.
func NewComputers(t testing.TB) *Computers {
	c := &Computers{dir: t.TempDir(), processes: map[*process]struct{}{}, terminals: map[string]*terminal{}, changed: make(chan struct{})}
	t.Cleanup(func() {
		c.mu.Lock()
		running := slices.Collect(maps.Keys(c.processes))
		c.mu.Unlock()
		for _, p := range running {
			_ = p.End(context.Background())
		}
	})
	return c
}

// Started returns the number of processes that were started.
func (c *Computers) Started() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.started
}

// Running returns the number of processes that have not ended.
func (c *Computers) Running() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.processes)
}

// WaitRunning waits until a number of processes have not ended.
func (c *Computers) WaitRunning(ctx context.Context, n int) error {
	for {
		c.mu.Lock()
		running, changed := len(c.processes), c.changed
		c.mu.Unlock()
		if running == n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%d processes run: %w", running, ctx.Err())
		}
	}
}

// notify wakes the waiting goroutines. The caller holds mu.
func (c *Computers) notify() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// Dir returns the directory in which processes start.
func (c *Computers) Dir() string { return c.dir }

// Exec implements api.Computers.
func (c *Computers) Exec(ctx context.Context, _ string, _ *wirev1.Principal, o api.ExecOptions) (api.Process, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var ours, theirs [3]*os.File
	var err error
	for i := range ours {
		if i == 0 {
			theirs[i], ours[i], err = os.Pipe()
		} else {
			ours[i], theirs[i], err = os.Pipe()
		}
		if err != nil {
			return nil, err
		}
	}
	command := exec.Command(o.Argv[0], o.Argv[1:]...)
	command.Env = append(os.Environ(), o.Env...)
	command.Stdin, command.Stdout, command.Stderr = theirs[0], theirs[1], theirs[2]
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p, err := c.start(command, o.Argv, o.Cwd)
	for i := range theirs {
		_ = theirs[i].Close()
		if err != nil {
			_ = ours[i].Close()
		}
	}
	if err != nil {
		return nil, err
	}
	p.stdin, p.stdout, p.stderr = ours[0], ours[1], ours[2]
	return p, nil
}

// start starts a command as the leader of a process group.
func (c *Computers) start(command *exec.Cmd, argv []string, cwd string) (*process, error) {
	if c.Refuse != nil {
		if err := c.Refuse(argv); err != nil {
			return nil, err
		}
	}
	command.Dir = c.dir + "/" + cwd
	if err := command.Start(); err != nil {
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
			return nil, entity.Errorf(entity.InvalidRequest, "argv: there is no program %q", argv[0])
		}
		return nil, err
	}
	p := &process{command: command, reason: c.Reason, ended: make(chan struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.started++
	c.processes[p] = struct{}{}
	c.notify()
	go func() {
		_ = command.Wait() // its result is in ProcessState
		p.kill()           // descendants
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.processes, p)
		c.notify()
		close(p.ended)
	}()
	return p, nil
}

// process is a process group of this machine.
type process struct {
	command               *exec.Cmd
	stdin, stdout, stderr *os.File
	reason                string
	ended                 chan struct{}
}

func (p *process) Stdin() io.WriteCloser  { return p.stdin }
func (p *process) Stdout() io.Reader      { return p.stdout }
func (p *process) Stderr() io.Reader      { return p.stderr }
func (p *process) Ended() <-chan struct{} { return p.ended }

// kill kills the process group, and the other process groups of its session: an interactive shell runs each command in a group of
// its own, which does not end with the shell if it ignores SIGHUP, as all descendants of nohup do.
func (p *process) kill() {
	leader := p.command.Process.Pid
	_ = syscall.Kill(-leader, syscall.SIGKILL)
	running, _ := filepath.Glob("/proc/[0-9]*")
	for _, path := range running {
		pid, err := strconv.Atoi(filepath.Base(path))
		if err != nil {
			continue
		}
		if session, err := unix.Getsid(pid); err == nil && session == leader {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

func (p *process) End(ctx context.Context) error {
	p.kill()
	_, _, err := p.Wait(ctx)
	return err
}

func (p *process) Wait(ctx context.Context) (int, string, error) {
	select {
	case <-p.ended:
	case <-ctx.Done():
		return 0, "", ctx.Err()
	}
	status := p.command.ProcessState.ExitCode()
	if of, ok := p.command.ProcessState.Sys().(syscall.WaitStatus); ok && of.Signaled() {
		status = 128 + int(of.Signal())
	}
	return status, p.reason, nil
}

// OpenTerminal implements api.Computers.
func (c *Computers) OpenTerminal(ctx context.Context, workspaceID string, p *wirev1.Principal, o api.TerminalOptions) (api.Terminal, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	argv := o.Argv
	if len(argv) == 0 {
		argv = []string{"sh"}
	}
	master, slave, err := OpenPTY()
	if err != nil {
		return nil, err
	}
	t := &terminal{master: master, limit: c.ScrollBack, changed: make(chan struct{}), input: make(chan []byte, 8)}
	if t.limit == 0 {
		t.limit = 64 << 10
	}
	if err := t.Resize(o.Columns, o.Rows); err != nil {
		return nil, err
	}
	command := exec.Command(argv[0], argv[1:]...)
	command.Env = append(os.Environ(), append([]string{"PS1=$ ", "TERM=dumb"}, o.Env...)...)
	command.Stdin, command.Stdout, command.Stderr = slave, slave, slave
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	t.process, err = c.start(command, argv, o.Cwd)
	_ = slave.Close()
	if err != nil {
		_ = master.Close()
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	t.id, t.owner = fmt.Sprintf("term_%d", len(c.terminals)+1), workspaceID+" "+p.GetUserId()
	c.terminals[t.id] = t
	go t.record()
	go t.feed()
	return t, nil
}

// Terminal implements api.Computers.
func (c *Computers) Terminal(_ context.Context, workspaceID string, p *wirev1.Principal, id string) (api.Terminal, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.terminals[id]
	if t == nil || t.owner != workspaceID+" "+p.GetUserId() || t.hasEnded() {
		return nil, entity.Errorf(entity.NotFound, "no such terminal")
	}
	return t, nil
}
