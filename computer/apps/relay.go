package apps

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/atelier-run/atelier/retry"
)

// A relay listens on the port of an app in the network of the computer, and passes connections on to the current process of the app, which has
// its own network. So other processes of the computer reach the app at its port, whichever process serves the app. A connection ends with the
// process that it was passed to.
type relay struct {
	listener net.Listener
	// ended is closed when the relay accepts no further connections: it was closed, or the computer was stopped.
	ended chan struct{}
}

// maxRelayed is the maximum number of open connections of a relay. Each connection takes two descriptors of the server.
const maxRelayed = 512

// acceptPause is the pause after Accept has failed, for example because the server had no free descriptor.
const acceptPause = time.Second

// relayDial is how long a connection waits until the process accepts connections.
const relayDial = 10 * time.Second

// openRelay opens a relay for a port. It returns an error if another process of the computer uses the port.
func (l *loop) openRelay(ctx context.Context, port int) (*relay, error) {
	listener, err := l.s.o.Computers.Listen(ctx, l.workspaceID, port)
	if err != nil && l.isTaken(ctx, port) {
		return nil, portTaken(port)
	}
	if err != nil {
		return nil, l.reasonOf(ctx, err)
	}
	r := &relay{listener: listener, ended: make(chan struct{})}
	l.mu.Lock()
	l.relays = append(l.relays, r)
	l.mu.Unlock()
	go r.serve(l)
	return r, nil
}

// closeRelays closes all relays except the relay of the current process. No attempt may be running.
func (l *loop) closeRelays() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.relays = slices.DeleteFunc(l.relays, func(r *relay) bool {
		if l.current != nil && l.current.relay == r {
			return false
		}
		_ = r.listener.Close() // fails if the listener has ended with the computer
		return true
	})
}

// isOpen reports whether the relay accepts connections. The relay may be nil.
func (r *relay) isOpen() bool {
	return r != nil && !isClosed(r.ended)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (r *relay) serve(l *loop) {
	defer close(r.ended)
	slots := make(chan struct{}, maxRelayed)
	for {
		c, err := r.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			l.s.o.Log.Warn("cannot accept a connection to an app; trying again", slog.String("app", l.identity), slog.Any("error", err))
			retry.Pause(context.Background(), acceptPause)
			continue
		}
		select {
		case slots <- struct{}{}:
			go func() {
				defer func() { <-slots }()
				l.pass(c)
			}()
		default:
			_ = c.Close() // too many connections are open
		}
	}
}

// pass copies between a connection and a new connection to the current process, until both directions or the process have ended.
func (l *loop) pass(client net.Conn) {
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), relayDial)
	defer cancel()
	process, err := l.dialWhenStarted(ctx)
	if err != nil {
		return
	}
	defer process.Close()
	var directions sync.WaitGroup
	directions.Go(func() { copyHalf(process, client) })
	directions.Go(func() { copyHalf(client, process) })
	copied := make(chan struct{})
	go func() { directions.Wait(); close(copied) }()
	select {
	case <-copied:
	case <-process.i.gone: // closing both ends the copies
	}
}

// dialWhenStarted connects to the current process. It waits while the process starts.
func (l *loop) dialWhenStarted(ctx context.Context) (*used, error) {
	for {
		c, retry, err := l.dial(ctx)
		if retry == nil {
			return c, err
		}
		select {
		case <-retry:
		case <-l.ended:
			return nil, err
		case <-ctx.Done():
			return nil, err
		}
	}
}

// copyHalf copies one direction of a connection. At the end of from, it closes the sending side of to. If to has no separate sending side, or from
// has failed, it closes to.
func copyHalf(to, from net.Conn) {
	_, err := io.Copy(to, from)
	half, can := to.(interface{ CloseWrite() error })
	if err != nil || !can || errors.Is(half.CloseWrite(), errors.ErrUnsupported) {
		_ = to.Close()
	}
}
