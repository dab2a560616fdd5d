package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/computer/local/cgroup"
	"github.com/atelier-run/atelier/computer/local/sandbox"
)

// A process is a computer.Process.
type process struct {
	guest *guest
	spec  computer.Spec
	group *group
	// network is the process's own network, or the network of the computer.
	network *network
	// control is the control group of the process and its descendants; nil without control groups.
	control *cgroup.Group
	process *sandbox.Process
	streams computer.Streams
	// isFull is set when the process is ended because the drive is full, isKilled when it is ended on request.
	isFull, isKilled atomic.Bool
	// ended is closed when the process and its descendants have ended and exit is set.
	ended chan struct{}
	exit  computer.Exit
}

// Streams implements computer.Process.
func (p *process) Streams() computer.Streams { return p.streams }

// adopt makes a started process of the sandbox the process.
func (p *process) adopt(started *sandbox.Process) {
	p.process = started
	p.streams = computer.Streams{Stdin: started.Stdin, Stdout: &output{file: started.Stdout}}
	if p.spec.Terminal != nil {
		p.streams.Stdin = &terminalInput{file: started.Stdin}
	} else {
		p.streams.Stderr = &output{file: started.Stderr}
	}
}

// Resize implements computer.Process.
func (p *process) Resize(size computer.TerminalSize) error {
	if err := size.Validate(); err != nil {
		return err
	}
	select {
	case <-p.ended:
		return nil
	default:
	}
	err := p.process.Resize(windowSize(size))
	if errors.Is(err, os.ErrClosed) || errors.Is(err, unix.EIO) {
		return nil // it has just ended
	}
	return err
}

// Signal implements computer.Process.
func (p *process) Signal(s syscall.Signal) error {
	if err := validateSignal(s); err != nil {
		return err
	}
	select {
	case <-p.ended:
		return nil
	default:
	}
	if err := p.process.Signal(s); err != nil && !p.hasEnded() {
		return fmt.Errorf("cannot send a signal to the process %s: %w", p.spec.ID, err)
	}
	return nil
}

// hasEnded reports whether the process ends, or has ended, because its computer has.
func (p *process) hasEnded() bool {
	select {
	case <-p.process.Ended():
		return true
	case <-p.guest.driver.running.Done():
		return true
	default:
		return false
	}
}

// End implements computer.Process.
func (p *process) End(ctx context.Context) error {
	select {
	case <-p.ended:
		return nil
	default:
	}
	p.isKilled.Store(true)
	if p.control != nil {
		if err := p.control.Kill(ctx); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	_ = p.process.Signal(unix.SIGKILL) // an error means that the computer has ended
	_, err := p.Wait(ctx)
	return err
}

// Wait implements computer.Process.
func (p *process) Wait(ctx context.Context) (computer.Exit, error) {
	if err := ctx.Err(); err != nil {
		return computer.Exit{}, err
	}
	select {
	case <-p.ended:
		return p.exit, nil
	case <-ctx.Done():
		return computer.Exit{}, ctx.Err()
	}
}

// follow waits for the end of the process, ends the descendants that it has left behind, and publishes how it has ended.
func (p *process) follow() {
	<-p.process.Ended()
	exit := computer.Exit{At: time.Now()}
	result := p.process.Result()
	switch {
	case result.Lost:
		exit.Status, exit.Signal, exit.Reason = 128+int(unix.SIGKILL), unix.SIGKILL, p.guest.reason()
	case result.Status.Signaled() && p.isFull.Load():
		exit.Status, exit.Signal, exit.Reason = 128+int(result.Status.Signal()), result.Status.Signal(), computer.EndedDiskFull
	case result.Status.Signaled():
		exit.Status, exit.Signal = 128+int(result.Status.Signal()), result.Status.Signal()
	default:
		exit.Status = result.Status.ExitStatus()
	}
	// A shell has the status of a command that was killed.
	const killed = 128 + int(unix.SIGKILL)
	if p.removeControl() > 0 && exit.Status == killed && exit.Reason == "" && !p.isKilled.Load() {
		exit.Reason = computer.EndedOutOfMemory
	}
	p.network.close()
	_ = p.process.Stdin.Close()
	p.exit = exit
	p.guest.forget(p)
	close(p.ended)
}

// OutOfMemory implements computer.Process.
func (p *process) OutOfMemory() uint64 {
	p.guest.mu.Lock()
	control := p.group.control
	p.guest.mu.Unlock()
	if control == nil {
		return 0
	}
	n, _ := control.OutOfMemory() // an error means that the process has ended
	return n
}

// removeControl ends the descendants of the process and removes its control group. It returns how many of its processes the
// kernel has ended because memory was short.
func (p *process) removeControl() (outOfMemory uint64) {
	if p.control == nil {
		return 0
	}
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	if err := p.control.Kill(ctx); err != nil && !errors.Is(err, os.ErrNotExist) {
		p.guest.log("cannot end the descendants of a process", err)
	}
	outOfMemory, err := p.control.OutOfMemory()
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		p.guest.log("cannot tell whether a process was ended for lack of memory", err)
	}
	if err := p.control.Remove(ctx); err != nil {
		p.guest.log("cannot remove the control group of a process", err)
	}
	return outOfMemory
}

// An output is the standard output or error of a process. It is closed at its end.
type output struct{ file *os.File }

// Read implements io.Reader. A terminal reports its end as an input/output error.
func (o *output) Read(p []byte) (int, error) {
	n, err := o.file.Read(p)
	if errors.Is(err, syscall.EIO) || errors.Is(err, os.ErrClosed) {
		err = io.EOF
	}
	if errors.Is(err, io.EOF) {
		_ = o.file.Close()
	}
	return n, err
}

// Close implements io.Closer.
func (o *output) Close() error {
	if err := o.file.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

// A terminalInput is the input of a terminal. Closing it leaves the terminal open for Resize and Signal.
type terminalInput struct {
	file *os.File

	mu     sync.Mutex
	closed bool
}

// Write implements io.Writer.
func (t *terminalInput) Write(p []byte) (int, error) {
	t.mu.Lock()
	closed := t.closed
	t.mu.Unlock()
	if closed {
		return 0, os.ErrClosed
	}
	return t.file.Write(p)
}

// Close implements io.Closer.
func (t *terminalInput) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	return nil
}
