package runnertest

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/coder/acp-go-sdk"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/runner"
	"github.com/atelier-run/atelier/runner/meta"
)

// Drive is the path of the drive in the computers of a test.
const Drive = "/home/drive"

// An Agent is the script of an agent. It gets a Process of its own for each start.
type Agent struct {
	// Capabilities are the capabilities that the agent reports. Extended adds the extension of package meta.
	Capabilities acp.AgentCapabilities
	Extended     bool
	// Prompt answers a prompt. ctx ends when the prompt is cancelled.
	Prompt func(ctx context.Context, p *Process, r acp.PromptRequest) (acp.PromptResponse, error)
	// Load answers session/load; nil: the session is loaded.
	Load func(p *Process, r acp.LoadSessionRequest) error
	// SessionID is the agent's own id of the session; empty: "inner".
	SessionID acp.SessionId
	// Initialize sees initialize; it may be nil.
	Initialize func(p *Process)
	// New sees session/new; it may be nil.
	New func(p *Process, r acp.NewSessionRequest)
	// Steer answers the extension's request; nil: the inputs are not accepted.
	Steer func(p *Process, r meta.SteerRequest[acp.ContentBlock]) bool
	// Resume is the error of Process.Resume; nil: none.
	Resume func(p *Process) error
	// Broken makes the process end at once with the status.
	Broken int
}

// Computers start scripted agents. They implement runner.Computers.
type Computers struct {
	Agent *Agent
	// Refuse is the error of Launch and Listen, if it is set.
	Refuse func() error

	mu        sync.Mutex
	processes []*Process
	listeners map[string]*listener
}

// Started returns the processes that were started, the oldest first.
func (c *Computers) Started() []*Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.processes)
}

// Launch implements runner.Computers.
func (c *Computers) Launch(_ context.Context, l runner.Launch) (runner.Process, error) {
	if c.Refuse != nil {
		if err := c.Refuse(); err != nil {
			return nil, err
		}
	}
	p := newProcess(c.Agent, l)
	c.mu.Lock()
	c.processes = append(c.processes, p)
	c.mu.Unlock()
	go p.run()
	return p, nil
}

// Listen implements runner.Computers.
func (c *Computers) Listen(_ context.Context, workspaceID string, _ int) (net.Listener, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.listeners == nil {
		c.listeners = map[string]*listener{}
	}
	if l := c.listeners[workspaceID]; l != nil && !l.isClosed() {
		return nil, entity.Errorf(entity.InvalidRequest, "the port is in use")
	}
	l := &listener{connections: make(chan net.Conn), closed: make(chan struct{})}
	c.listeners[workspaceID] = l
	return l, nil
}

// Dial connects to the listener of a computer.
func (c *Computers) Dial(ctx context.Context, workspaceID string) (net.Conn, error) {
	c.mu.Lock()
	l := c.listeners[workspaceID]
	c.mu.Unlock()
	if l == nil {
		return nil, net.ErrClosed
	}
	ours, theirs := net.Pipe()
	select {
	case l.connections <- theirs:
		return ours, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// IsListening reports whether a computer has an open listener.
func (c *Computers) IsListening(workspaceID string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.listeners[workspaceID]
	return l != nil && !l.isClosed()
}

// StopListening ends the listener of a computer, as the end of the computer does.
func (c *Computers) StopListening(workspaceID string) {
	c.mu.Lock()
	l := c.listeners[workspaceID]
	c.mu.Unlock()
	if l != nil {
		_ = l.Close()
	}
}

type listener struct {
	connections chan net.Conn
	closed      chan struct{}
	once        sync.Once
}

func (l *listener) isClosed() bool {
	select {
	case <-l.closed:
		return true
	default:
		return false
	}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.connections:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (*listener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 4791} }

// A Process is a process of a scripted agent.
type Process struct {
	Launch runner.Launch
	// Connection is the agent's end of the connection.
	Connection *acp.AgentSideConnection

	agent                   *Agent
	stdin, stdout, stderr   *io.PipeReader
	toStdin, toOut, toError *io.PipeWriter
	once                    sync.Once
	// connected is closed when Connection is set, ended when the process has ended.
	connected, ended chan struct{}
	status           int
	reason           string
	// cancels has the cancel functions of the prompts that run. isResting is set by Rest.
	mu        sync.Mutex
	isResting bool
	killed    atomic.Uint64
	cancels   map[acp.SessionId]context.CancelFunc
}

func newProcess(a *Agent, l runner.Launch) *Process {
	p := &Process{Launch: l, agent: a, connected: make(chan struct{}), ended: make(chan struct{}), cancels: map[acp.SessionId]context.CancelFunc{}}
	p.stdin, p.toStdin = io.Pipe()
	p.stdout, p.toOut = io.Pipe()
	p.stderr, p.toError = io.Pipe()
	return p
}

// Env returns a variable of the environment of the process.
func (p *Process) Env(name string) string {
	for _, v := range p.Launch.Env {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}

func (p *Process) run() {
	if _, err := io.WriteString(p.toOut, Drive+"\n"); err != nil {
		return
	}
	if p.agent.Broken != 0 {
		_, _ = io.WriteString(p.toError, "agent: not found\n")
		p.Exit(p.agent.Broken, "")
		return
	}
	p.Connection = acp.NewAgentSideConnection(&scripted{p}, p.toOut, p.stdin)
	p.Connection.SetLogger(slog.New(slog.DiscardHandler))
	close(p.connected)
}

// Exit ends the process with a status and the reason of its computer.
func (p *Process) Exit(status int, reason string) {
	p.once.Do(func() {
		p.status, p.reason = status, reason
		_ = p.toOut.Close()
		_ = p.toError.Close()
		_ = p.stdin.Close()
		close(p.ended)
	})
}

// Ended returns a channel that is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Stdin implements runner.Process.
func (p *Process) Stdin() io.WriteCloser { return p.toStdin }

// Stdout implements runner.Process.
func (p *Process) Stdout() io.Reader { return p.stdout }

// Stderr implements runner.Process.
func (p *Process) Stderr() io.Reader { return p.stderr }

// End implements runner.Process.
func (p *Process) End(context.Context) error {
	p.Exit(137, "")
	return nil
}

// KillDescendant makes OutOfMemory return one more.
func (p *Process) KillDescendant() { p.killed.Add(1) }

// OutOfMemory implements runner.Process.
func (p *Process) OutOfMemory() uint64 { return p.killed.Load() }

// Rest implements runner.Process.
func (p *Process) Rest() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isResting = true
}

// Resume implements runner.Process. It returns the result of Agent.Resume.
func (p *Process) Resume() error {
	if p.agent.Resume != nil {
		if err := p.agent.Resume(p); err != nil {
			return err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isResting = false
	return nil
}

// IsResting reports whether the process is idle.
func (p *Process) IsResting() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.isResting
}

// Wait implements runner.Process.
func (p *Process) Wait(ctx context.Context) (status int, reason string, err error) {
	select {
	case <-p.ended:
		return p.status, p.reason, nil
	default:
	}
	select {
	case <-p.ended:
		return p.status, p.reason, nil
	case <-ctx.Done():
		return 0, "", ctx.Err()
	}
}

// Update sends an update of the session.
func (p *Process) Update(ctx context.Context, r acp.PromptRequest, u acp.SessionUpdate) {
	p.UpdateMeta(ctx, r, u, nil)
}

// UpdateMeta sends an update with values of an extension.
func (p *Process) UpdateMeta(ctx context.Context, r acp.PromptRequest, u acp.SessionUpdate, values map[string]any) {
	_ = p.Connection.SessionUpdate(ctx, acp.SessionNotification{SessionId: r.SessionId, Update: u, Meta: values})
}

// Say sends a piece of a message.
func (p *Process) Say(ctx context.Context, r acp.PromptRequest, text string) {
	p.Update(ctx, r, acp.UpdateAgentMessageText(text))
}

// scripted implements acp.Agent.
type scripted struct{ p *Process }

func (s *scripted) Initialize(context.Context, acp.InitializeRequest) (acp.InitializeResponse, error) {
	<-s.p.connected
	if s.p.agent.Initialize != nil {
		s.p.agent.Initialize(s.p)
	}
	c := s.p.agent.Capabilities
	if s.p.agent.Extended {
		c.Meta = map[string]any{meta.Steer: true}
	}
	return acp.InitializeResponse{ProtocolVersion: acp.ProtocolVersionNumber, AgentCapabilities: c, AuthMethods: []acp.AuthMethod{}}, nil
}

func (s *scripted) NewSession(_ context.Context, r acp.NewSessionRequest) (acp.NewSessionResponse, error) {
	<-s.p.connected
	if s.p.agent.New != nil {
		s.p.agent.New(s.p, r)
	}
	return acp.NewSessionResponse{SessionId: cmp.Or(s.p.agent.SessionID, "inner")}, nil
}

// LoadSession implements acp.AgentLoader.
func (s *scripted) LoadSession(_ context.Context, r acp.LoadSessionRequest) (acp.LoadSessionResponse, error) {
	<-s.p.connected
	if s.p.agent.Load == nil {
		return acp.LoadSessionResponse{}, nil
	}
	return acp.LoadSessionResponse{}, s.p.agent.Load(s.p, r)
}

func (s *scripted) Prompt(ctx context.Context, r acp.PromptRequest) (acp.PromptResponse, error) {
	<-s.p.connected
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.p.mu.Lock()
	s.p.cancels[r.SessionId] = cancel
	s.p.mu.Unlock()
	return s.p.agent.Prompt(ctx, s.p, r)
}

func (s *scripted) Cancel(_ context.Context, r acp.CancelNotification) error {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if cancel := s.p.cancels[r.SessionId]; cancel != nil {
		cancel()
	}
	return nil
}

// HandleExtensionMethod implements acp.ExtensionMethodHandler.
func (s *scripted) HandleExtensionMethod(_ context.Context, method string, params json.RawMessage) (any, error) {
	if method != meta.SteerMethod || !s.p.agent.Extended {
		return nil, acp.NewMethodNotFound(method)
	}
	var r meta.SteerRequest[acp.ContentBlock]
	if err := json.Unmarshal(params, &r); err != nil {
		return nil, err
	}
	return meta.SteerResponse{Accepted: s.p.agent.Steer != nil && s.p.agent.Steer(s.p, r)}, nil
}

func (*scripted) Authenticate(context.Context, acp.AuthenticateRequest) (acp.AuthenticateResponse, error) {
	return acp.AuthenticateResponse{}, nil
}

func (*scripted) CloseSession(context.Context, acp.CloseSessionRequest) (acp.CloseSessionResponse, error) {
	return acp.CloseSessionResponse{}, acp.NewMethodNotFound(acp.AgentMethodSessionClose)
}

func (*scripted) ListSessions(context.Context, acp.ListSessionsRequest) (acp.ListSessionsResponse, error) {
	return acp.ListSessionsResponse{}, acp.NewMethodNotFound(acp.AgentMethodSessionList)
}

func (*scripted) ResumeSession(context.Context, acp.ResumeSessionRequest) (acp.ResumeSessionResponse, error) {
	return acp.ResumeSessionResponse{}, acp.NewMethodNotFound(acp.AgentMethodSessionResume)
}

func (*scripted) SetSessionConfigOption(context.Context, acp.SetSessionConfigOptionRequest) (acp.SetSessionConfigOptionResponse, error) {
	return acp.SetSessionConfigOptionResponse{}, acp.NewMethodNotFound(acp.AgentMethodSessionSetConfigOption)
}

func (*scripted) SetSessionMode(context.Context, acp.SetSessionModeRequest) (acp.SetSessionModeResponse, error) {
	return acp.SetSessionModeResponse{}, acp.NewMethodNotFound(acp.AgentMethodSessionSetMode)
}
