// Package apps supervises the processes of apps in the computers of workspaces.
//
// The task app.run of an app (package entity/app) is open while the app may run. Its executor, Supervisor.Run, runs one loop for the app
// (supervise.go) and ends the process when the task closes. Because the task has one executor at a time, under the epoch of its partition,
// the app has at most one loop. Each configuration of an app has a number, its generation. The steps to run a configuration:
//
//  1. The loop gets the generation from the query AwaitRuntime.
//  2. If the generation is requested and has an install command, the command runs. The command gets no key.
//  3. The loop reserves the port in the computer. If processes have their own networks, the supervisor listens on the port and passes
//     connections on to the current process (relay.go), which serves until step 6. If processes share the network of the computer, and the
//     current process uses the same port, the current process ends now, because two processes cannot listen on the port.
//  4. start opens the address at which the app reaches the API (gate.go), gets a key if the generation has scopes (key.go), and starts
//     the command with PORT, SERVICE_API_URL and SERVICE_APP_API_KEY.
//  5. await waits until the port accepts connections.
//  6. Dial connects new connections to the new process. The old process ends when its connections are closed, or after Options.Drain.
//  7. The loop reports the result with ReportReconciled. After a failure, the accepted generation continues to run, or is started again.
//
// When a process ends later, the loop reports ReportCrash and starts the process again after a pause. The pause doubles with each crash, up
// to a limit, and is short again after a process has run for Options.Healthy. If the computer was stopped, or cannot start processes at the
// moment, the attempt is neither a crash nor a failure: the loop repeats it (errInterrupted). If the app may sleep and has had no open
// connection for the time that its configuration sets, the loop reports ReportAsleep, which closes the task; WakeApp opens the task again.
//
// The loop is a state machine: the table in state.go has the next state and the actions for each state and event. The table is pure. The loop
// (supervise.go) waits for events, and performs the actions.
//
// The output of the commands is in the log of the app (log.go).
package apps

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	"github.com/atelier-run/atelier/retry"
)

// Computers run processes. Errors: *entity.Error.
type Computers interface {
	// Launch starts a process. ctx limits the start only.
	Launch(ctx context.Context, l Launch) (Process, error)
	// Dial connects to a port of the loopback interface of a computer.
	Dial(ctx context.Context, workspaceID string, port int) (net.Conn, error)
	// Listen listens on a port of the loopback interface of a computer, so that the processes of the computer reach the caller. If port is 0,
	// the computer chooses a free port.
	Listen(ctx context.Context, workspaceID string, port int) (net.Listener, error)
	// OwnNetworks reports whether each process can have its own network.
	OwnNetworks() bool
	// Usage returns the use of the machine by each process group of a computer.
	Usage(ctx context.Context, workspaceID string) ([]computer.Usage, error)
}

// A Launch describes a process of an app.
type Launch struct {
	WorkspaceID, AppID string
	// UserID is the creator of the app.
	UserID string
	Argv   []string
	// Cwd is a path of the drive.
	Cwd    string
	Env    []string
	Limits computer.Limits
	// OwnNetwork gives the process its own network. Launch calls Prepare with this network before any code of the process runs, and returns
	// the error of Prepare. Either both fields are set or none.
	OwnNetwork bool
	Prepare    func(context.Context, computer.Network) error
}

// A Process is a process of an app with all its descendants.
type Process interface {
	// Dial connects to a port of the loopback interface in the network of the process.
	Dial(ctx context.Context, port int) (net.Conn, error)
	Streams() computer.Streams
	Signal(syscall.Signal) error
	// End ends the process and its descendants, and returns when all have ended.
	End(ctx context.Context) error
	// Wait waits until the process has ended and the journal has the changes of the process to the drive. It returns an error only if ctx ends
	// first.
	Wait(ctx context.Context) (computer.Exit, error)
}

// Options configures a Supervisor. Asker, Computers and Dir are required; a duration of 0 stands for its default.
type Options struct {
	Asker     entity.AskSettler
	Computers Computers
	// API serves the API to apps; nil: apps get no address of the API.
	API http.Handler
	// Dir is the folder of the logs.
	Dir string
	// Ready is the time in which a process must accept connections; 0: 30 s.
	Ready time.Duration
	// Install limits an install command; 0: 10 min.
	Install time.Duration
	// Drain is how long a replaced process serves its open connections; 0: 30 s.
	Drain time.Duration
	// Grace is how long a process may take to end by itself after SIGTERM, before it is killed; 0: 10 s.
	Grace time.Duration
	// End limits one attempt to end a process after Grace; 0: 30 s.
	End time.Duration
	// Stop is the time in which all processes of an app that is being removed must end; 0: 45 s. Otherwise the removal fails. Stop should be
	// less than the time that a request waits, so that the request gets the failure.
	Stop time.Duration
	// FirstPause is the pause after the first crash of a process, before the process is started again; 0: 1 s. LongestPause is the longest
	// pause after further crashes; 0: 1 min. After a process has run for Healthy, the next pause is FirstPause again; 0: 1 min.
	FirstPause, LongestPause, Healthy time.Duration
	// Limits restrict the processes of an app together.
	Limits computer.Limits
	// Clock gives the times of crashes and of the lines of logs; nil: time.Now. Pauses follow the machine's monotonic clock.
	Clock func() time.Time
	Log   *slog.Logger
}

func (o Options) withDefaults() Options {
	for _, d := range []struct {
		set      *time.Duration
		standard time.Duration
	}{
		{&o.Ready, 30 * time.Second}, {&o.Install, 10 * time.Minute}, {&o.Drain, 30 * time.Second}, {&o.Grace, 10 * time.Second},
		{&o.End, 30 * time.Second}, {&o.Stop, 45 * time.Second},
		{&o.FirstPause, time.Second}, {&o.LongestPause, time.Minute}, {&o.Healthy, time.Minute},
	} {
		if *d.set == 0 {
			*d.set = d.standard
		}
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// pause returns the pause before the next start of a process after a number of failures in a row.
func (o *Options) pause(failures int) time.Duration {
	return retry.Policy{First: o.FirstPause, Longest: o.LongestPause}.After(failures).Round(time.Millisecond)
}

// A Supervisor runs apps. It is a prometheus.Collector and safe for concurrent use.
type Supervisor struct {
	o       Options
	metrics *metrics
	logs    *logs

	mu sync.Mutex
	// running has the loop of each app, by the identity of the app. changed is closed and replaced when a loop begins or ends.
	running map[string]*loop
	changed chan struct{}
	// left has the processes that loops could not end, by the identity of the app (left.go).
	left map[string][]*instance
}

// New returns a Supervisor.
func New(o Options) *Supervisor {
	o = o.withDefaults()
	return &Supervisor{
		o: o, metrics: newMetrics(), logs: newLogs(o.Dir, o.Clock, o.Log), running: map[string]*loop{}, changed: make(chan struct{}),
		left: map[string][]*instance{},
	}
}

// Run is the executor of app.run. After the end of ctx it returns as soon as the processes of the app have ended, or could not be ended in
// time. It returns before it runs the app if a process that an earlier loop has left does not end. It always returns an error, because the
// executor does not complete the task: only the state of the app does.
func (s *Supervisor) Run(ctx context.Context, identity string, _ *appv1.RunTask) (proto.Message, error) {
	if err := s.endLeft(ctx, identity); err != nil {
		return nil, err
	}
	l := s.newLoop(identity)
	s.mu.Lock()
	s.running[identity] = l
	s.announce()
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.running, identity)
		s.announce()
		s.mu.Unlock()
		close(l.ended)
	}()
	return nil, l.run(ctx)
}

// announce wakes the callers of Dial that wait for a loop to begin or end. The caller holds mu.
func (s *Supervisor) announce() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Stop is the executor of app.stop. It waits until all processes of the app have ended (awaitEnd), and removes the log of an app that is being
// removed. If a process has not ended after Options.Stop, the report has the failure: the app remains registered, and a later removal tries
// again.
func (s *Supervisor) Stop(ctx context.Context, identity string, m *appv1.StopTask) (proto.Message, error) {
	limited, cancel := context.WithTimeout(ctx, s.o.Stop)
	defer cancel()
	switch err := s.awaitEnd(limited, identity); {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		s.o.Log.Warn("the processes of an app did not end", slog.String("app", identity), slog.Any("error", err))
		return &appv1.ReportStopped{TaskId: m.GetTaskId(), Failure: "a process of the app did not end within " + s.o.Stop.String()}, nil
	}
	if !m.GetRemains() {
		_, appID := app.SplitIdentity(identity)
		if err := s.logs.remove(appID); err != nil {
			return nil, err
		}
	}
	return &appv1.ReportStopped{TaskId: m.GetTaskId()}, nil
}

// The reasons of the errors of Dial.
const (
	// ReasonStarting: the process does not accept connections yet.
	ReasonStarting = "starting"
	// ReasonStopped: the app does not run here.
	ReasonStopped = "stopped"
	// ReasonFailed: the process has ended, or has not started, and will be started again after a pause.
	ReasonFailed = "failed"
)

// Dial connects to the current process of an app. If the process is starting, Dial waits until ctx ends. An app with an open connection does
// not fall asleep. Errors: unavailable, with one of the reasons above.
func (s *Supervisor) Dial(ctx context.Context, workspaceID, appID string) (net.Conn, error) {
	identity := app.Identity(workspaceID, appID)
	for {
		s.mu.Lock()
		l, changed := s.running[identity], s.changed
		s.mu.Unlock()
		if l == nil {
			return nil, unavailable(ReasonStopped)
		}
		c, retry, err := l.dial(ctx)
		if err == nil {
			return c, nil
		}
		if retry == nil {
			return nil, err
		}
		select {
		case <-retry:
		case <-changed:
		case <-ctx.Done():
			return nil, err
		}
	}
}

func unavailable(reason string) *entity.Error {
	return &entity.Error{
		Code: entity.Unavailable, Reason: reason, RetryAfter: 2 * time.Second,
		Message: map[string]string{
			ReasonStarting: "the app is starting", ReasonStopped: "the app is not running", ReasonFailed: "the app does not run at the moment",
		}[reason],
	}
}

// usageGroup returns the name of the process group of an app (computer.Spec).
func usageGroup(appID string) string { return "app:" + appID }

// Usage returns the use of the machine by the processes of an app; 0 if the app has no process. Errors: the errors of Computers.Usage.
func (s *Supervisor) Usage(ctx context.Context, workspaceID, appID string) (computer.Usage, error) {
	group := usageGroup(appID)
	s.mu.Lock()
	l := s.running[app.Identity(workspaceID, appID)]
	s.mu.Unlock()
	if l == nil {
		return computer.Usage{Group: group}, nil
	}
	all, err := s.o.Computers.Usage(ctx, workspaceID)
	for _, of := range all {
		if of.Group == group {
			return of, err
		}
	}
	return computer.Usage{Group: group}, err
}

// ask sends a message to the entity of an app as the platform.
func (s *Supervisor) ask(ctx context.Context, identity string, m proto.Message) (proto.Message, error) {
	return entity.AskAsPlatform[proto.Message](ctx, s.o.Asker, entity.KindApp, identity, m)
}
