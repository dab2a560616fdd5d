package runner

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/coder/acp-go-sdk"
)

// A peer is the runner's end of the JSON-RPC connection with an agent. Its messages have the types of the SDK of the Agent Client Protocol. The
// connection of the SDK queues the messages of the agent, closes when the queue is full, and logs lines that it cannot read. A peer instead
// handles notifications in its reading goroutine, so that an agent that sends faster than the session records has to wait on the pipe.
type peer struct {
	// notify handles a notification. It may block, which stops the reader.
	notify func(method string, params json.RawMessage)
	// serve answers a request, in a separate goroutine for each request. ctx ends with the connection.
	serve func(ctx context.Context, method string, params json.RawMessage) (any, *acp.RequestError)

	out chan []byte
	// ctx ends with the connection.
	ctx    context.Context
	cancel context.CancelCauseFunc
	// served limits the requests that are served at the same time.
	served chan struct{}

	mu      sync.Mutex
	nextID  uint64
	pending map[uint64]chan rpcMessage
}

type rpcMessage struct {
	Version string            `json:"jsonrpc"`
	ID      json.RawMessage   `json:"id,omitempty"`
	Method  string            `json:"method,omitempty"`
	Params  json.RawMessage   `json:"params,omitempty"`
	Result  json.RawMessage   `json:"result,omitempty"`
	Error   *acp.RequestError `json:"error,omitempty"`
}

const (
	// maxMessage is the maximum length of a message of an agent in bytes.
	maxMessage = 16 << 20
	// maxServed is the maximum number of requests of an agent that wait for an answer.
	maxServed = 64
)

var (
	errAgentClosed    = errors.New("the agent has closed its output")
	errMessageTooLong = errors.New("the agent has sent a message that is too long")
	errNotACP         = errors.New("the agent has sent a line that is not a message of the Agent Client Protocol")
)

// newPeer returns a connection that reads from and writes to an agent until close is called or reading fails. Its goroutines end
// when stdin and stdout are closed, too.
func newPeer(stdin io.Writer, stdout *bufio.Reader, notify func(string, json.RawMessage),
	serve func(context.Context, string, json.RawMessage) (any, *acp.RequestError)) *peer {
	p := &peer{
		notify: notify, serve: serve, out: make(chan []byte, 16), served: make(chan struct{}, maxServed),
		pending: map[uint64]chan rpcMessage{},
	}
	p.ctx, p.cancel = context.WithCancelCause(context.Background())
	go p.write(stdin)
	go p.read(stdout)
	return p
}

// done returns a channel that is closed with the connection.
func (p *peer) done() <-chan struct{} { return p.ctx.Done() }

func (p *peer) close() { p.cancel(errAgentClosed) }

func (p *peer) write(stdin io.Writer) {
	for {
		select {
		case line := <-p.out:
			if _, err := stdin.Write(line); err != nil {
				p.cancel(errAgentClosed)
				return
			}
		case <-p.ctx.Done():
			return
		}
	}
}

// send enqueues a message. It waits while the agent does not read.
func (p *peer) send(ctx context.Context, m rpcMessage) error {
	m.Version = "2.0"
	line, err := json.Marshal(m)
	if err != nil {
		return err
	}
	select {
	case p.out <- append(line, '\n'):
		return nil
	case <-p.ctx.Done():
		return context.Cause(p.ctx)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// call sends a request and decodes its result. Errors: *acp.RequestError if the agent has refused the request, the error of ctx, and the
// reason why the connection was closed.
func (p *peer) call(ctx context.Context, method string, params, result any) error {
	return p.callAndReport(ctx, method, params, result, func() {})
}

// callAndReport is call. It calls sent as soon as the request precedes every later message to the agent.
func (p *peer) callAndReport(ctx context.Context, method string, params, result any, sent func()) error {
	encoded, err := json.Marshal(params)
	if err != nil {
		return err
	}
	answer := make(chan rpcMessage, 1)
	p.mu.Lock()
	p.nextID++
	id := p.nextID
	p.pending[id] = answer
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.pending, id)
		p.mu.Unlock()
	}()
	if err := p.send(ctx, rpcMessage{ID: json.RawMessage(fmt.Sprint(id)), Method: method, Params: encoded}); err != nil {
		return err
	}
	sent()
	select {
	case m := <-answer:
		return decodeResult(m, result)
	case <-ctx.Done():
		return ctx.Err()
	case <-p.ctx.Done():
		select { // the answer may have been the last message
		case m := <-answer:
			return decodeResult(m, result)
		default:
			return context.Cause(p.ctx)
		}
	}
}

func decodeResult(m rpcMessage, result any) error {
	if m.Error != nil {
		return m.Error
	}
	if len(m.Result) == 0 || result == nil {
		return nil
	}
	if err := json.Unmarshal(m.Result, result); err != nil {
		return fmt.Errorf("%w: %w", errNotACP, err)
	}
	return nil
}

// sendNotification sends a notification.
func (p *peer) sendNotification(ctx context.Context, method string, params any) error {
	encoded, err := json.Marshal(params)
	if err != nil {
		return err
	}
	return p.send(ctx, rpcMessage{Method: method, Params: encoded})
}

func (p *peer) read(stdout *bufio.Reader) {
	for {
		line, err := readLine(stdout)
		if err != nil {
			p.cancel(err)
			return
		}
		if len(line) == 0 {
			continue
		}
		var m rpcMessage
		if json.Unmarshal(line, &m) != nil {
			// Programs that agents start print to the agent's output now and then.
			continue
		}
		switch {
		case m.Method != "" && len(m.ID) == 0:
			p.notify(m.Method, m.Params)
		case m.Method != "":
			p.answer(m)
		case len(m.ID) > 0:
			p.deliver(m)
		}
		if p.ctx.Err() != nil {
			return
		}
	}
}

// readLine returns the next line without its end. Errors: errMessageTooLong, errAgentClosed.
func readLine(stdout *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := stdout.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxMessage:
			return nil, errMessageTooLong
		case err == nil:
			return line[:len(line)-1], nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, errAgentClosed
		}
	}
}

func (p *peer) deliver(m rpcMessage) {
	var id uint64
	if json.Unmarshal(m.ID, &id) != nil {
		return
	}
	p.mu.Lock()
	answer := p.pending[id]
	delete(p.pending, id)
	p.mu.Unlock()
	if answer != nil {
		answer <- m
	}
}

// answer serves a request of the agent.
func (p *peer) answer(m rpcMessage) {
	select {
	case p.served <- struct{}{}:
	default:
		_ = p.send(p.ctx, rpcMessage{ID: m.ID, Error: &acp.RequestError{Code: -32000, Message: "too many requests wait for an answer"}})
		return
	}
	go func() {
		defer func() { <-p.served }()
		reply := rpcMessage{ID: m.ID}
		result, refusal := p.serve(p.ctx, m.Method, m.Params)
		if reply.Error = refusal; refusal == nil {
			var err error
			if reply.Result, err = json.Marshal(result); err != nil {
				reply.Error = acp.NewInternalError(nil)
			}
		}
		_ = p.send(p.ctx, reply)
	}()
}
