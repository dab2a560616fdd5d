package webdav

import (
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/entity"
)

func (c *call) put() error {
	if c.path == "" {
		return entity.Errorf(drive.IsFolder, "the path is a folder")
	}
	if c.slashed {
		return entity.Errorf(entity.InvalidRequest, "a file's path does not end with a slash")
	}
	if c.r.Header.Get("Content-Range") != "" {
		return entity.Errorf(entity.InvalidRequest, "a part of a file cannot be put")
	}
	change, err := c.change(func() []claim { return []claim{c.creates(c.path)} })
	if err != nil {
		return err
	}
	modified, err := modifiedOf(c.r.Header)
	if err != nil {
		return err
	}
	upload := drive.Upload{Body: c.r.Body, Size: c.r.ContentLength, Modified: modified}
	entry, created, err := c.drive.Put(c.context(), c.path, upload, change)
	if err != nil {
		return err
	}
	c.w.Header().Set("ETag", entry.ETag())
	if !modified.IsZero() {
		c.w.Header().Set("X-OC-MTime", "accepted")
	}
	c.done(created)
	return nil
}

func (c *call) done(created bool) {
	if created {
		c.w.WriteHeader(http.StatusCreated)
		return
	}
	c.w.WriteHeader(http.StatusNoContent)
}

// modifiedOf reads the header by which rclone and ownCloud's clients tell a file's time, in seconds since the Unix epoch.
// Without it they could compare files by size alone.
func modifiedOf(header http.Header) (time.Time, error) {
	value := header.Get("X-OC-Mtime")
	if value == "" {
		return time.Time{}, nil
	}
	seconds, err := strconv.ParseFloat(value, 64)
	if err != nil || !(seconds > 0 && seconds < 1<<33) {
		return time.Time{}, entity.Errorf(entity.InvalidRequest, "the X-OC-Mtime header cannot be read")
	}
	return time.UnixMicro(int64(seconds * 1e6)), nil
}

// makeCollection answers MKCOL.
func (c *call) makeCollection() error {
	if n, _ := io.ReadFull(c.r.Body, make([]byte, 1)); n > 0 {
		return entity.Errorf(entity.UnsupportedMediaType, "MKCOL takes no body")
	}
	if c.path == "" {
		return c.alreadyThere()
	}
	change, err := c.change(func() []claim { return []claim{{path: c.path, member: true}} })
	if err != nil {
		return err
	}
	err = c.drive.MakeFolder(c.context(), c.path, change)
	if code(err) == drive.Exists {
		return c.alreadyThere()
	}
	if err != nil {
		return err
	}
	c.done(true)
	return nil
}

func (c *call) alreadyThere() error {
	c.w.Header().Set("Allow", Allow)
	return entity.Errorf(entity.MethodNotAllowed, "something is at this path already")
}

// remove answers DELETE.
func (c *call) remove() error {
	if depth := c.r.Header.Get("Depth"); depth != "" && !isInfinity(depth) {
		return errDepth
	}
	change, err := c.change(func() []claim { return []claim{{path: c.path, member: true, deep: true}} })
	if err != nil {
		return err
	}
	change.Done = func() { c.forget(c.path, true) }
	if err := c.drive.Remove(c.context(), c.path, change); err != nil {
		return err
	}
	c.done(false)
	return nil
}

// copy answers COPY. The source's locks do not matter: it is only read.
func (c *call) copy() error {
	to, overwrite, err := c.destination()
	if err != nil {
		return err
	}
	depth := c.r.Header.Get("Depth")
	if depth != "" && depth != "0" && !isInfinity(depth) {
		return errDepth
	}
	change, err := c.change(func() []claim { return []claim{c.takesOver(to)} })
	if err != nil {
		return err
	}
	change.Done = func() { c.forget(to, false) }
	replaced, err := c.drive.Copy(c.context(), c.path, to, overwrite, depth == "0", change)
	if err != nil {
		return err
	}
	c.done(!replaced)
	return nil
}

// move answers MOVE. Locks stay behind: they are on paths.
func (c *call) move() error {
	to, overwrite, err := c.destination()
	if err != nil {
		return err
	}
	if depth := c.r.Header.Get("Depth"); depth != "" && !isInfinity(depth) {
		return errDepth
	}
	change, err := c.change(func() []claim {
		return []claim{{path: c.path, member: true, deep: true}, c.takesOver(to)}
	})
	if err != nil {
		return err
	}
	change.Done = func() {
		c.forget(c.path, true)
		c.forget(to, false)
	}
	replaced, err := c.drive.Move(c.context(), c.path, to, overwrite, change)
	if err != nil {
		return err
	}
	c.done(!replaced)
	return nil
}

func (c *call) takesOver(path string) claim {
	claim := c.creates(path)
	claim.deep = true
	return claim
}

// destination reads the headers that COPY and MOVE share.
func (c *call) destination() (path string, overwrite bool, err error) {
	header := c.r.Header
	if header.Get("Destination") == "" {
		return "", false, entity.Errorf(entity.InvalidRequest, "the Destination header is missing")
	}
	if path, _, err = c.reference(header.Get("Destination")); err != nil {
		return "", false, err
	}
	switch header.Get("Overwrite") {
	case "", "T", "t":
		return path, true, nil
	case "F", "f":
		return path, false, nil
	}
	return "", false, entity.Errorf(entity.InvalidRequest, "the Overwrite header is T or F")
}

// forget drops the locks of what went. Should that fail they expire by themselves.
func (c *call) forget(path string, itself bool) {
	if err := c.locks.drop(path, itself); err != nil {
		c.log.Warn("locks of removed paths stay until they expire", "error", err)
	}
}

var errDepth = entity.Errorf(entity.InvalidRequest, "the Depth header has a value that the method does not take")

func isInfinity(depth string) bool { return http.CanonicalHeaderKey(depth) == "Infinity" }
