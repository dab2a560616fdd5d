package http

import (
	"io"
	"net/http"
	"time"

	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
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

// serveDrive hands an authorised request on. Files have any size: a transfer lives as long as its bytes move.
func (s *Server) serveDrive(c *call) error {
	if err := c.authorize(); err != nil {
		return err
	}
	if _, err := nothing(c); err != nil {
		return err
	}
	control := http.NewResponseController(c.w.ResponseWriter)
	stall := s.options.Limits.StallTime
	c.w.pace = (&deadline{set: control.SetWriteDeadline, stall: stall}).extend
	r := c.r
	if r.ContentLength != 0 {
		body := &pacedBody{ReadCloser: r.Body, arriving: deadline{set: control.SetReadDeadline, stall: stall}}
		defer body.leave()
		r = r.WithContext(c.ctx)
		r.Body = body
	}
	author := &activityv1.Author{Actor: entity.Actor(c.caller.principal), UserId: c.caller.principal.GetUserId()}
	s.options.Drive.ServeDrive(c.w, r, c.workspace.id, "/v1/ws/"+c.workspace.slug+"/drive", author)
	control.SetWriteDeadline(time.Now().Add(2 * stall)) // what is buffered leaves after this, and after an unread body
	return nil
}

// pacedBody extends the read deadline as bytes arrive. Once all are there it lifts it: what the drive then does with
// them takes its own time.
type pacedBody struct {
	io.ReadCloser
	arriving deadline
	// over tells that no more bytes are waited for. A deadline would then end the request: the server reads ahead.
	over bool
}

func (b *pacedBody) Read(p []byte) (int, error) {
	if b.over {
		return b.ReadCloser.Read(p)
	}
	b.arriving.extend()
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.over = true
		b.arriving.set(time.Time{})
	}
	return n, err
}

// Close waits for the rest of a body, where that is short.
func (b *pacedBody) Close() error {
	b.leave()
	b.over = true
	return b.ReadCloser.Close()
}

// leave bounds the time in which the rest of a body may arrive, which net/http reads.
func (b *pacedBody) leave() {
	if !b.over {
		b.arriving.set(time.Now().Add(b.arriving.stall))
	}
}
