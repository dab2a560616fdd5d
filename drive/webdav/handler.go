package webdav

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// A Handler serves drives. It is safe for concurrent use.
type Handler struct {
	drives *drive.Drives
	log    *slog.Logger
}

// New makes a handler of drives; a nil log is slog.Default.
func New(drives *drive.Drives, log *slog.Logger) *Handler {
	return &Handler{drives: drives, log: cmp.Or(log, slog.Default())}
}

// A call is one request on a drive.
type call struct {
	*Handler
	w http.ResponseWriter
	r *http.Request
	// drive is open until release is called, at the end of the request.
	drive   *drive.Drive
	release func()
	locks   *locks
	prefix  string
	access  entity.DriveAccess
	author  *activityv1.Author
	// lost is why the access was refused when it was confirmed.
	lost error
	// path is the drive's path, slashed whether the request ended it with a slash.
	path    string
	slashed bool
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

// Allow lists the methods.
const Allow = "OPTIONS, GET, HEAD, PUT, DELETE, MKCOL, COPY, MOVE, PROPFIND, PROPPATCH, LOCK, UNLOCK"

// Exists tells whether a path of a workspace's drive leads to a file or a folder now; empty is the root. It fails where
// the drive cannot be read.
func (h *Handler) Exists(ctx context.Context, workspaceID, path string) (bool, error) {
	return h.drives.Exists(ctx, workspaceID, path)
}

// ServeDrive answers a request on a workspace's drive. prefix is the URL path of the drive's root, without a slash at its
// end. The caller has authorized the request, for writing where the method writes, and keeps deadlines on the connection:
// those of a body outlast the call, for a refusal leaves the body unread, which the server drains before it answers.
//
// The access may end meanwhile: Confirm refuses it, or the request's context ends with an *entity.Error as its cause. Then
// nothing is changed any more, and ServeDrive returns that error. It is the caller's to answer, unless the answer has begun.
func (h *Handler) ServeDrive(w http.ResponseWriter, r *http.Request, prefix string, access entity.DriveAccess) error {
	author := &activityv1.Author{Actor: entity.Actor(access.Principal), UserId: access.Principal.GetUserId()}
	c := &call{
		Handler: h, w: w, r: r, prefix: strings.TrimSuffix(prefix, "/"), access: access, author: author, release: func() {},
	}
	defer func() { c.release() }()
	err := c.serve(access.WorkspaceID)
	if err == nil {
		return nil
	}
	if c.lost != nil {
		return c.lost
	}
	if ended, is := errors.AsType[*entity.Error](context.Cause(r.Context())); is {
		return ended
	}
	c.fail(err)
	return nil
}

// confirm asks whether the access still stands.
func (c *call) confirm() error {
	if c.access.Confirm == nil {
		return nil
	}
	c.lost = c.access.Confirm()
	return c.lost
}

func (c *call) serve(workspaceID string) error {
	carryOut, known := methods[c.r.Method]
	if !known {
		c.w.Header().Set("Allow", Allow)
		return entity.Errorf(entity.MethodNotAllowed, "the drive does not know %s", c.r.Method)
	}
	var err error
	if c.path, c.slashed, err = splitPath(c.r.URL.EscapedPath(), c.prefix); err != nil {
		return err
	}
	opened, release, err := c.drives.Open(c.r.Context(), workspaceID)
	if err != nil {
		return err
	}
	c.drive, c.release = opened, release
	if c.locks, err = c.table(c.drive); err != nil {
		return err
	}
	if err := c.checkSlash(); err != nil {
		return err
	}
	return carryOut(c)
}

// checkSlash keeps a path with a slash at its end, which means a folder, from naming a file.
func (c *call) checkSlash() error {
	if !c.slashed || c.path == "" {
		return nil
	}
	if entry, err := c.drive.Stat(c.path); err == nil && !entry.Folder && c.r.Method != "MKCOL" {
		return entity.Errorf(entity.NotFound, "no such folder")
	}
	return nil
}

// DropLocks removes the locks that a person holds on a workspace's drive, where the person may change nothing any more. A
// drive that does not exist has none.
func (h *Handler) DropLocks(ctx context.Context, workspaceID, userID string) error {
	d, release, err := h.drives.Open(ctx, workspaceID)
	if code(err) == entity.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	defer release()
	held, err := h.table(d)
	if err != nil {
		return err
	}
	return held.dropOf(userID)
}

// table returns the locks of a drive, which are read when it is opened and stay in memory as long as it is open.
func (h *Handler) table(d *drive.Drive) (*locks, error) {
	attached, err := d.Attached(func() (any, error) { return loadLocks(d, h.log) })
	if err != nil {
		return nil, err
	}
	table, ok := attached.(*locks)
	if !ok {
		return nil, fmt.Errorf("webdav: unexpected attachment %T", attached)
	}
	return table, nil
}

func (c *call) context() context.Context { return c.r.Context() }

func (c *call) options() error {
	header := c.w.Header()
	header.Set("Allow", Allow)
	header.Set("DAV", "1, 2")
	header.Set("MS-Author-Via", "DAV")
	header.Set("Accept-Ranges", "bytes")
	c.w.WriteHeader(http.StatusOK)
	return nil
}
