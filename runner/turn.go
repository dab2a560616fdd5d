package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/coder/acp-go-sdk"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/runner/meta"
)

// A turn is the run of one turn.
type turn struct {
	r        *Runner
	id       sessionID
	identity string
	turnID   uint64
	runID    string
	// s is the session as it was when the run took the turn.
	s      *sessionv1.Session
	l      *agent
	feed   *feed
	budget *budget
	// after is the seq of the last input that the agent has got or that waits for the next turn.
	after uint64
	// title is the title that the agent has suggested.
	title string
	// steering counts the requests to take inputs that the agent has not answered. They end with steeringContext.
	steering        sync.WaitGroup
	steeringContext context.Context
}

// A stoppedWorkspace makes the task of a turn wait until its workspace runs sessions again.
type stoppedWorkspace struct{ code entity.Code }

func (e *stoppedWorkspace) Error() string {
	return "the workspace runs no sessions now: " + string(e.code)
}

// RunTurn executes a task of the kind session.TurnTask, and returns the command that completes it. It is the Run of an executor;
// the package comment describes its steps. An error means that the turn has not begun, and may begin later.
func (r *Runner) RunTurn(ctx context.Context, identity string, m *sessionv1.TurnTask) (proto.Message, error) {
	s, err := r.describe(ctx, identity)
	switch {
	case err != nil && entity.IsRefusal(err), err == nil && s.GetTurn().GetId() != m.GetTurnId():
		// The turn has ended, and the completion has no effect.
		return &sessionv1.EndTurn{TurnId: m.GetTurnId(), Status: sessionv1.TurnStatus_TURN_STATUS_INTERRUPTED}, nil
	case err != nil:
		return nil, err
	case s.GetTurn().GetRunId() != "":
		end := r.endLost(s)
		r.metrics.countTurn(end)
		return end, nil
	}
	if err := r.checkWorkspace(ctx, s.GetWorkspaceId()); err != nil {
		return nil, err
	}
	end, err := r.run(ctx, s)
	if err != nil {
		return nil, err
	}
	r.metrics.countTurn(end)
	return end, nil
}

// endLost ends a turn after its run has ended with its process.
func (*Runner) endLost(s *sessionv1.Session) *sessionv1.EndTurn {
	return &sessionv1.EndTurn{
		TurnId: s.GetTurn().GetId(), RunId: s.GetTurn().GetRunId(), Status: sessionv1.TurnStatus_TURN_STATUS_INTERRUPTED,
		Error: &sessionv1.Failure{Code: codeRunnerLost, Message: "The server was stopped or has failed while the turn ran."},
	}
}

// describe returns a session. Errors: not_found if it does not exist or is deleted.
func (r *Runner) describe(ctx context.Context, identity string) (*sessionv1.Session, error) {
	described, err := ask[*sessionv1.Description](ctx, r.o.Asker, identity, &sessionv1.DescribeSession{})
	return described.GetSession(), err
}

// checkWorkspace returns an error unless the workspace runs sessions.
func (r *Runner) checkWorkspace(ctx context.Context, id string) error {
	described, err := entity.AskAsPlatform[*workspacev1.Description](ctx, r.o.Asker, entity.KindWorkspace, id, &workspacev1.DescribeWorkspace{})
	if err != nil {
		return err
	}
	switch w := described.GetWorkspace(); {
	case w.GetSuspension() != nil:
		return &stoppedWorkspace{entity.WorkspaceSuspended}
	case w.GetStatus() == workspacev1.Status_STATUS_ARCHIVED, w.GetStatus() == workspacev1.Status_STATUS_RETIRED,
		w.GetStatus() == workspacev1.Status_STATUS_DELETED:
		return &stoppedWorkspace{entity.WorkspaceClosed}
	}
	return nil
}

// run prepares an agent, takes the turn and runs it.
func (r *Runner) run(ctx context.Context, s *sessionv1.Session) (*sessionv1.EndTurn, error) {
	id := sessionID{s.GetWorkspaceId(), s.GetId()}
	l, err := r.prepare(ctx, s)
	failed, cannotRun := errors.AsType[*failure](err)
	if err != nil && !cannotRun {
		return nil, err
	}
	t := &turn{r: r, id: id, identity: identityOf(id), turnID: s.GetTurn().GetId(), runID: newID("run_"), l: l}
	if l != nil {
		defer r.pool.release(l)
	}
	if err := r.checkWorkspace(ctx, id.workspace); err != nil { // the start of an agent takes time
		if _, isStopped := errors.AsType[*stoppedWorkspace](err); isStopped {
			r.pool.discard(id)
		}
		return nil, err
	}
	if end, err := t.claim(ctx); end != nil || err != nil {
		return end, err
	}
	r.metrics.waits.Observe(max(r.o.Clock().Sub(time.UnixMilli(s.GetTurn().GetStartedAt())), 0).Seconds())
	end := t.interrupted(failed)
	if !cannotRun {
		r.metrics.running.Inc()
		defer r.metrics.running.Dec()
		end = t.carryOut(ctx)
	}
	if code := end.GetError().GetCode(); isRequestedCode(code) || code == session.FailureAccessLost {
		r.pool.discard(id) // neither a workspace that is stopped nor a participant without access has idle agents
	}
	return end, nil
}

// prepare returns an agent for the next turn of a session. Errors: *failure if none can run, or the participant has no access.
func (r *Runner) prepare(ctx context.Context, s *sessionv1.Session) (*agent, error) {
	if err := r.checkParticipant(ctx, s.GetWorkspaceId(), session.ParticipantOf(s), s.GetTurn().GetBounds()); err != nil {
		return nil, err
	}
	tier := s.GetTurn().GetTier()
	if tier == workspacev1.Tier_TIER_UNSPECIFIED {
		tier = workspacev1.Tier_TIER_BALANCED
	}
	choice, ok := r.o.Config.Choose(tier)
	if !ok {
		return nil, &failure{codeModelUnavailable, fmt.Sprintf("The operator has configured no agent for the tier %s.", entity.TierNames[tier])}
	}
	if err := checkBounds(choice, s.GetTurn().GetBounds()); err != nil {
		return nil, err
	}
	return r.pool.acquire(ctx, s, choice)
}

// checkBounds returns an error if an agent could do more than the bounds of a turn permit. The built-in agent offers no tool beyond the bounds.
// Any other agent can run any command in the computer, and reads and writes the drive.
func checkBounds(choice Choice, bounds *sessionv1.Bounds) error {
	missing := entity.MissingForProcesses(session.Granted(bounds))
	if choice.Agent == Builtin || len(missing) == 0 {
		return nil
	}
	return &failure{codeForbidden, fmt.Sprintf("The agent %s runs commands, for which the credential of the input lacks %s.",
		choice.Agent, strings.Join(missing, ", "))}
}

// claim takes the turn. If the session refuses, it returns the end of the turn.
func (t *turn) claim(ctx context.Context) (*sessionv1.EndTurn, error) {
	var described *sessionv1.Description
	err := entity.AskUntilAnswered(ctx, func() (err error) {
		described, err = ask[*sessionv1.Description](ctx, t.r.o.Asker, t.identity, &sessionv1.ClaimTurn{TurnId: t.turnID, RunId: t.runID})
		return err
	})
	if entity.HasCode(err, entity.TurnTaken) {
		s, err := t.r.describe(ctx, t.identity)
		if err != nil || s.GetTurn().GetId() != t.turnID {
			return t.interrupted(nil), err // has no effect: the turn has ended
		}
		return t.r.endLost(s), nil
	}
	if err != nil && entity.IsRefusal(err) {
		return &sessionv1.EndTurn{TurnId: t.turnID, RunId: t.runID, Status: sessionv1.TurnStatus_TURN_STATUS_INTERRUPTED}, nil
	}
	if err != nil {
		return nil, err
	}
	t.s, t.after = described.GetSession(), t.turnID
	return nil, nil
}

// carryOut runs the turn that was taken. It always returns the end of the turn.
func (t *turn) carryOut(ctx context.Context) *sessionv1.EndTurn {
	l := t.l
	l.begin(t)
	defer l.finish()
	t.feed = l.out.attach(context.WithoutCancel(ctx), t.turnID, t.runID, t.turnID)
	defer t.feed.detach()
	killed := l.process.OutOfMemory()
	end := t.begin(ctx)
	if end == nil {
		end = t.follow(ctx)
	}
	if end.GetStatus() != sessionv1.TurnStatus_TURN_STATUS_ASK || !l.prompts.isAsking() {
		l.updates.endCalls()
	}
	if (end.GetError().GetCode() == meta.CodeRunbookFailed || end.GetError().GetCode() == codeAgentFailed) && l.process.OutOfMemory() > killed {
		end.Error = (&failure{codeOutOfMemory, "The memory of the computer was short, and a command was ended. " + end.GetError().GetMessage()}).row()
	}
	t.close(ctx, end)
	return end
}

const (
	// closeTimeout bounds the reports of a turn when its node stops.
	closeTimeout = 3 * time.Second
	// addTimeout bounds the report to the workspace, which must not delay the end of the turn for long.
	addTimeout = 10 * time.Second
)

// close records the rest of the agent's output, and completes the end of the turn. If ctx has ended, the executor does not send the end to the
// session any more; therefore close sends it.
func (t *turn) close(ctx context.Context, end *sessionv1.EndTurn) {
	end.TurnId, end.RunId, end.Usage, end.Agent = t.turnID, t.runID, t.l.meter.usage(), t.l.agentState()
	end.TitleFailed = end.GetStatus() == sessionv1.TurnStatus_TURN_STATUS_COMPLETE && t.title == "" &&
		t.s.GetTitleStatus() == sessionv1.TitleStatus_TITLE_STATUS_GENERATING
	if ctx.Err() == nil {
		t.feed.flush(ctx)
		t.failIfRefused(end)
		adding, cancel := context.WithTimeout(ctx, addTimeout)
		defer cancel()
		t.addUsage(adding)
	}
	if ctx.Err() == nil {
		return
	}
	short, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	t.feed.flush(short)
	t.failIfRefused(end)
	err := tell(short, t.r.o.Asker, t.identity, end)
	if err == nil {
		t.addUsage(short)
	}
	t.r.pool.discard(t.id)
}

// interrupted returns the end of a turn that has failed.
func (t *turn) interrupted(f *failure) *sessionv1.EndTurn {
	end := &sessionv1.EndTurn{TurnId: t.turnID, RunId: t.runID, Status: sessionv1.TurnStatus_TURN_STATUS_INTERRUPTED}
	if f != nil {
		end.Error = f.row()
	}
	return end
}

// begin gives the agent the inputs of the turn. If the agent gets no inputs, it returns the end of the turn. Its time is bounded, because
// interruptions and limits of the turn are not handled meanwhile.
func (t *turn) begin(ctx context.Context) *sessionv1.EndTurn {
	var end *sessionv1.EndTurn
	beginning, cancel := context.WithTimeout(ctx, t.r.o.StartTimeout)
	defer cancel()
	err := entity.AskUntilAnswered(beginning, func() (err error) {
		end, err = t.tryBegin(beginning)
		return err
	})
	switch {
	case err == nil:
		return end
	case ctx.Err() != nil:
		return t.interrupted(t.lost())
	}
	t.l.log().Error("cannot give an agent the inputs of a turn", slog.Any("error", err))
	return t.interrupted(&failure{codeAgentFailed, "The inputs of the turn could not be read."})
}

func (t *turn) tryBegin(ctx context.Context) (*sessionv1.EndTurn, error) {
	// A workspace that was stopped before the run had taken the turn has not interrupted the turn. Starting the agent has taken time.
	err := t.r.checkWorkspace(ctx, t.id.workspace)
	if stopped, is := errors.AsType[*stoppedWorkspace](err); is {
		return t.interrupted(&failure{string(stopped.code), requested(string(stopped.code))}), nil
	}
	if err == nil {
		err = t.r.checkParticipant(ctx, t.id.workspace, t.l.Participant(), t.l.bounds)
	}
	if f, is := errors.AsType[*failure](err); is {
		return t.interrupted(f), nil
	}
	if err != nil {
		return nil, err
	}
	inputs, err := t.r.inputs(ctx, t.identity, t.s.GetTurn().GetInputs())
	if err != nil {
		return nil, err
	}
	if inputs, err = t.repeated(ctx, inputs); err != nil {
		return nil, err
	}
	decision, inputs, err := t.decideBudget(ctx, inputs)
	if decision != nil || err != nil {
		return decision, err
	}
	if t.answerPermission(inputs) {
		return nil, nil
	}
	p := t.l.prompts.current()
	isAnswered := t.l.cancel(ctx) // the question of an earlier turn was not answered
	if !isAnswered && p.hasEnded() {
		return t.stopped(ctx), nil
	}
	if !isAnswered {
		return t.endStuck(), nil
	}
	t.l.forget()
	more, err := t.r.inputs(ctx, t.identity, t.waitingInputs())
	if err != nil {
		return nil, err
	}
	more = fitting(inputs, more)
	for _, in := range more {
		t.after = max(t.after, in.seq)
	}
	if inputs, err = t.joinRepeated(ctx, inputs, more); err != nil {
		return nil, err
	}
	return nil, t.prompt(ctx, inputs, more)
}

// maxWaitingInputs is the maximum number of waiting inputs that a turn takes at once.
const maxWaitingInputs = 64

// waitingInputs returns the notes and the messages that wait when the turn begins and may join the turn. The agent gets them together with the
// first input of the turn.
func (t *turn) waitingInputs() []uint64 {
	var seqs []uint64
	for _, p := range t.s.GetPending() {
		if len(seqs) == maxWaitingInputs {
			break
		}
		isNote := p.GetKind() == sessionv1.InputKind_INPUT_KIND_NOTE
		if (isNote || session.Steers(p)) && session.MayJoin(t.s.GetTurn(), p) {
			seqs = append(seqs, p.GetSeq())
		}
	}
	return seqs
}

// prompt sends inputs as a prompt. joined has the inputs that join the turn with this prompt.
func (t *turn) prompt(ctx context.Context, inputs, joined []row) error {
	l := t.l
	blocks, from, err := l.blocks(ctx, inputs)
	if err != nil {
		return err
	}
	if l.dialog.needsPreamble() {
		preamble, err := t.r.preamble(ctx, t.s)
		if err != nil {
			return err
		}
		if preamble != "" {
			blocks = append([]acp.ContentBlock{acp.TextBlock(preamble)}, blocks...)
		}
	}
	l.dialog.introduce()
	var values map[string]any
	if l.dialog.isExtended() {
		values = map[string]any{meta.Inputs: from}
	}
	if len(joined) > 0 {
		l.join(joined)
	}
	l.send(blocks, values)
	return nil
}

// lost is the failure of a turn when its node stops, or loses the session.
func (t *turn) lost() *failure {
	return &failure{codeRunnerLost, "The server was stopped while the turn ran."}
}

// endStuck ends the process of an agent that does not end its turn.
func (t *turn) endStuck() *sessionv1.EndTurn {
	t.r.metrics.agentFailures.WithLabelValues("cancel").Inc()
	t.r.pool.discard(t.id)
	return t.interrupted(&failure{codeAgentTimeout, "The agent did not end its turn when it was interrupted, and was ended."})
}

// begin makes a turn the running turn of the agent.
func (l *agent) begin(t *turn) {
	l.meter.beginTurn(l.prompts.current() != nil)
	l.mu.Lock()
	isNew := l.turns == 0
	l.turns++
	l.turn, l.lastUpdate, l.progress, l.participant = t, time.Now(), t.s.GetMachine(), session.ParticipantOf(t.s)
	l.hasState, l.hasActed, l.hasWorked = false, false, false
	l.mu.Unlock()
	kind := "reused"
	if isNew {
		kind = "new"
	}
	l.r.metrics.agentStarts.WithLabelValues(kind).Inc()
	if isNew && l.dialog.canLoad() {
		// The next process can load the session even if this node fails during the turn.
		l.out.set(false, func(r *sessionv1.RecordRows) { r.Agent = l.agentState() })
	}
}

// finish makes the agent idle.
func (l *agent) finish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turn = nil
}
