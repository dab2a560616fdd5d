package builtin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/coder/acp-go-sdk"

	"github.com/atelier-run/atelier/runner/builtin/model"
	"github.com/atelier-run/atelier/runner/builtin/runbook"
	"github.com/atelier-run/atelier/runner/builtin/tools"
	"github.com/atelier-run/atelier/runner/meta"
)

// maxSteered bounds the inputs that wait while a turn runs.
const maxSteered = 100

// A session is a session of ACP. Only its turn uses its state; at most one turn runs at a time.
type session struct {
	agent        *agent
	id           acp.SessionId
	mode         string
	instructions string
	// capabilities are the capabilities that the client permits; nil: all.
	capabilities []string
	drive        *tools.Drive
	servers      *servers
	// model is the agent's model, with the key of the session.
	model        model.Model
	state        state
	conversation []model.Message
	// isContinued is set if the session had turns before this process, or has had one.
	isContinued bool
	hasWarned   bool // about servers that are unavailable

	// saving is held while a state is encoded and sent, so that a later one is sent later. It precedes lock.
	saving  sync.Mutex
	lock    sync.Mutex
	current *turn
	isEnded bool
}

// state is the value that the client stores for the next process, under meta.State.
type state struct {
	Version int           `json:"version"`
	Runbook runbook.State `json:"runbook,omitzero"`
	// Allowed has the kinds of calls that need no permission in this session. With a model they are asked for again in each
	// process.
	Allowed map[string]bool `json:"allowed,omitempty"`
}

const stateVersion = 1

// newSession makes a session from the request session/new.
func newSession(a *agent, p acp.NewSessionRequest) (*session, error) {
	s := &session{agent: a, model: a.model}
	key, err := decodeMeta[string](p.Meta, meta.ModelKey)
	if err == nil && key != "" && a.model != nil {
		server := a.server
		server.Key = key
		s.model, err = model.New(server)
	}
	if err != nil {
		return nil, err
	}
	if s.mode, err = decodeMeta[string](p.Meta, meta.Mode); err != nil {
		return nil, err
	}
	if s.mode != "" && s.mode != meta.ModeAuto && s.mode != meta.ModeConfirm {
		return nil, fmt.Errorf("_meta[%q] is %q, and not %q or %q", meta.Mode, s.mode, meta.ModeAuto, meta.ModeConfirm)
	}
	if s.capabilities, err = decodeCapabilities(p.Meta); err != nil {
		return nil, err
	}
	if s.instructions, err = decodeMeta[string](p.Meta, meta.Instructions); err != nil {
		return nil, err
	}
	if s.state, err = decodeMeta[state](p.Meta, meta.State); err != nil {
		return nil, err
	}
	if s.state.Version > stateVersion {
		return nil, fmt.Errorf("_meta[%q] was written by a newer agent", meta.State)
	}
	if err := s.state.Runbook.Validate(); err != nil {
		return nil, fmt.Errorf("_meta[%q]: %w", meta.State, err)
	}
	history, err := decodeMeta[[]meta.Entry](p.Meta, meta.History)
	if err != nil {
		return nil, err
	}
	s.conversation = conversationOf(history)
	_, hasState := p.Meta[meta.State]
	s.isContinued = len(history) > 0 || hasState
	return s, nil
}

// close closes the MCP servers and the drive of the session. No turn runs.
func (s *session) close() {
	if s.servers != nil {
		s.servers.close()
	}
	if s.drive != nil {
		s.drive.Close()
	}
}

// end cancels the turn that runs, if any, and lets no other turn begin.
func (s *session) end() {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.isEnded = true
	if s.current != nil {
		s.current.cancel()
	}
}

// steer adds inputs to the turn that runs. It returns false if none does, or the state would have no room for their lines.
func (s *session) steer(inputs []input) (bool, error) {
	s.saving.Lock()
	defer s.saving.Unlock()
	s.lock.Lock()
	t := s.current
	s.lock.Unlock()
	if t == nil {
		return false, nil
	}
	unsaved := t.unsaved
	if s.agent.model == nil {
		unsaved = append(unsaved[:len(unsaved):len(unsaved)], linesOf(inputs)...)
	}
	text, err := t.savedWith(unsaved)
	if err != nil {
		return false, nil
	}
	if isAccepted, err := t.accept(inputs); !isAccepted {
		return false, err
	}
	if len(unsaved) > len(t.unsaved) && text != nil { // the next process does not get the inputs again
		t.updates.annotate(meta.State, text)
	}
	t.unsaved = unsaved
	return true, nil
}

// accept adds inputs to the turn unless it is over.
func (t *turn) accept(inputs []input) (bool, error) {
	t.session.lock.Lock()
	defer t.session.lock.Unlock()
	switch {
	case t.isOver:
		return false, nil
	case len(t.steered)+len(inputs) > maxSteered:
		return false, fmt.Errorf("more than %d inputs wait for the turn that runs", maxSteered)
	}
	t.steered = append(t.steered, inputs...)
	return true, nil
}

// A turn is one prompt and its response.
type turn struct {
	session *session
	cancel  context.CancelFunc
	updates *updates
	usage   meta.TokenUsage
	title   string
	// stop is the reason if the turn ends without an error.
	stop acp.StopReason

	// These belong to saving of the session. saved is the state of a runbook when it was last saved, and unsaved are the lines that
	// were accepted and are not in it.
	saved   json.RawMessage
	unsaved []runbook.Step

	// These belong to the lock of the session.
	steered []input
	isOver  bool
}

// A turnError is a turn that has failed.
type turnError struct{ meta.TurnError }

func (e *turnError) Error() string { return e.Message }

func failure(code, format string, arguments ...any) error {
	return &turnError{meta.TurnError{Code: code, Message: fmt.Sprintf(format, arguments...)}}
}

// prompt runs a turn.
func (s *session) prompt(ctx context.Context, inputs []input) (acp.PromptResponse, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t := &turn{
		session: s, cancel: cancel, stop: acp.StopReasonEndTurn,
		updates: &updates{session: s.id, client: s.agent.client},
	}
	s.lock.Lock()
	if s.isEnded {
		s.lock.Unlock()
		return acp.PromptResponse{}, invalid("the session %q ends", s.id)
	}
	if s.current != nil {
		s.lock.Unlock()
		return acp.PromptResponse{}, acp.NewInvalidRequest(map[string]any{"error": "a turn of the session runs"})
	}
	s.current = t
	s.lock.Unlock()
	t.warn()
	var err error
	if s.agent.model == nil {
		err = t.carryOut(ctx, inputs)
	} else {
		err = t.converse(ctx, inputs)
	}
	s.saving.Lock() // a state that steer sends precedes the state of the response
	s.lock.Lock()
	t.isOver = true // also after an error; inputs that still wait share the end of the turn
	s.lock.Unlock()
	s.saving.Unlock()
	t.keepSteered()
	t.updates.end()
	s.isContinued = true
	response := t.response(ctx, err)
	s.lock.Lock()
	s.current = nil
	s.lock.Unlock()
	return response, nil
}

// warn says which MCP servers are unavailable, in the first turn.
func (t *turn) warn() {
	if t.session.hasWarned {
		return
	}
	t.session.hasWarned = true
	for _, problem := range t.session.servers.problems {
		t.updates.say(problem)
	}
}

// response returns how the turn has ended, with the values of package meta.
func (t *turn) response(ctx context.Context, err error) acp.PromptResponse {
	values := map[string]any{}
	response := acp.PromptResponse{Meta: values, StopReason: t.stop}
	var failed *turnError
	switch {
	case ctx.Err() != nil:
		response.StopReason = acp.StopReasonCancelled
	case errors.As(err, &failed):
		response.StopReason = acp.StopReasonEndTurn
		values[meta.Error] = failed.TurnError
	case err != nil:
		response.StopReason = acp.StopReasonEndTurn
		values[meta.Error] = meta.TurnError{Code: meta.CodeAgentError, Message: err.Error()}
	}
	if t.session.agent.model == nil {
		// With a model the conversation is the state, and meta.History has that.
		if _, err := t.encodeState(); err != nil {
			t.session.state.Runbook = runbook.State{} // the client would go on with the state before
		}
		values[meta.State] = t.session.state
	}
	if t.usage != (meta.TokenUsage{}) {
		values[meta.Usage] = t.usage
	}
	if t.title != "" {
		values[meta.Title] = t.title
	}
	return response
}

// takeSteered returns the inputs that have arrived since the last call.
func (t *turn) takeSteered() []input {
	t.session.lock.Lock()
	defer t.session.lock.Unlock()
	taken := t.steered
	t.steered = nil
	return taken
}

// finish ends the acceptance of further inputs. It returns false, and changes nothing, if some wait.
func (t *turn) finish() bool {
	t.session.lock.Lock()
	defer t.session.lock.Unlock()
	if len(t.steered) > 0 {
		return false
	}
	t.isOver = true
	return true
}

// keepSteered keeps the inputs that the turn has accepted and not got to, because it was cancelled or has failed: they are not sent
// again. A model gets them with the next request. Their lines are the next lines of a runbook that may go on.
func (t *turn) keepSteered() {
	switch state := &t.session.state.Runbook; {
	case t.session.agent.model != nil:
		t.addMessage(t.takeSteered())
	case state.IsInterrupted:
		before := *state
		err := state.Interject(t.steeredSteps())
		if err == nil {
			_, err = t.encodeState()
		}
		if err != nil {
			*state = before
			t.updates.say(fmt.Sprintf("The new lines are not carried out: %s.", err))
		}
	}
}

// save sends the state to the client. It returns an error if the state is too large.
func (t *turn) save() error {
	t.session.saving.Lock()
	defer t.session.saving.Unlock()
	t.session.lock.Lock()
	waiting := linesOf(t.steered)
	t.session.lock.Unlock()
	text, err := t.encodeState()
	if err != nil {
		return err
	}
	t.saved, t.unsaved = text, waiting
	if with, err := t.savedWith(waiting); err == nil {
		text = with
	}
	t.updates.annotate(meta.State, text)
	return nil
}

// savedWith returns the state that was last saved, with further lines; nil if none was. It returns an error if that is too large. The
// caller holds saving.
func (t *turn) savedWith(lines []runbook.Step) (json.RawMessage, error) {
	if t.saved == nil || len(lines) == 0 {
		return t.saved, nil
	}
	var next state
	if err := json.Unmarshal(t.saved, &next); err != nil {
		return nil, err
	}
	if err := next.Runbook.Interject(lines); err != nil {
		return nil, err
	}
	return next.encode()
}

// encodeState returns the state of the session as the client stores it, or an error if it is too large.
func (t *turn) encodeState() (json.RawMessage, error) {
	t.session.state.Version = stateVersion
	return t.session.state.encode()
}

func (s *state) encode() (json.RawMessage, error) {
	text, err := json.Marshal(s)
	if err == nil && len(text) > meta.MaxState {
		return nil, failure(meta.CodeRunbookInvalid,
			"the runbook is too long: what is left of it has %d bytes, at most %d are allowed", len(text), meta.MaxState)
	}
	return text, err
}

// addUsage counts the tokens of a request.
func (t *turn) addUsage(u model.Usage) {
	if u == (model.Usage{}) {
		return
	}
	t.usage.InputTokens += u.Input
	t.usage.OutputTokens += u.Output
	t.updates.annotate(meta.Usage, t.usage)
}
