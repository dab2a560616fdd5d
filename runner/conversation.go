package runner

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/coder/acp-go-sdk"

	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	"github.com/atelier-run/atelier/retry"
	"github.com/atelier-run/atelier/runner/gateway"
	"github.com/atelier-run/atelier/runner/meta"
)

// This file is the conversation of a runner with an agent with an open session: updates, requests for permission, prompts and
// their cancellation.

// touch records a sign of life.
func (l *agent) touch() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastUpdate = time.Now()
}

// notified handles a notification of the agent.
func (l *agent) notified(method string, params json.RawMessage) {
	if method != acp.ClientMethodSessionUpdate {
		return
	}
	var n acp.SessionNotification
	if json.Unmarshal(params, &n) != nil {
		return // an update of a later version of the protocol
	}
	l.touch()
	if !l.dialog.accepts(n.SessionId) {
		return
	}
	l.learn(n.Meta)
	if about := n.Update.SessionInfoUpdate; about != nil {
		l.learn(about.Meta)
	} else {
		l.mu.Lock()
		l.hasWorked, l.hasActed = true, l.hasActed || n.Update.ToolCall != nil
		l.mu.Unlock()
	}
	if !l.isNotice(n.Update) {
		l.updates.handle(n.Update)
	}
	l.touch()
}

// isNotice reports whether an update is a message that the agent itself, and not its model, has written about its configuration.
func (l *agent) isNotice(u acp.SessionUpdate) bool {
	return l.choice.agent.preset != nil && u.AgentMessageChunk != nil && l.choice.agent.preset.IsNotice(textOf(u.AgentMessageChunk.Content))
}

// learn takes the state and the usage from the extension of an update or a response.
func (l *agent) learn(values map[string]any) {
	if len(values) == 0 || !l.dialog.isExtended() {
		return
	}
	if state, has := values[meta.State]; has {
		if encoded, err := json.Marshal(state); err == nil && len(encoded) <= meta.MaxState {
			l.mu.Lock()
			l.hasState = true
			l.mu.Unlock()
			l.dialog.setState(encoded)
			l.out.set(false, func(r *sessionv1.RecordRows) { r.Agent = l.agentState() })
		}
	}
	var used meta.TokenUsage
	if decodeValue(values[meta.Usage], &used) {
		l.meter.report(used)
		l.sendUsage()
	}
}

// decodeValue decodes a value of an extension. It reports false if the value is missing or has a different form.
func decodeValue(value, to any) bool {
	if value == nil {
		return false
	}
	encoded, err := json.Marshal(value)
	return err == nil && json.Unmarshal(encoded, to) == nil
}

func (l *agent) agentState() *sessionv1.AgentState {
	return l.dialog.agentState(l.choice.Agent)
}

// sendUsage reports the tokens of the turn so far to the session, and makes the turn check its budget.
func (l *agent) sendUsage() {
	used := l.meter.usage()
	l.out.set(false, func(r *sessionv1.RecordRows) { r.Usage = used })
	l.signal()
}

// Model implements gateway.Run.
func (l *agent) Model() (gateway.Model, bool) { return l.choice.Model, l.choice.HasModel }

// AddTokens implements gateway.Run.
func (l *agent) AddTokens(input, output int64) {
	l.meter.add(input, output)
	l.touch()
	l.r.metrics.countTokens(l.choice.Model.Name, input, output)
	l.sendUsage()
}

// Tools implements gateway.Run.
func (l *agent) Tools() http.Handler {
	if l.tools == nil {
		return nil
	}
	l.touch()
	return l.tools
}

// isRunning reports whether the token is valid: while a turn runs, and before the first turn, when the agent connects to its tools.
func (l *agent) isRunning() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.turn != nil || l.turns == 0
}

// serve answers a request of the agent. The runner offers neither files nor terminals: the agent runs in the computer.
func (l *agent) serve(ctx context.Context, method string, params json.RawMessage) (any, *acp.RequestError) {
	l.touch()
	if method != acp.ClientMethodSessionRequestPermission {
		return nil, acp.NewMethodNotFound(method)
	}
	var request acp.RequestPermissionRequest
	if err := json.Unmarshal(params, &request); err != nil || len(request.Options) == 0 {
		return nil, acp.NewInvalidParams(nil)
	}
	if !l.dialog.isExtended() {
		request.Options = withoutAlways(request.Options)
	}
	return acp.RequestPermissionResponse{Outcome: l.permit(ctx, request)}, nil
}

// permit grants a permission, or waits for the answer of a person. It refuses a request that arrives after the cancellation of its prompt,
// because agents wait for the answer before they end the prompt.
func (l *agent) permit(ctx context.Context, request acp.RequestPermissionRequest) acp.RequestPermissionOutcome {
	isFree := l.choice.agent.preset != nil && l.choice.agent.preset.IsPlatformCall(request)
	if l.mode != sessionv1.Mode_MODE_CONFIRM || isFree {
		l.r.metrics.permissions.WithLabelValues("granted").Inc()
		return acp.NewRequestPermissionOutcomeSelected(grant(request.Options).OptionId)
	}
	p := &permission{request: request, answer: make(chan acp.RequestPermissionOutcome, 1)}
	if !l.prompts.admit(p) {
		return acp.NewRequestPermissionOutcomeCancelled()
	}
	l.signal()
	l.r.metrics.permissions.WithLabelValues("asked").Inc()
	select {
	case outcome := <-p.answer:
		return outcome
	case <-ctx.Done():
		return acp.NewRequestPermissionOutcomeCancelled()
	}
}

// withoutAlways returns the options without the options that permit for good, if a different option permits once. Some agents record a permission
// for good for all sessions of a computer.
func withoutAlways(options []acp.PermissionOption) []acp.PermissionOption {
	isAlways := func(o acp.PermissionOption) bool { return o.Kind == acp.PermissionOptionKindAllowAlways }
	if !slices.ContainsFunc(options, func(o acp.PermissionOption) bool { return o.Kind == acp.PermissionOptionKindAllowOnce }) {
		return options
	}
	return slices.DeleteFunc(options, isAlways)
}

// grant returns the option that permits most. If no option permits, it returns the first option.
func grant(options []acp.PermissionOption) acp.PermissionOption {
	for _, kind := range []acp.PermissionOptionKind{acp.PermissionOptionKindAllowAlways, acp.PermissionOptionKindAllowOnce} {
		for _, o := range options {
			if o.Kind == kind {
				return o
			}
		}
	}
	return options[0]
}

// send sends a prompt.
func (l *agent) send(blocks []acp.ContentBlock, values map[string]any) *prompt {
	p := &prompt{sent: make(chan struct{}), done: make(chan struct{})}
	l.meter.beginPrompt()
	l.prompts.begin(p)
	l.touch()
	go func() {
		defer close(p.done)
		p.err = l.peer.callAndReport(context.Background(), acp.AgentMethodSessionPrompt,
			acp.PromptRequest{SessionId: l.dialog.id(), Prompt: blocks, Meta: values}, &p.response, func() { close(p.sent) })
	}()
	return p
}

// cancel cancels the prompt and waits for its end. It returns false if the agent does not end the prompt in time.
func (l *agent) cancel(ctx context.Context) bool {
	p := l.prompts.cancel()
	if p == nil {
		return true
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), l.r.o.CancelTimeout)
	defer stop()
	p.awaitSent(ctx) // an agent ignores a cancellation that comes before the prompt
	// Some agents, such as agents with the SDK of the protocol, handle messages concurrently, and lose a cancellation that they handle before
	// the prompt. Therefore the cancellation is repeated, but not after the end of the prompt, because the agent could then cancel the next
	// prompt.
	for n := 1; !p.hasEnded(); n++ {
		_ = l.peer.sendNotification(ctx, acp.AgentMethodSessionCancel, acp.CancelNotification{SessionId: l.dialog.id()})
		if !retry.PauseUnless(ctx, cancelling.After(n), p.done) && !p.hasEnded() {
			return false
		}
	}
	return p.isAnswered()
}

// cancelling has the pauses after which a cancellation is sent again.
var cancelling = retry.Policy{First: 250 * time.Millisecond, Longest: time.Minute}

func isRequestError(err error) bool {
	_, is := errors.AsType[*acp.RequestError](err)
	return is
}

// reasonOf returns the text of an agent's error: the message in the data of the error, if there is such a message, because some agents have the
// same message for all errors.
func reasonOf(e *acp.RequestError) string {
	if fields, is := e.Data.(map[string]any); is {
		if text, is := fields["message"].(string); is && text != "" {
			return text
		}
	}
	return e.Message
}

// answerPermission answers the request for permission that was the question of the session. It reports false if the inputs do not answer the
// question.
func (t *turn) answerPermission(inputs []row) bool {
	l := t.l
	if len(inputs) != 1 || inputs[0].GetInput().GetKind() != sessionv1.InputKind_INPUT_KIND_ANSWER {
		return false
	}
	isAnswered, hasNext := l.prompts.answer(inputs[0].GetInput())
	if hasNext {
		l.signal() // the next request is the next question
	}
	if isAnswered {
		l.touch()
	}
	return isAnswered
}
