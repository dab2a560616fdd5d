package runner

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"sync"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	"github.com/atelier-run/atelier/runner/meta"
)

// An agent is a process of an agent with an open session. It outlives the turn that started it, so that the next turn continues in the same
// process, and a request for permission that has become a question can be answered.
type agent struct {
	r      *Runner
	id     sessionID
	choice Choice
	// userID is the person who created the session.
	userID string
	// cwd and mode are the folder and the mode of the session when the process was started.
	cwd   string
	mode  sessionv1.Mode
	token string
	// bounds are the bounds of every turn of the process.
	bounds *sessionv1.Bounds

	process *process
	peer    *peer
	out     *output
	updates *updates
	dialog  dialog
	prompts prompts
	meter   meter
	// address is the gateway of the computer.
	address *address
	tools   http.Handler

	// changed has a value when the turn has to look at the agent: at its process, its prompts, its meter, or its last sign of life.
	changed chan struct{}
	mu      sync.Mutex
	// participant is the participant of the session. It is set when a turn begins, and when an input joins the turn.
	participant *sessionv1.Participant
	// turn is the running turn; nil between turns. turns is the number of turns that the process has begun.
	turn  *turn
	turns int
	// lastUpdate is the time of the agent's last sign of life.
	lastUpdate time.Time
	// hasState is set when the agent has sent a state in the turn. hasActed is set when it has called a tool. hasWorked is set when it has sent
	// a text, a call of a tool or a plan.
	hasState, hasActed, hasWorked bool
	effect                        effect
	// progress is the last progress that the tools have reported.
	progress *sessionv1.Machine
}

// sessionID names a session.
type sessionID struct{ workspace, session string }

// A failure is an end of a turn that a retry does not change.
type failure struct{ code, message string }

func (f *failure) Error() string { return f.code + ": " + f.message }

func (f *failure) row() *sessionv1.Failure {
	return &sessionv1.Failure{Code: f.code, Message: f.message}
}

// The codes of failures. Package meta has further codes.
const (
	codeRunnerLost       = session.FailureRunnerLost
	codeComputerLost     = session.FailureComputerLost
	codeAgentFailed      = "agent_failed"
	codeOutOfMemory      = "out_of_memory"
	codeAgentTimeout     = "agent_timeout"
	codeAgentUnavailable = "agent_unavailable"
	codeModelUnavailable = meta.CodeModelUnavailable
	codeBudget           = "budget"
	codeForbidden        = string(entity.Forbidden)
	codeStorage          = string(entity.InsufficientStorage)
)

// maxSessionID is the maximum length of an agent's own id of the session, which the session stores.
const maxSessionID = 1 << 10

// launch is the command that starts an agent in the root of the drive. It writes the path of the drive, which depends on the computer, and
// then executes the agent. The agent gets the session's folder when it opens the session.
var launch = []string{"/bin/sh", "-c", `ATELIER_DRIVE="$(pwd -P)" && export ATELIER_DRIVE && printf '%s\n' "$ATELIER_DRIVE" && exec "$@"`, "agent"}

// start starts an agent and opens the session in it. Errors: *failure if the agent cannot run; any other error if the agent may run later.
func (r *Runner) start(ctx context.Context, s *sessionv1.Session, choice Choice) (_ *agent, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.o.StartTimeout)
	defer cancel()
	id := sessionID{s.GetWorkspaceId(), s.GetId()}
	l := &agent{
		r: r, id: id, choice: choice, userID: s.GetCreatorUserId(), cwd: s.GetCwd(), mode: s.GetMode(), token: newToken(),
		bounds: s.GetTurn().GetBounds(), participant: session.ParticipantOf(s), out: newOutput(r.o.Asker, identityOf(id), r.metrics),
		changed: make(chan struct{}, 1), lastUpdate: time.Now(),
	}
	if l.address, err = r.addresses.acquire(ctx, id.workspace); err != nil {
		return nil, startError(err)
	}
	if r.o.Tools != nil {
		l.tools = limitTools(r.o.Tools.Handler(l))
	}
	r.addresses.admit(l)
	argv, env := choice.expand(r.o.Builtin, l.address.url, l.token)
	launched, err := r.o.Computers.Launch(ctx, Launch{
		WorkspaceID: id.workspace, SessionID: id.session, UserID: s.GetCreatorUserId(),
		Argv: append(append([]string{}, launch...), argv...), Env: env,
	})
	if err != nil {
		r.addresses.release(l)
		return nil, startError(err)
	}
	l.process = newProcess(launched, l.token)
	r.metrics.agents.Inc()
	go l.follow()
	if err := l.open(ctx, s); err != nil {
		l.end()
		return nil, l.openError(ctx, err)
	}
	if r.addresses.isLost(l.address) {
		l.end()
		return nil, errAddressLost
	}
	return l, nil
}

// startError returns a failure for an error that a retry does not change.
func startError(err error) error {
	if refusal, is := errors.AsType[*entity.Error](err); is && entity.IsRefusal(err) {
		return &failure{codeAgentUnavailable, "The agent could not be started: " + refusal.Message + "."}
	}
	return err
}

// errAddressLost means that the computer with the gateway was lost, and that the agent was started in the successor of the computer.
var errAddressLost = errors.New("the computer was replaced while an agent was started")

// openError returns the error for an agent that was started but did not open the session. The agent is being ended.
func (l *agent) openError(ctx context.Context, err error) error {
	if _, is := errors.AsType[*failure](err); is {
		return err
	}
	if l.r.addresses.isLost(l.address) {
		return errAddressLost
	}
	status := 0
	if l.process.awaitExit(context.WithoutCancel(ctx), l.r.o.CancelTimeout) || l.process.awaitExit(ctx, recordTimeout) {
		if status, _ = l.process.exit(); l.process.isComputerLost() {
			return fmt.Errorf("the computer has stopped while an agent was started: %w", err)
		}
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	l.r.metrics.agentFailures.WithLabelValues("start").Inc()
	l.log().Error("an agent does not start",
		slog.Int("status", status), slog.String("error", l.process.redacted(err.Error())), slog.String("stderr", l.process.lastWords()))
	return &failure{codeAgentUnavailable, fmt.Sprintf("The agent %s could not be started. The log of the server has its messages.", l.choice.Agent)}
}

func (l *agent) log() *slog.Logger {
	return l.r.o.Log.With(slog.String("workspace", l.id.workspace), slog.String("session", l.id.session), slog.String("agent", l.choice.Agent))
}

// follow waits for the end of the process.
func (l *agent) follow() {
	l.process.follow(func() {
		l.drain()
		l.r.addresses.release(l)
		l.r.pool.remove(l)
		l.r.metrics.agents.Dec()
	})
	l.signal()
}

// drain waits for a limited time until the output of the process is handled, and closes the connection.
func (l *agent) drain() {
	l.mu.Lock()
	p := l.peer
	l.mu.Unlock()
	if p != nil {
		timer := time.NewTimer(l.r.o.CancelTimeout)
		defer timer.Stop()
		select {
		case <-p.done():
		case <-timer.C:
		}
		p.close()
	}
	l.out.close()
}

// end ends the process. It does not wait for the end.
func (l *agent) end() {
	l.out.close()
	l.mu.Lock()
	p := l.peer
	l.mu.Unlock()
	if p != nil {
		p.close()
	}
	l.process.stop(func(err error) { l.log().Error("cannot end an agent", slog.Any("error", err)) })
}

func (l *agent) signal() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// open initializes the connection and opens the session.
func (l *agent) open(ctx context.Context, s *sessionv1.Session) error {
	stdout := bufio.NewReaderSize(l.process.Stdout(), 64<<10)
	home := make(chan string, 1)
	go func() {
		line, err := readLine(stdout)
		if err != nil || !path.IsAbs(string(line)) {
			close(home)
			return
		}
		home <- string(line)
	}()
	var drive string
	select {
	case found, ok := <-home:
		if !ok {
			return errAgentClosed
		}
		drive = path.Clean(found)
	case <-ctx.Done():
		return ctx.Err()
	}
	l.updates = &updates{out: l.out, home: drive, token: l.token}
	p := newPeer(l.process.Stdin(), stdout, l.notified, l.serve)
	l.mu.Lock()
	l.peer = p
	l.mu.Unlock()
	var initialized acp.InitializeResponse
	if err := l.peer.call(ctx, acp.AgentMethodInitialize, acp.InitializeRequest{
		ProtocolVersion: acp.ProtocolVersionNumber,
		ClientInfo:      &acp.Implementation{Name: "atelier", Version: l.r.o.Version},
	}, &initialized); err != nil {
		return err
	}
	if initialized.ProtocolVersion != acp.ProtocolVersionNumber {
		return &failure{codeAgentUnavailable, fmt.Sprintf("The agent speaks version %d of the Agent Client Protocol, and this server version %d.",
			initialized.ProtocolVersion, acp.ProtocolVersionNumber)}
	}
	l.dialog.initialize(initialized.AgentCapabilities)
	return l.openSession(ctx, s)
}

// openSession loads the session if the agent can and has an id for it, and creates it otherwise.
func (l *agent) openSession(ctx context.Context, s *sessionv1.Session) error {
	cwd := path.Join(l.updates.home, s.GetCwd())
	servers := l.servers()
	before := s.GetAgent()
	if before.GetAgent() != l.choice.Agent {
		before = nil
	}
	if id := before.GetAgentSessionId(); id != "" && l.dialog.canLoad() {
		err := l.peer.call(ctx, acp.AgentMethodSessionLoad, acp.LoadSessionRequest{SessionId: acp.SessionId(id), Cwd: cwd, McpServers: servers}, nil)
		if err == nil {
			l.dialog.load(acp.SessionId(id))
			return nil
		}
		if _, refused := errors.AsType[*acp.RequestError](err); !refused {
			return err
		}
	}
	request := acp.NewSessionRequest{Cwd: cwd, McpServers: servers}
	if l.dialog.isExtended() {
		l.dialog.setState(before.GetState())
		about, err := l.about(ctx, s, before)
		if err != nil {
			return err
		}
		request.Meta = about
	}
	var created acp.NewSessionResponse
	if err := l.peer.call(ctx, acp.AgentMethodSessionNew, request, &created); err != nil {
		return err
	}
	if len(created.SessionId) > maxSessionID {
		return &failure{codeAgentUnavailable, fmt.Sprintf("The agent %s has sent an id of a session that is too long.", l.choice.Agent)}
	}
	l.dialog.create(created.SessionId)
	return nil
}

// servers returns the MCP servers of the session.
func (l *agent) servers() []acp.McpServer {
	if l.tools == nil || !l.dialog.canConnect() {
		return []acp.McpServer{}
	}
	return []acp.McpServer{{Http: &acp.McpServerHttpInline{
		Type: "http", Name: meta.PlatformServer, Url: l.address.url + "/mcp",
		Headers: []acp.HttpHeader{{Name: "Authorization", Value: "Bearer " + l.token}},
	}}}
}

// about returns the values of the extension for the request that opens the session.
func (l *agent) about(ctx context.Context, s *sessionv1.Session, before *sessionv1.AgentState) (map[string]any, error) {
	instructions, err := l.r.instructions(ctx, s)
	if err != nil {
		return nil, err
	}
	about := map[string]any{meta.Mode: meta.ModeAuto, meta.Instructions: instructions, meta.Capabilities: l.Capabilities()}
	if l.choice.Agent == Builtin && l.choice.HasModel {
		about[meta.ModelKey] = l.token
	}
	if s.GetMode() == sessionv1.Mode_MODE_CONFIRM {
		about[meta.Mode] = meta.ModeConfirm
	}
	if len(before.GetState()) > 0 {
		about[meta.State] = json.RawMessage(before.GetState())
		return about, nil
	}
	history, err := l.r.history(ctx, s)
	if err != nil {
		return nil, err
	}
	if len(history) > 0 {
		about[meta.History] = history
	}
	return about, nil
}
