package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// connection is what a request knows of the connection that it came over.
type connection struct {
	net.Conn
	// heads bounds the heads of the connection's requests; nil: nothing does.
	heads *headConn
	// over tells that the connection is one too many.
	isOverLimit bool
}

type connectionKey struct{}

func connectionOf(ctx context.Context) *connection {
	c, _ := ctx.Value(connectionKey{}).(*connection)
	return c
}

func (s *Server) newHTTPServer(handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: s.options.Limits.HeaderTime,
		IdleTimeout:       s.options.Limits.IdleTime,
		// Renewed for each request; streams and transfers replace it as they go.
		WriteTimeout:   s.options.Limits.RequestTime + s.options.Limits.StallTime,
		MaxHeaderBytes: maxHead,
		// OPTIONS * is answered as all else is.
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
}

// enter sees a connection before it is counted. One beyond the limit is kept to be told so; when those become many too,
// they are closed at once.
func (s *Server) admitConnection(ctx context.Context, c net.Conn) context.Context {
	limit, open := int64(s.options.Limits.Connections), s.connections.Load()
	if open >= limit+limit/8+16 {
		c.Close()
	}
	of := &connection{Conn: c, isOverLimit: open >= limit}
	if heads, ok := c.(*headConn); ok {
		of.Conn, of.heads = heads.Conn, heads
	}
	return context.WithValue(ctx, connectionKey{}, of)
}

func (s *Server) countConnection(c net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		s.connections.Add(1)
	case http.StateIdle:
		if heads, ok := c.(*headConn); ok {
			heads.beginHead()
		}
	case http.StateClosed, http.StateHijacked:
		s.connections.Add(-1)
	}
}

// streamBuffer bounds what the kernel holds for a client that has stopped reading, in bytes.
const streamBuffer = 64 << 10

// forStream fits a connection to a stream.
func (c *connection) limitWriteBuffer() {
	if c == nil {
		return
	}
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		tcp.SetWriteBuffer(streamBuffer)
	}
}

// deadline extends a connection's deadline while bytes move, and seldom: it is asked before each of them. So bytes have
// seven eighths of stall at least.
type deadline struct {
	set   func(time.Time) error
	stall time.Duration
	last  time.Time
}

func (d *deadline) extend() {
	if now := time.Now(); now.Sub(d.last) > d.stall/8 {
		d.last = now
		d.set(now.Add(d.stall))
	}
}

// The heads of requests arrive before anybody is known, and an unfinished head holds memory until it times out. These
// bounds hold for the bytes on their way in; net/http parses a head only after them.
const (
	// maxHead bounds a request's head, in bytes. net/http lets 4 KiB more pass.
	maxHead = 60 << 10
	// maxFields bounds the fields of a head: the shortest take many times their length in memory.
	maxFields = 128
	// freeHead is the part of a head that is not charged, in bytes: each connection has a buffer of that length anyway, and
	// ordinary heads fit into it.
	freeHead = 4 << 10
	// maxHeads bounds what is charged for the unfinished heads of all connections, in bytes. Heads that fit into freeHead
	// are read however many long ones there are.
	maxHeads = 32 << 20
)

// Answers to heads that are not read to their end.
const (
	tooManyFields = "HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Type: text/plain; charset=utf-8\r\n" +
		"Connection: close\r\n\r\n431 Request Header Fields Too Large"
	tooManyHeads = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\n" +
		"Connection: close\r\n\r\n" + `{"error":"unavailable","message":"the server is busy"}`
)

// headListener counts what the connections that it accepts take for unfinished heads.
type headListener struct {
	net.Listener
	// charged is what the unfinished heads are charged, in bytes.
	charged *atomic.Int64
}

func (l headListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &headConn{Conn: c, total: l.charged, inHead: true}, nil
}

// headConn is a connection whose heads are bounded while they arrive. A head begins with the connection and when the
// server waits for the next request (beginHead); it ends with its empty line, or when the request is handled (endHead).
type headConn struct {
	net.Conn
	total *atomic.Int64

	mu     sync.Mutex
	inHead bool
	// lines, length and charged are those of the head so far.
	lines           int
	length, charged int64
	// filled tells that the line under way has bytes other than its end.
	lineHasText bool
}

// Read reads what arrives. Where a head exceeds its bounds it answers the request itself and reports the end of the
// connection.
func (c *headConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if answer := c.scan(p[:n]); answer != "" {
		c.refuse(answer)
		return 0, io.EOF
	}
	return n, err
}

// scan follows the head that is under way, and returns the answer to one that exceeds its bounds.
func (c *headConn) scan(arrived []byte) (answer string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.inHead && len(arrived) > 0 {
		line := arrived
		end := bytes.IndexByte(arrived, '\n')
		if end >= 0 {
			line = arrived[:end+1]
		}
		arrived = arrived[len(line):]
		c.length += int64(len(line))
		c.lineHasText = c.lineHasText || len(bytes.TrimRight(line, "\r\n")) > 0
		if end < 0 {
			break
		}
		if !c.lineHasText && c.lines > 0 {
			c.release()
			return ""
		}
		c.lineHasText = false
		if c.lines++; c.lines > maxFields+1 { // the first is the request's
			return tooManyFields
		}
	}
	if !c.inHead {
		return ""
	}
	more := max(c.length-freeHead, 0) - c.charged
	c.charged += more
	if c.total.Add(more) > maxHeads && more > 0 {
		return tooManyHeads
	}
	return ""
}

// refuse answers and waits a moment for the client to take the answer: closing the connection while its bytes arrive could
// take the answer away from it.
func (c *headConn) refuse(answer string) {
	c.endHead()
	until := time.Now().Add(endGrace)
	c.SetDeadline(until)
	if _, err := io.WriteString(c.Conn, answer); err != nil || c.CloseWrite() != nil {
		return
	}
	io.CopyN(io.Discard, c.Conn, maxHead)
}

// beginHead is called when the server waits for the next request.
func (c *headConn) beginHead() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.release()
	c.inHead, c.lines, c.length, c.lineHasText = true, 0, 0, false
}

// endHead is called when a request is handled.
func (c *headConn) endHead() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.release()
}

// end gives back what was charged for the head. The caller holds mu.
func (c *headConn) release() {
	c.inHead = false
	c.total.Add(-c.charged)
	c.charged = 0
}

func (c *headConn) Close() error {
	c.endHead()
	return c.Conn.Close()
}

var errHalfClose = errors.New("the connection cannot be closed in one direction")

// CloseWrite closes the connection for writing; net/http does so before it drops a connection.
func (c *headConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errHalfClose
}

// ReadFrom keeps the kernel's copy from file to socket within reach.
func (c *headConn) ReadFrom(from io.Reader) (int64, error) {
	if to, ok := c.Conn.(io.ReaderFrom); ok {
		return to.ReadFrom(from)
	}
	return io.Copy(struct{ io.Writer }{c.Conn}, from)
}
