package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/atelier-run/atelier/retry"
)

// TerminalOptions select a terminal and its size.
type TerminalOptions struct {
	// Columns and Rows are the size in characters, each from 1 to 1000; 0: 80 and 24.
	Columns, Rows int
	// Cwd is the working directory of a new terminal, a path of the drive; empty: its root.
	Cwd string
	// ID is the id of an open terminal, to resume it; empty: a new one. Position is the position to read from; 0: the oldest output
	// that the server has.
	ID       string
	Position uint64
	// Notify, if it is set, is called with an error when the connection breaks, and with nil when a new connection has been opened.
	Notify func(err error)
}

// Terminal is a terminal in the computer of a workspace. If its connection breaks, it opens a new connection and continues where the
// output has stopped. Input that was on its way then is lost. The methods may be called concurrently, except for Read with itself.
type Terminal struct {
	client *Client
	path   string
	notify func(error)
	// ctx ends when the terminal is closed.
	ctx   context.Context
	close context.CancelCauseFunc
	// output is written by the goroutine of run; a client that does not read holds the connection back.
	output *io.PipeWriter
	reader *io.PipeReader

	// sizing is held while the size is sent, so that the last message has the latest size. It is locked before mu.
	sizing sync.Mutex
	// mu guards the fields below.
	mu sync.Mutex
	// conn is nil while there is no connection.
	conn          *websocket.Conn
	id            string
	position      uint64
	columns, rows int

	// done is closed when the terminal has ended for this client; then status and err are set.
	done   chan struct{}
	status int
	err    error
}

var (
	// ErrDisconnected is returned for input while there is no connection.
	ErrDisconnected = errors.New("client: the terminal is not connected")
	// errClosed ends a terminal that was closed.
	errClosed = errors.New("client: the terminal was closed")
)

const (
	// handshakeTime bounds the opening of a connection, and writeTime a write.
	handshakeTime = 30 * time.Second
	writeTime     = 15 * time.Second
	// pingEvery is the time between pings, and the time in which one must be answered.
	pingEvery = 15 * time.Second
	// maxInputBytes is the greatest length of a message with input.
	maxInputBytes = 32 << 10
)

// OpenTerminal opens a shell in the computer of a workspace, or resumes one that is open. The terminal stays open on the server
// when ctx ends or Close is called; then it ends after some time without a client. Codes: forbidden, not_found, limit_reached,
// rate_limited, unavailable.
func (c *Client) OpenTerminal(ctx context.Context, slug string, o TerminalOptions) (*Terminal, error) {
	t := &Terminal{
		client: c, path: workspacePath(slug, computerPath+"/terminal"), notify: o.Notify, id: o.ID, position: o.Position,
		columns: o.Columns, rows: o.Rows, done: make(chan struct{}),
	}
	if t.columns == 0 && t.rows == 0 {
		t.columns, t.rows = 80, 24
	}
	if t.notify == nil {
		t.notify = func(error) {}
	}
	t.reader, t.output = io.Pipe()
	t.ctx, t.close = context.WithCancelCause(ctx)
	context.AfterFunc(t.ctx, func() { _ = t.output.CloseWithError(context.Cause(t.ctx)) }) // no effect after the end of run
	conn, err := t.connect(o.Cwd)
	if err != nil {
		t.close(err)
		return nil, err
	}
	go t.run(conn)
	return t, nil
}

// ID returns the id of the terminal. OpenTerminal resumes the terminal with this id.
func (t *Terminal) ID() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.id
}

// Read reads output. It returns io.EOF when the terminal has ended; see Wait.
func (t *Terminal) Read(p []byte) (int, error) { return t.reader.Read(p) }

// Write sends input. It returns ErrDisconnected while there is no connection: input would otherwise run later, and unseen.
func (t *Terminal) Write(p []byte) (written int, err error) {
	for len(p) > 0 {
		part := p[:min(len(p), maxInputBytes)]
		if err := t.send(websocket.MessageBinary, part); err != nil {
			return written, err
		}
		written, p = written+len(part), p[len(part):]
	}
	return written, nil
}

// Resize changes the size. Without a connection it takes effect with the next one.
func (t *Terminal) Resize(columns, rows int) error {
	t.mu.Lock()
	t.columns, t.rows = columns, rows
	t.mu.Unlock()
	err := t.sendSize()
	if errors.Is(err, ErrDisconnected) {
		return nil
	}
	return err
}

// sendSize sends the current size.
func (t *Terminal) sendSize() error {
	t.sizing.Lock()
	defer t.sizing.Unlock()
	t.mu.Lock()
	columns, rows := t.columns, t.rows
	t.mu.Unlock()
	return t.send(websocket.MessageText, fmt.Appendf(nil, `{"resize":{"columns":%d,"rows":%d}}`, columns, rows))
}

// End ends the terminal's process and all its descendants. Wait returns afterwards.
func (t *Terminal) End() error { return t.send(websocket.MessageText, []byte(`{"end":true}`)) }

// Wait waits until the terminal has ended, and returns the exit status of its process. The error is an *Error if the server has
// ended the terminal. Codes: not_found if it ended while there was no connection, out_of_memory, disk_full, stopped, lost,
// unauthorized, unavailable.
func (t *Terminal) Wait() (status int, err error) {
	<-t.done
	return t.status, t.err
}

// Close closes the connection. The terminal stays open on the server for some time.
func (t *Terminal) Close() error {
	t.mu.Lock()
	conn := t.conn
	t.mu.Unlock()
	if conn != nil {
		_ = conn.Close(websocket.StatusNormalClosure, "") // the connection may have broken already
	}
	t.close(errClosed)
	<-t.done
	return nil
}

// send sends a message.
func (t *Terminal) send(kind websocket.MessageType, message []byte) error {
	t.mu.Lock()
	conn := t.conn
	t.mu.Unlock()
	if conn == nil {
		return ErrDisconnected
	}
	ctx, cancel := context.WithTimeout(t.ctx, writeTime)
	defer cancel()
	if err := conn.Write(ctx, kind, message); err != nil {
		return errors.Join(ErrDisconnected, err)
	}
	return nil
}

// connect opens a connection and reads its first message. Errors: *Error if the server refuses.
func (t *Terminal) connect(cwd string) (*websocket.Conn, error) {
	t.mu.Lock()
	columns, rows := t.columns, t.rows
	query := url.Values{"columns": {strconv.Itoa(columns)}, "rows": {strconv.Itoa(rows)}}
	if t.id != "" {
		query.Set("terminalId", t.id)
		query.Set("position", strconv.FormatUint(t.position, 10))
	}
	t.mu.Unlock()
	if cwd != "" {
		query.Set("cwd", cwd)
	}
	ctx, cancel := context.WithTimeout(t.ctx, handshakeTime)
	defer cancel()
	h, err := t.client.newRequest(ctx, http.MethodGet, t.path, query, http.NoBody)
	if err != nil {
		return nil, err
	}
	conn, response, err := websocket.Dial(ctx, h.URL.String(), &websocket.DialOptions{HTTPClient: t.client.http, HTTPHeader: h.Header})
	switch {
	case err != nil && response != nil && response.StatusCode != http.StatusSwitchingProtocols:
		return nil, newError(response)
	case err != nil:
		return nil, err
	}
	conn.SetReadLimit(maxLineBytes)
	kind, message, err := conn.Read(ctx)
	if err == nil && kind != websocket.MessageText {
		err = errMalformed
	}
	if err == nil {
		err = t.receiveText(message)
	}
	if err != nil {
		_ = conn.CloseNow()
		return nil, err
	}
	t.mu.Lock()
	t.conn = conn
	isResized := t.columns != columns || t.rows != rows
	t.mu.Unlock()
	if isResized { // while the connection was opened; then Resize has not sent the size
		_ = t.sendSize() // if the connection has broken, run opens a new one
	}
	return conn, nil
}

// endedError ends the reading of a connection, because the terminal has ended.
type endedError struct {
	status int
	err    error
}

func (endedError) Error() string { return "the terminal has ended" }

// receiveText processes a text message. It returns endedError if the terminal has ended.
func (t *Terminal) receiveText(message []byte) error {
	var in struct {
		Terminal *struct {
			ID       string `json:"id"`
			Position uint64 `json:"position"`
		} `json:"terminal"`
		endOfProcess
	}
	if err := json.Unmarshal(message, &in); err != nil {
		return fmt.Errorf("%w: %w", errMalformed, err)
	}
	if status, hasEnded, err := in.result(); hasEnded {
		return endedError{status, err}
	}
	if in.Terminal != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.id, t.position = in.Terminal.ID, in.Terminal.Position
	}
	return nil
}

// run reads connections until the terminal ends, and opens a new connection when one has broken.
func (t *Terminal) run(conn *websocket.Conn) {
	err := t.receive(conn)
	for !t.isFinal(err) {
		t.notify(err)
		if conn, err = t.reconnect(); err == nil {
			t.notify(nil)
			err = t.receive(conn)
		}
	}
	t.err = err
	if ended := (endedError{}); errors.As(err, &ended) {
		t.status, t.err = ended.status, ended.err
	}
	if cause := context.Cause(t.ctx); cause != nil && t.err != nil {
		t.err = cause
	}
	_ = t.output.Close()
	close(t.done)
	t.close(errClosed)
}

// isFinal reports whether no other connection is opened after an error: the terminal has ended or was closed, or the server
// refuses.
func (t *Terminal) isFinal(err error) bool {
	var refused *Error
	var ended endedError
	isRefused := errors.As(err, &refused) && !refused.temporary()
	return t.ctx.Err() != nil || isRefused || errors.As(err, &ended) || errors.Is(err, errMalformed) ||
		websocket.CloseStatus(err) == websocket.StatusPolicyViolation
}

// reconnecting has the pauses before another connection.
var reconnecting = retry.Policy{First: 250 * time.Millisecond, Longest: 10 * time.Second}

// reconnect opens a connection, with growing pauses between attempts. Errors: isFinal.
func (t *Terminal) reconnect() (*websocket.Conn, error) {
	for n := 1; retry.Pause(t.ctx, reconnecting.After(n)); n++ {
		conn, err := t.connect("")
		if err == nil || t.isFinal(err) {
			return conn, err
		}
	}
	return nil, context.Cause(t.ctx)
}

// receive passes the output of a connection on, until the connection breaks or the terminal ends.
func (t *Terminal) receive(conn *websocket.Conn) error {
	defer func() {
		t.mu.Lock()
		t.conn = nil
		t.mu.Unlock()
		_ = conn.CloseNow()
	}()
	ctx, end := context.WithCancel(t.ctx)
	defer end()
	var read atomic.Int64
	go ping(ctx, conn, &read)
	for {
		kind, message, err := conn.Read(ctx)
		read.Add(1)
		switch {
		case err != nil:
			return err
		case kind == websocket.MessageText:
			if err := t.receiveText(message); err != nil {
				return err
			}
			read.Add(1)
			continue
		}
		if _, err := t.output.Write(message); err != nil {
			return err
		}
		t.mu.Lock()
		t.position += uint64(len(message))
		t.mu.Unlock()
		read.Add(1)
	}
}

// ping closes a connection if the server does not answer. read is even while the connection is being read, and grows with each
// message: while the caller does not read the output, answers cannot arrive.
func ping(ctx context.Context, conn *websocket.Conn, read *atomic.Int64) {
	ticker := time.NewTicker(pingEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		before := read.Load()
		waiting, cancel := context.WithTimeout(ctx, pingEvery)
		err := conn.Ping(waiting)
		cancel()
		if err != nil && before%2 == 0 && read.Load() == before {
			_ = conn.CloseNow()
			return
		}
	}
}
