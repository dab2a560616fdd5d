package apps

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/retry"
)

// An instance is a running process of an app, which accepts connections.
type instance struct {
	l          *loop
	generation uint64
	port       int
	process    Process
	output     *output
	gate       *gate
	// key is the API key in the environment of the process; empty if the process has no key.
	key string
	// relay passes connections to the port in the computer on; nil if the process is in the network of the computer.
	relay *relay
	// exited receives one value: how the process has ended.
	exited <-chan computer.Exit
	// gone is closed when the process has ended.
	gone    chan struct{}
	readyAt time.Time

	// ending is full during an attempt to end the process. wasAsked is set when the process was asked to end (SIGTERM). hasEnded is set after
	// an attempt has succeeded.
	ending             chan struct{}
	wasAsked, hasEnded bool

	mu sync.Mutex
	// open is the number of open connections. used is the time at which a connection was last closed.
	open int
	used time.Time
	// closed is closed and replaced when a connection is closed.
	closed chan struct{}
}

// errInterrupted is the error for errors.Is of an attempt that the loop repeats: the computer was stopped, or the platform cannot start the app
// at the moment.
var errInterrupted = errors.New("interrupted")

// An interruption is an error of an attempt that the loop repeats. errors.Is reports that it is errInterrupted. Members may see its text.
type interruption string

func (i interruption) Error() string      { return string(i) }
func (interruption) Is(target error) bool { return target == errInterrupted }

// isStopped reports whether a process has ended because its computer was stopped or lost.
func isStopped(exit computer.Exit) bool {
	return exit.Reason == computer.EndedStopped || exit.Reason == computer.EndedLost
}

const errStopped = interruption("the computer was stopped while the app was starting")

// try runs a configuration: it runs the install command if the configuration is requested, reserves the port, and starts the process. If try
// returns an error, it has ended the processes of the attempt, or has retired them (discard).
func (r *runState) try(ctx context.Context, c configuration) (*instance, error) {
	if c.isRequested && c.runtime.GetInstallCommand() != "" {
		if err := r.install(ctx, c); err != nil {
			return nil, err
		}
	}
	through, err := r.reserve(ctx, int(c.runtime.GetPort()))
	if err != nil {
		return nil, err
	}
	started := time.Now()
	i, err := r.start(ctx, c, through != nil)
	if err == nil {
		if err = i.await(ctx, r.s.o.Ready); err == nil && !i.isConnected(through) {
			err = errStopped
		}
		if err != nil {
			r.discard(i)
		}
	}
	if err != nil {
		return nil, err
	}
	i.relay = through
	r.s.metrics.ready.Observe(time.Since(started).Seconds())
	i.mu.Lock()
	i.readyAt, i.used = time.Now(), time.Now()
	i.mu.Unlock()
	return i, nil
}

// reserve makes the port available to a process that is about to start. If processes have their own networks, it returns the relay of the port:
// the relay of the current process if the current process uses the same port, otherwise a new relay. If processes share the network of the
// computer, it returns nil.
func (r *runState) reserve(ctx context.Context, port int) (*relay, error) {
	current := r.now()
	isSame := current != nil && current.port == port
	if r.s.o.Computers.OwnNetworks() {
		if isSame && current.relay.isOpen() {
			return current.relay, nil
		}
		return r.openRelay(ctx, port)
	}
	if isSame {
		r.step(eventEvicted, nil)
		r.discard(current)
	}
	for _, old := range r.retiringAt(port) {
		if err := old.end(ctx); err != nil {
			return nil, fmt.Errorf("port %d is in use by an earlier process of the app, which does not end", port)
		}
	}
	if r.isTaken(ctx, port) {
		return nil, portTaken(port)
	}
	return nil, ctx.Err()
}

// isConnected reports whether the relay of a running process, or its gate in the network of the computer, is open. It is closed if the computer
// was stopped after it was opened, and was started again for the process.
func (i *instance) isConnected(through *relay) bool {
	if through != nil {
		return through.isOpen() // the gate is in the network of the process
	}
	return i.gate.isOpen()
}

// isTaken reports whether a process of the computer listens on a port. Its responses would be taken for responses of the app.
func (l *loop) isTaken(ctx context.Context, port int) bool {
	c, err := l.s.o.Computers.Dial(ctx, l.workspaceID, port)
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

func portTaken(port int) error {
	return fmt.Errorf("port %d is in use by another process in the computer", port)
}

// A start describes how launch starts a command.
type start struct {
	command string
	// stream is the name of the stream of the whole output in the log; empty: the streams are stdout and stderr.
	stream string
	output *output
	env    []string
	// secret is the key of the app, which must not be written to the log; empty if there is no key.
	secret string
	// prepare is Launch.Prepare; nil: the process is in the network of the computer.
	prepare func(context.Context, computer.Network) error
}

// launch starts a command in the app's folder, with its output in the log.
func (l *loop) launch(ctx context.Context, c configuration, s start) (Process, error) {
	p, err := l.s.o.Computers.Launch(ctx, Launch{
		WorkspaceID: l.workspaceID, AppID: l.appID, UserID: c.userID, Argv: []string{"/bin/sh", "-c", s.command}, Cwd: c.path,
		Env: s.env, Limits: l.s.o.Limits, OwnNetwork: s.prepare != nil, Prepare: s.prepare,
	})
	if err != nil {
		return nil, l.reasonOf(ctx, err)
	}
	streams := p.Streams()
	_ = streams.Stdin.Close()
	out, errs := l.log.writer(cmp.Or(s.stream, "stdout"), s.secret, s.output), l.log.writer(cmp.Or(s.stream, "stderr"), s.secret, s.output)
	out.start(streams.Stdout)
	if streams.Stderr != nil {
		errs.start(streams.Stderr)
	}
	return p, nil
}

// reasonOf returns an error with a text that members may see: the message of a refusal, or an interruption. It logs an error that is no
// *entity.Error.
func (l *loop) reasonOf(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	refusal, is := errors.AsType[*entity.Error](err)
	switch {
	case is && entity.IsRefusal(err):
		return errors.New(refusal.Message)
	case is:
		return interruption(refusal.Message)
	}
	l.s.o.Log.Warn("cannot start an app; retrying", slog.String("app", l.identity), slog.Any("error", err))
	return interruption("the server cannot start the app at the moment")
}

// install runs the install command of a configuration. The command gets no key, because it often runs downloaded code.
func (l *loop) install(ctx context.Context, c configuration) error {
	limited, cancel := context.WithTimeout(ctx, l.s.o.Install)
	defer cancel()
	l.log.platform("installing: " + c.runtime.GetInstallCommand())
	said := newOutput()
	p, err := l.launch(limited, c, start{command: c.runtime.GetInstallCommand(), stream: "install", output: said, env: portVariable(c)})
	if err != nil {
		return fmt.Errorf("the install command was not started: %w", err)
	}
	i := &instance{l: l, process: p, wasAsked: true} // end kills the process without SIGTERM
	i.watch()
	var exit computer.Exit
	select {
	case exit = <-i.exited:
	case <-limited.Done():
		l.discard(i)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("the install command did not end within %s%s", l.s.o.Install, l.log.tail(said))
	}
	if isStopped(exit) {
		return errStopped
	}
	if exit.Status != 0 || exit.Reason != "" {
		return fmt.Errorf("the install command has failed: %s%s", describeExit(exit), l.log.tail(said))
	}
	return nil
}

func portVariable(c configuration) []string {
	return []string{"PORT=" + strconv.Itoa(int(c.runtime.GetPort()))}
}

// start starts the command of a configuration.
func (l *loop) start(ctx context.Context, c configuration, hasOwnNetwork bool) (_ *instance, err error) {
	port := int(c.runtime.GetPort())
	i := &instance{l: l, generation: c.generation, port: port, output: newOutput(), closed: make(chan struct{})}
	s := start{command: c.runtime.GetCommand(), output: i.output, env: portVariable(c)}
	defer func() {
		if err != nil {
			i.gate.close()
		}
	}()
	switch {
	case hasOwnNetwork:
		s.prepare = func(ctx context.Context, n computer.Network) error { return i.prepare(ctx, n) }
		if l.s.o.API != nil {
			s.env = append(s.env, "SERVICE_API_URL="+gateURL(net.JoinHostPort("127.0.0.1", strconv.Itoa(gatePort(port)))))
		}
	case l.s.o.API != nil:
		listener, err := l.s.o.Computers.Listen(ctx, l.workspaceID, 0)
		if err != nil {
			return nil, fmt.Errorf("the app cannot be connected with the API: %w", l.reasonOf(ctx, err))
		}
		i.gate = l.serveGate(listener)
		s.env = append(s.env, "SERVICE_API_URL="+i.gate.url)
	}
	if len(c.runtime.GetApiScopes()) > 0 {
		text, err := l.key.get(ctx, l, c)
		if err != nil {
			return nil, fmt.Errorf("the app gets no key: %w", l.reasonOf(ctx, err))
		}
		s.env, s.secret, i.key = append(s.env, "SERVICE_APP_API_KEY="+text), text, text
	}
	l.log.platform("starting: " + s.command)
	if i.process, err = l.launch(ctx, c, s); err != nil {
		return nil, fmt.Errorf("the command was not started: %w", err)
	}
	i.watch()
	return i, nil
}

// watch sets gone and exited, which report the end of the process. end may be called after watch.
func (i *instance) watch() {
	exited, gone := make(chan computer.Exit, 1), make(chan struct{})
	i.exited, i.gone, i.ending = exited, gone, make(chan struct{}, 1)
	go func() {
		exit, _ := i.process.Wait(context.Background()) // fails only when its context ends
		close(gone)
		exited <- exit
	}()
}

// exit returns the channel of the end of the process; nil for no process.
func (i *instance) exit() <-chan computer.Exit {
	if i == nil {
		return nil
	}
	return i.exited
}

// prepare opens the gate in the network of the process, before any code of the process runs.
func (i *instance) prepare(ctx context.Context, n computer.Network) error {
	if i.l.s.o.API == nil {
		return nil
	}
	listener, err := n.Listen(ctx, gatePort(i.port))
	if err != nil {
		return err
	}
	i.gate = i.l.serveGate(listener)
	return nil
}

// connect connects to the port of the app in the network of the process.
func (i *instance) connect(ctx context.Context) (net.Conn, error) {
	return i.process.Dial(ctx, i.port)
}

// The pause between two attempts to connect to a process that is starting is an eighth of the time since the first attempt, but at least
// firstProbe and at most longestProbe. So the delay after the process has started is small in relation to the time that the start took.
const (
	firstProbe   = 5 * time.Millisecond
	longestProbe = 200 * time.Millisecond
)

// await waits until the process accepts connections.
func (i *instance) await(ctx context.Context, limit time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for began := time.Now(); ; {
		c, err := i.connect(limited)
		if err == nil {
			_ = c.Close()
			select {
			case <-i.gone: // a different process has accepted the connection
			default:
				return nil
			}
		}
		if retry.PauseUnless(limited, min(max(time.Since(began)/8, firstProbe), longestProbe), i.gone) {
			continue
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case limited.Err() != nil:
			return fmt.Errorf("the process did not accept connections on port %d within %s%s", i.port, limit, i.l.log.tail(i.output))
		}
		exit, _ := i.process.Wait(context.Background()) // returns at once: the process has ended
		if isStopped(exit) {
			return errStopped
		}
		return fmt.Errorf("the process ended before it accepted connections on port %d: %s%s", i.port, describeExit(exit), i.l.log.tail(i.output))
	}
}

// enter counts a connection that is about to be made. The caller must then call dial or leave.
func (i *instance) enter() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.open++
}

// dial connects to the process, after enter.
func (i *instance) dial(ctx context.Context) (*used, error) {
	c, err := i.connect(ctx)
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

// idle returns the time since the last end of a connection, and whether no connection is open.
func (i *instance) idle() (time.Duration, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return time.Since(i.used), i.open == 0
}

// isIdle reports whether no connection is open. i may be nil; it is then not idle.
func (i *instance) isIdle() bool {
	if i == nil {
		return false
	}
	_, isIdle := i.idle()
	return isIdle
}

// A used connection is counted by its instance until it is closed.
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

// CloseWrite closes the direction to the process, so that the two directions of an upgraded connection can end at different times.
func (u *used) CloseWrite() error {
	if half, ok := u.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
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

// lines joins the last lines of a log to the end of a message.
func lines(all []string) string {
	if len(all) == 0 {
		return ""
	}
	return "\n" + strings.Join(all, "\n")
}
