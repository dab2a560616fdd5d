package webdav

import (
	"bufio"
	"errors"
	"io"
	"mime"
	"net/http"
	"path"

	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/entity"
)

// smallFile is the greatest size in bytes of a file that is read and written. The kernel copies the content of larger files
// to the connection.
const smallFile = 32 << 10

// get answers GET and HEAD. For a folder the response is a plain list of names, one on a line, with a slash after folders.
func (c *call) get() error {
	open := c.drive.OpenToRead
	if c.r.Method == http.MethodHead {
		open = c.drive.Open
	}
	file, entry, err := open(c.path)
	if entity.HasCode(err, drive.IsFolder) {
		return c.listFolder()
	}
	if err != nil {
		return err
	}
	defer file.Close()
	header := c.w.Header()
	setContentHeaders(header)
	header.Set("Content-Type", contentType(c.path))
	header.Set("ETag", entry.ETag())
	sent := &countingWriter{ResponseWriter: c.w}
	var content io.ReadSeeker = file
	if entry.Size <= smallFile {
		content = io.NewSectionReader(file, 0, entry.Size) // knows its size, which ServeContent would ask the kernel for
	}
	http.ServeContent(sent, withRange(c.r, entry.Size), "", entry.Modified, content)
	switch sent.refused {
	case http.StatusPreconditionFailed:
		return errPreconditionFailed
	case http.StatusRequestedRangeNotSatisfiable: // Content-Range has the size
		return errInvalidRange
	}
	if c.r.Method == http.MethodGet && sent.n > 0 {
		c.recordRead(sent.n)
	}
	return nil
}

// recordRead appends a row for a read of n bytes. It runs after the content was sent, so that the client does not wait for the
// journal; an error is logged only.
func (c *call) recordRead(n int64) {
	c.drive.CountSent(n)
	// The flush sends the end of the response before the journal is asked. Its error does not matter: a client that received
	// content and then disconnected has read it.
	_ = http.NewResponseController(c.w).Flush()
	if err := c.drive.RecordRead(c.path, c.author); err != nil {
		c.log.Error("cannot record a read in the activity", "path", c.path, "error", err)
	}
}

// setContentHeaders sets the headers that keep browsers from executing a drive's content.
func setContentHeaders(header http.Header) {
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Security-Policy", "sandbox")
	header.Set("Cache-Control", "private, no-cache")
}

// contentType returns the media type for a file name, by its extension only.
func contentType(name string) string {
	if byName := mime.TypeByExtension(path.Ext(name)); byName != "" {
		return byName
	}
	return "application/octet-stream"
}

func (c *call) listFolder() error {
	folder, err := c.drive.OpenFolder(c.path)
	if err != nil {
		return err
	}
	defer folder.Close()
	setContentHeaders(c.w.Header())
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
	return c.endStream(errors.Join(err, out.Flush()))
}

// endStream ends a response that was streamed. After an error it aborts the connection, so that the client does not take the
// response for complete.
func (c *call) endStream(err error) error {
	if err != nil {
		c.log.Warn("a response was aborted", "method", c.r.Method, "path", c.path, "error", err)
		panic(http.ErrAbortHandler)
	}
	return nil
}

// A countingWriter counts the content bytes of a response with status 200 or 206. A refusal is not written, because other errors have
// another form: refused has its status.
type countingWriter struct {
	http.ResponseWriter
	content bool
	n       int64
	refused int
}

func (c *countingWriter) WriteHeader(status int) {
	if status == http.StatusPreconditionFailed || status == http.StatusRequestedRangeNotSatisfiable {
		c.refused = status
		return
	}
	c.content = status == http.StatusOK || status == http.StatusPartialContent
	c.ResponseWriter.WriteHeader(status)
}

func (c *countingWriter) Write(p []byte) (int, error) {
	if c.refused != 0 {
		return len(p), nil
	}
	n, err := c.ResponseWriter.Write(p)
	c.add(int64(n))
	return n, err
}

// ReadFrom passes the file to the underlying writer, which lets the kernel send it.
func (c *countingWriter) ReadFrom(from io.Reader) (int64, error) {
	n, err := io.Copy(c.ResponseWriter, from)
	c.add(n)
	return n, err
}

func (c *countingWriter) add(n int64) {
	if c.content {
		c.n += n
	}
}

func (c *countingWriter) Unwrap() http.ResponseWriter { return c.ResponseWriter }
