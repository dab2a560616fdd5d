package runner

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/atelier-run/atelier/runner/gateway"
)

// addresses has the gateways of the computers with agents, and the agents by their tokens.
type addresses struct {
	r       *Runner
	handler *gateway.Handler

	mu     sync.Mutex
	open   map[string]*address
	agents map[string]*agent
	// closing has each address with a listener that is being closed.
	closing map[string]*address
}

// An address is the gateway inside one computer, which its agents share.
type address struct {
	workspace string
	// url has no slash at its end. It is set when ready is closed.
	url    string
	server *http.Server
	// ready is closed when the listener is open or err is set.
	ready chan struct{}
	err   error
	// closed is closed when the listener is closed and the port is free.
	closed chan struct{}
	// agents counts the agents that use the address.
	agents int
	// isClosed is set when the listener is to be closed. isLost is set when the listener has failed because the computer has stopped.
	isClosed, isLost bool
}

func newAddresses(r *Runner) *addresses {
	a := &addresses{r: r, open: map[string]*address{}, agents: map[string]*agent{}, closing: map[string]*address{}}
	a.handler = &gateway.Handler{Find: a.find, Transport: r.o.Transport, Observe: r.metrics.countGateway, Log: r.o.Log}
	return a
}

// find implements gateway.Handler.
func (a *addresses) find(token string) (gateway.Run, bool) {
	a.mu.Lock()
	l := a.agents[token]
	a.mu.Unlock()
	if l == nil || !l.isRunning() {
		return nil, false
	}
	return l, true
}

// admit makes the token of an agent valid while the agent opens its session, and while its turns run.
func (a *addresses) admit(l *agent) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.agents[l.token] = l
}

// acquire opens the gateway in a computer, or returns the gateway that is open. The caller must call release. Errors: the errors of
// Computers.Listen.
func (a *addresses) acquire(ctx context.Context, workspace string) (*address, error) {
	a.mu.Lock()
	at := a.open[workspace]
	if at == nil {
		at = &address{workspace: workspace, ready: make(chan struct{}), closed: make(chan struct{})}
		a.open[workspace] = at
		go a.listen(at, a.closing[workspace])
	}
	at.agents++
	a.mu.Unlock()
	select {
	case <-at.ready:
		if at.err != nil {
			return nil, at.err
		}
		return at, nil
	case <-ctx.Done():
		a.leave(at)
		return nil, ctx.Err()
	}
}

// listenTimeout bounds the opening of a listener, which may start the computer.
const listenTimeout = time.Minute

// listen opens a listener after the previous listener of the computer is closed, and serves it until the computer stops or the last agent has
// ended.
func (a *addresses) listen(at, before *address) {
	defer a.ended(at)
	ctx, cancel := context.WithTimeout(context.Background(), listenTimeout)
	defer cancel()
	if before != nil {
		select {
		case <-before.closed:
		case <-ctx.Done():
		}
	}
	listener, err := a.r.o.Computers.Listen(ctx, at.workspace, 0)
	a.mu.Lock()
	if at.err = err; err == nil {
		at.url = "http://" + listener.Addr().String()
		at.server = &http.Server{
			Handler: a.handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute,
			ErrorLog: slog.NewLogLogger(a.r.o.Log.Handler(), slog.LevelDebug),
		}
	}
	if err != nil || at.isClosed {
		a.forget(at)
	}
	closed := at.isClosed
	a.mu.Unlock()
	close(at.ready)
	if err != nil {
		return
	}
	if closed {
		_ = listener.Close()
		return
	}
	_ = at.server.Serve(listener) // closes the listener
	a.mu.Lock()
	at.isLost = at.isLost || !at.isClosed
	a.mu.Unlock()
	_ = at.server.Close()
}

// ended records that the listener of an address is closed.
func (a *addresses) ended(at *address) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.forget(at)
	if a.closing[at.workspace] == at {
		delete(a.closing, at.workspace)
	}
	close(at.closed)
}

// isLost reports whether the computer of an address has stopped. Its successor cannot be reached at the address.
func (a *addresses) isLost(at *address) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return at.isLost
}

// lose records that the computer of an address has stopped, which may be known before its listener fails.
func (a *addresses) lose(at *address) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at.isLost = true
	a.forget(at)
}

// forget makes the next agent open a new listener. The caller holds mu.
func (a *addresses) forget(at *address) {
	if a.open[at.workspace] == at {
		delete(a.open, at.workspace)
	}
}

// release makes the token of an agent invalid, and closes the gateway of its computer after the last agent.
func (a *addresses) release(l *agent) {
	a.mu.Lock()
	delete(a.agents, l.token)
	a.mu.Unlock()
	a.leave(l.address)
}

func (a *addresses) leave(at *address) {
	a.mu.Lock()
	at.agents--
	server := at.server
	if at.agents == 0 {
		if !at.isClosed && a.open[at.workspace] == at {
			a.closing[at.workspace] = at
		}
		at.isClosed = true
		a.forget(at)
	}
	isLast := at.agents == 0
	a.mu.Unlock()
	if isLast && server != nil {
		_ = server.Close()
	}
}

func (a *addresses) close() {
	a.mu.Lock()
	var servers []*http.Server
	for _, at := range a.open {
		at.isClosed = true
		if at.server != nil {
			servers = append(servers, at.server)
		}
	}
	a.mu.Unlock()
	for _, s := range servers {
		_ = s.Close()
	}
}
