package runner

import (
	"context"
	"log/slog"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/atelier-run/atelier/entity"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	"github.com/atelier-run/atelier/retry"
	"github.com/atelier-run/atelier/runner/meta"
)

// steer gives the agent inputs while the turn runs. It returns the end of the turn if the agent fails.
func (t *turn) steer(ctx context.Context, seqs []uint64) *sessionv1.EndTurn {
	var inputs []row
	err := entity.AskUntilAnswered(ctx, func() (err error) {
		inputs, err = t.r.inputs(ctx, t.identity, seqs)
		return err
	})
	inputs = fitting(nil, inputs)
	if err == nil && t.l.dialog.isExtended() && !t.l.prompts.isAsking() {
		t.steerExtended(ctx, inputs)
		return nil
	}
	if err != nil {
		// The inputs wait, and start the next turn.
		t.l.log().Warn("cannot give an agent an input of its turn", slog.Any("error", err))
		return nil
	}
	p := t.l.prompts.current()
	if p.hasEnded() {
		return nil // the turn ends, and the inputs start the next turn
	}
	if !t.l.cancel(ctx) {
		return t.stopped(ctx)
	}
	if p.hasEndedByItself() {
		return nil
	}
	t.takeResult()
	if err := t.prompt(ctx, inputs, inputs); err != nil {
		t.l.log().Error("cannot give an agent an input of its turn", slog.Any("error", err))
		return t.interrupted(&failure{codeAgentFailed, "The input could not be read."})
	}
	return nil
}

// steerAttempts is the maximum number of attempts to give an agent inputs.
const steerAttempts = 4

// steering has the pauses between two attempts to give an agent inputs.
var steering = retry.Policy{First: 100 * time.Millisecond, Longest: time.Second}

// steerExtended gives inputs to an agent with the extension. The inputs that the agent does not accept start the next turn. It waits for a
// limited time, but an answer that arrives later counts, too, because otherwise the next turn would give the agent the inputs again.
func (t *turn) steerExtended(ctx context.Context, inputs []row) {
	p, answered := t.l.prompts.current(), make(chan struct{})
	t.steering.Go(func() {
		defer close(answered)
		accepted, err := t.l.steerRunning(t.steeringContext, p, inputs)
		if err != nil {
			t.l.log().Warn("cannot give an agent an input of its turn", slog.String("error", t.l.process.redacted(err.Error())))
		}
		if accepted {
			t.l.join(inputs)
		}
	})
	await(ctx, answered, t.r.o.CancelTimeout)
}

// awaitSteering waits until the agent, which has ended its prompt, has answered whether it had accepted inputs, for a limited time.
func (t *turn) awaitSteering(ctx context.Context) {
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		t.steering.Wait()
	}()
	await(ctx, answered, t.r.o.CancelTimeout)
}

// steerRunning is steer with several attempts, because an agent that handles messages concurrently refuses inputs until it has begun with the
// prompt.
func (l *agent) steerRunning(ctx context.Context, p *prompt, inputs []row) (bool, error) {
	for attempt := 1; ; attempt++ {
		accepted, err := l.steer(ctx, p, inputs)
		if accepted || err != nil || attempt == steerAttempts {
			return accepted, err
		}
		if !retry.PauseUnless(ctx, steering.After(attempt), p.done) {
			return false, ctx.Err()
		}
	}
}

// steer sends inputs to an agent with the extension that works on a prompt, and reports whether it has taken them.
func (l *agent) steer(ctx context.Context, p *prompt, inputs []row) (bool, error) {
	blocks, from, err := l.blocks(ctx, inputs)
	if err != nil {
		return false, err
	}
	request := meta.SteerRequest[acp.ContentBlock]{SessionID: string(l.dialog.id()), Prompt: blocks}
	request.Meta.Inputs = from
	var response meta.SteerResponse
	p.awaitSent(ctx) // before the agent has the prompt, it has no turn that could take the inputs
	err = l.peer.call(ctx, meta.SteerMethod, request, &response)
	return response.Accepted, err
}
