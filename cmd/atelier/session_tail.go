package main

import (
	"context"
	"os"

	"golang.org/x/term"

	"github.com/atelier-run/atelier/client"
)

// rowFlags say how the rows of a timeline are printed.
type rowFlags struct {
	JSON bool `name:"json" env:"-" help:"Print JSON, one value a line: the rows as the API has them."`
	Full bool `env:"-" help:"Print the whole output of tools. Without it, output of more than 20 lines is cut."`
}

// sessionTailCommand is atelier session tail.
type sessionTailCommand struct {
	sessionFlags
	Since  uint64 `env:"-" placeholder:"SEQ" help:"Print only what follows this position, as --json and the API have it."`
	Follow bool   `env:"-" short:"f" help:"Go on after the turn has ended, until an interrupt."`
	rowFlags
}

// Run prints the timeline of a session.
func (c *sessionTailCommand) Run(ctx context.Context, out console) error {
	api, err := c.connect()
	if err != nil {
		return err
	}
	defer api.Close()
	found, err := api.Session(ctx, c.Workspace, c.Session)
	if err != nil {
		return leftResult(ctx, c.Workspace, c.Session, err)
	}
	t := newTail(api, c.Workspace, c.Session, out, c.rowFlags)
	t.since, t.present, t.isEndless = c.Since, found.LastEventSeq, c.Follow
	return t.run(ctx)
}

// A tail prints the timeline of a session until its turn ends. The stream begins with the first row, because only its own cursors
// resume it.
//
// With a request id, it begins after the input of that request, or as JSON with it, and ends with the terminal of that input.
// Otherwise it prints the rows after since, and ends when it has reached the present and each input has its terminal.
type tail struct {
	api                *client.Client
	workspace, session string
	requestID          string
	since, present     uint64
	// isEndless: it ends with an interrupt only. hidesInput: the input with the request id is not printed.
	isEndless, hidesInput bool
	print                 func(client.SessionFrame) error

	// input is the seq of the input with the request id, or 0.
	input uint64
	// open are the inputs without a terminal. Notes have none.
	open map[uint64]bool
	// status is the turn status of the last terminal.
	status string
}

func newTail(api *client.Client, workspace, session string, out console, f rowFlags) *tail {
	t := &tail{api: api, workspace: workspace, session: session, open: map[uint64]bool{}, status: turnComplete}
	if f.JSON {
		t.print = func(frame client.SessionFrame) error {
			if frame.Row == nil {
				return nil
			}
			return writeJSON(out.out, frame.Row)
		}
		return t
	}
	t.print, t.hidesInput = newRowPrinter(out, f.Full).print, true
	return t
}

// run prints until the end, and returns the result of the turn.
func (t *tail) run(ctx context.Context) error {
	for frame, err := range t.api.SessionEvents(ctx, t.workspace, t.session, "") {
		if err != nil {
			return leftResult(ctx, t.workspace, t.session, err)
		}
		if t.isShown(frame) {
			if err := t.print(frame); err != nil {
				return err
			}
		}
		if frame.Row != nil && t.isEnd(*frame.Row) {
			break
		}
	}
	return turnResult(t.status)
}

// isShown reports whether a frame is printed.
func (t *tail) isShown(f client.SessionFrame) bool {
	if t.requestID != "" && t.input == 0 && f.Row != nil && f.Row.Kind == "input" && f.Row.ClientRequestID == t.requestID {
		t.input = f.Row.Seq
	}
	switch {
	case t.requestID != "":
		return t.input != 0 && (f.Row == nil || f.Row.Seq != t.input || !t.hidesInput)
	case f.Row == nil:
		return true // deltas belong to what happens now
	}
	return f.Row.Seq > t.since
}

// isEnd reports whether the tail ends with a row.
func (t *tail) isEnd(r client.SessionRow) bool {
	switch r.Kind {
	case "input":
		if r.Input != "note" {
			t.open[r.Seq] = true
		}
	case "terminal":
		delete(t.open, r.InputSeq)
		t.status = r.TurnStatus
	}
	if t.requestID != "" {
		return r.Kind == "terminal" && t.input != 0 && r.InputSeq == t.input
	}
	return !t.isEndless && r.Seq >= t.present && len(t.open) == 0
}

// newRowPrinter returns a printer to the output of a command. If that is a terminal, text appears as it is written.
func newRowPrinter(out console, isFull bool) *rowPrinter {
	p := &rowPrinter{to: out.out, maxOutput: outputLines}
	if isFull {
		p.maxOutput = 0
	}
	if file, ok := out.out.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		p.isTerminal, p.columns = true, 80
		if columns, _, err := term.GetSize(int(file.Fd())); err == nil && columns > 0 {
			p.columns = columns
		}
		p.hasColors = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	}
	return p
}
