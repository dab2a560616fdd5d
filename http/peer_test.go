package http_test

import (
	"context"
	"encoding/json"
	"fmt"
	nethttp "net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

const terminalPath = "/v1/ws/acme/computer/terminal"

// peer is a client that is connected to a terminal.
type peer struct {
	*testing.T
	conn *websocket.Conn
	id   string
	// position is the position of the next byte of output.
	position uint64
	// output is the output so far.
	output strings.Builder
	// jumps are the positions at which output was lost.
	jumps []uint64
	// end is how the terminal ended: its exit status or the code of its error.
	end string
}

// dialTerminal opens a terminal, or resumes one.
func (m *machine) dialTerminal(query string, headers ...string) (*peer, *nethttp.Response, error) {
	m.Helper()
	header := nethttp.Header{"Authorization": {"Bearer " + m.key}}
	for i := 0; i+1 < len(headers); i += 2 {
		header.Set(headers[i], headers[i+1])
	}
	conn, response, err := websocket.Dial(m.patience(), "ws://"+m.host+strings.Replace(terminalPath, "acme", m.slug, 1)+query, &websocket.DialOptions{HTTPHeader: header})
	if err != nil {
		return nil, response, err
	}
	m.Cleanup(func() { conn.CloseNow() })
	p := &peer{T: m.T, conn: conn}
	return p, response, p.read()
}

func (m *machine) connect(query string) *peer {
	m.Helper()
	p, response, err := m.dialTerminal(query)
	if err != nil {
		m.Fatalf("%v: %v", response, err)
	}
	return p
}

// read reads a message.
func (p *peer) read() error {
	p.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	kind, message, err := p.conn.Read(ctx)
	if err != nil {
		return err
	}
	if kind == websocket.MessageBinary {
		p.output.Write(message)
		p.position += uint64(len(message))
		return nil
	}
	var text struct {
		Terminal *struct {
			ID       string
			Position uint64
		}
		Exit  *int
		Error *struct{ Code, Message string }
	}
	if err := json.Unmarshal(message, &text); err != nil {
		p.Fatalf("%s: %v", message, err)
	}
	switch {
	case text.Terminal != nil && p.id != "":
		p.jumps = append(p.jumps, text.Terminal.Position)
		p.position = text.Terminal.Position
	case text.Terminal != nil:
		p.id, p.position = text.Terminal.ID, text.Terminal.Position
	case text.Exit != nil:
		p.end = fmt.Sprint(*text.Exit)
	default:
		p.end = text.Error.Code
	}
	return nil
}

// until reads until the output contains a text.
func (p *peer) until(text string) {
	p.Helper()
	for !strings.Contains(p.output.String(), text) {
		if err := p.read(); err != nil {
			p.Fatalf("%v after %q", err, p.output.String())
		}
	}
}

// closed reads until the connection is closed, and returns the code of the close frame; -1 if there was none.
func (p *peer) closed() websocket.StatusCode {
	p.Helper()
	for {
		if err := p.read(); err != nil {
			return websocket.CloseStatus(err)
		}
	}
}

func (p *peer) send(kind websocket.MessageType, message string) {
	p.Helper()
	if err := p.conn.Write(p.Context(), kind, []byte(message)); err != nil {
		p.Fatal(err)
	}
}

// enter enters a line, with a carriage return as keyboards send it.
func (p *peer) enter(line string) { p.Helper(); p.send(websocket.MessageBinary, line+"\r") }

func (m *machine) waitAttached(id string, clients int) {
	m.Helper()
	if err := m.computers.WaitAttached(m.patience(), id, clients); err != nil {
		m.Fatal(err)
	}
}

func (m *machine) waitEnded(id string) {
	m.Helper()
	if err := m.computers.WaitEnded(m.patience(), id); err != nil {
		m.Fatal(err)
	}
}
