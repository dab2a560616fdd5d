package runner

import (
	"context"
	"sync"

	"github.com/coder/acp-go-sdk"

	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
)

// prompts has the prompt that an agent works on, and the agent's requests for permission that wait for an answer. One lock protects both, so
// that no request begins to wait after the cancellation of the prompt. The methods may be called concurrently.
type prompts struct {
	mu      sync.Mutex
	running *prompt
	waiting []*permission
}

// A prompt is a request that the agent works on. response and err are set when done is closed.
type prompt struct {
	// sent is closed when the request precedes every later message to the agent. done is closed when the agent has ended the prompt.
	sent, done chan struct{}
	response   acp.PromptResponse
	err        error
	// isCancelled is set when the agent is told to end the prompt. The mu of prompts protects it.
	isCancelled bool
}

// A permission is a request of the agent that waits for an answer.
type permission struct {
	request acp.RequestPermissionRequest
	answer  chan acp.RequestPermissionOutcome
	// asked is set when the request has become the question of the session. The mu of prompts protects it.
	asked bool
}

// awaitSent waits until the request is on its way to the agent, or ctx ends.
func (p *prompt) awaitSent(ctx context.Context) {
	select {
	case <-p.sent:
	case <-p.done:
	case <-ctx.Done():
	}
}

// hasEnded reports whether the agent has ended the prompt, or is gone.
func (p *prompt) hasEnded() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// isAnswered reports whether the agent has answered a prompt, if only with an error. done is closed.
func (p *prompt) isAnswered() bool { return p.err == nil || isRequestError(p.err) }

// hasEndedByItself reports whether the agent has ended a prompt before it knew of the cancellation of the prompt. done is closed.
func (p *prompt) hasEndedByItself() bool {
	return p.err == nil && p.response.StopReason != acp.StopReasonCancelled
}

// current returns the prompt that the agent works on; nil if the agent works on no prompt.
func (s *prompts) current() *prompt {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running
}

// begin makes a prompt the current prompt.
func (s *prompts) begin(p *prompt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = p
}

// takeEnded removes the current prompt, and returns it, if it has ended; otherwise it returns nil.
func (s *prompts) takeEnded() *prompt {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.running
	if p == nil || !p.hasEnded() {
		return nil
	}
	s.running = nil
	return p
}

// cancel marks the current prompt as cancelled, refuses the permissions that wait, and returns the prompt; nil if the agent works on no prompt.
func (s *prompts) cancel() *prompt {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.waiting {
		w.answer <- acp.NewRequestPermissionOutcomeCancelled() // has room: each request gets one answer
	}
	s.waiting = nil
	if s.running != nil {
		s.running.isCancelled = true
	}
	return s.running
}

// admit adds a request for permission. It reports false if the current prompt is cancelled.
func (s *prompts) admit(p *permission) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running != nil && s.running.isCancelled {
		return false
	}
	s.waiting = append(s.waiting, p)
	return true
}

// ask returns the first request that waits, if it is not the question of the session yet; otherwise it returns nil.
func (s *prompts) ask() *permission {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 || s.waiting[0].asked {
		return nil
	}
	s.waiting[0].asked = true
	return s.waiting[0]
}

// isAsking reports whether a request for permission is the question of the session.
func (s *prompts) isAsking() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting) > 0 && s.waiting[0].asked
}

// answer answers the request for permission that is the question of the session. isAnswered is false if the input chooses no option of the
// question, or the agent waits for no permission any more. hasNext is set if a further request waits.
func (s *prompts) answer(in *sessionv1.Input) (isAnswered, hasNext bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil || s.running.hasEnded() && s.running.isAnswered() { // the agent does not wait for the permission any more
		return false, false
	}
	if len(s.waiting) == 0 || !s.waiting[0].asked {
		return false, false
	}
	p := s.waiting[0]
	for i, o := range p.request.Options {
		if in.GetOptionId() == permissionOption(i) || in.GetOptionId() == "" && isSameText(in.GetText(), o.Name) {
			p.answer <- acp.NewRequestPermissionOutcomeSelected(o.OptionId)
			s.waiting = s.waiting[1:]
			return true, len(s.waiting) > 0
		}
	}
	return false, false
}
