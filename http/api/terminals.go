package api

import (
	"context"
	"errors"
	"io"
	"strconv"
	"sync"

	"github.com/go-json-experiment/json"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/http/server"
)

// terminalRequest is the query of a request for a terminal.
type terminalRequest struct {
	TerminalOptions
	// hasSize reports that the request names a size.
	hasSize bool
	// id is the id of the terminal to resume; empty: a new one.
	id       string
	position uint64
}

const (
	// maxInput bounds a message of a client, in bytes.
	maxInput = 64 << 10
	// maxOutput bounds a message with output, in bytes.
	maxOutput = 32 << 10
	// maxPosition is the greatest position that JSON numbers represent exactly (RFC 8259, section 6).
	maxPosition = 1<<53 - 1
)

func decodeTerminal(c *server.Call) (terminalRequest, error) {
	in := terminalRequest{TerminalOptions: TerminalOptions{Columns: 80, Rows: 24}}
	q, err := server.ParseQuery(c.Request.URL.RawQuery, "columns", "rows", "cwd", "terminalId", "position")
	if err != nil {
		return in, err
	}
	if in.hasSize = q.Has("columns") || q.Has("rows"); in.hasSize {
		in.Columns = uint16(decodeNumber(q, "columns", 1, entity.MaxTerminalSize))
		in.Rows = uint16(decodeNumber(q, "rows", 1, entity.MaxTerminalSize))
	}
	if q.Has("position") {
		in.position = decodeNumber(q, "position", 0, maxPosition)
	}
	in.id, in.Cwd = q.Text("terminalId"), q.Text("cwd")
	switch {
	case q.Has("terminalId") && !entity.IsID(in.id):
		q.Fail(server.Invalid("terminalId is not the id of a terminal"))
	case q.Has("terminalId") && q.Has("cwd"):
		q.Fail(server.Invalid("cwd is for new terminals: leave it out with terminalId"))
	case q.Has("position") && !q.Has("terminalId"):
		q.Fail(server.Invalid("position needs a terminalId"))
	}
	if err := checkCwd(in.Cwd); err != nil {
		q.Fail(err)
	}
	return in, q.Err
}

// decodeNumber returns a required parameter that is an integer within bounds.
func decodeNumber(q *server.Query, name string, least, most uint64) uint64 {
	n, err := strconv.ParseUint(q.Text(name), 10, 64)
	if err != nil || n < least || n > most {
		q.Fail(server.Invalid("%s must be an integer from %d to %d", name, least, most))
	}
	return n
}

// terminal opens a terminal, or resumes one, and serves it over a WebSocket. Package server describes the flow.
func (p processes) terminal(c *server.Call) error {
	in, err := decodeTerminal(c)
	if err == nil {
		err = c.CheckWebSocket()
	}
	if err != nil {
		return c.Withhold(err)
	}
	if err := c.Authorize(); err != nil {
		return err
	}
	return c.RunLong(func(ctx context.Context) error {
		t, err := server.Submit(ctx, c, func(c *server.Call) (Terminal, error) { return p.openTerminal(c, in) })
		if err != nil {
			return err
		}
		socket, err := c.AcceptWebSocket(maxInput)
		if err != nil {
			if in.id == "" { // no client knows its id
				c.EndLasting(t)
			}
			return err
		}
		defer socket.CloseNow()
		s := &terminalSession{call: c, terminal: t, socket: socket, position: in.position, outputDone: make(chan struct{})}
		s.run(ctx)
		return nil
	})
}

// openTerminal opens a terminal, which then ends with the access of the caller, or returns the open one that the request
// names. Errors: not_found, the errors of Computers.
func (p processes) openTerminal(c *server.Call, in terminalRequest) (Terminal, error) {
	if p.computers == nil {
		return nil, errNoProcesses
	}
	if in.id == "" {
		return server.OpenLasting(c, func() (Terminal, error) {
			return p.computers.OpenTerminal(c.Context, c.Workspace.ID, c.Caller.Principal, in.TerminalOptions)
		})
	}
	t, err := p.computers.Terminal(c.Context, c.Workspace.ID, c.Caller.Principal, in.id)
	if err != nil || !in.hasSize {
		return t, err
	}
	if err := t.Resize(in.Columns, in.Rows); err != nil && !hasEnded(t) {
		return nil, err
	}
	return t, nil
}

// terminalSession is a connection to a terminal.
type terminalSession struct {
	call     *server.Call
	terminal Terminal
	socket   *server.Socket
	// position is the position of the next byte to send. Only sendOutput uses it after run has begun.
	position uint64
	// outputDone is closed when sendOutput has returned.
	outputDone chan struct{}
}

// terminalMessage is a text message to the client.
type terminalMessage struct {
	Terminal terminalPosition `json:"terminal"`
}

type terminalPosition struct {
	ID string `json:"id"`
	// Position is the position of the next byte of output.
	Position uint64 `json:"position"`
}

// endError ends a session because its terminal has ended.
type endError struct{ view endView }

func (endError) Error() string { return "the terminal has ended" }

// invalidMessage ends a session because of a message of the client.
type invalidMessage struct{ reason string }

func (m invalidMessage) Error() string { return m.reason }

// errTerminalFailed wraps errors of the terminal.
var errTerminalFailed = errors.New("the terminal failed")

// run serves the connection until the terminal ends, the access ends, or the client has gone.
func (s *terminalSession) run(ctx context.Context) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	detach := s.terminal.Attach()
	var working sync.WaitGroup
	working.Go(func() {
		defer close(s.outputDone)
		end(s.sendOutput(ctx))
	})
	working.Go(func() { end(s.receiveInput(ctx)) })
	working.Go(func() { end(s.socket.KeepAlive(ctx)) })
	<-ctx.Done()
	s.close(ctx)
	detach()
	working.Wait()
}

// sendOutput sends the terminal's output until ctx ends, the client has gone, or the terminal ends (endError). Each time when
// the next bytes do not follow the last bytes, it sends their position first.
func (s *terminalSession) sendOutput(ctx context.Context) error {
	if err := s.sendText(terminalMessage{terminalPosition{s.terminal.ID(), s.position}}); err != nil {
		return err
	}
	buffer := make([]byte, maxOutput)
	for {
		n, at, err := s.terminal.Read(ctx, s.position, buffer)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, io.EOF):
			return s.awaitEnd(ctx)
		case err != nil:
			return errors.Join(errTerminalFailed, err)
		}
		if at != s.position {
			s.position = at
			if err := s.sendText(terminalMessage{terminalPosition{s.terminal.ID(), at}}); err != nil {
				return err
			}
		}
		if err := s.socket.Send(true, buffer[:n]); err != nil {
			return err
		}
		s.position += uint64(n)
	}
}

// awaitEnd returns how the terminal has ended, as an endError.
func (s *terminalSession) awaitEnd(ctx context.Context) error {
	status, reason, err := s.terminal.Wait(ctx)
	if ctx.Err() != nil {
		return nil
	}
	return endError{viewEnd(s.call, status, reason, err)}
}

func (s *terminalSession) sendText(message any) error {
	text, err := json.Marshal(message)
	if err != nil {
		return err
	}
	return s.socket.Send(false, text)
}

// clientMessage is a text message of the client. It has one of the fields.
type clientMessage struct {
	Resize *terminalSize `json:"resize"`
	End    bool          `json:"end"`
}

type terminalSize struct {
	Columns int64 `json:"columns"`
	Rows    int64 `json:"rows"`
}

// receiveInput passes the client's messages to the terminal until the connection is closed, or a message is invalid
// (invalidMessage). Input for a terminal that has ended is dropped.
func (s *terminalSession) receiveInput(ctx context.Context) error {
	for {
		isBinary, message, err := s.socket.Receive()
		if err != nil {
			return err
		}
		if isBinary {
			s.terminal.Write(ctx, message)
			continue
		}
		var in clientMessage
		if err := server.DecodeMessage(message, &in); err != nil {
			return invalidMessage{err.Error()}
		}
		switch {
		case in.End && in.Resize == nil:
			s.call.EndLasting(s.terminal)
		case in.Resize == nil || in.End:
			return invalidMessage{"a text message has either resize, or end with the value true"}
		default:
			if err := s.resize(*in.Resize); err != nil {
				return err
			}
		}
	}
}

func (s *terminalSession) resize(to terminalSize) error {
	if to.Columns < 1 || to.Columns > entity.MaxTerminalSize || to.Rows < 1 || to.Rows > entity.MaxTerminalSize {
		return invalidMessage{"columns and rows must be integers from 1 to " + strconv.Itoa(entity.MaxTerminalSize)}
	}
	if err := s.terminal.Resize(uint16(to.Columns), uint16(to.Rows)); err != nil && !hasEnded(s.terminal) {
		return errors.Join(errTerminalFailed, err)
	}
	return nil
}

// hasEnded reports whether a terminal has ended. Clients learn that after the rest of its output.
func hasEnded(t Terminal) bool {
	select {
	case <-t.Ended():
		return true
	default:
		return false
	}
}

// close sends why the session has ended, if the client can still read it, and closes the connection.
func (s *terminalSession) close(ctx context.Context) {
	s.socket.BeginEnd()
	<-s.outputDone
	cause, refused := context.Cause(ctx), server.Refusal(ctx)
	var ended endError
	var invalid invalidMessage
	switch {
	case errors.Is(cause, errTerminalFailed):
		code := server.CloseFailed
		if entity.HasCode(cause, entity.InvalidRequest) { // the position
			code = server.CloseRefused
		}
		s.closeWith(viewRefusal(s.call.PublicError(cause)), code)
	case refused != nil && refused.Code == entity.Unavailable:
		s.closeWith(viewRefusal(refused), server.CloseShuttingDown)
	case refused != nil:
		s.closeWith(viewRefusal(refused), server.CloseRefused)
	case errors.As(cause, &ended):
		s.closeWith(ended.view, server.CloseDone)
	case errors.As(cause, &invalid):
		s.socket.Close(server.CloseRefused, invalid.reason)
	default: // the client has gone
		s.socket.CloseNow()
	}
}

// closeWith sends the last message and closes the connection.
func (s *terminalSession) closeWith(last endView, code int) {
	if s.sendText(last) != nil {
		s.socket.CloseNow()
		return
	}
	s.socket.Close(code, "")
}
