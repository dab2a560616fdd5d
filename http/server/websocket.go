package server

import (
	"context"
	"encoding/base64"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/atelier-run/atelier/entity"
)

// CheckWebSocket checks that a request opens a WebSocket (RFC 6455, section 4.2.1), and that it does not come from a page of
// another site: browsers send cookies with such requests too, and a WebSocket changes things although its method is GET.
// Errors: invalid_request, forbidden.
func (c *Call) CheckWebSocket() error {
	r := c.Request
	key, err := base64.StdEncoding.DecodeString(r.Header.Get("Sec-WebSocket-Key"))
	switch {
	case r.Method != http.MethodGet, !r.ProtoAtLeast(1, 1), !hasToken(r.Header, "Connection", "upgrade"),
		!hasToken(r.Header, "Upgrade", "websocket"):
		return Invalid("this operation is a WebSocket: the request needs the headers Connection: Upgrade and Upgrade: websocket")
	case r.Header.Get("Sec-WebSocket-Version") != "13":
		return Invalid("the header Sec-WebSocket-Version must be 13")
	case err != nil, len(key) != 16, len(r.Header["Sec-Websocket-Key"]) != 1:
		return Invalid("the header Sec-WebSocket-Key must be 16 bytes in base64")
	case !c.isOwnOrigin():
		return entity.Errorf(entity.Forbidden, "the request comes from another site")
	}
	return nil
}

// hasToken reports whether a header that is a list has a token.
func hasToken(h http.Header, name, token string) bool {
	for _, line := range h.Values(name) {
		for one := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(one), token) {
				return true
			}
		}
	}
	return false
}

// isOwnOrigin reports whether the header Origin names this server, by its public URL or by the host of the request. Browsers
// send the header with each request for a WebSocket; a request without it comes from another program.
func (c *Call) isOwnOrigin() bool {
	sent := c.Request.Header["Origin"]
	if len(sent) == 0 {
		return true
	}
	origin, err := url.Parse(sent[0])
	if err != nil || len(sent) > 1 || origin.Host == "" {
		return false
	}
	public := c.server.options.PublicURL
	isPublic := strings.EqualFold(origin.Scheme, public.Scheme) && strings.EqualFold(origin.Host, public.Host)
	return isPublic || strings.EqualFold(origin.Host, c.Request.Host)
}

// Socket is a WebSocket connection. Send, KeepAlive and Receive may be called concurrently with each other.
type Socket struct {
	conn    *websocket.Conn
	net     net.Conn
	limits  Limits
	every   time.Duration
	counted func(bytes int)
}

// AcceptWebSocket takes the connection of a request that CheckWebSocket has accepted over. Messages of more than limit bytes
// close the connection. The caller calls CloseNow before the handler returns. Errors: the client has gone; no response is
// possible then.
func (c *Call) AcceptWebSocket(limit int64) (*Socket, error) {
	w := c.Response
	w.mayHijack = true
	defer func() { w.mayHijack = false }()
	conn, err := websocket.Accept(w, c.Request, &websocket.AcceptOptions{
		InsecureSkipVerify: true, // CheckWebSocket has verified the origin
		CompressionMode:    websocket.CompressionDisabled,
	})
	if err != nil {
		return nil, err
	}
	conn.SetReadLimit(limit)
	connectionOf(c.Request.Context()).limitWriteBuffer()
	return &Socket{
		conn: conn, net: w.hijacked, limits: c.server.options.Limits, every: c.server.options.Heartbeat,
		counted: func(bytes int) { w.bytes += int64(bytes) },
	}, nil
}

// Send sends a message, which is binary or text. It waits for the client, up to Limits.StallTime; after an error the connection
// is closed. It must not be called concurrently with itself.
func (s *Socket) Send(isBinary bool, message []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.limits.StallTime)
	defer cancel()
	kind := websocket.MessageText
	if isBinary {
		kind = websocket.MessageBinary
	}
	s.counted(len(message))
	return s.conn.Write(ctx, kind, message)
}

// Receive returns the next message. It fails when the connection is closed, by either side, or the message is too long.
func (s *Socket) Receive() (isBinary bool, message []byte, err error) {
	kind, message, err := s.conn.Read(context.Background())
	return kind == websocket.MessageBinary, message, err
}

// KeepAlive sends a ping each Options.Heartbeat until ctx ends. It fails if the client does not answer one within
// Limits.StallTime. Pongs arrive only while Receive is being called.
func (s *Socket) KeepAlive(ctx context.Context) error {
	ticker := time.NewTicker(s.every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		waiting, cancel := context.WithTimeout(ctx, s.limits.StallTime)
		err := s.conn.Ping(waiting)
		cancel()
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// BeginEnd gives a message in flight a second. Messages that are sent later must fit into that second too.
func (s *Socket) BeginEnd() { s.net.SetWriteDeadline(time.Now().Add(endGrace)) }

// The codes of the ends of connections (RFC 6455, section 7.4.1).
const (
	CloseDone         = int(websocket.StatusNormalClosure)
	CloseShuttingDown = int(websocket.StatusGoingAway)
	CloseRefused      = int(websocket.StatusPolicyViolation)
	CloseFailed       = int(websocket.StatusInternalError)
)

// maxCloseReason bounds the reason in a close frame, in bytes (RFC 6455, section 5.5).
const maxCloseReason = 123

// Close closes the connection with a code and a reason, and waits for the client's answer, up to a second.
func (s *Socket) Close(code int, reason string) {
	if len(reason) > maxCloseReason {
		reason = strings.ToValidUTF8(reason[:maxCloseReason], "")
	}
	s.net.SetDeadline(time.Now().Add(endGrace))
	s.conn.Close(websocket.StatusCode(code), reason)
}

// CloseNow closes the connection, unless it is closed already.
func (s *Socket) CloseNow() { s.conn.CloseNow() }
