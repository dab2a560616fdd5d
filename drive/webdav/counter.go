package webdav

import (
	"io"
	"net/http"
)

// A counter counts the content bytes of an answer.
type counter struct {
	http.ResponseWriter
	content bool
	n       int64
}

func (c *counter) WriteHeader(status int) {
	c.content = status == http.StatusOK || status == http.StatusPartialContent
	c.ResponseWriter.WriteHeader(status)
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p)
	c.add(int64(n))
	return n, err
}

// ReadFrom keeps the way open on which the kernel sends a file.
func (c *counter) ReadFrom(from io.Reader) (int64, error) {
	n, err := io.Copy(c.ResponseWriter, from)
	c.add(n)
	return n, err
}

func (c *counter) add(n int64) {
	if c.content {
		c.n += n
	}
}

func (c *counter) Unwrap() http.ResponseWriter { return c.ResponseWriter }
