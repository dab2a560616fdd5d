package local

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/computer/local/cgroup"
	"github.com/atelier-run/atelier/computer/local/sandbox"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/retry"
)

const (
	// endTimeout limits how long the end of processes that were killed is waited for.
	endTimeout = 30 * time.Second
	// maxProcesses limits the processes of a computer that the server has started.
	maxProcesses = 1024
	// scratchFiles limits the files of the temporary folders of a computer.
	scratchFiles = 200_000
)

// starting has the pauses after failures to start a computer.
var starting = retry.Policy{First: 200 * time.Millisecond, Longest: 30 * time.Second}

// A guest is the computer of a workspace, running or not.
type guest struct {
	driver *Driver
	id     string
	// turn is held while the computer starts or stops. It is taken before mu.
	turn chan struct{}

	mu     sync.Mutex
	vmName string
	// box is the running computer, or nil.
	box *sandbox.Computer
	uid int
	// control is the control group of the running computer.
	control *cgroup.Group
	// detach ends the computer's link to the network.
	detach func()
	// stopping is true while the computer is stopped on purpose.
	stopping bool
	frozen   bool
	// suspended is true while a check of the drive's space keeps the processes suspended.
	suspended bool
	released  bool
	processes map[string]*process
	groups    map[string]*group
	// idle stops the computer if it has no process, at idleAt or later.
	idle   *time.Timer
	idleAt time.Time
	// measured is the last measurement of the running computer.
	measured measurement
	// failed is the error of the last start. failures is the number of starts in a row that have failed. retryAt is the time of the
	// next start.
	failed   error
	failures int
	retryAt  time.Time
}

// A group has the processes with the same Spec.Group.
type group struct {
	control   *cgroup.Group
	processes int
}

func newGuest(d *Driver, id string) *guest {
	return &guest{driver: d, id: id, turn: make(chan struct{}, 1), processes: map[string]*process{}, groups: map[string]*group{}}
}

// take takes the turn. The caller gives it back with give.
func (g *guest) take(ctx context.Context) error {
	if err := ctx.Err(); err != nil { // select takes either if the turn is free
		return err
	}
	select {
	case g.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g *guest) give() { <-g.turn }

func (g *guest) log(message string, err error) {
	g.driver.o.Log.Error(message, slog.String("workspace", g.id), slog.Any("error", err))
}

// reason returns why processes of the computer have ended with it.
func (g *guest) reason() computer.EndReason {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopping {
		return computer.EndedStopped
	}
	return computer.EndedLost
}

// rename stops the computer if it runs under another name.
func (g *guest) rename(ctx context.Context, vmName string) error {
	g.mu.Lock()
	replaced := g.vmName != "" && g.vmName != vmName
	g.vmName = vmName
	g.mu.Unlock()
	if !replaced {
		return nil
	}
	return g.stop(ctx)
}

// start starts a process.
func (g *guest) start(ctx context.Context, s computer.Spec) (*process, error) {
	argv, program, err := g.driver.argv(s.Argv)
	if err != nil {
		return nil, err
	}
	p := &process{guest: g, spec: s, ended: make(chan struct{}), network: newNetwork(g, s.ID)}
	box, err := g.admit(ctx, p)
	if err != nil {
		return nil, err
	}
	spec := sandbox.Spec{
		Argv: argv, Program: program, Env: g.driver.environment(g.id, &s), Cwd: s.Cwd, Terminal: terminalSize(s.Terminal),
		OwnNetwork: s.OwnNetwork, Private: s.Private, Held: func(pid int, own *sandbox.Network) error { return p.hold(ctx, box, pid, own) },
	}
	if p.control != nil {
		spec.Group = p.control
	}
	started, err := box.Start(ctx, spec)
	if err != nil {
		p.removeControl()
		p.network.close()
		g.forget(p)
		return nil, g.explain(ctx, p, err)
	}
	g.mu.Lock()
	p.adopt(started)
	g.mu.Unlock()
	go p.follow()
	return p, nil
}

func terminalSize(size *computer.TerminalSize) *unix.Winsize {
	if size == nil {
		return nil
	}
	return windowSize(*size)
}

// A heldError is an error of Spec.Attribute or Spec.Prepare, which Start returns as it is.
type heldError struct{ error }

func (e heldError) Unwrap() error { return e.error }

// hold attributes a process that waits at its gate, in its control group, and connects its network. own is its own
// network, or nil.
func (p *process) hold(ctx context.Context, box *sandbox.Computer, pid int, own *sandbox.Network) error {
	p.network.of = own // and is closed with p.network, also after an error
	if own == nil {
		p.network.of = box.Network()
	}
	// A server that does not run as root may not write to the process, which has done this itself.
	if err := sandbox.RaiseOOMScore(pid); err != nil && !p.guest.driver.report.Unprivileged {
		return err
	}
	if p.spec.Attribute != nil {
		if err := p.spec.Attribute(pid); err != nil {
			return heldError{err}
		}
	}
	if own != nil {
		if err := p.network.attach(); err != nil {
			return err
		}
	}
	if p.spec.Prepare != nil {
		if err := p.spec.Prepare(ctx, p.network); err != nil {
			return heldError{err}
		}
	}
	return nil
}

// explain returns the error of Start.
func (g *guest) explain(ctx context.Context, p *process, err error) error {
	if refused, is := errors.AsType[*sandbox.RefusedError](err); is {
		return entity.Errorf(entity.InvalidRequest, "%s", refused.Message)
	}
	if held, is := errors.AsType[heldError](err); is {
		return held.error
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return entity.Errorf(entity.Unavailable, "cannot start the process %s in the computer of workspace %s: %v", p.spec.ID, g.id, err)
}

// admit adds a process to the computer, which it starts if it does not run.
func (g *guest) admit(ctx context.Context, p *process) (*sandbox.Computer, error) {
	if err := g.take(ctx); err != nil {
		return nil, err
	}
	defer g.give()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := cmp.Or(g.check(), g.checkProcess(p)); err != nil {
		return nil, err
	}
	if err := g.checkSpace(ctx, nil); err != nil {
		return nil, err
	}
	if err := g.ensure(ctx); err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.createControl(p); err != nil {
		return nil, entity.Errorf(entity.Unavailable, "cannot limit the process %s of workspace %s: %v", p.spec.ID, g.id, err)
	}
	g.processes[p.spec.ID] = p
	if g.idle != nil {
		g.idle.Stop()
	}
	return g.box, nil
}

// check returns an error if the computer may not be started.
func (g *guest) check() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.released:
		return entity.Errorf(entity.NotFound, "workspace %s has no computer", g.id)
	case g.frozen:
		return entity.Errorf(entity.Unavailable, "the computer of workspace %s is frozen", g.id)
	}
	return nil
}

func (g *guest) checkProcess(p *process) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	networks := 0
	for _, other := range g.processes {
		if other.spec.OwnNetwork {
			networks++
		}
	}
	switch {
	case p.spec.OwnNetwork && networks >= computer.MaxOwnNetworks:
		return entity.Errorf(entity.Unavailable, "too many processes of the computer of workspace %s have networks of their own", g.id)
	case g.processes[p.spec.ID] != nil:
		return entity.Errorf(entity.InvalidRequest, "the process %s is already running", p.spec.ID)
	case len(g.processes) >= maxProcesses:
		return entity.Errorf(entity.Unavailable, "the computer of workspace %s has too many processes", g.id)
	}
	return nil
}

// createControl creates the control group of a process, and the control group of the process's group if it is the first
// process. The caller holds mu.
func (g *guest) createControl(p *process) error {
	shared := g.groups[p.spec.Group]
	if shared == nil {
		shared = &group{}
	}
	if g.control != nil {
		var err error
		if shared.control == nil {
			if shared.control, err = g.control.Child(g.name(p.spec.Group), p.spec.Limits); err != nil {
				return err
			}
		}
		if p.control, err = shared.control.Child(g.name(p.spec.ID), p.spec.Limits); err != nil {
			if shared.processes == 0 {
				err = errors.Join(err, removeEmpty(shared.control))
			}
			return err
		}
	}
	shared.processes++
	g.groups[p.spec.Group], p.group = shared, shared
	return nil
}

// name returns a name of a control group that was not used before.
func (g *guest) name(prefix string) string {
	return strings.ReplaceAll(prefix, ":", "-") + "." + strconv.FormatUint(g.driver.number(), 10)
}

func removeEmpty(control *cgroup.Group) error {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	return control.Remove(ctx)
}

// forget removes a process that has ended, and the control group of its group if it was the last. The computer stops some time
// after its last process.
func (g *guest) forget(p *process) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.processes[p.spec.ID] == p {
		delete(g.processes, p.spec.ID)
	}
	p.group.processes--
	if p.group.processes == 0 {
		if g.groups[p.spec.Group] == p.group {
			delete(g.groups, p.spec.Group)
		}
		if p.group.control != nil {
			if err := removeEmpty(p.group.control); err != nil {
				g.log("cannot remove a control group", err)
			}
		}
	}
	g.awaitIdle()
}

// awaitIdle makes a computer without processes stop after some time. The caller holds mu.
func (g *guest) awaitIdle() {
	if len(g.processes) > 0 || g.box == nil || g.stopping {
		return
	}
	g.idleAt = time.Now().Add(g.driver.o.IdleAfter)
	if g.idle == nil {
		g.idle = time.AfterFunc(g.driver.o.IdleAfter, g.stopIdle)
	} else {
		g.idle.Reset(g.driver.o.IdleAfter)
	}
}

// stopIdle stops the computer if it has no process. It does nothing if the time began again while it waited for its turn.
func (g *guest) stopIdle() {
	if g.take(g.driver.running) != nil {
		return
	}
	defer g.give()
	g.mu.Lock()
	idle := len(g.processes) == 0 && !time.Now().Before(g.idleAt)
	g.mu.Unlock()
	if !idle {
		return
	}
	ctx, cancel := context.WithTimeout(g.driver.running, endTimeout)
	defer cancel()
	if err := g.halt(ctx); err != nil {
		g.log("cannot stop a computer without processes", err)
	}
}

// isUnused reports whether the computer runs without a process. The caller holds mu.
func (g *guest) isUnused() bool { return g.box != nil && len(g.processes) == 0 && !g.stopping }

// stopUnused stops the computer if it has no process.
func (g *guest) stopUnused(ctx context.Context) error {
	if err := g.take(ctx); err != nil {
		return err
	}
	defer g.give()
	g.mu.Lock()
	isUnused := g.isUnused()
	g.mu.Unlock()
	if !isUnused {
		return nil
	}
	return g.halt(ctx)
}

// release stops the computer for good.
func (g *guest) release(ctx context.Context) error {
	g.mu.Lock()
	g.released = true
	g.mu.Unlock()
	return g.stop(ctx)
}

// stop ends all processes of the computer.
func (g *guest) stop(ctx context.Context) error {
	if err := g.take(ctx); err != nil {
		return err
	}
	defer g.give()
	return g.halt(ctx)
}

// freeze suspends or resumes all processes of the computer.
func (g *guest) freeze(ctx context.Context, frozen bool) error {
	if err := g.take(ctx); err != nil {
		return err
	}
	defer g.give()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.frozen = frozen
	if g.box == nil {
		return nil
	}
	if err := g.signalFrozen(ctx, frozen, func(p *process) error { return p.control.Freeze(frozen) }); err != nil {
		return entity.Errorf(entity.Unavailable, "cannot freeze the computer of workspace %s: %v", g.id, err)
	}
	return nil
}

// signalFrozen suspends or resumes the processes of the running computer: each process with a control group by freeze. The caller holds mu.
func (g *guest) signalFrozen(ctx context.Context, frozen bool, freeze func(*process) error) error {
	if g.control == nil {
		s := syscall.SIGCONT
		if frozen {
			s = syscall.SIGSTOP
		}
		return g.box.SignalAll(ctx, s)
	}
	var failed []error
	for _, p := range g.processes {
		if err := freeze(p); err != nil && (p.process == nil || !p.hasEnded()) {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}
