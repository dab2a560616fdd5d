package webdav

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"

	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/drive/locks"
	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// A Handler serves drives by WebDAV. It is safe for concurrent use.
type Handler struct {
	drives *drive.Drives
	log    *slog.Logger
}

// New returns a handler for drives. A nil log is slog.Default.
func New(drives *drive.Drives, log *slog.Logger) *Handler {
	return &Handler{drives: drives, log: cmp.Or(log, slog.Default())}
}

// A call is one request on a drive.
type call struct {
	*Handler
	w http.ResponseWriter
	r *http.Request
	// drive stays open until release is called at the end of the request.
	drive   *drive.Drive
	release func()
	locks   *locks.Table
	// activeLocks has the elements without the owner of the locks that the response already describes, by token.
	activeLocks map[string]string
	prefix      string
	access      entity.DriveAccess
	author      *activityv1.Author
	// accessError is the error of authenticate or authorize if the access was refused.
	accessError error
	// path is the path on the drive, without the slash that may follow it in the URL.
	path             string
	hasTrailingSlash bool
}

var methods = map[string]func(*call) error{
	http.MethodOptions: (*call).options,
	http.MethodGet:     (*call).get,
	http.MethodHead:    (*call).get,
	"PROPFIND":         (*call).propfind,
	http.MethodPut:     (*call).put,
	http.MethodDelete:  (*call).remove,
	"MKCOL":            (*call).makeCollection,
	"COPY":             (*call).copy,
	"MOVE":             (*call).move,
	"PROPPATCH":        (*call).proppatch,
	"LOCK":             (*call).lock,
	"UNLOCK":           (*call).unlock,
}

// Allow is the list of methods for the Allow header.
const Allow = "OPTIONS, GET, HEAD, PUT, DELETE, MKCOL, COPY, MOVE, PROPFIND, PROPPATCH, LOCK, UNLOCK"

// Exists is drive.Drives.Exists.
func (h *Handler) Exists(ctx context.Context, workspaceID, path string) (bool, error) {
	return h.drives.Exists(ctx, workspaceID, path)
}

// ServeDrive answers a request on a workspace's drive: step 1 of "The life of a change" in the package comment of drive.
// prefix is the URL path of the drive's root. The caller has authorized the request, for writing if the method writes, and
// has set the deadlines of the connection. The read deadline has to outlast the call, because ServeDrive may refuse a
// request without reading its body, and the server drains the body afterwards.
//
// The caller's access may end during the request, or the client go: then access.Authenticate or access.Authorize returns an error, or the
// request's context is canceled with an *entity.Error as its cause. ServeDrive changes nothing after that and returns the
// error. The caller of ServeDrive answers with it, unless the response has begun. ServeDrive answers all other errors
// itself and returns nil.
func (h *Handler) ServeDrive(w http.ResponseWriter, r *http.Request, prefix string, access entity.DriveAccess) error {
	return h.newCall(w, r, prefix, access).answer((*call).serve)
}

// ServeUpload is ServeDrive for an upload: it writes the body of the request to a new file at a path on the drive, whatever the URL and
// the headers of the request are. It answers as PUT does: 412 if the path names something already.
func (h *Handler) ServeUpload(w http.ResponseWriter, r *http.Request, prefix, path string, access entity.DriveAccess) error {
	return h.newCall(w, r, prefix, access).answer(func(c *call) error {
		c.path = path
		if err := c.open(); err != nil {
			return err
		}
		return c.create()
	})
}

func (h *Handler) newCall(w http.ResponseWriter, r *http.Request, prefix string, access entity.DriveAccess) *call {
	return &call{
		Handler: h, w: w, r: r, prefix: strings.TrimSuffix(prefix, "/"), access: access, author: drive.AuthorOf(access.Principal), release: func() {},
	}
}

// answer calls serve, and answers with its error unless the access has ended: then answer returns the reason.
func (c *call) answer(serve func(*call) error) error {
	defer func() { c.release() }()
	err := serve(c)
	if err == nil {
		return nil
	}
	if c.accessError != nil {
		return c.accessError
	}
	if ended, is := errors.AsType[*entity.Error](context.Cause(c.r.Context())); is {
		return ended
	}
	c.writeError(err)
	return nil
}

// authenticate calls DriveAccess.Authenticate and returns its error.
func (c *call) authenticate() error { return c.ask(c.access.Authenticate) }

// authorize calls DriveAccess.Authorize and returns its error.
func (c *call) authorize() error { return c.ask(c.access.Authorize) }

// confirm verifies the credential and the access of the caller, for requests that no command decides.
func (c *call) confirm() error {
	if err := c.authenticate(); err != nil {
		return err
	}
	return c.authorize()
}

// ask calls a function of the access, unless it is nil, and keeps its error for ServeDrive.
func (c *call) ask(verify func() error) error {
	if verify == nil {
		return nil
	}
	c.accessError = verify()
	return c.accessError
}

// serve decodes the path, opens the drive and calls the handler of the method: step 2 of "The life of a change" in the package
// comment of drive.
func (c *call) serve() error {
	handle, known := methods[c.r.Method]
	if !known {
		return entity.Errorf(entity.MethodNotAllowed, "the method %s is not supported; use one of %s", c.r.Method, Allow)
	}
	if coding := strings.Join(c.r.Header.Values("Content-Encoding"), ","); coding != "" && !strings.EqualFold(coding, "identity") {
		c.w.Header().Set("Accept-Encoding", "identity") // RFC 9110, section 12.5.3
		return entity.Errorf(entity.UnsupportedMediaType, "a body with a Content-Encoding is not supported; send it without")
	}
	var err error
	if c.path, c.hasTrailingSlash, err = splitPath(writtenPath(c.r.URL), c.prefix); err != nil {
		return err
	}
	if err := c.open(); err != nil {
		return err
	}
	if err := c.checkTrailingSlash(); err != nil {
		return err
	}
	return handle(c)
}

// open opens the drive and its locks.
func (c *call) open() error {
	opened, release, err := c.drives.Open(c.r.Context(), c.access.WorkspaceID)
	if err != nil {
		return err
	}
	c.drive, c.release = opened, release
	c.locks, err = c.drive.Locks()
	return err
}

// checkTrailingSlash returns NotFound if the path has a trailing slash, which means a folder, but is a file.
func (c *call) checkTrailingSlash() error {
	if !c.hasTrailingSlash || c.path == "" {
		return nil
	}
	if entry, err := c.drive.Stat(c.path); err == nil && !entry.Folder && c.r.Method != "MKCOL" {
		return entity.Errorf(entity.NotFound, "no such folder")
	}
	return nil
}

func (c *call) context() context.Context { return c.r.Context() }

func (c *call) options() error {
	c.w.Header().Set("Accept-Ranges", "bytes")
	c.w.Header().Set("Allow", Allow)
	writeOptions(c.w)
	return nil
}

// writeOptions answers OPTIONS with the supported classes of WebDAV. The caller has set the header Allow.
func writeOptions(w http.ResponseWriter) {
	header := w.Header()
	header.Set("DAV", "1, 2")
	header.Set("MS-Author-Via", "DAV")
	w.WriteHeader(http.StatusOK)
}
