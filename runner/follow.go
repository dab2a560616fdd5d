package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	"github.com/atelier-run/atelier/retry"
	"github.com/atelier-run/atelier/runner/meta"
)

// follow runs the turn until it ends: it waits for the agent, for inputs and interruptions of the session, for the
// loss of its participant's access, and for limits.
func (t *turn) follow(ctx context.Context) *sessionv1.EndTurn {
	l := t.l
	news, lost := make(chan *sessionv1.Session), make(chan *failure)
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	var watches sync.WaitGroup
	watches.Go(func() { t.watch(watching, news) })
	watches.Go(func() { t.watchParticipant(watching, lost) })
	t.steeringContext = watching
	defer func() { cancel(); watches.Wait(); t.steering.Wait() }()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		p := l.prompts.current()
		timer.Reset(t.nextLimit())
		select {
		case <-ctx.Done():
			if l.cancel(ctx) && p.hasEndedByItself() {
				return t.ended(ctx, p)
			}
			return t.interrupted(t.lost())
		case <-t.feed.refused:
			return t.abandon(ctx)
		case s := <-news:
			if end := t.changed(ctx, s); end != nil {
				return end
			}
		case f := <-lost:
			return t.endAccessLost(ctx, f)
		case <-p.done:
			t.awaitSteering(ctx)
			return t.ended(ctx, p)
		case <-l.changed:
			if end := t.checkAgent(ctx); end != nil {
				return end
			}
		case <-timer.C:
			if end := t.checkLimits(ctx); end != nil {
				return end
			}
		}
	}
}

// watch sends the session after each change that concerns the turn, and nil when the turn has ended.
func (t *turn) watch(ctx context.Context, news chan<- *sessionv1.Session) {
	after := t.after
	for ctx.Err() == nil {
		var s *sessionv1.Session
		asking, cancel := context.WithTimeout(ctx, watchTimeout)
		described, err := ask[*sessionv1.Description](asking, t.r.o.Asker, t.identity, &sessionv1.AwaitTurn{TurnId: t.turnID, RunId: t.runID, After: after})
		cancel()
		switch {
		case err != nil && !entity.IsRefusal(err):
			if !retry.Pause(ctx, watching.After(1)) {
				return
			}
			continue
		case err == nil:
			s = described.GetSession()
		}
		select {
		case news <- s:
		case <-ctx.Done():
			return
		}
		if s == nil || s.GetTurn().GetInterrupting() || s.GetTurn().GetId() != t.turnID {
			return
		}
		if seqs := steeringAfter(s, after); len(seqs) > 0 {
			after = seqs[len(seqs)-1] // the inputs that the turn does not take now are sent again
		}
	}
}

// watchTimeout bounds one AwaitTurn, so that a lost request is repeated.
const watchTimeout = 10 * time.Minute

// watching has the pauses before a request that failed is repeated.
var watching = retry.Policy{First: time.Second, Longest: time.Second}

// changed handles news of the session. It returns the end of the turn, or nil.
func (t *turn) changed(ctx context.Context, s *sessionv1.Session) *sessionv1.EndTurn {
	switch {
	case s == nil, s.GetTurn().GetId() != t.turnID, s.GetTurn().GetRunId() != t.runID:
		return t.abandon(ctx)
	case s.GetTurn().GetInterrupting():
		return t.endInterrupted(ctx, s.GetTurn().GetInterruptCode())
	}
	seqs := steeringAfter(s, t.after)
	if len(seqs) == 0 {
		return nil
	}
	t.after = seqs[len(seqs)-1]
	return t.steer(ctx, seqs)
}

// endInterrupted cancels the prompt, and ends a turn that is interrupted: by the platform with a code, or by a person without a code.
func (t *turn) endInterrupted(ctx context.Context, code string) *sessionv1.EndTurn {
	p := t.l.prompts.current()
	isAnswered := t.l.cancel(ctx)
	if !isAnswered {
		t.r.metrics.agentFailures.WithLabelValues("cancel").Inc()
		t.r.pool.discard(t.id)
	}
	if isAnswered && code != "" && p.hasEndedByItself() {
		return t.ended(ctx, p) // an interruption by the platform, unlike an interruption by a person, drops no result
	}
	t.takeResult()
	if code != "" {
		return t.interrupted(&failure{code, requested(code)})
	}
	return t.interrupted(nil)
}

// steeringAfter returns the inputs after a seq that wait for the running turn, as many as it takes at once.
func steeringAfter(s *sessionv1.Session, after uint64) []uint64 {
	var seqs []uint64
	for _, p := range s.GetPending() {
		if p.GetSeq() > after && session.SteersTurn(s.GetTurn(), p) && len(seqs) < maxWaitingInputs {
			seqs = append(seqs, p.GetSeq())
		}
	}
	return seqs
}

// requestedCodes has the codes of interruptions by the platform.
var requestedCodes = map[string]string{
	string(entity.WorkspaceSuspended): "The workspace was suspended.",
	string(entity.WorkspaceClosed):    "The workspace was closed.",
}

func isRequestedCode(code string) bool { return requestedCodes[code] != "" }

func requested(code string) string {
	if text := requestedCodes[code]; text != "" {
		return text
	}
	return "The platform has interrupted the turn."
}

// abandon stops the agent of a turn that has ended although its run has not: the session was deleted.
func (t *turn) abandon(ctx context.Context) *sessionv1.EndTurn {
	t.l.cancel(ctx)
	t.r.pool.discard(t.id)
	return t.interrupted(nil)
}

// failIfRefused makes the end of a turn a failure if the rows of the turn were refused because the workspace has no room in the journal. The
// refused rows are lost. The agent is ended, because its state assumes that the rows are stored.
func (t *turn) failIfRefused(end *sessionv1.EndTurn) {
	select {
	case <-t.feed.refused:
	default:
		return
	}
	refusal, is := errors.AsType[*entity.Error](t.feed.refusal)
	if !is || refusal.Code != entity.InsufficientStorage {
		return
	}
	t.r.pool.discard(t.id)
	end.Status, end.Error = sessionv1.TurnStatus_TURN_STATUS_INTERRUPTED, (&failure{codeStorage, "The turn cannot be stored: " + refusal.Message + "."}).row()
	end.Ask, end.WakeAt, end.Resume, end.TitleFailed = nil, 0, "", false
}

// ended returns the end of a turn after its prompt has ended.
func (t *turn) ended(ctx context.Context, p *prompt) *sessionv1.EndTurn {
	if p.err != nil && !isRequestError(p.err) {
		return t.stopped(ctx)
	}
	turnError := t.takeResult()
	if refused, is := errors.AsType[*acp.RequestError](p.err); is {
		t.r.metrics.agentFailures.WithLabelValues("exit").Inc()
		t.l.log().Warn("an agent has failed in a turn",
			slog.String("error", t.l.process.redacted(refused.Error())), slog.String("stderr", t.l.process.lastWords()))
		// codex can ignore a prompt that follows an error at once.
		t.r.pool.discard(t.id)
		return t.interrupted(&failure{codeAgentFailed, "The agent has failed: " + limit(t.l.process.redacted(reasonOf(refused)), maxTitle)})
	}
	if turnError.Code != "" {
		return t.interrupted(&failure{limit(turnError.Code, 100), limit(t.l.process.redacted(turnError.Message), maxStep)})
	}
	switch p.response.StopReason {
	case acp.StopReasonCancelled:
		return t.interrupted(&failure{codeAgentFailed, "The agent has cancelled its turn."})
	case acp.StopReasonRefusal:
		return t.interrupted(&failure{meta.CodeModelRefused, "The model has refused to reply."})
	case acp.StopReasonMaxTokens:
		return t.interrupted(&failure{meta.CodeModelError, "The reply of the model was longer than the agent permits."})
	case acp.StopReasonMaxTurnRequests:
		return t.interrupted(&failure{meta.CodeTooManySteps, "The agent has made more requests to the model than a turn permits."})
	}
	return t.completed()
}

// completed returns the end of a turn that has succeeded.
func (t *turn) completed() *sessionv1.EndTurn {
	l := t.l
	l.mu.Lock()
	e := l.effect
	l.mu.Unlock()
	switch {
	case e.ask != nil:
		return &sessionv1.EndTurn{Status: sessionv1.TurnStatus_TURN_STATUS_ASK, Ask: e.ask}
	case e.wakeAt != 0:
		return &sessionv1.EndTurn{Status: sessionv1.TurnStatus_TURN_STATUS_SLEEP, WakeAt: e.wakeAt}
	default:
		return &sessionv1.EndTurn{Status: sessionv1.TurnStatus_TURN_STATUS_COMPLETE}
	}
}

// takeResult takes the values of the extension from the response of the prompt that has ended, and returns its error.
func (t *turn) takeResult() meta.TurnError {
	l := t.l
	p := l.prompts.takeEnded()
	if p == nil {
		return meta.TurnError{}
	}
	l.learn(p.response.Meta)
	if used := p.response.Usage; used != nil && !l.dialog.isExtended() {
		l.meter.report(meta.TokenUsage{InputTokens: int64(used.InputTokens), OutputTokens: int64(used.OutputTokens)})
		l.sendUsage()
	}
	var turnError meta.TurnError
	if l.dialog.isExtended() {
		decodeValue(p.response.Meta[meta.Error], &turnError)
		if title, _ := p.response.Meta[meta.Title].(string); strings.TrimSpace(title) != "" {
			t.title = limit(strings.TrimSpace(title), session.MaxTitle)
			l.out.set(false, func(r *sessionv1.RecordRows) { r.Title = t.title })
		}
	}
	return turnError
}

// recordTimeout is longer than a computer needs to record the last changes of a process, before the end of the process is known.
const recordTimeout = 75 * time.Second

// stopped returns the end of a turn if its agent has closed the connection or does not answer.
func (t *turn) stopped(ctx context.Context) *sessionv1.EndTurn {
	l := t.l
	if !l.process.awaitExit(ctx, t.r.o.CancelTimeout) {
		t.r.pool.discard(t.id)
		isKnown := l.process.awaitExit(ctx, recordTimeout)
		if ctx.Err() != nil {
			return t.interrupted(t.lost())
		}
		if !isKnown || !l.process.isComputerLost() {
			t.r.metrics.agentFailures.WithLabelValues("exit").Inc()
			l.log().Error("an agent has closed its output in a turn",
				slog.Any("error", context.Cause(l.peer.ctx)), slog.String("stderr", l.process.lastWords()))
			return t.interrupted(&failure{codeAgentFailed, "The agent does not answer any more. The log of the server has its messages."})
		}
	}
	if l.process.isComputerLost() {
		end := t.interrupted(&failure{codeComputerLost, "The computer of the workspace was stopped or lost while the turn ran."})
		if end.Resume = meta.Continue; l.hasNotBegun() {
			end.Resume = repeatText
		}
		return end
	}
	t.r.metrics.agentFailures.WithLabelValues("exit").Inc()
	status, reason := l.process.exit()
	l.log().Error("an agent has ended in a turn",
		slog.Int("status", status), slog.String("reason", reason), slog.String("stderr", l.process.lastWords()))
	text := fmt.Sprintf("The agent has ended with the status %d. The log of the server has its messages.", status)
	if reason == codeOutOfMemory {
		return t.interrupted(&failure{codeOutOfMemory, "The agent was ended because the memory of the computer was short."})
	}
	if reason != "" {
		text = fmt.Sprintf("The computer has ended the agent (%s).", reason)
	}
	return t.interrupted(&failure{codeAgentFailed, text})
}

// checkAgent handles reports of the agent: a request for permission, or tokens.
func (t *turn) checkAgent(ctx context.Context) *sessionv1.EndTurn {
	if p := t.l.prompts.ask(); p != nil {
		return &sessionv1.EndTurn{Status: sessionv1.TurnStatus_TURN_STATUS_ASK, Ask: t.l.permissionAsk(p.request)}
	}
	return t.checkLimits(ctx)
}

func permissionOption(i int) string { return "permission." + strconv.Itoa(i+1) }

func isSameText(a, b string) bool {
	return strings.EqualFold(strings.TrimSpace(a), strings.TrimSpace(b))
}

// permissionAsk returns the question for a request for permission.
func (l *agent) permissionAsk(request acp.RequestPermissionRequest) *sessionv1.Ask {
	text := "The agent asks for permission."
	if title := request.ToolCall.Title; title != nil && *title != "" {
		text = "The agent asks for permission: " + limit(l.process.redacted(*title), maxTitle)
	}
	out := &sessionv1.Ask{Text: text}
	for i, o := range request.Options[:min(len(request.Options), session.MaxOptions)] {
		out.Options = append(out.Options, &sessionv1.Option{Id: permissionOption(i), Label: limit(l.process.redacted(o.Name), maxTitle)})
	}
	return out
}

// nextLimit returns the time until checkLimits has something to check.
func (t *turn) nextLimit() time.Duration {
	t.l.mu.Lock()
	silent := t.r.o.SilenceTimeout - time.Since(t.l.lastUpdate)
	t.l.mu.Unlock()
	if left, has := t.budget.timeLeft(time.Now()); has {
		silent = min(silent, left)
	}
	return max(silent, 0)
}

// checkLimits ends the turn if the agent has been silent for too long, or a budget is used up.
func (t *turn) checkLimits(ctx context.Context) *sessionv1.EndTurn {
	l := t.l
	if scope := t.budget.exceeded(l.meter.usage(), time.Now()); scope != "" {
		p := l.prompts.current()
		isAnswered := l.cancel(ctx)
		if !isAnswered {
			t.r.pool.discard(t.id)
		}
		if isAnswered && p.hasEndedByItself() {
			return t.ended(ctx, p) // perhaps with a question of the agent; the next turn asks for the budget
		}
		t.takeResult()
		return budgetAsk(scope, begun)
	}
	l.mu.Lock()
	silent := time.Since(l.lastUpdate) >= t.r.o.SilenceTimeout
	l.mu.Unlock()
	if !silent {
		return nil
	}
	t.r.metrics.agentFailures.WithLabelValues("silence").Inc()
	l.log().Error("an agent was silent for too long and is ended", slog.String("stderr", l.process.lastWords()))
	l.cancel(ctx)
	t.r.pool.discard(t.id)
	return t.interrupted(&failure{codeAgentTimeout, fmt.Sprintf("The agent has sent nothing for %s, and was ended.", t.r.o.SilenceTimeout)})
}
