package http

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/atelier-run/atelier/entity"
)

// driveMethods are WebDAV's classes 1 and 2, with what they need and what they do.
var driveMethods = []struct {
	method     string
	scope      scope
	idempotent bool
	summary    string
}{
	{http.MethodGet, filesRead, false, "Read a file"},
	{http.MethodHead, filesRead, false, "Look at a file without reading it"},
	{http.MethodPut, filesEdit, false, "Write a file"},
	{http.MethodDelete, filesEdit, false, "Delete a file or folder"},
	{http.MethodOptions, filesRead, false, "Tell what WebDAV can do here"},
	{"PROPFIND", filesRead, false, "List properties of a file or of a folder's entries"},
	{"PROPPATCH", filesEdit, false, "Change properties"},
	{"MKCOL", filesEdit, false, "Create a folder"},
	{"COPY", filesEdit, false, "Copy a file or folder"},
	{"MOVE", filesEdit, false, "Rename a file or folder"},
	{"LOCK", filesEdit, false, "Lock a file or folder"},
	{"UNLOCK", filesEdit, false, "Unlock a file or folder"},
}

func (s *Server) driveRoutes() []route {
	var table []route
	for _, path := range []string{drivePath + "/{path}", drivePath} {
		for _, m := range driveMethods {
			table = append(table, route{m.method, path, m.scope, m.idempotent, m.summary, s.serveDrive, transfer, false})
		}
	}
	return table
}

// serveDrive hands an authorized request on. Files have any size: a transfer lasts as long as its bytes move and the
// caller has access (watch.go).
func (s *Server) serveDrive(c *call) error {
	granted, err := c.authorized()
	if err != nil {
		return err
	}
	if _, err := nothing(c); err != nil {
		return err
	}
	ctx, end := context.WithCancelCause(c.ctx)
	defer end(nil)
	defer s.watch.addTransfer(c, end)()
	t := newTraffic(http.NewResponseController(c.w.ResponseWriter), s.options.Limits.StallTime, c.r)
	defer t.finish()
	c.w.pace = t.send
	r := c.r.WithContext(ctx)
	if r.ContentLength != 0 {
		r.Body = &transferBody{r.Body, t}
	}
	// The access ends by a cause that says why; without one the client has gone, or the request is over.
	defer context.AfterFunc(ctx, func() {
		if lost, is := errors.AsType[*entity.Error](context.Cause(ctx)); is {
			t.cut(lost)
		}
	})()
	return s.options.Drive.ServeDrive(c.w, r, "/v1/ws/"+c.workspace.slug+"/drive", entity.DriveAccess{
		WorkspaceID: c.workspace.id, Principal: c.caller.principal,
		BreaksLocks: slices.Contains(granted.GetCapabilities(), entity.Admin),
		Confirm:     c.confirm,
	})
}
