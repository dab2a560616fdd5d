package runner

import (
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/runner/meta"
)

// The scopes of budgets.
const (
	scopeSession   = "session"
	scopeWorkspace = "workspace"
)

// The states of the inputs of a turn that a budget ends: the agent was given them, or it was not.
const (
	begun   = "begun"
	unbegun = "unbegun"
)

// The options of the question of a budget have ids of the form budget.<scope>.<choice>.<state>. No other question has options with such ids, so
// that the answer to a question of the agent cannot be mistaken for the answer to the question of a budget.
const (
	budgetPrefix = "budget."
	choiceGoOn   = "continue"
	choiceStop   = "stop"
)

func budgetOption(scope, choice, state string) string {
	return budgetPrefix + scope + "." + choice + "." + state
}

// A budget has the limits of a session and its workspace, and their use when a turn began.
type budget struct {
	limits  Budgets
	started time.Time
	// session and workspace are the use since a person last allowed more, without the use of this turn.
	session, workspace use
}

type use struct {
	tokens uint64
	time   time.Duration
}

// since returns the use between two totals.
func since(inputs, outputs uint64, ms int64, allowedInputs, allowedOutputs uint64, allowedMs int64) use {
	total, allowed := inputs+outputs, allowedInputs+allowedOutputs
	return use{tokens: total - min(allowed, total), time: time.Duration(max(ms-allowedMs, 0)) * time.Millisecond}
}

// readBudget returns the budget of the turn.
func (t *turn) readBudget(ctx context.Context) (*budget, error) {
	limits := t.r.o.Config.Budgets
	s := t.s
	b := &budget{limits: limits, started: time.Now(), session: since(
		s.GetUsage().GetInputTokens(), s.GetUsage().GetOutputTokens(), s.GetUsage().GetRunningMs(),
		s.GetAllowed().GetInputTokens(), s.GetAllowed().GetOutputTokens(), s.GetAllowed().GetRunningMs(),
	)}
	if limits.WorkspaceTokens == 0 && limits.WorkspaceTime == 0 {
		return b, nil
	}
	used, err := entity.ReplyAs[*workspacev1.AgentUsage](t.askWorkspace(ctx, "", &workspacev1.ReadAgentUsage{}))
	if err != nil {
		return nil, err
	}
	b.workspace = since(
		used.GetUsed().GetInputTokens(), used.GetUsed().GetOutputTokens(), used.GetUsed().GetRunningMs(),
		used.GetAllowed().GetInputTokens(), used.GetAllowed().GetOutputTokens(), used.GetAllowed().GetRunningMs(),
	)
	return b, nil
}

func (t *turn) askWorkspace(ctx context.Context, commandID string, m proto.Message) (proto.Message, error) {
	return t.r.o.Asker.Ask(ctx, entity.Command{
		Kind: entity.KindWorkspace, Identity: t.id.workspace, Principal: entity.Platform(), ID: commandID, Message: m,
	})
}

// exceeded returns the scope of the exhausted budget; empty if no budget is exhausted. used is the use of this turn.
func (b *budget) exceeded(used *sessionv1.Usage, now time.Time) string {
	if b == nil {
		return ""
	}
	tokens, spent := used.GetInputTokens()+used.GetOutputTokens(), now.Sub(b.started)
	for _, c := range []struct {
		scope  string
		before use
		tokens uint64
		time   time.Duration
	}{
		{scopeSession, b.session, b.limits.SessionTokens, b.limits.SessionTime},
		{scopeWorkspace, b.workspace, b.limits.WorkspaceTokens, b.limits.WorkspaceTime},
	} {
		if c.tokens > 0 && c.before.tokens+tokens >= c.tokens || c.time > 0 && c.before.time+spent >= c.time {
			return c.scope
		}
	}
	return ""
}

// timeLeft returns the time until a budget of time is exhausted. has is false if there is no budget of time.
func (b *budget) timeLeft(now time.Time) (left time.Duration, has bool) {
	if b == nil {
		return 0, false
	}
	spent := now.Sub(b.started)
	if b.limits.SessionTime > 0 {
		left, has = b.limits.SessionTime-b.session.time-spent, true
	}
	if b.limits.WorkspaceTime > 0 {
		of := b.limits.WorkspaceTime - b.workspace.time - spent
		if !has || of < left {
			left, has = of, true
		}
	}
	return left, has
}

// budgetAsk returns the end of a turn with an exhausted budget: a question whether the session may continue.
func budgetAsk(scope, state string) *sessionv1.EndTurn {
	text := "The session has used its budget of tokens or time. Go on?"
	if scope == scopeWorkspace {
		text = "The sessions of the workspace have used their budget of tokens or time for today. Go on?"
	}
	return &sessionv1.EndTurn{Status: sessionv1.TurnStatus_TURN_STATUS_ASK, Ask: &sessionv1.Ask{Text: text, Options: []*sessionv1.Option{
		{Id: budgetOption(scope, choiceGoOn, state), Label: choiceGoOn},
		{Id: budgetOption(scope, choiceStop, state), Label: choiceStop},
	}}}
}

// decideBudget applies the answers to questions of budgets that the inputs have. If a budget is then exhausted, it returns the end of the turn.
// Otherwise it returns the inputs that the agent gets.
func (t *turn) decideBudget(ctx context.Context, inputs []row) (*sessionv1.EndTurn, []row, error) {
	resolved, err := t.resolve(ctx, inputs, 0, 0)
	if err != nil {
		return nil, nil, err
	}
	isStopped, err := t.applyChoices(ctx, inputs)
	if err != nil {
		return nil, nil, err
	}
	if isStopped {
		return t.interrupted(&failure{codeBudget, "The budget is used up, and the session was stopped."}), nil, nil
	}
	if t.budget, err = t.readBudget(ctx); err != nil {
		return nil, nil, err
	}
	if scope := t.budget.exceeded(nil, time.Now()); scope != "" {
		return budgetAsk(scope, unbegun), nil, nil
	}
	return nil, resolved, nil
}

// applyChoices allows more use for each answer that chooses to continue. It reports whether an answer chooses to stop.
func (t *turn) applyChoices(ctx context.Context, inputs []row) (isStopped bool, err error) {
	for _, in := range inputs {
		scope, choice, _, ok := t.choiceOf(ctx, in)
		switch {
		case !ok:
			continue
		case choice == choiceStop:
			return true, nil
		case scope == scopeWorkspace:
			_, err = t.askWorkspace(ctx, t.runID+".allow", &workspacev1.AllowAgentUsage{})
		default:
			var described *sessionv1.Description
			if described, err = ask[*sessionv1.Description](ctx, t.r.o.Asker, t.identity, &sessionv1.AllowUsage{}); err == nil {
				t.s = described.GetSession()
			}
		}
		if err != nil {
			return false, err
		}
	}
	return false, nil
}

// choiceOf returns the choice of an answer to the question of a budget. A text that equals the label of an option chooses the option.
func (t *turn) choiceOf(ctx context.Context, in row) (scope, choice, state string, ok bool) {
	answer := in.GetInput()
	id := answer.GetOptionId()
	if answer.GetKind() != sessionv1.InputKind_INPUT_KIND_ANSWER {
		return "", "", "", false
	}
	if id == "" {
		q, err := t.r.question(ctx, t.identity, in.seq)
		if err != nil {
			return "", "", "", false
		}
		i := slices.IndexFunc(q.ask.GetOptions(), func(o *sessionv1.Option) bool { return isSameText(o.GetLabel(), answer.GetText()) })
		if i < 0 {
			return "", "", "", false
		}
		id = q.ask.GetOptions()[i].GetId()
	}
	parts := strings.Split(id, ".")
	if len(parts) != 4 || parts[0]+"." != budgetPrefix {
		return "", "", "", false
	}
	return parts[1], parts[2], parts[3], true
}

// maxQuestions bounds the questions of budgets that follow each other before an input.
const maxQuestions = 16

// resolve replaces answers to the question of a budget. If the budget had ended the turn before the agent got its inputs, these inputs replace
// the answer; otherwise the request to continue does. If no input is such an answer, but a budget has ended the turn right before in this way,
// the inputs of that turn precede the inputs. from is the position right before the turn of the inputs; 0: the end of the timeline.
func (t *turn) resolve(ctx context.Context, inputs []row, from uint64, depth int) ([]row, error) {
	var all []row
	isAnswered := false
	for _, in := range inputs {
		_, _, state, ok := t.choiceOf(ctx, in)
		isAnswered = isAnswered || ok
		switch {
		case !ok:
			all = append(all, in)
		case state == begun || depth == maxQuestions:
			all = append(all, row{seq: in.seq, Row: &sessionv1.Row{Input: &sessionv1.Input{
				Kind:   sessionv1.InputKind_INPUT_KIND_MESSAGE,
				Sender: &sessionv1.Sender{Kind: sessionv1.SenderKind_SENDER_KIND_SYSTEM}, Text: meta.Continue,
			}}})
		default:
			q, err := t.r.question(ctx, t.identity, in.seq)
			if err != nil {
				return nil, err
			}
			before, err := t.resolveAsked(ctx, q, depth)
			if err != nil {
				return nil, err
			}
			all = append(all, before...)
		}
	}
	if isAnswered || depth == maxQuestions || t.r.o.Config.Budgets == (Budgets{}) {
		return all, nil
	}
	q, err := t.unbegun(ctx, from)
	if err != nil || q.ask == nil {
		return all, err
	}
	before, err := t.resolveAsked(ctx, q, depth)
	return append(before, all...), err
}

// resolveAsked returns the inputs that the agent would have got in the turn that a budget has ended with a question.
func (t *turn) resolveAsked(ctx context.Context, q question, depth int) ([]row, error) {
	inputs, err := t.r.inputs(ctx, t.identity, q.inputs)
	if err != nil || q.seq <= 1 {
		return nil, err
	}
	return t.resolve(ctx, inputs, q.seq-1, depth+1)
}

// unbegun returns the question of the turn right before a position, if a budget has ended the turn before the agent got its inputs.
func (t *turn) unbegun(ctx context.Context, from uint64) (question, error) {
	var q question
	for range mostPages {
		page, next, err := t.r.rows(ctx, t.identity, from, true, pageRows)
		if err != nil {
			return question{}, err
		}
		for _, row := range page {
			switch terminal := row.GetTerminal(); {
			case row.GetAsk() != nil:
				if options := row.GetAsk().GetOptions(); len(options) > 0 && isUnbegunOption(options[0].GetId()) {
					q.ask, q.seq = row.GetAsk(), row.seq
				}
				return q, nil
			case terminal != nil && terminal.GetTurnStatus() != sessionv1.TurnStatus_TURN_STATUS_ASK:
				return question{}, nil
			case terminal != nil:
				q.inputs = append(q.inputs, terminal.GetInputSeq())
			}
		}
		if from = next; next == 0 {
			break
		}
	}
	return question{}, nil
}

func isUnbegunOption(id string) bool {
	return strings.HasPrefix(id, budgetPrefix) && strings.HasSuffix(id, "."+unbegun)
}

// addUsage adds the use of the turn to the use of the workspace.
func (t *turn) addUsage(ctx context.Context) {
	used := t.l.meter.usage()
	work := &workspacev1.AgentWork{
		InputTokens: used.GetInputTokens(), OutputTokens: used.GetOutputTokens(),
		RunningMs: max(t.r.o.Clock().UnixMilli()-t.s.GetTurn().GetStartedAt(), 0),
	}
	_ = entity.AskUntilAnswered(ctx, func() error {
		_, err := t.askWorkspace(ctx, t.runID, &workspacev1.AddAgentUsage{SessionId: t.id.session, Work: work})
		return err
	})
}
