package runner

import (
	"context"
	"crypto/rand"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
)

// Computers are the computers of workspaces.
type Computers interface {
	// Launch starts a process in the process group of a session. ctx bounds the start only. Errors: *entity.Error; unavailable
	// if the computer cannot run processes now.
	Launch(ctx context.Context, l Launch) (Process, error)
	// Listen listens on the loopback interface of a computer, on a free port if port is 0. The address of the listener is the address inside
	// the computer. The listener fails when the computer stops. Errors: *entity.Error.
	Listen(ctx context.Context, workspaceID string, port int) (net.Listener, error)
}

// A Launch describes the process of an agent.
type Launch struct {
	WorkspaceID, SessionID string
	// UserID is the person who created the session; empty if no person created it.
	UserID string
	// Argv is the program and its arguments. The program starts in the root of the drive. Env is added to the environment of the computer.
	Argv, Env []string
}

// A Process is a process of an agent with all its descendants. Its methods may be called concurrently.
type Process interface {
	Stdin() io.WriteCloser
	Stdout() io.Reader
	// Stderr may be nil.
	Stderr() io.Reader
	// End ends the process and its descendants.
	End(ctx context.Context) error
	// OutOfMemory returns the number of processes of the session that the kernel has ended because memory was short; 0 if the number is
	// unknown.
	OutOfMemory() uint64
	// Rest tells the computer that the process is idle: the computer may then end the process at any time, to make room for another process.
	Rest()
	// Resume ends the effect of Rest, before the process is used again. Errors: *entity.Error of the code unavailable if the
	// process may not be used now, and remains idle; any other error means that the computer ends the process.
	Resume() error
	// Wait waits for the end of the process, and returns the exit status and the reason why the computer has ended the process
	// ("stopped", "lost", "out_of_memory", "disk_full"); the reason is "" if the computer has not ended it. If the end is known already, Wait
	// returns it even if ctx has ended. The ends of all processes of a computer are known before the successor of the computer can be used.
	Wait(ctx context.Context) (status int, reason string, err error)
}

// Images has the images of the inputs of sessions.
type Images interface {
	// ReadImage returns an image of a session by its SHA-256. It returns not_found if the image has no file.
	ReadImage(ctx context.Context, workspaceID, sessionID string, sum []byte) ([]byte, error)
	// RemoveImages removes all images of a deleted session, which has no rows of images any more. It does nothing if the session has no images.
	RemoveImages(ctx context.Context, workspaceID, sessionID string) error
}

// Instructions makes the instructions of agents from the texts on the drive.
type Instructions interface {
	// Read returns the AGENT.md of an agent, if agentID is not empty, and the list of the skills that apply in a folder of the
	// drive, as one text for a model. A missing agent or skill is no error.
	Read(ctx context.Context, workspaceID, agentID, cwd string) (string, error)
}

// Tools are the tools of the platform that agents get.
type Tools interface {
	// Handler returns the handler of the Model Context Protocol of one process of an agent. Its requests have the path /mcp.
	Handler(s Session) http.Handler
}

// A Session is the session of the agent that calls the tools. The methods that change its turn fail with *entity.Error if no turn runs.
type Session interface {
	WorkspaceID() string
	SessionID() string
	// UserID is the person who created the session; empty if no person created it.
	UserID() string
	// Capabilities returns the capabilities of the agent in each of its turns.
	Capabilities() []string
	// Participant returns the participant of the last turn of the agent: the person, and the OAuth grant, the limited API key or the app of
	// the person's input.
	Participant() *sessionv1.Participant
	// Ask makes the turn end with a question, which may offer answers. A later question or sleep of the turn replaces it.
	Ask(ctx context.Context, text string, options []string) error
	// SleepUntil makes the turn end with a sleep until a time.
	SleepUntil(ctx context.Context, at time.Time) error
	// Progress reports the step and the progress of the session as a job, at once. Values that are not set do not change.
	Progress(ctx context.Context, step string, completed, total uint64) error
}

// Options configure a Runner. Asker, Computers and Builtin are required.
type Options struct {
	Asker     entity.Asker
	Computers Computers
	Images    Images
	// Instructions and Tools may be nil.
	Instructions Instructions
	Tools        Tools
	Config       Config
	// Builtin is the command of the built-in agent inside a computer.
	Builtin []string
	// Version is the version of the program. The runner sends it to agents.
	Version string
	// Transport sends requests to models; nil: http.DefaultTransport.
	Transport http.RoundTripper
	// StartTimeout bounds the start of an agent, from its process to its open session; 0: 90 s.
	StartTimeout time.Duration
	// CancelTimeout is the time in which an agent must end a turn that is interrupted; 0: 5 s. Otherwise the runner ends the process of the agent.
	CancelTimeout time.Duration
	// SilenceTimeout interrupts an agent that has sent nothing for this time; 0: 15 minutes.
	SilenceTimeout time.Duration
	// IdleTimeout ends an agent that has had no turn for this time; 0: 5 minutes.
	IdleTimeout time.Duration
	// MaxAgents is the maximum number of processes of agents, running and idle; 0: 256.
	MaxAgents int
	// MaxWorkspaceAgents is the maximum number of processes of agents of one workspace; 0: half of MaxAgents. Sessions that wait for their
	// children hold processes; without the limit, one workspace could prevent all other workspaces from running agents.
	MaxWorkspaceAgents int
	// Clock is compared with the times that the journal has; nil: time.Now. Limits of time follow the machine's monotonic clock.
	Clock func() time.Time
	Log   *slog.Logger
}

func (o Options) complete() Options {
	defaults := []struct {
		value *time.Duration
		by    time.Duration
	}{
		{&o.StartTimeout, 90 * time.Second}, {&o.CancelTimeout, 5 * time.Second},
		{&o.SilenceTimeout, 15 * time.Minute}, {&o.IdleTimeout, 5 * time.Minute},
	}
	for _, d := range defaults {
		if *d.value == 0 {
			*d.value = d.by
		}
	}
	if o.MaxAgents == 0 {
		o.MaxAgents = 256
	}
	if o.MaxWorkspaceAgents == 0 {
		o.MaxWorkspaceAgents = max(o.MaxAgents/2, 1)
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// A Runner runs the turns of sessions on this node.
type Runner struct {
	o         Options
	metrics   *metrics
	addresses *addresses
	pool      *pool
}

// New returns a runner. It starts nothing until a turn runs. Close ends its agents.
func New(o Options) *Runner {
	r := &Runner{o: o.complete(), metrics: newMetrics()}
	r.addresses = newAddresses(r)
	r.pool = newPool(r)
	return r
}

// Close ends all agents and listeners. All turns must have ended: the caller ends their contexts first.
func (r *Runner) Close() {
	r.pool.close()
	r.addresses.close()
}

func identityOf(id sessionID) string { return session.Identity(id.workspace, id.session) }

func newID(prefix string) string { return prefix + strings.ToLower(ulid.Make().String()) }

func newToken() string { return "atr_" + strings.ToLower(rand.Text()+rand.Text()) }
