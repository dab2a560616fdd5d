package webdav

import (
	"io"
	"net/http"

	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/entity"
)

// put answers PUT: step 2 of "The life of a change" in the package comment of drive.
func (c *call) put() error {
	if c.path == "" {
		return entity.Errorf(drive.IsFolder, "the path is a folder")
	}
	if c.hasTrailingSlash {
		return entity.Errorf(entity.InvalidRequest, "the path of a file must not end with a slash")
	}
	if c.r.Header.Get("Content-Range") != "" {
		return entity.Errorf(entity.InvalidRequest, "PUT with Content-Range is not supported; send the whole file")
	}
	change, err := c.changeWithTime()
	if err != nil {
		return err
	}
	announced, err := checksums(c.r.Header)
	if err != nil {
		return err
	}
	return c.receive(change, newVerifier(c.r.Body, announced))
}

// create writes the body of the request to a new file, and answers. It does not read the headers of PUT.
func (c *call) create() error {
	change := drive.NewChange(c.access)
	change.Authenticate, change.Authorize = c.authenticate, c.authorize
	change.Guard = func() error {
		_, err := c.drive.Stat(c.path)
		switch {
		case err == nil:
			return errPreconditionFailed
		case !entity.HasCode(err, entity.NotFound):
			return err
		}
		return nil
	}
	return c.receive(change, c.r.Body)
}

// receive writes the body of the request to the file at the path, and answers.
func (c *call) receive(change drive.Change, body io.Reader) error {
	upload := drive.Upload{Body: body, Size: c.r.ContentLength}
	entry, created, err := c.drive.Put(c.context(), c.path, upload, change)
	if err != nil {
		return err
	}
	c.w.Header().Set("ETag", entry.ETag())
	c.confirmModified(change, entry)
	c.writeSuccess(created)
	return nil
}

// writeSuccess answers 201 Created or 204 No Content.
func (c *call) writeSuccess(created bool) {
	if created {
		c.w.WriteHeader(http.StatusCreated)
		return
	}
	c.w.WriteHeader(http.StatusNoContent)
}

// makeCollection answers MKCOL.
func (c *call) makeCollection() error {
	if n, _ := io.ReadFull(c.r.Body, make([]byte, 1)); n > 0 {
		return entity.Errorf(entity.UnsupportedMediaType, "MKCOL with a body is not supported")
	}
	if c.path == "" {
		return errExistsAlready
	}
	change, err := c.change()
	if err != nil {
		return err
	}
	err = c.drive.MakeFolder(c.context(), c.path, change)
	if entity.HasCode(err, drive.Exists) {
		return errExistsAlready
	}
	if err != nil {
		return err
	}
	c.writeSuccess(true)
	return nil
}

// errExistsAlready is the error of MKCOL for a path that exists (RFC 4918, section 9.3.1).
var errExistsAlready = entity.Errorf(entity.MethodNotAllowed, "the path already exists")

// remove answers DELETE.
func (c *call) remove() error {
	change, err := c.change()
	if err != nil {
		return err
	}
	c.guardDepth(&change)
	if err := c.drive.Remove(c.context(), c.path, change); err != nil {
		return err
	}
	c.writeSuccess(false)
	return nil
}

// copy answers COPY. It ignores locks on the source, which is only read.
func (c *call) copy() error {
	to, overwrite, err := c.parseDestination()
	if err != nil {
		return err
	}
	depth := c.r.Header.Get("Depth")
	if depth != "" && depth != "0" && !isInfinity(depth) {
		return errDepth
	}
	change, err := c.changeWithTime()
	if err != nil {
		return err
	}
	replaced, err := c.drive.Copy(c.context(), c.path, to, overwrite, depth == "0", change)
	return c.finishTransfer(to, change, replaced, err)
}

// move answers MOVE: the entry point of "Rename" in the package comment of drive.
func (c *call) move() error {
	to, overwrite, err := c.parseDestination()
	if err != nil {
		return err
	}
	change, err := c.changeWithTime()
	if err != nil {
		return err
	}
	c.guardDepth(&change)
	replaced, err := c.drive.Move(c.context(), c.path, to, overwrite, change)
	return c.finishTransfer(to, change, replaced, err)
}

// finishTransfer answers a COPY or MOVE.
func (c *call) finishTransfer(to string, change drive.Change, replaced bool, err error) error {
	if err != nil {
		return err
	}
	if !change.Modified.IsZero() {
		if entry, err := c.drive.Stat(to); err == nil {
			c.confirmModified(change, entry)
		}
	}
	c.writeSuccess(!replaced)
	return nil
}

// parseDestination parses the Destination and Overwrite headers of COPY and MOVE.
func (c *call) parseDestination() (path string, overwrite bool, err error) {
	header := c.r.Header
	if header.Get("Destination") == "" || len(header["Destination"]) > 1 {
		return "", false, entity.Errorf(entity.InvalidRequest, "the Destination header is missing, or there are several")
	}
	if path, _, err = c.parseReference(header.Get("Destination")); err != nil {
		return "", false, err
	}
	switch header.Get("Overwrite") {
	case "", "T", "t":
		return path, true, nil
	case "F", "f":
		return path, false, nil
	}
	return "", false, entity.Errorf(entity.InvalidRequest, "the Overwrite header must be T or F")
}

// guardDepth makes a DELETE or MOVE of a folder fail with errDepth if its depth is not infinity (RFC 4918, sections 9.6.1 and 9.9.2). A file has
// no members, so that every depth means the file alone.
func (c *call) guardDepth(change *drive.Change) {
	depth := c.r.Header.Get("Depth")
	if depth == "" || isInfinity(depth) {
		return
	}
	guard := change.Guard
	change.Guard = func() error {
		if entry, err := c.drive.Stat(c.path); !isDepth(depth) || err == nil && entry.Folder {
			return errDepth
		}
		return guard()
	}
}

// isDepth reports whether a Depth header has one of its three values.
func isDepth(depth string) bool { return depth == "0" || depth == "1" || isInfinity(depth) }

var errDepth = entity.Errorf(entity.InvalidRequest, "the method does not support this value of the Depth header")

func isInfinity(depth string) bool { return http.CanonicalHeaderKey(depth) == "Infinity" }
