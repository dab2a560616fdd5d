package docker

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/moby/moby/client"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/computer/docker/agent"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/retry"
)

// A process is a computer.Process.
type process struct {
	container *runningContainer
	session   *session
	id, group string
	// pid is the process id in the container, and hostPID that on this machine; 0: unknown.
	pid, hostPID int
	used         time.Duration // guarded by container.mu
	// isKilled is set when the driver has ended the process for its user.
	isKilled atomic.Bool
	// isFull is set when the driver ends the process because the drive is full.
	isFull atomic.Bool

	done chan struct{} // closed when exit is set and no descendant is left
	exit computer.Exit
	// network is the network of the container until the process ends.
	network *network
}

// environment returns the variables that the driver provides and the variables of the Spec, which replace them. The engine adds the
// variables of the image, and PATH.
func environment(s computer.Spec) []string {
	values := map[string]string{"HOME": agent.DriveDir, "LANG": "C.UTF-8"}
	if s.Terminal != nil {
		values["TERM"] = "xterm-256color"
	}
	for _, variable := range s.Env {
		name, value, _ := strings.Cut(variable, "=")
		values[name] = value
	}
	env := make([]string, 0, len(values))
	for _, name := range slices.Sorted(maps.Keys(values)) {
		env = append(env, name+"="+values[name])
	}
	return env
}

// exec starts a process: steps 2 to 5 of "The life of a process" in the package comment. The steps do not end with ctx, so that
// the process is known when it has to be ended; ctx is consulted between them.
func (c *runningContainer) exec(ctx context.Context, s computer.Spec) (_ *process, err error) {
	if err := c.reserve(s.ID); err != nil {
		return nil, err
	}
	isRunning := false
	defer func() {
		if !isRunning {
			c.forget(s.ID)
		}
	}()
	steps, cancel := c.driver.limit(context.WithoutCancel(ctx))
	defer cancel()
	mode := "pipes"
	if s.Terminal != nil {
		mode = "terminal"
	}
	session, err := c.open(steps, environment(s), s.Terminal != nil, append([]string{"run", s.Cwd, mode}, s.Argv...)...)
	if err != nil {
		return nil, err
	}
	p := &process{container: c, session: session, id: s.ID, group: s.Group, done: make(chan struct{}), network: newNetwork(c, s.ID)}
	if err := p.hold(steps, s); err != nil {
		p.network.close()
		_ = session.conn.Close() // the agent's input ends, and so does the agent
		return nil, err
	}
	ended, err := c.control.watch(steps, agent.Watch{
		PID: p.pid, Group: s.Group, MemoryBytes: s.Limits.MemoryBytes, Processes: s.Limits.Processes,
	})
	if err != nil {
		p.network.close()
		_ = session.conn.Close()
		return nil, err
	}
	c.add(p)
	isRunning = true // supervise forgets it
	go p.supervise(ended)
	if err := p.letGo(ctx, steps, s); err != nil {
		// Nothing reads the output that the program may have written already.
		_, _ = session.stdout.Close(), session.stderr.Close()
		_ = p.End(steps)
		_ = session.conn.Close()
		return nil, err
	}
	return p, nil
}

// hold waits until the agent is held, and prepares its terminal.
func (p *process) hold(ctx context.Context, s computer.Spec) error {
	kind, text, err := p.session.readLine(ctx)
	if err != nil || kind != agent.Held {
		return entity.Errorf(entity.Unavailable, "the computer cannot start a process: %q, %v", kind+" "+text, err)
	}
	identity, err := parseIdentity(text)
	if err != nil {
		return entity.Errorf(entity.Unavailable, "the computer cannot start a process: %v", err)
	}
	p.pid = identity.PID
	if s.Terminal != nil {
		if err := p.resize(ctx, *s.Terminal); err != nil {
			return err
		}
	}
	if s.Attribute != nil {
		p.hostPID = p.container.hostPID(ctx, p.session.execID, identity)
		if err := s.Attribute(p.hostPID); err != nil {
			return err
		}
	}
	if s.Prepare != nil {
		return s.Prepare(ctx, p.network)
	}
	return nil
}

// letGo lets the process become the program.
func (p *process) letGo(ctx, steps context.Context, s computer.Spec) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := p.session.release(p.container.driver.options.Timeout); err != nil {
		return unavailable("write to a process", err)
	}
	switch kind, text, err := p.session.readLine(steps); {
	case err != nil:
		return unavailable("run a process", err)
	case kind == agent.Refused:
		return entity.Errorf(entity.InvalidRequest, "%s", text)
	case kind != agent.Started:
		return entity.Errorf(entity.Unavailable, "the computer cannot start a process: the agent has answered %q", kind)
	}
	return ctx.Err()
}

// supervise waits for the end of the process: step 6 of "The life of a process" in the package comment.
func (p *process) supervise(ended <-chan agent.Reply) {
	c := p.container
	select {
	case reply := <-ended:
		p.exit = p.exitStatus(reply)
		if err := c.askThawed(context.Background(), agent.Request{Sweep: true}); err != nil && !isClosed(c.ended) {
			c.driver.options.Log.Error("descendants of a process do not end; the computer is stopped", "workspace", c.workspaceID, "error", err)
			c.stop()
			<-c.ended
		}
	case <-c.ended:
		p.exit = computer.Exit{Status: 128 + int(syscall.SIGKILL), Signal: syscall.SIGKILL, Reason: c.endReason(), At: time.Now()}
	}
	p.network.close()
	p.session.finish()
	go func() {
		<-p.session.copied
		_ = p.session.conn.Close()
	}()
	c.forget(p.id)
	close(p.done)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// endReason returns why the container has ended.
func (c *runningContainer) endReason() computer.EndReason {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isStopped {
		return computer.EndedStopped
	}
	return computer.EndedLost
}

// inspecting has the pauses between two questions for an exit status.
var inspecting = retry.Policy{First: time.Millisecond, Longest: 100 * time.Millisecond}

// exitStatus asks the engine for the exit status of a process after init has reported the end of the process. The engine may notice the
// end a little later. Podman does so only when it could send all output, and it waits for the reader of the output. Without an answer,
// the status is the status of a killed process and the process counts as lost.
func (p *process) exitStatus(reply agent.Reply) computer.Exit {
	exit := computer.Exit{Status: 128 + int(syscall.SIGKILL), Signal: syscall.SIGKILL, Reason: computer.EndedLost, At: time.Now()}
	d := p.container.driver
	deadline := time.Now().Add(d.options.Timeout)
	for n := 1; ; n++ {
		ctx, cancel := d.limit(context.Background())
		inspected, err := d.engine.ExecInspect(ctx, p.session.execID, client.ExecInspectOptions{})
		cancel()
		if err == nil && !inspected.Running {
			exit = computer.Exit{Status: inspected.ExitCode & 0xff, At: exit.At}
			break
		}
		if err == nil && !p.isKilled.Load() && (p.session.stdout.isFull() || p.session.stderr.isFull()) {
			deadline = time.Now().Add(d.options.Timeout)
		}
		if !retry.PauseUnless(context.Background(), inspecting.After(n), p.container.ended) {
			exit.Reason = p.container.endReason()
		} else if time.Now().Before(deadline) {
			continue
		}
		return exit
	}
	const greatestSignal = 64
	if n := exit.Status - 128; n > 0 && n <= greatestSignal {
		exit.Signal = syscall.Signal(n)
	}
	if exit.Signal == syscall.SIGKILL && p.isFull.Load() {
		exit.Reason = computer.EndedDiskFull
		return exit
	}
	if exit.Signal == syscall.SIGKILL && reply.IsOutOfMemory && !p.isKilled.Load() {
		exit.Reason = computer.EndedOutOfMemory
	}
	return exit
}

// Streams implements computer.Process.
func (p *process) Streams() computer.Streams {
	s := computer.Streams{Stdin: stdin{p.session}, Stdout: p.session.stdout}
	if !p.session.isTerminal {
		s.Stderr = p.session.stderr
	}
	return s
}

// stdin writes to the standard input of a process.
type stdin struct{ session *session }

func (s stdin) Write(b []byte) (int, error) { return s.session.conn.Write(b) }

// Close ends the standard input. A terminal has no end; the program decides about the character for it.
func (s stdin) Close() error {
	if s.session.isTerminal {
		return nil
	}
	if conn, ok := s.session.conn.(client.CloseWriter); ok {
		return conn.CloseWrite()
	}
	return nil
}

// OutOfMemory implements computer.Process. The engine counts for the whole container only.
func (p *process) OutOfMemory() uint64 { return 0 }

// Resize implements computer.Process.
func (p *process) Resize(size computer.TerminalSize) error {
	if !p.session.isTerminal || isClosed(p.done) {
		return nil
	}
	if err := size.Validate(); err != nil {
		return err
	}
	ctx, cancel := p.container.driver.limit(context.Background())
	defer cancel()
	return p.resize(ctx, size)
}

func (p *process) resize(ctx context.Context, size computer.TerminalSize) error {
	_, err := p.container.driver.engine.ExecResize(ctx, p.session.execID, client.ExecResizeOptions{Height: uint(size.Rows), Width: uint(size.Columns)})
	if err != nil && !isClosed(p.done) {
		return unavailable("resize a terminal", err)
	}
	return nil
}

// Signal implements computer.Process.
func (p *process) Signal(number syscall.Signal) error {
	if number < 1 || number > 64 {
		return entity.Errorf(entity.InvalidRequest, "%d is not a signal", int(number))
	}
	if isClosed(p.done) {
		return nil
	}
	if number == syscall.SIGKILL {
		p.isKilled.Store(true)
	}
	ctx, cancel := p.container.driver.limit(context.Background())
	defer cancel()
	err := p.container.askThawed(ctx, agent.Request{Signal: &agent.Signal{PID: p.pid, Number: number, IsTerminal: p.session.isTerminal}})
	if err == nil || isClosed(p.done) {
		return nil
	}
	if ctx.Err() != nil {
		return unavailable("send a signal to a process", err)
	}
	return err
}

// End implements computer.Process.
func (p *process) End(ctx context.Context) error {
	p.isKilled.Store(true)
	if !isClosed(p.done) {
		err := p.container.whileThawed(ctx, func() error {
			_, err := p.container.control.ask(ctx, agent.Request{End: p.pid})
			if err == nil {
				_, err = p.Wait(ctx)
			}
			return err
		})
		if err != nil && !isClosed(p.container.ended) {
			return err
		}
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Wait implements computer.Process.
func (p *process) Wait(ctx context.Context) (computer.Exit, error) {
	select {
	case <-p.done:
		return p.exit, nil
	default:
	}
	select {
	case <-p.done:
		return p.exit, nil
	case <-ctx.Done():
		return computer.Exit{}, ctx.Err()
	}
}
