package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/atelier-run/atelier/client"
)

// sessionCommands are the commands for agent sessions.
type sessionCommands struct {
	Start     sessionStartCommand     `cmd:"" help:"Start a session, and print its id."`
	Send      sessionSendCommand      `cmd:"" help:"Send a message to a session."`
	Answer    sessionAnswerCommand    `cmd:"" help:"Answer the question of a session."`
	Tail      sessionTailCommand      `cmd:"" help:"Print what has happened in a session, and what happens until its turn ends."`
	List      sessionListCommand      `cmd:"" help:"List sessions, newest first."`
	Show      sessionShowCommand      `cmd:"" help:"Print the state of a session."`
	Interrupt sessionInterruptCommand `cmd:"" help:"Interrupt the turn or the sleep of a session, and drop the inputs that wait."`
	Delete    sessionDeleteCommand    `cmd:"" help:"Delete a session and its descendants permanently."`
}

// Help returns the description of the exit codes, which follows the help of the command.
func (sessionCommands) Help() string {
	return "With --wait or --tail, and for tail, the exit code says how the turn has ended: 0 complete, 3 it asks, 4 it was " +
		"interrupted or has failed, 5 it sleeps. 1 is a failure of the command itself, 130 an interrupt of it."
}

// The exit codes for the ends of turns.
const (
	exitAsk        = 3
	exitTurnFailed = 4
	exitAsleep     = 5
)

// The ways in which a turn ends, as the API names them.
const (
	turnComplete    = "complete"
	turnAsk         = "ask"
	turnSleep       = "sleep"
	turnInterrupted = "interrupted"
)

// turnResult returns the exit status for the end of a turn; nil if it is complete.
func turnResult(turnStatus string) error {
	switch turnStatus {
	case turnComplete:
		return nil
	case turnAsk:
		return exitStatus(exitAsk)
	case turnSleep:
		return exitStatus(exitAsleep)
	}
	return exitStatus(exitTurnFailed)
}

// sessionFlags name a session.
type sessionFlags struct {
	serverFlags
	Workspace string `arg:"" help:"Slug of the workspace."`
	Session   string `arg:"" help:"Id of the session."`
}

// turnFlags select the action of a command after it has sent an input.
type turnFlags struct {
	Wait bool `env:"-" xor:"after" help:"Wait until the turn ends."`
	Tail bool `env:"-" xor:"after" help:"Print what happens until the turn ends."`
	rowFlags
}

// An input is a request with an input of a session. It may be sent again: its request id makes it idempotent.
type input struct {
	api                           *client.Client
	workspace, session, requestID string

	// send sends the input, and wait sends it and waits for the end of its turn.
	send func() (client.SessionSent, error)
	wait func() (client.SessionWaited, error)
}

// send sends an input, prints whether it was accepted or is queued, and does what the flags say.
func (f turnFlags) send(ctx context.Context, in input, out console) error {
	if f.Wait {
		return f.finish(ctx, in, out)
	}
	sent, err := in.send()
	switch {
	case err != nil && ctx.Err() != nil:
		return leftResult(ctx, in.workspace, in.session, err)
	case err != nil:
		return err
	case f.Tail:
		return f.finish(ctx, in, out)
	case f.JSON:
		return writeJSON(out.out, sent)
	}
	_, err = fmt.Fprintln(out.out, sent.Delivery)
	return err
}

// finish waits for the end of the turn of an input, or prints what happens until then, as the flags say.
func (f turnFlags) finish(ctx context.Context, in input, out console) error {
	switch {
	case f.Tail:
		t := newTail(in.api, in.workspace, in.session, out, f.rowFlags)
		t.requestID = in.requestID
		return t.run(ctx)
	case !f.Wait:
		return nil
	}
	ended, err := in.wait()
	if err != nil {
		return leftResult(ctx, in.workspace, in.session, err)
	}
	fmt.Fprintln(out.errors, describeTerminal(ended.Terminal.TurnStatus, ended.Terminal.Error))
	return turnResult(ended.Terminal.TurnStatus)
}

// leftResult returns the result of a command that has stopped following a session.
func leftResult(ctx context.Context, workspace, session string, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return coded{fmt.Errorf("interrupted; the session goes on. To see how: atelier session tail %s %s", workspace, session), exitInterrupted}
}

// describeTerminal returns the end of a turn as a text.
func describeTerminal(turnStatus string, failure *client.SessionFailure) string {
	if failure == nil {
		return turnStatus
	}
	return fmt.Sprintf("%s: %s (%s)", turnStatus, printable(failure.Message), printable(failure.Code))
}

// maxText bounds a text from the standard input, in bytes: more than 200,000 characters of UTF-8.
const maxText = 1 << 20

// readText returns the text of an argument, which is the standard input for "-".
func readText(argument string, from io.Reader) (string, error) {
	if argument != "-" {
		return argument, nil
	}
	text, err := io.ReadAll(io.LimitReader(from, maxText+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("read the text: %w", err)
	case len(text) > maxText:
		return "", coded{fmt.Errorf("the text has more than %d bytes", maxText), exitConfig}
	case strings.TrimSpace(string(text)) == "":
		return "", coded{errors.New("the text is empty"), exitConfig}
	}
	return string(text), nil
}

// sessionStartCommand is atelier session start.
type sessionStartCommand struct {
	serverFlags
	Tier  string `env:"-" placeholder:"TIER" help:"Choice of a model, such as balanced or frontier. Default: that of the agent or the workspace."`
	Mode  string `env:"-" default:"auto" enum:"auto,confirm" help:"auto grants the agent's requests for permission, confirm makes them questions: ${enum}."`
	Cwd   string `env:"-" placeholder:"PATH" help:"Working directory, a folder of the drive. Default: that of the agent, or the root."`
	Agent string `env:"-" placeholder:"SLUG" help:"Agent of the workspace that works. Default: none in particular."`
	turnFlags

	Workspace string `arg:"" help:"Slug of the workspace."`
	Prompt    string `arg:"" help:"What to do; - reads it from the standard input."`
}

// Run starts a session and prints its id.
func (c *sessionStartCommand) Run(ctx context.Context, out console) error {
	api, err := c.connect()
	if err != nil {
		return err
	}
	defer api.Close()
	in := client.NewSession{Tier: c.Tier, Mode: c.Mode, ClientRequestID: client.NewRequestID()}
	if in.Prompt, err = readText(c.Prompt, os.Stdin); err != nil {
		return err
	}
	if c.Cwd != "" {
		in.Cwd = &c.Cwd
	}
	if c.Agent != "" {
		agent, err := api.Agent(ctx, c.Workspace, c.Agent)
		if err != nil {
			return fmt.Errorf("the agent %s: %w", c.Agent, err)
		}
		in.AgentID = agent.ID
	}
	started, err := api.StartSession(ctx, c.Workspace, in)
	switch {
	case err != nil && ctx.Err() != nil:
		return coded{fmt.Errorf("interrupted; the session may have started. To see it: atelier session list %s", c.Workspace), exitInterrupted}
	case err != nil:
		return err
	}
	if c.JSON {
		err = writeJSON(out.out, map[string]string{"sessionId": started.SessionID, "delivery": started.Delivery})
	} else {
		_, err = fmt.Fprintln(out.out, started.SessionID)
	}
	if err != nil {
		return err
	}
	return c.finish(ctx, input{
		api: api, workspace: c.Workspace, session: started.SessionID, requestID: in.ClientRequestID,
		wait: func() (client.SessionWaited, error) { return api.StartSessionAndWait(ctx, c.Workspace, in) },
	}, out)
}

// writeJSON prints a value as a line of JSON.
func writeJSON(w io.Writer, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	_, err = w.Write(append(text, '\n'))
	return err
}

// sessionSendCommand is atelier session send.
type sessionSendCommand struct {
	sessionFlags
	Tier     string `env:"-" placeholder:"TIER" help:"Choice of a model for this message and later ones."`
	FollowUp bool   `env:"-" help:"Leave the message until the current turn has ended. Without it, the running agent takes it as soon as it can."`
	turnFlags

	Text string `arg:"" help:"The message; - reads it from the standard input."`
}

// Run sends a message.
func (c *sessionSendCommand) Run(ctx context.Context, out console) error {
	api, err := c.connect()
	if err != nil {
		return err
	}
	defer api.Close()
	in := client.SessionMessage{Tier: c.Tier, ClientRequestID: client.NewRequestID()}
	if c.FollowUp {
		in.Behavior = "follow_up"
	}
	if in.Text, err = readText(c.Text, os.Stdin); err != nil {
		return err
	}
	return c.send(ctx, input{
		api: api, workspace: c.Workspace, session: c.Session, requestID: in.ClientRequestID,
		send: func() (client.SessionSent, error) { return api.SendMessage(ctx, c.Workspace, c.Session, in) },
		wait: func() (client.SessionWaited, error) { return api.SendMessageAndWait(ctx, c.Workspace, c.Session, in) },
	}, out)
}

// sessionAnswerCommand is atelier session answer.
type sessionAnswerCommand struct {
	sessionFlags
	Option string `env:"-" placeholder:"ID" help:"Id of the option that is the answer, as tail and show print it."`
	turnFlags

	Text string `arg:"" optional:"" help:"The answer, unless it is an option; - reads it from the standard input."`
}

// Validate is called by the parser when every flag has its value.
func (c *sessionAnswerCommand) Validate() error {
	if (c.Option == "") == (c.Text == "") {
		return errors.New("an answer is either a text or --option")
	}
	return nil
}

// Run answers the question of a session.
func (c *sessionAnswerCommand) Run(ctx context.Context, out console) error {
	api, err := c.connect()
	if err != nil {
		return err
	}
	defer api.Close()
	in := client.SessionAnswer{OptionID: c.Option, ClientRequestID: client.NewRequestID()}
	if in.Text, err = readText(c.Text, os.Stdin); err != nil {
		return err
	}
	return c.send(ctx, input{
		api: api, workspace: c.Workspace, session: c.Session, requestID: in.ClientRequestID,
		send: func() (client.SessionSent, error) { return api.AnswerSession(ctx, c.Workspace, c.Session, in) },
		wait: func() (client.SessionWaited, error) { return api.AnswerSessionAndWait(ctx, c.Workspace, c.Session, in) },
	}, out)
}

// sessionInterruptCommand is atelier session interrupt.
type sessionInterruptCommand struct {
	sessionFlags
}

// Run interrupts a session.
func (c *sessionInterruptCommand) Run(ctx context.Context, out console) error {
	api, err := c.connect()
	if err != nil {
		return err
	}
	defer api.Close()
	interrupted, err := api.InterruptSession(ctx, c.Workspace, c.Session)
	if err == nil && !interrupted {
		_, err = fmt.Fprintln(out.errors, "The session does nothing that could be interrupted.")
	}
	return err
}

// sessionDeleteCommand is atelier session delete.
type sessionDeleteCommand struct {
	sessionFlags
}

// Run deletes a session. It succeeds also if there is no such session.
func (c *sessionDeleteCommand) Run(ctx context.Context, _ console) error {
	api, err := c.connect()
	if err != nil {
		return err
	}
	defer api.Close()
	return api.DeleteSession(ctx, c.Workspace, c.Session)
}
