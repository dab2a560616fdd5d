package builtin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/retry"
	"github.com/atelier-run/atelier/runner/builtin/runbook"
	"github.com/atelier-run/atelier/runner/builtin/tools"
	"github.com/atelier-run/atelier/runner/meta"
)

// commandTimeout bounds a command of a runbook.
const commandTimeout = 6 * time.Hour

// carryOut runs a turn without a model: it continues the runbook of the session, or begins one.
func (t *turn) carryOut(ctx context.Context, inputs []input) error {
	state := &t.session.state.Runbook
	if state.IsInterrupted && slices.ContainsFunc(inputs, input.continues) {
		state.Resume()
	} else if state.IsInterrupted {
		state.Abandon() // a person has interrupted it, and wants something else now
	}
	if state.RequestsPermission() && !slices.ContainsFunc(inputs, input.continues) {
		var err error
		if inputs, err = t.decideLost(inputs); err != nil {
			return err
		}
	}
	rest := resume(state, inputs)
	if lost := state.Recover(); lost != nil {
		t.updates.say(fmt.Sprintf("Line %d (`%s`) was interrupted. It may have had its effect, and is not "+
			"carried out again. The runbook continues with the next line.", lost.Line, lost))
	}
	if err := t.begin(rest); err != nil {
		return err
	}
	if state.Waiting != nil { // nothing has ended the wait: wait again
		if err := state.Interject(nil); err != nil {
			return failure(meta.CodeRunbookInvalid, "%s", err)
		}
	}
	if state.IsActive() {
		if err := t.save(); err != nil {
			state.Abandon()
			return err
		}
	}
	return t.interpret(ctx, state)
}

// resume continues a runbook that waits by an answer, or the end of its sleep. It returns the inputs that do neither and may be
// runbooks.
func resume(state *runbook.State, inputs []input) []input {
	var rest []input
	for _, in := range inputs {
		switch {
		case in.Kind == meta.KindNote || in.text == "":
			// context, for agents with a model
		case in.Sender.Kind == meta.SenderSystem:
			if in.text == meta.SleepEnded {
				state.Wake()
			}
		case in.Kind == meta.KindAnswer && state.AnswerQuestion(in.text):
		default:
			rest = append(rest, in)
		}
	}
	return rest
}

// begin adds the runbooks of inputs to the state. An invalid runbook fails the turn if no other runbook is being carried out.
func (t *turn) begin(inputs []input) error {
	state := &t.session.state.Runbook
	isActive := state.IsActive()
	var now, later []runbook.Step
	for _, in := range inputs {
		steps, err := runbook.Parse(in.text)
		switch {
		case err == nil && isActive && in.Behavior == meta.BehaviorFollowUp:
			later = append(later, steps...)
		case err == nil:
			now = append(now, steps...)
		case errors.Is(err, runbook.ErrNotRunbook):
			t.updates.say(help)
		case isActive:
			t.updates.say(fmt.Sprintf("The new lines are not carried out, because %s.", err))
		default:
			return failure(meta.CodeRunbookInvalid, "the runbook is not carried out: %s", err)
		}
	}
	var err error
	if len(now) > 0 {
		err = state.Interject(now)
	}
	if err == nil && len(later) > 0 {
		err = state.Append(later)
	}
	if err != nil && !isActive {
		state.Abandon()
		return failure(meta.CodeRunbookInvalid, "%s", err)
	}
	if err != nil {
		t.updates.say(fmt.Sprintf("The new lines are not carried out: %s.", err))
	}
	return nil
}

// interpret carries out the runbook until it ends or waits, and no further lines have arrived.
func (t *turn) interpret(ctx context.Context, state *runbook.State) error {
	in := runbook.Interpreter{
		Computer: computer{t}, Platform: platform{t}, Now: t.session.agent.now,
		Save:    func(runbook.State) error { return t.save() },
		Steered: func() []runbook.Step { return t.steeredSteps() },
	}
	for {
		outcome, err := in.Run(ctx, state)
		var failed *runbook.Failure
		switch {
		case errors.As(err, &failed):
			return failure(meta.CodeRunbookFailed, "%s", failed)
		case err != nil:
			return err
		case t.finish():
			return nil
		}
		if outcome != runbook.Ended { // lines have arrived since: carry them out, and wait again
			if err := state.Interject(t.steeredSteps()); err != nil {
				state.Abandon()
				return failure(meta.CodeRunbookFailed, "%s", err)
			}
		}
	}
}

// steeredSteps returns the lines that have arrived while the turn runs.
func (t *turn) steeredSteps() []runbook.Step {
	var all []runbook.Step
	for _, in := range t.takeSteered() {
		if in.Kind == meta.KindNote || in.text == "" || in.Sender.Kind == meta.SenderSystem {
			continue
		}
		steps, err := runbook.Parse(in.text)
		switch {
		case errors.Is(err, runbook.ErrNotRunbook):
			t.updates.say(help)
		case err != nil:
			t.updates.say(fmt.Sprintf("The new lines are not carried out, because %s.", err))
		case len(all)+len(steps) > runbook.MaxSteps/2:
			t.updates.say("The new lines are not carried out, because there are too many at once.")
		default:
			all = append(all, steps...)
		}
	}
	return all
}

// linesOf returns the lines of inputs that steeredSteps carries out.
func linesOf(inputs []input) []runbook.Step {
	var all []runbook.Step
	for _, in := range inputs {
		if in.Kind == meta.KindNote || in.text == "" || in.Sender.Kind == meta.SenderSystem {
			continue
		}
		if steps, err := runbook.Parse(in.text); err == nil {
			all = append(all, steps...)
		}
	}
	return all
}

// computer implements runbook.Computer with tool calls that the client sees.
type computer struct{ *turn }

// Shell implements runbook.Computer.
func (c computer) Shell(ctx context.Context, command, answer string) (int, error) {
	environ := append(c.session.agent.environ[:len(c.session.agent.environ):len(c.session.agent.environ)], answerVar+"="+answer)
	result, err := c.shell(ctx, command, environ, commandTimeout)
	if err == nil && result.IsTimedOut {
		err = fmt.Errorf("the command has run for %s and was ended", commandTimeout)
	}
	return result.Status, err
}

// Write implements runbook.Computer.
func (c computer) Write(ctx context.Context, path, text string) error {
	return c.write(ctx, path, text)
}

// Say implements runbook.Computer.
func (c computer) Say(_ context.Context, text string) error {
	c.updates.say(text)
	return nil
}

// shell runs a command as a tool call.
func (t *turn) shell(ctx context.Context, command string, environ []string, timeout time.Duration) (tools.Result, error) {
	call := t.start(command, acp.ToolKindExecute, nil, map[string]any{"command": command, "cwd": t.session.drive.Cwd()})
	var result tools.Result
	err := t.session.checkTool("shell")
	if err == nil {
		err = t.permit(ctx, "shell", call.started)
	}
	if err == nil {
		call.progress("")
		result, err = t.session.drive.Shell(ctx, tools.Command{Text: command, Env: environ, Timeout: timeout}, call.progress)
	}
	switch {
	case err != nil:
		call.fail(err.Error())
	case result.IsTimedOut:
		call.fail(result.Output + fmt.Sprintf("\n[ended after %s]", timeout))
	case result.Status != 0:
		call.fail(result.Output + fmt.Sprintf("\n[exit status %d]", result.Status))
	default:
		call.complete(result.Output)
	}
	return result, err
}

// write writes a file as a tool call.
func (t *turn) write(ctx context.Context, name, text string) error {
	relative, err := t.session.drive.Path(name)
	if err != nil {
		return err
	}
	absolute := t.session.drive.Absolute(relative)
	call := t.start("Write "+name, acp.ToolKindEdit, []string{absolute}, map[string]any{"path": absolute})
	err = t.session.checkTool("write_file")
	if err == nil {
		err = t.permit(ctx, "files", call.started)
	}
	if err != nil {
		call.fail(err.Error())
		return err
	}
	before, existed, err := t.session.drive.Write(name, text)
	if err != nil {
		call.fail(err.Error())
		return err
	}
	if !t.session.has(entity.FilesRead) {
		before = "" // the timeline shows the change
	}
	call.changed(absolute, before, text, existed)
	return nil
}

// platform implements runbook.Platform with the tools of the platform's MCP server.
type platform struct{ *turn }

// Ask implements runbook.Platform.
func (p platform) Ask(ctx context.Context, question string, options []string) error {
	return p.session.servers.platform(ctx, meta.ToolAsk, meta.AskArguments{Text: question, Options: options}, nil)
}

// Sleep implements runbook.Platform.
func (p platform) Sleep(ctx context.Context, until time.Time) error {
	return p.session.servers.platform(ctx, meta.ToolSleep, meta.SleepArguments{At: until.UnixMilli()}, nil)
}

// Report implements runbook.Platform.
func (p platform) Report(ctx context.Context, done, total int64, text string) error {
	progress := meta.ProgressArguments{Step: text, Completed: done, Total: total}
	return p.session.servers.platform(ctx, meta.ToolReportProgress, progress, nil)
}

// Start implements runbook.Platform.
func (p platform) Start(ctx context.Context, title, prompt string) (string, error) {
	call := p.start("Start session: "+title, acp.ToolKindOther, nil, map[string]any{"title": title, "prompt": prompt})
	var started meta.StartResult
	err := p.session.servers.platform(ctx, meta.ToolStartSession, meta.StartArguments{Title: title, Prompt: prompt}, &started)
	if err == nil && started.SessionID == "" {
		err = errors.New("the platform has returned no session")
	}
	if err != nil {
		call.fail(err.Error())
		return "", err
	}
	call.complete(started.SessionID)
	return started.SessionID, nil
}

const (
	// awaitCall is how long one call of the platform waits for sessions.
	awaitCall = 20 * time.Second
	// awaitPause is the time between two calls, if the platform answers early.
	awaitPause = 200 * time.Millisecond
)

// mostAwaited is the number of sessions that one call of the platform awaits.
const mostAwaited = 32

// Await implements runbook.Platform.
func (p platform) Await(ctx context.Context, ids []string) error {
	call := p.start("Await sessions", acp.ToolKindOther, nil, map[string]any{"sessionIds": ids})
	parts := slices.Collect(slices.Chunk(ids, mostAwaited))
	if len(parts) == 0 {
		parts = [][]string{nil} // all
	}
	var ended strings.Builder
	for _, part := range parts {
		done, err := p.awaitPart(ctx, part)
		if err != nil {
			call.fail(err.Error())
			return err
		}
		for _, s := range done {
			fmt.Fprintf(&ended, "%s: %s\n", s.SessionID, s.TurnStatus)
			if s.Text != "" {
				fmt.Fprintf(&ended, "%s\n", s.Text)
			}
		}
	}
	call.complete(ended.String())
	return nil
}

// awaitPart awaits sessions that one call can name.
func (p platform) awaitPart(ctx context.Context, ids []string) ([]meta.DoneSession, error) {
	arguments := meta.AwaitArguments{SessionIDs: ids, TimeoutSeconds: int64(awaitCall / time.Second)}
	for {
		var result meta.AwaitResult
		if err := p.session.servers.platform(ctx, meta.ToolAwaitSessions, arguments, &result); err != nil {
			return nil, err
		}
		if len(result.Running) == 0 {
			return result.Done, nil
		}
		if !retry.Pause(ctx, awaitPause) {
			return nil, ctx.Err()
		}
	}
}

// help is the answer to a text that is no runbook.
const help = "I am Atelier's built-in agent, and no model is configured for me. I carry out runbooks: messages whose lines " +
	"are instructions.\n\n```\n" + `$ COMMAND                       run a shell command; the runbook fails if its status is not zero
$? COMMAND                      run a shell command, whatever its status
write PATH                      write the indented or fenced block that follows to a file
say TEXT                        say a text
ask QUESTION | OPTION | OPTION  ask, and continue with the answer, which is {{answer}} in later lines
sleep DURATION                  continue after a time such as 90s, 1h30m or 2d
step DONE/TOTAL TEXT            report a step of a job
start TITLE                     start a child session, whose runbook is the indented block that follows
await                           wait for the child sessions
fail TEXT                       fail
` + "```\n\nTo have free text answered, configure a model for the tier of this session: the operator of the node sets the " +
	"agent's model, the wire format of its server (chat, responses or anthropic), its address and its API key."
