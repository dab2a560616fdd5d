package builtin

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/atelier-run/atelier/runner/builtin/tools"
	"github.com/atelier-run/atelier/runner/meta"
)

// maxSessions bounds the sessions of one process. The runner starts a process for each session.
const maxSessions = 16

// agent implements acp.Agent.
type agent struct {
	settings
	// prefix begins the ids of this process: two processes of a session must not use the same.
	prefix string
	now    func() time.Time

	connected chan struct{} // closed when client is set
	client    client

	lock     sync.Mutex
	sessions map[acp.SessionId]*session
	lastID   int
	turns    sync.WaitGroup
	isClosed bool
}

// client has the methods of the connection that the agent uses.
type client interface {
	SessionUpdate(context.Context, acp.SessionNotification) error
	RequestPermission(context.Context, acp.RequestPermissionRequest) (acp.RequestPermissionResponse, error)
}

var (
	_ acp.Agent                  = (*agent)(nil)
	_ acp.ExtensionMethodHandler = (*agent)(nil)
)

func newAgent(s settings) *agent {
	return &agent{
		settings: s, prefix: rand.Text()[:8], now: time.Now,
		connected: make(chan struct{}), sessions: map[acp.SessionId]*session{},
	}
}

// connect sets the client. Requests may arrive before; NewSession waits.
func (a *agent) connect(c client) {
	a.client = c
	close(a.connected)
}

// close ends all sessions, after their turns have ended, or the time is over.
func (a *agent) close(most time.Duration) {
	a.lock.Lock()
	a.isClosed = true
	var all []*session
	for _, s := range a.sessions {
		all = append(all, s)
	}
	a.lock.Unlock()
	for _, s := range all {
		s.end()
	}
	ended := make(chan struct{})
	go func() {
		a.turns.Wait()
		close(ended)
	}()
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
	}
	for _, s := range all {
		s.close()
	}
}

// nextID returns an id that no other process of the session uses.
func (a *agent) nextID(kind string) string {
	a.lock.Lock()
	defer a.lock.Unlock()
	a.lastID++
	return fmt.Sprintf("%s-%s-%d", kind, a.prefix, a.lastID)
}

// Initialize implements acp.Agent.
func (a *agent) Initialize(context.Context, acp.InitializeRequest) (acp.InitializeResponse, error) {
	return acp.InitializeResponse{
		ProtocolVersion: acp.ProtocolVersionNumber,
		AgentInfo:       &acp.Implementation{Name: "atelier", Version: "1"},
		AuthMethods:     []acp.AuthMethod{},
		AgentCapabilities: acp.AgentCapabilities{
			Meta:                map[string]any{meta.Steer: true},
			PromptCapabilities:  acp.PromptCapabilities{Image: true, EmbeddedContext: true},
			McpCapabilities:     acp.McpCapabilities{Http: true},
			SessionCapabilities: acp.SessionCapabilities{Close: &acp.SessionCloseCapabilities{}},
		},
	}, nil
}

// NewSession implements acp.Agent.
func (a *agent) NewSession(ctx context.Context, p acp.NewSessionRequest) (acp.NewSessionResponse, error) {
	<-a.connected
	if !filepath.IsAbs(p.Cwd) {
		return acp.NewSessionResponse{}, invalid("cwd %q is no absolute path", p.Cwd)
	}
	s, err := newSession(a, p)
	if err != nil {
		return acp.NewSessionResponse{}, invalid("%s", err)
	}
	dir := a.drive
	if dir == "" {
		dir = p.Cwd
	}
	if s.drive, err = tools.Open(dir, p.Cwd); err != nil {
		return acp.NewSessionResponse{}, invalid("%s", err)
	}
	if s.servers, err = connectServers(ctx, p.McpServers, a.environ); err != nil {
		s.close()
		return acp.NewSessionResponse{}, invalid("%s", err)
	}
	s.id = acp.SessionId(a.nextID("session"))
	a.lock.Lock()
	isRefused := a.isClosed || len(a.sessions) == maxSessions
	if !isRefused {
		a.sessions[s.id] = s
	}
	a.lock.Unlock()
	if isRefused {
		s.close()
		return acp.NewSessionResponse{}, invalid("the agent has %d sessions, or ends", maxSessions)
	}
	return acp.NewSessionResponse{SessionId: s.id}, nil
}

func invalid(format string, arguments ...any) error {
	return acp.NewInvalidParams(map[string]any{"error": fmt.Sprintf(format, arguments...)})
}

func (a *agent) session(id acp.SessionId) (*session, error) {
	a.lock.Lock()
	defer a.lock.Unlock()
	s := a.sessions[id]
	if s == nil {
		return nil, invalid("there is no session %q", id)
	}
	return s, nil
}

// Prompt implements acp.Agent.
func (a *agent) Prompt(ctx context.Context, p acp.PromptRequest) (acp.PromptResponse, error) {
	s, err := a.session(p.SessionId)
	if err != nil {
		return acp.PromptResponse{}, err
	}
	inputs, err := s.readInputs(p.Prompt, p.Meta)
	if err != nil {
		return acp.PromptResponse{}, invalid("%s", err)
	}
	a.lock.Lock()
	if a.isClosed {
		a.lock.Unlock()
		return acp.PromptResponse{}, invalid("the agent ends")
	}
	a.turns.Add(1)
	a.lock.Unlock()
	defer a.turns.Done()
	return s.prompt(ctx, inputs)
}

// Cancel implements acp.Agent. The library has ended the context of Prompt before the call. By now that turn may be over and the
// next one may run, which must go on.
func (a *agent) Cancel(context.Context, acp.CancelNotification) error { return nil }

// CloseSession implements acp.Agent.
func (a *agent) CloseSession(_ context.Context, p acp.CloseSessionRequest) (acp.CloseSessionResponse, error) {
	s, err := a.session(p.SessionId)
	if err != nil {
		return acp.CloseSessionResponse{}, err
	}
	s.end()
	a.lock.Lock()
	delete(a.sessions, p.SessionId)
	a.lock.Unlock()
	s.close()
	return acp.CloseSessionResponse{}, nil
}

// HandleExtensionMethod implements acp.ExtensionMethodHandler for meta.SteerMethod.
func (a *agent) HandleExtensionMethod(_ context.Context, method string, params json.RawMessage) (any, error) {
	if method != meta.SteerMethod {
		return nil, acp.NewMethodNotFound(method)
	}
	var p struct {
		SessionID acp.SessionId      `json:"sessionId"`
		Prompt    []acp.ContentBlock `json:"prompt"`
		Meta      map[string]any     `json:"_meta"`
	}
	if err := json.Unmarshal(params, &p); err != nil {
		return nil, invalid("%s", err)
	}
	s, err := a.session(p.SessionID)
	if err != nil {
		return nil, err
	}
	inputs, err := s.readInputs(p.Prompt, p.Meta)
	if err != nil {
		return nil, invalid("%s", err)
	}
	isAccepted, err := s.steer(inputs)
	if err != nil {
		return nil, invalid("%s", err)
	}
	return meta.SteerResponse{Accepted: isAccepted}, nil
}

// The methods of acp.Agent below are optional in the protocol, and the agent does not announce them.

// Authenticate implements acp.Agent.
func (a *agent) Authenticate(context.Context, acp.AuthenticateRequest) (acp.AuthenticateResponse, error) {
	return acp.AuthenticateResponse{}, acp.NewMethodNotFound(acp.AgentMethodAuthenticate)
}

// ListSessions implements acp.Agent.
func (a *agent) ListSessions(context.Context, acp.ListSessionsRequest) (acp.ListSessionsResponse, error) {
	return acp.ListSessionsResponse{}, acp.NewMethodNotFound(acp.AgentMethodSessionList)
}

// ResumeSession implements acp.Agent.
func (a *agent) ResumeSession(context.Context, acp.ResumeSessionRequest) (acp.ResumeSessionResponse, error) {
	return acp.ResumeSessionResponse{}, acp.NewMethodNotFound(acp.AgentMethodSessionResume)
}

// SetSessionConfigOption implements acp.Agent.
func (a *agent) SetSessionConfigOption(
	context.Context, acp.SetSessionConfigOptionRequest,
) (acp.SetSessionConfigOptionResponse, error) {
	return acp.SetSessionConfigOptionResponse{}, acp.NewMethodNotFound(acp.AgentMethodSessionSetConfigOption)
}

// SetSessionMode implements acp.Agent.
func (a *agent) SetSessionMode(context.Context, acp.SetSessionModeRequest) (acp.SetSessionModeResponse, error) {
	return acp.SetSessionModeResponse{}, acp.NewMethodNotFound(acp.AgentMethodSessionSetMode)
}
