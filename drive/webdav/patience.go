package webdav

import (
	"io"
	"net/http"
	"time"
)

const (
	// patience is how long a client may stand still while content goes either way.
	patience = 2 * time.Minute
	// piece is what a client must take in that time.
	piece = 1 << 20
)

// A patientBody gives each read its own deadline: an upload may take any time as long as it goes on.
type patientBody struct {
	io.ReadCloser
	control *http.ResponseController
}

func (b *patientBody) Read(p []byte) (int, error) {
	// Where deadlines cannot be set there is no connection that could stand still.
	_ = b.control.SetReadDeadline(time.Now().Add(patience))
	return b.ReadCloser.Read(p)
}

func (b *patientBody) rest() { _ = b.control.SetReadDeadline(time.Time{}) }

// A counter counts the content bytes of an answer, and gives each piece its own deadline.
type counter struct {
	http.ResponseWriter
	control *http.ResponseController
	content bool
	n       int64
}

func newCounter(w http.ResponseWriter) *counter {
	return &counter{ResponseWriter: w, control: http.NewResponseController(w)}
}

func (c *counter) WriteHeader(status int) {
	c.content = status == http.StatusOK || status == http.StatusPartialContent
	c.ResponseWriter.WriteHeader(status)
}

func (c *counter) Write(p []byte) (int, error) {
	_ = c.control.SetWriteDeadline(time.Now().Add(patience))
	n, err := c.ResponseWriter.Write(p)
	c.add(int64(n))
	return n, err
}

// ReadFrom keeps the way open on which the kernel sends a file: it knows a limited reader of a file, no deeper nesting.
func (c *counter) ReadFrom(from io.Reader) (total int64, err error) {
	limited, ok := from.(*io.LimitedReader)
	if !ok {
		limited = &io.LimitedReader{R: from, N: 1<<63 - 1}
	}
	for limited.N > 0 {
		_ = c.control.SetWriteDeadline(time.Now().Add(patience))
		part := &io.LimitedReader{R: limited.R, N: min(limited.N, piece)}
		n, err := io.Copy(c.ResponseWriter, part)
		limited.N -= n
		total += n
		c.add(n)
		if err != nil || n == 0 {
			return total, err
		}
	}
	return total, nil
}

func (c *counter) add(n int64) {
	if c.content {
		c.n += n
	}
}

func (c *counter) rest() { _ = c.control.SetWriteDeadline(time.Time{}) }

func (c *counter) Unwrap() http.ResponseWriter { return c.ResponseWriter }
