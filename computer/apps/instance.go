package apps

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/entity"
)

// An instance is a running process of an app, which accepts connections.
type instance struct {
	l          *loop
	generation uint64
	port       int
	process    Process
	gate       *gate
	// exited receives how the process has ended, once.
	exited <-chan computer.Exit
	// gone is closed when it has ended.
	gone    chan struct{}
	readyAt time.Time
	ending  sync.Once

	mu sync.Mutex
	// open is the number of open connections, and used the time at which the last one was closed.
	open int
	used time.Time
	// closed is closed, and made anew, when a connection is closed.
	closed chan struct{}
}

// try runs a configuration: it installs it if it is requested, ends the present process if both use the same port, and starts the new
// one. If ctx ends, no process of the attempt is left.
func (r *runState) try(ctx context.Context, c configuration) (*instance, error) {
	if c.isRequested && c.runtime.GetInstallCommand() != "" {
		if err := r.install(ctx, c); err != nil {
			return nil, err
		}
	}
	if current := r.now(); current != nil && current.port == int(c.runtime.GetPort()) {
		r.set(nil, false)
		current.drain(0, ctx.Done())
		current.end()
	}
	started := time.Now()
	i, err := r.start(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := i.await(ctx, r.s.o.Ready); err != nil {
		i.end()
		return nil, err
	}
	r.s.metrics.ready.Observe(time.Since(started).Seconds())
	i.mu.Lock()
	i.readyAt, i.used = time.Now(), time.Now()
	i.mu.Unlock()
	return i, nil
}

// launch starts a command in the app's folder, with its output in the log.
func (l *loop) launch(ctx context.Context, c configuration, command, stream string, env []string, secret string) (Process, error) {
	p, err := l.s.o.Computers.Launch(ctx, Launch{
		WorkspaceID: l.workspaceID, AppID: l.appID, UserID: c.userID, Argv: []string{"/bin/sh", "-c", command}, Cwd: c.path,
		Env: env, Limits: l.s.o.Limits,
	})
	if err != nil {
		return nil, reasonOf(err)
	}
	streams := p.Streams()
	_ = streams.Stdin.Close()
	out, errs := l.log.writer(streamOr(stream, "stdout"), secret), l.log.writer(streamOr(stream, "stderr"), secret)
	go out.consume(streams.Stdout)
	if streams.Stderr != nil {
		go errs.consume(streams.Stderr)
	}
	return p, nil
}

func streamOr(stream, standard string) string {
	if stream != "" {
		return stream
	}
	return standard
}

// reasonOf returns an error whose text may be shown to members. Only errors of entities may be.
func reasonOf(err error) error {
	if refusal, is := errors.AsType[*entity.Error](err); is {
		return errors.New(refusal.Message)
	}
	return err
}

// install runs the install command of a configuration. It gets no key, because what it runs comes from elsewhere.
func (l *loop) install(ctx context.Context, c configuration) error {
	limited, cancel := context.WithTimeout(ctx, l.s.o.Install)
	defer cancel()
	l.log.platform("installing: " + c.runtime.GetInstallCommand())
	p, err := l.launch(limited, c, c.runtime.GetInstallCommand(), "install", portVariable(c), "")
	if err != nil {
		return fmt.Errorf("the install command was not started: %w", err)
	}
	exit, err := p.Wait(limited)
	if err != nil {
		endProcess(p)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("the install command did not end within %s%s", l.s.o.Install, l.log.tail())
	}
	if exit.Status != 0 || exit.Reason != "" {
		return fmt.Errorf("the install command has failed: %s%s", describeExit(exit), l.log.tail())
	}
	return nil
}

func portVariable(c configuration) []string {
	return []string{"PORT=" + strconv.Itoa(int(c.runtime.GetPort()))}
}

// start starts the command of a configuration.
func (l *loop) start(ctx context.Context, c configuration) (_ *instance, err error) {
	port := int(c.runtime.GetPort())
	if err := l.checkPort(ctx, port); err != nil {
		return nil, err
	}
	env, secret := portVariable(c), ""
	i := &instance{l: l, generation: c.generation, port: port, gone: make(chan struct{}), closed: make(chan struct{})}
	if l.s.o.API != nil {
		if i.gate, err = l.openGate(ctx); err != nil {
			return nil, fmt.Errorf("the app cannot be connected with the API: %w", reasonOf(err))
		}
		env = append(env, "SERVICE_API_URL="+i.gate.url)
	}
	if len(c.runtime.GetApiScopes()) > 0 {
		text, err := l.key.get(ctx, l, c)
		if err != nil {
			i.gate.close()
			return nil, fmt.Errorf("the app gets no key: %w", reasonOf(err))
		}
		env, secret = append(env, "SERVICE_APP_API_KEY="+text), text
	}
	l.log.platform("starting: " + c.runtime.GetCommand())
	if i.process, err = l.launch(ctx, c, c.runtime.GetCommand(), "", env, secret); err != nil {
		i.gate.close()
		return nil, fmt.Errorf("the command was not started: %w", err)
	}
	exited := make(chan computer.Exit, 1)
	i.exited = exited
	go func() {
		exit, _ := i.process.Wait(context.Background()) // fails only when its context ends
		close(i.gone)
		exited <- exit
	}()
	return i, nil
}

// checkPort returns an error if another process of the computer listens on the port: its answers would pass for those of the app.
func (l *loop) checkPort(ctx context.Context, port int) error {
	c, err := l.s.o.Computers.Dial(ctx, l.workspaceID, port)
	if err != nil {
		return ctx.Err()
	}
	_ = c.Close()
	return fmt.Errorf("port %d is in use by another process in the computer", port)
}

// The pauses between two attempts to connect to a process that is starting double from the first to the longest.
const (
	firstProbe   = 5 * time.Millisecond
	longestProbe = 200 * time.Millisecond
)

// await waits until the process accepts connections.
func (i *instance) await(ctx context.Context, limit time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for wait := firstProbe; ; wait = min(2*wait, longestProbe) {
		c, err := i.l.s.o.Computers.Dial(limited, i.l.workspaceID, i.port)
		if err == nil {
			_ = c.Close()
			select {
			case <-i.gone: // another process has answered
			default:
				return nil
			}
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
			continue
		case <-i.gone:
			timer.Stop()
			exit, _ := i.process.Wait(context.Background()) // it has ended
			return fmt.Errorf("the process ended before it accepted connections on port %d: %s%s", i.port, describeExit(exit), i.l.log.tail())
		case <-limited.Done():
			timer.Stop()
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("the process did not accept connections on port %d within %s%s", i.port, limit, i.l.log.tail())
		}
	}
}

// dial connects to the process.
func (i *instance) dial(ctx context.Context) (net.Conn, error) {
	i.mu.Lock()
	i.open++
	i.mu.Unlock()
	c, err := i.l.s.o.Computers.Dial(ctx, i.l.workspaceID, i.port)
	if err != nil {
		i.leave()
		return nil, err
	}
	return &used{Conn: c, i: i}, nil
}

// leave counts the end of a connection.
func (i *instance) leave() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.open--
	i.used = time.Now()
	close(i.closed)
	i.closed = make(chan struct{})
}

// idle returns the time since the last connection was closed, and whether none is open.
func (i *instance) idle() (time.Duration, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return time.Since(i.used), i.open == 0
}

// A used connection counts as a use of the process until it is closed.
type used struct {
	net.Conn
	i      *instance
	closed sync.Once
}

// Close implements net.Conn.
func (u *used) Close() error {
	err := u.Conn.Close()
	u.closed.Do(u.i.leave)
	return err
}

// CloseWrite closes the direction to the process, so that an upgraded connection can end one direction after the other.
func (u *used) CloseWrite() error {
	if half, ok := u.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// drain waits until no connection is open, limit is over, the process has ended, or stopping is closed.
func (i *instance) drain(limit time.Duration, stopping <-chan struct{}) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		i.mu.Lock()
		open, closed := i.open, i.closed
		i.mu.Unlock()
		if open == 0 {
			return
		}
		select {
		case <-closed:
		case <-timer.C:
			return
		case <-stopping:
			return
		case <-i.gone:
			return
		}
	}
}

// end ends the process with all its descendants, and returns when none is left. The process is asked to end first.
func (i *instance) end() {
	i.ending.Do(func() {
		_ = i.process.Signal(syscall.SIGTERM) // it may have ended
		timer := time.NewTimer(i.l.s.o.Grace)
		defer timer.Stop()
		select {
		case <-i.gone:
		case <-timer.C:
		}
		endProcess(i.process)
		<-i.gone
		i.gate.close()
	})
}

// endTimeout limits one attempt to end a process.
const endTimeout = 30 * time.Second

// endProcess ends a process and its descendants. The computer ends what is left of it.
func endProcess(p Process) {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	_ = p.End(ctx)
}

// lines joins the last lines of a log to the end of a message.
func lines(all []string) string {
	if len(all) == 0 {
		return ""
	}
	return "\n" + strings.Join(all, "\n")
}
