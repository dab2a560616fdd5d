package edge

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/atelier-run/atelier/limit"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// exchangeKey is the key of the exchange in the context of a request that is passed to an app.
type exchangeKey struct{}

// maxInformational is the maximum number of informational responses to a request. After more, the request fails with errGateway.
const maxInformational = 16

// exchange is one request with its response. The watcher may end it (watch.go).
type exchange struct {
	http.ResponseWriter
	request *http.Request
	// ctx outlives the client's sending side; see attend.
	ctx     context.Context
	id      string
	started time.Time
	// target is nil until the app is found. visitID and visitor are the id and the principal of the visit; they are empty and nil for public
	// apps.
	target  *target
	visitID string
	visitor *wirev1.Principal
	address netip.Addr
	// query is the query of the request, without the grant.
	query string
	// strict is the header Strict-Transport-Security of the server, for the final response; nil: the server sends no such header.
	strict   []string
	upgrade  bool
	client   limit.Counted
	upstream *upstream
	// generation is the transport that has sent the request to the app.
	generation *generation
	// slots is the set that the request has taken a slot from.
	slots *limit.Shares[string]
	// backend is the upgraded connection to the app; nil if the connection was not upgraded.
	backend *upgraded

	// informational is the number of informational responses.
	informational int

	status  int
	bytes   atomic.Int64
	outcome outcome
	failure error

	// broken is the first error of reading the request's body other than io.EOF.
	broken atomic.Pointer[error]
	// isStream is set once the app has begun a stream of events.
	isStream atomic.Bool
	// isHalfClosed is set once an HTTP/1 client has closed its sending side.
	isHalfClosed atomic.Bool
	// isWriting is set while a part of the response is written to the client.
	isWriting atomic.Bool
	// hasBegun is set once the final response has begun.
	hasBegun atomic.Bool
	// used is the time of the last traffic, in nanoseconds since started.
	used atomic.Int64
	// confirmed is the time of the last check of the watcher that found the access unchanged. Only the check of the exchange's subject uses
	// the field.
	confirmed time.Time

	// mu guards the fields below.
	mu     sync.Mutex
	cancel context.CancelCauseFunc
	conn   net.Conn
	done   bool
	cause  error
	// isCounted is set while the request has its slots. client, upstream and slots do not change after isCounted was set.
	isCounted  bool
	prev, next *exchange
}

func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// usedAt returns the time of the last traffic.
func (x *exchange) usedAt() time.Time { return x.started.Add(time.Duration(x.used.Load())) }

func (x *exchange) touch() { x.used.Store(int64(time.Since(x.started))) }

// attend gives an exchange its context. The caller calls end when the request has been served.
//
// In HTTP/1 a client may close its sending side after the request and wait for the response, as nc -N and many probes do. net/http then ends
// the context of the request, in the same way as for a client that has left. With TCP the server cannot distinguish the two cases until it
// writes: the system of a client that has left resets the connection, and the next write fails. Therefore the exchange continues until a
// write fails, there has been no traffic for Limits.HalfClosedTime (round), or another request needs a slot (makeRoom). In HTTP/2 the context
// ends only if the client has left.
func (e *Edge) attend(x *exchange) (end func()) {
	ctx, cancel := context.WithCancelCause(context.WithValue(context.WithoutCancel(x.request.Context()), exchangeKey{}, x))
	x.ctx, x.cancel = ctx, cancel
	unwatch := context.AfterFunc(x.request.Context(), func() {
		if x.request.ProtoMajor != 1 {
			cancel(errGone)
			return
		}
		e.halfClosed.add(x)
		e.log.Debug("a client has closed its sending side", "request", x.id)
	})
	return func() {
		unwatch()
		cancel(nil)
	}
}

// WriteHeader implements http.ResponseWriter. After an informational response of the app, a final response follows, which may be a refusal
// if the app then fails. Informational responses do not pass guardResponse; therefore WriteHeader removes all their headers but Link, which
// the status 103 is for.
func (x *exchange) WriteHeader(status int) {
	if status >= 100 && status < 200 && status != http.StatusSwitchingProtocols {
		if x.informational++; x.informational > maxInformational {
			x.cancel(errGateway)
			return
		}
		if !x.request.ProtoAtLeast(1, 1) {
			return // HTTP/1.0 has no informational responses (RFC 9110, section 15.2)
		}
		for name := range x.Header() {
			if name != "Link" {
				delete(x.Header(), name)
			}
		}
		x.ResponseWriter.WriteHeader(status)
		return
	}
	x.begin(status)
	x.ResponseWriter.WriteHeader(status)
}

// Write implements io.Writer.
func (x *exchange) Write(b []byte) (int, error) {
	x.begin(http.StatusOK)
	defer x.write()()
	n, err := x.ResponseWriter.Write(b)
	x.bytes.Add(int64(n))
	return n, err
}

// Flush implements http.Flusher.
func (x *exchange) Flush() {
	defer x.write()()
	_ = http.NewResponseController(x.ResponseWriter).Flush()
}

// begin records the status of the final response, unless the response has begun.
func (x *exchange) begin(status int) {
	if x.status == 0 {
		x.status = status
		x.touch()
		x.hasBegun.Store(true)
	}
}

// write marks that the response is being written, until end is called. A half-closed request does not end meanwhile: a client that reads
// slowly has not left, and a write to a client that has left fails by itself.
func (x *exchange) write() (end func()) {
	x.isWriting.Store(true)
	return func() {
		x.touch()
		x.isWriting.Store(false)
	}
}

// Hijack implements http.Hijacker. The connection ends with the exchange.
func (x *exchange) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, buffers, err := http.NewResponseController(x.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.cause != nil {
		c.Close()
		return nil, nil, x.cause
	}
	x.conn = c
	x.begin(http.StatusSwitchingProtocols)
	early, _ := buffers.Reader.Peek(buffers.Reader.Buffered()) // httputil reads from the connection alone
	return &trackedConn{c, x, slices.Clone(early)}, buffers, nil
}

// stop ends the exchange with a cause, unless it is done.
func (x *exchange) stop(cause error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.done || x.cause != nil {
		return
	}
	x.cause = cause
	x.cancel(cause)
	if x.conn != nil {
		x.conn.Close()
		return
	}
	// A write to a client that does not read ends now, and so does a read from a client that does not send.
	control := http.NewResponseController(x.ResponseWriter)
	past := time.Unix(1, 0)
	if x.hasBegun.Load() {
		_ = control.SetWriteDeadline(past)
	} else {
		_ = control.SetWriteDeadline(time.Now().Add(drainTime)) // for the refusal
	}
	_ = control.SetReadDeadline(past)
}

// stopped returns the cause that stop was called with, or nil if stop has not ended the exchange.
func (x *exchange) stopped() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.cause
}

// bodyError returns nil if no read of the request's body has failed, errGone if a read has failed because the client has left, and errBody
// if the body is malformed.
func (x *exchange) bodyError() error {
	broken := x.broken.Load()
	if broken == nil {
		return nil
	}
	var network net.Error
	if x.request.Context().Err() != nil || errors.Is(*broken, io.ErrUnexpectedEOF) || errors.As(*broken, &network) {
		return errGone
	}
	return errBody
}

// release frees the slots of a request, and closes an upgraded connection to the app: httputil leaves the connection open if the app has
// changed to a protocol that the client has not asked for. After release, stop has no effect.
func (x *exchange) release() {
	x.mu.Lock()
	x.done = true
	x.mu.Unlock()
	if x.backend != nil {
		_ = x.backend.Close() // httputil has closed the connection in all other cases
	}
	x.free()
}

// free frees the slots of the request. It reports whether the request had slots.
func (x *exchange) free() bool {
	x.mu.Lock()
	isCounted := x.isCounted
	x.isCounted = false
	x.mu.Unlock()
	if isCounted {
		x.upstream.active.Add(-1)
		x.upstream.usedAt.Store(int64(x.upstream.passed()))
		x.client.Release()
		x.slots.Release(x.target.workspaceID)
	}
	return isCounted
}

// trackedConn records the traffic of a connection that was upgraded.
type trackedConn struct {
	net.Conn
	x *exchange
	// early has the bytes that the client sent after the request, before the connection was upgraded (RFC 9110, section 7.8, permits it).
	early []byte
}

func (c *trackedConn) Read(b []byte) (n int, err error) {
	if len(c.early) > 0 {
		n = copy(b, c.early)
		c.early = c.early[n:]
	} else {
		n, err = c.Conn.Read(b)
	}
	c.x.touch()
	return n, err
}

func (c *trackedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.x.bytes.Add(int64(n))
	c.x.touch()
	return n, err
}

// CloseWrite closes the sending side towards the client, after the app has closed its sending side.
func (c *trackedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Conn.Close()
}

// trackedBody records the traffic of a request's body, and the first error of a read. After Close, drain can still read the body.
type trackedBody struct {
	body   io.Reader
	x      *exchange
	closed atomic.Bool
}

func (b *trackedBody) Read(p []byte) (int, error) {
	if b.closed.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := b.body.Read(p)
	b.x.touch()
	if err != nil && err != io.EOF {
		b.x.broken.CompareAndSwap(nil, &err)
	}
	return n, err
}

// Close implements io.Closer. The server closes the body itself.
func (b *trackedBody) Close() error {
	b.closed.Store(true)
	return nil
}
