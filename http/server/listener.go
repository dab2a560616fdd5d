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
		// net/http renews it for each request; streams and transfers replace it.
		WriteTimeout:   s.options.Limits.RequestTime + s.options.Limits.StallTime,
		MaxHeaderBytes: maxHead,
		// OPTIONS * is routed like every other request.
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
}

// streamBuffer bounds the kernel's buffer for a client that has stopped reading, in bytes.
const streamBuffer = 64 << 10

// limitWriteBuffer sets the kernel's write buffer of a connection that becomes a stream.
func (c *connection) limitWriteBuffer() {
	if c == nil {
		return
	}
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		tcp.SetWriteBuffer(streamBuffer)
	}
}

// deadline extends a deadline of a connection while bytes move. To be cheap it does so at most eight times in stall, so a
// client has at least seven eighths of stall to move bytes.
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

// Bounds of request heads. A head arrives before the client is authenticated, and an unfinished one occupies memory until it
// times out. The bounds are enforced on the arriving bytes, before net/http parses them.
const (
	// maxHead bounds a request's head, in bytes. net/http allows 4 KiB more.
	maxHead = 60 << 10
	// maxFields bounds the number of fields in a head: the shortest fields take many times their length in memory.
	maxFields = 128
	// freeHead is the part of a head that is not charged, in bytes: each connection has a buffer of this size, and ordinary
	// heads fit into it.
	freeHead = 4 << 10
	// maxHeads bounds the bytes charged for the unfinished heads of all connections. Heads that fit into freeHead are read
	// in any case.
	maxHeads = 32 << 20
)

// headListener charges the connections that it accepts for their unfinished heads.
type headListener struct {
	net.Listener
	s *Server
}

func (l headListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return newHeadConn(c, l.s), nil
}

// headConn is a connection that bounds request heads while they arrive. A head begins with the connection, and when the
// server waits for the next request (beginHead); it ends with its empty line, or when the request is handled (endHead).
type headConn struct {
	net.Conn
	s *Server
	// isHandled is set from endHead to beginHead. Bytes that are written at other times are refusals of net/http.
	isHandled atomic.Bool
	// isHalfClosed is set once the client has closed its sending side in order. A connection that is lost fails with another error.
	isHalfClosed atomic.Bool

	mu     sync.Mutex
	inHead bool
	// lines, length and charged describe the current head.
	lines           int
	length, charged int64
	// lineHasText reports that the current line has bytes other than its end.
	lineHasText bool
	// name is the beginning of the current line, as long as the names of lengthFields. hasLength and isEncoded report that the head has such
	// a field.
	name                 [len(encodingField)]byte
	nameLength           int
	hasLength, isEncoded bool

	// isHolding is set between hold and its release; held has the bytes that were written in between. Only the goroutine
	// that answers a request uses them.
	isHolding bool
	held      []byte
}

// The fields that say how long a body is.
const (
	lengthField   = "content-length:"
	encodingField = "transfer-encoding:"
)

func newHeadConn(c net.Conn, s *Server) *headConn { return &headConn{Conn: c, s: s, inHead: true} }

// Read reads from the connection. If a head exceeds its bounds, Read answers the request itself and returns io.EOF.
func (c *headConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if refused := c.scan(p[:n]); refused != nil {
		c.refuse(refused)
		return 0, io.EOF
	}
	if err == io.EOF {
		c.isHalfClosed.Store(true)
	}
	return n, err
}

// scan follows the current head. It returns the refusal of a head that exceeds its bounds or has two lengths of the body, or nil. A head
// that arrives together with the body of the request before it is not seen: net/http reads it with that body.
func (c *headConn) scan(arrived []byte) *headRefusal {
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
		c.nameLength += copy(c.name[c.nameLength:], line)
		c.lineHasText = c.lineHasText || len(bytes.TrimRight(line, "\r\n")) > 0
		if end < 0 {
			break
		}
		if !c.lineHasText && c.lines > 0 {
			c.release()
			if c.hasLength && c.isEncoded {
				return twoLengths
			}
			return nil
		}
		c.endLine()
		if c.lines++; c.lines > maxFields+1 { // the first line is not a field
			return tooManyFields
		}
	}
	if !c.inHead {
		return nil
	}
	more := max(c.length-freeHead, 0) - c.charged
	c.charged += more
	if c.s.heads.Add(more) > maxHeads && more > 0 {
		return tooManyHeads
	}
	return nil
}

// endLine evaluates the line that has ended. The caller holds mu.
func (c *headConn) endLine() {
	name := bytes.ToLower(c.name[:c.nameLength])
	c.hasLength = c.hasLength || bytes.HasPrefix(name, []byte(lengthField))
	c.isEncoded = c.isEncoded || bytes.HasPrefix(name, []byte(encodingField))
	c.lineHasText, c.nameLength = false, 0
}

// refuse writes a response, and then discards input for a moment: if the connection were closed while bytes arrive, the
// client could lose the response.
func (c *headConn) refuse(refused *headRefusal) {
	c.endHead()
	until := time.Now().Add(endGrace)
	c.SetDeadline(until)
	if _, err := c.Conn.Write(c.s.encodeHeadRefusal(refused, c.RemoteAddr().String())); err != nil || c.CloseWrite() != nil {
		return
	}
	io.CopyN(io.Discard, c.Conn, maxHead)
}

// maxHeld bounds the bytes that are held: content of smallContent with its head.
const maxHeld = smallContent + 8<<10

var heldBuffers = sync.Pool{New: func() any { return new([maxHeld]byte) }}

// hold collects the written bytes until release is called, which writes them with one system call and returns its error.
func (c *headConn) hold() (release func() error) {
	c.isHolding = true
	return func() error {
		c.isHolding = false
		return c.sendHeld()
	}
}

// sendHeld writes the held bytes. If that fails, it closes the connection: net/http takes the response for complete, since it
// was told that the bytes are written, and would send the next response after a part of this one.
func (c *headConn) sendHeld() error {
	held := c.held
	if c.held = nil; held == nil {
		return nil
	}
	_, err := c.Conn.Write(held)
	heldBuffers.Put((*[maxHeld]byte)(held[:maxHeld]))
	if err != nil {
		_ = c.Conn.Close()
	}
	return err
}

// Write writes to the connection, or holds p. A refusal of net/http is written in the form of all errors.
func (c *headConn) Write(p []byte) (int, error) {
	if !c.isHandled.Load() {
		if refused := parseHeadRefusal(p); refused != nil {
			_, err := c.Conn.Write(c.s.encodeHeadRefusal(refused, c.RemoteAddr().String()))
			return len(p), err
		}
	}
	if !c.isHolding {
		return c.Conn.Write(p)
	}
	if len(c.held)+len(p) > maxHeld {
		if err := c.sendHeld(); err != nil {
			return 0, err
		}
		return c.Conn.Write(p)
	}
	if c.held == nil {
		c.held = heldBuffers.Get().(*[maxHeld]byte)[:0]
	}
	c.held = append(c.held, p...)
	return len(p), nil
}

// beginHead starts the accounting of a head, when the server waits for the next request.
func (c *headConn) beginHead() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.release()
	c.isHandled.Store(false)
	c.inHead, c.lines, c.length, c.lineHasText, c.nameLength, c.hasLength, c.isEncoded = true, 0, 0, false, 0, false, false
}

// endHead ends it, when the request is handled.
func (c *headConn) endHead() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isHandled.Store(true)
	c.release()
}

// release returns the bytes charged for the head. The caller holds mu.
func (c *headConn) release() {
	c.inHead = false
	c.s.heads.Add(-c.charged)
	c.charged = 0
}

func (c *headConn) Close() error {
	c.endHead()
	return c.Conn.Close()
}

var errHalfClose = errors.New("the connection cannot be closed in one direction")

// CloseWrite closes the connection for writing. net/http calls it before it drops a connection.
func (c *headConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errHalfClose
}

// ReadFrom lets the kernel copy from a file to the socket.
func (c *headConn) ReadFrom(from io.Reader) (int64, error) {
	if to, ok := c.Conn.(io.ReaderFrom); ok {
		return to.ReadFrom(from)
	}
	return io.Copy(struct{ io.Writer }{c.Conn}, from)
}
