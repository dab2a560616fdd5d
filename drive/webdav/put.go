package webdav

import (
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
