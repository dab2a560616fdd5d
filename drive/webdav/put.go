package webdav

import (
	"net/http"

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
	entry, created, err := c.drive.Put(c.context(), c.path, c.r.Body, c.r.ContentLength, change)
	if err != nil {
		return err
	}
	c.w.Header().Set("ETag", entry.ETag())
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
