package webdav

import (
	"bufio"
	"errors"
	"io"
	"mime"
	"net/http"
	"path"

	"github.com/atelier-run/atelier/drive"
)

// get answers GET and HEAD. A folder is a plain list of names, one a line, folders with a slash.
func (c *call) get() error {
	file, entry, err := c.drive.Open(c.path)
	if code(err) == drive.IsFolder {
		return c.list()
	}
	if err != nil {
		return err
	}
	defer file.Close()
	header := c.w.Header()
	protect(header)
	header.Set("Content-Type", contentType(c.path))
	header.Set("ETag", entry.ETag())
	sent := &counter{ResponseWriter: c.w}
	http.ServeContent(sent, c.r, "", entry.Modified, file)
	if c.r.Method == http.MethodGet && sent.n > 0 {
		c.read(sent.n)
	}
	return nil
}

// read records that content was sent, after it was: the client does not wait for the journal.
func (c *call) read(n int64) {
	c.drive.CountSent(n)
	// Whoever took the bytes and hung up has read them all the same.
	_ = http.NewResponseController(c.w).Flush()
	if err := c.drive.RecordRead(c.context(), c.path, c.author); err != nil {
		c.log.Error("a read was not recorded", "error", err)
	}
}

// protect keeps browsers from running what a workspace stores.
func protect(header http.Header) {
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Security-Policy", "sandbox")
	header.Set("Cache-Control", "private, no-cache")
}

// contentType goes by the name alone; nothing is opened for it.
func contentType(name string) string {
	if byName := mime.TypeByExtension(path.Ext(name)); byName != "" {
		return byName
	}
	return "application/octet-stream"
}

func (c *call) list() error {
	folder, err := c.drive.OpenFolder(c.path)
	if err != nil {
		return err
	}
	defer folder.Close()
	protect(c.w.Header())
	c.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if c.r.Method == http.MethodHead {
		return nil
	}
	out := bufio.NewWriter(c.w)
	err = folder.Each(c.context(), func(e drive.Entry) error {
		out.WriteString(e.Name)
		if e.Folder {
			out.WriteByte('/')
		}
		return out.WriteByte('\n')
	})
	return c.finish(errors.Join(err, out.Flush()))
}

// finish ends a streamed answer: one that broke off must not look whole.
func (c *call) finish(err error) error {
	if err != nil {
		c.log.Warn("an answer broke off", "method", c.r.Method, "error", err)
		panic(http.ErrAbortHandler)
	}
	return nil
}

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
