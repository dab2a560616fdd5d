package server

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/limit"
)

// Response is the response to a request, and has the data for the metrics and the log of the end of the request.
type Response struct {
	http.ResponseWriter
	Request *http.Request
	// body is the body of the request, without the limits that handlers put around it.
	body      io.Reader
	ID        string
	started   time.Time
	operation *operation
	// refuse is Route.Refuse of the path.
	refuse func(*Response, *entity.Error)
	caller *Credential
	// workspace is nil if the path names no workspace that exists.
	workspace *Workspace
	status    int
	bytes     int64
	Err       error
	server    *Server
	// variables has the variables of the path.
	variables map[string]string
	// pace, if it is set, is called before each write and extends the write deadline; its error ends the response.
	pace func() error
	// reserved is the memory that is admitted for the request's body and answer.
	reserved bodyReservation
	// mayHijack allows Hijack, which sets hijacked.
	mayHijack bool
	hijacked  net.Conn
	// isKeptAlive is set once the server writes to the client even if there is no output (Lines.KeepAlive).
	isKeptAlive atomic.Bool
}

// Unwrap lets http.ResponseController reach the connection.
func (w *Response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *Response) WriteHeader(status int) {
	if w.status == 0 && status >= http.StatusBadRequest {
		limit.Drain(w.Request, w.body) // the read deadline of the body bounds the time
	}
	if w.status == 0 && status >= http.StatusOK {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter. It writes at most maxWrite bytes at a time.
func (w *Response) Write(b []byte) (total int, err error) {
	for {
		if err := w.beginWrite(); err != nil {
			return total, err
		}
		n, err := w.ResponseWriter.Write(b[:min(len(b), maxWrite)])
		total, w.bytes = total+n, w.bytes+int64(n)
		if b = b[n:]; err != nil || len(b) == 0 {
			return total, err
		}
	}
}

// beginWrite prepares a write: it calls pace and notes that the response has begun.
func (w *Response) beginWrite() error {
	if w.pace != nil {
		if err := w.pace(); err != nil {
			return err
		}
	}
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return nil
}

// maxWrite bounds the bytes that are written before the deadline is extended again. The slowest client that is not cut off
// reads maxWrite bytes in Limits.StallTime.
const maxWrite = 256 << 10

// Content of at most smallContent bytes is read into memory and sent by one system call, which costs less
// than the kernel's copy.
const smallContent = 32 << 10

// net/http itself collects content of at most bufferedContent bytes.
const bufferedContent = 2 << 10

var contentBuffers = sync.Pool{New: func() any { return new([smallContent]byte) }}

// readWhole is ReadFrom for small content: it sends the head and the content together.
func (w *Response) readWhole(src *io.LimitedReader) (int64, error) {
	buffer := contentBuffers.Get().(*[smallContent]byte)
	defer contentBuffers.Put(buffer)
	content, failed := buffer[:src.N], error(nil)
	n, err := io.ReadFull(src, content)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		failed = err
	}
	written, err := w.sendTogether(content[:n])
	return written, errors.Join(failed, err)
}

// sendTogether sends the head and content in parts, of at most smallContent bytes in total, by one system call. It returns the
// number of content bytes that were sent.
func (w *Response) sendTogether(parts ...[]byte) (sent int64, err error) {
	release := func() error { return nil }
	if c := connectionOf(w.Request.Context()); c != nil && c.heads != nil {
		release = c.heads.hold()
	}
	for i := 0; i < len(parts) && err == nil; i++ {
		var n int
		n, err = w.Write(parts[i])
		sent += int64(n)
	}
	w.Flush()
	if lost := release(); lost != nil {
		return 0, lost
	}
	return sent, err
}

// ReadFrom sends small content with one write (readWhole). It lets the kernel copy larger content from a file to the socket, at
// most maxWrite bytes at a time.
func (w *Response) ReadFrom(src io.Reader) (int64, error) {
	if small, ok := src.(*io.LimitedReader); ok && small.N <= smallContent {
		return w.readWhole(small)
	}
	to, ok := w.ResponseWriter.(io.ReaderFrom)
	if !ok {
		return io.Copy(struct{ io.Writer }{w}, src)
	}
	var total int64
	limited, _ := src.(*io.LimitedReader)
	for {
		if err := w.beginWrite(); err != nil {
			return total, err
		}
		part := &io.LimitedReader{R: src, N: maxWrite}
		if limited != nil { // a limit inside a limit would hide the file
			part = &io.LimitedReader{R: limited.R, N: min(limited.N, maxWrite)}
		}
		want := part.N
		n, err := to.ReadFrom(part)
		total, w.bytes = total+n, w.bytes+n
		if limited != nil {
			limited.N -= n
		}
		if err != nil || n < want || n == 0 {
			return total, err
		}
	}
}

// Flush implements http.Flusher.
func (w *Response) Flush() {
	if w.beginWrite() != nil {
		return
	}
	if f, ok := w.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// Hijack implements http.Hijacker for AcceptWebSocket only, which keeps the connection within the limits of the server. It
// fails for all others.
func (w *Response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if !w.mayHijack {
		return nil, nil, http.ErrNotSupported
	}
	c, buffers, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.hijacked, w.status = c, http.StatusSwitchingProtocols
	}
	return c, buffers, err
}

// ExtendWrites extends the write deadline as long as the client reads, for responses that may be long.
func (c *Call) ExtendWrites() {
	control := http.NewResponseController(c.Response.ResponseWriter)
	leaving := &deadline{set: control.SetWriteDeadline, stall: c.server.options.Limits.StallTime}
	c.Response.pace = func() error { leaving.extend(); return nil }
}

// AbortAfterFirstByte returns err if the response has not begun. Otherwise it aborts the connection, so that the client does
// not take the truncated response for complete.
func (c *Call) AbortAfterFirstByte(err error) error {
	if err == nil || c.Response.status == 0 {
		return err
	}
	c.Response.Err = err
	panic(http.ErrAbortHandler)
}

// RawJSON is a response that is encoded already, in parts.
type RawJSON [][]byte

func (r RawJSON) size() (total int) {
	for _, part := range r {
		total += len(part)
	}
	return total
}

// encodeJSON encodes a value as JSON. It panics if the value cannot be encoded.
func encodeJSON(value any) RawJSON {
	if encoded, ok := value.(RawJSON); ok {
		return encoded
	}
	body, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return RawJSON{body}
}

// WriteJSON answers with a status and a value encoded as JSON. It panics if the value cannot be encoded.
func (w *Response) WriteJSON(status int, answer any) {
	parts := encodeJSON(answer)
	size := parts.size()
	header := w.Header()
	header["Content-Type"] = jsonType
	header["Cache-Control"] = noStore
	header["X-Content-Type-Options"] = noSniff
	header["Content-Length"] = []string{strconv.Itoa(size)}
	w.WriteHeader(status)
	if size > bufferedContent && size <= smallContent {
		_, _ = w.sendTogether(parts...) // after an error the client has gone
		return
	}
	for _, part := range parts {
		if _, err := w.Write(part); err != nil {
			return
		}
	}
}

var (
	jsonType = []string{"application/json"}
	noStore  = []string{"no-store"}
	noSniff  = []string{"nosniff"}
)
