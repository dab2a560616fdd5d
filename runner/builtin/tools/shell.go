package tools

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A Command is a shell command.
type Command struct {
	Text string
	// Env is its whole environment.
	Env []string
	// Timeout bounds how long it runs.
	Timeout time.Duration
}

// A Result is how a command has ended.
type Result struct {
	// Status is the exit status, 128 plus the signal's number if a signal has ended it, or -1 after the timeout.
	Status     int
	Output     string
	IsTimedOut bool
}

const (
	// grace is the time between SIGTERM and SIGKILL.
	grace = 2 * time.Second
	// reporting is the time between two reports of the output.
	reporting = 500 * time.Millisecond
	// leftover is how long the output is read after the shell has ended, from processes in the background that hold it open.
	leftover = 300 * time.Millisecond
)

// Shell runs a command with /bin/sh in the session's folder. The command is a process group of its own; the group is ended
// when ctx is done or the time is over. When the shell ends by itself, its processes in the background go on; they lose their
// output unless it was redirected.
//
// output receives the output so far, now and then, while the command runs.
func (d *Drive) Shell(ctx context.Context, c Command, output func(string)) (Result, error) {
	limited, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	shell := exec.Command("/bin/sh", "-c", c.Text)
	shell.Dir, shell.Env = d.Cwd(), c.Env
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	shell.WaitDelay = leftover
	out := &bounded{}
	shell.Stdout, shell.Stderr = out, out
	if err := shell.Start(); err != nil {
		return Result{}, fmt.Errorf("start the shell: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- shell.Wait() }()
	err := await(limited, ended, shell.Process.Pid, func() { output(out.String()) }, out)
	if ctx.Err() != nil {
		return Result{}, ctx.Err()
	}
	result := Result{Status: shell.ProcessState.ExitCode(), Output: out.String()}
	if limited.Err() != nil {
		result.IsTimedOut, result.Status = true, -1
		return result, nil
	}
	if status, ok := shell.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		result.Status = 128 + int(status.Signal())
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		return Result{}, fmt.Errorf("run the command: %w", err)
	}
	return result, nil
}

// await waits for the end of a shell, and ends its process group when ctx is done.
func await(ctx context.Context, ended <-chan error, group int, report func(), out *bounded) error {
	ticker := time.NewTicker(reporting)
	defer ticker.Stop()
	for {
		select {
		case err := <-ended:
			if ctx.Err() != nil {
				_ = syscall.Kill(-group, syscall.SIGKILL)
			}
			return err
		case <-ticker.C:
			if out.hasNews() {
				report()
			}
		case <-ctx.Done():
			return end(ended, group)
		}
	}
}

// end ends a process group: the shell, and the processes that it has started and not detached.
func end(ended <-chan error, group int) error {
	_ = syscall.Kill(-group, syscall.SIGTERM) // the group may be gone
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case err := <-ended:
		_ = syscall.Kill(-group, syscall.SIGKILL)
		return err
	case <-timer.C:
		_ = syscall.Kill(-group, syscall.SIGKILL)
		return <-ended
	}
}

// bounded has the beginning and the end of an output.
type bounded struct {
	lock sync.Mutex
	head []byte
	// tail is a ring. Once it is full, its oldest byte is at next.
	tail   []byte
	next   int
	lost   int64
	isNews bool
}

const half = MaxOutput/2 - 100 // the mark for the lost bytes fits as well

func (b *bounded) Write(p []byte) (int, error) {
	b.lock.Lock()
	defer b.lock.Unlock()
	n := len(p)
	b.isNews = b.isNews || n > 0
	if room := half - len(b.head); room > 0 {
		part := min(room, len(p))
		b.head, p = append(b.head, p[:part]...), p[part:]
	}
	if len(p) > half {
		b.lost += int64(len(p) - half)
		p = p[len(p)-half:]
	}
	for len(p) > 0 {
		if room := half - len(b.tail); room > 0 {
			part := min(room, len(p))
			b.tail, p = append(b.tail, p[:part]...), p[part:]
			continue
		}
		part := copy(b.tail[b.next:], p)
		b.lost += int64(part)
		b.next, p = (b.next+part)%half, p[part:]
	}
	return n, nil
}

// hasNews reports whether anything was written since the last call.
func (b *bounded) hasNews() bool {
	b.lock.Lock()
	defer b.lock.Unlock()
	news := b.isNews
	b.isNews = false
	return news
}

func (b *bounded) String() string {
	b.lock.Lock()
	defer b.lock.Unlock()
	text := string(b.head)
	if b.lost > 0 {
		text += fmt.Sprintf("\n[%d bytes of output are left out]\n", b.lost)
	}
	text += string(b.tail[b.next:]) + string(b.tail[:b.next])
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}
