package api

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	"github.com/atelier-run/atelier/http/server"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// maxAppCwd is the greatest length of the parameter cwd, in characters (specification, Limits).
const maxAppCwd = 1024

// appListing is a request for a page of apps.
type appListing struct {
	filter *appv1.Filter
	limit  int32
	// after is the position at which the previous page ended; empty for the first page.
	after string
}

// appCollection is a page of apps. Meta says what the caller may do with the list.
type appCollection struct {
	server.Collection[appView]
	Meta appsMeta `json:"meta"`
}

type appsMeta struct {
	Capabilities struct {
		Register bool `json:"register"`
	} `json:"capabilities"`
}

// decodeApps decodes the parameters of a list of apps. Without scope, path selects the app in that folder.
func decodeApps(c *server.Call) (appListing, error) {
	q, err := server.ParseQuery(c.Request.URL.RawQuery, "cursor", "limit", "id", "cwd", "path", "scope")
	if err != nil {
		return appListing{}, err
	}
	in := appListing{limit: q.Limit(), filter: &appv1.Filter{Id: q.Text("id")}}
	if q.Has("id") && in.filter.GetId() == "" {
		q.Fail(server.Invalid("id must not be empty"))
	}
	if q.Has("cwd") {
		cwd := q.Text("cwd")
		if n := utf8.RuneCountInString(cwd); n < 1 || n > maxAppCwd || strings.ContainsFunc(cwd, unicode.IsControl) {
			q.Fail(server.Invalid("cwd must have 1 to %d characters without control characters", maxAppCwd))
		} else if err := server.CheckPath("cwd", cwd); err != nil {
			q.Fail(err)
		}
		in.filter.Containing = &cwd
	}
	scope := q.Choice("scope", app.ScopeSelf, app.ScopeChildren, app.ScopeSubtree)
	switch {
	case q.Has("path"):
		path := q.Text("path")
		if path != "" { // the root
			if err := server.CheckPath("path", path); err != nil {
				q.Fail(err)
			}
		}
		in.filter.Path, in.filter.Scope = &path, scope
	case q.Has("scope"):
		q.Fail(server.Invalid("scope requires path"))
	}
	q.Cursor(func(cursor string) (err error) {
		in.after, err = c.OpenCursor(cursor, in.binding(c))
		return err
	})
	return in, q.Err
}

// binding returns the binding of the cursors of a walk: the workspace and the filters.
func (in appListing) binding(c *server.Call) []byte {
	f := in.filter
	return server.Binding("apps", c.Workspace.ID, f.GetId(), f.GetContaining(), f.GetScope(), f.GetPath())
}

// list returns a page of the apps of a workspace in the order of registration; with cwd only the deepest one that contains it.
func (a apps) list(c *server.Call, in appListing) (appCollection, error) {
	page := appCollection{Collection: server.Collection[appView]{Items: []appView{}}}
	if err := settleApps(c); err != nil {
		return page, err
	}
	granted, err := c.FetchAuthorization()
	if err != nil {
		return page, err
	}
	call := entity.Call{Now: c.Now(), Principal: c.Caller.Principal, Role: granted.GetRole()}
	if page.Meta.Capabilities.Register, err = mayChangeApps(c, call); err != nil {
		return page, err
	}
	read := readApps
	if in.filter.Containing != nil {
		read = readDeepest
	}
	rows, next, err := read(c, in)
	if err != nil {
		return page, err
	}
	for _, row := range rows {
		page.Items = append(page.Items, a.view(c, &appv1.Description{App: row, Controls: app.ControlsOf(call, row)}))
	}
	if next != "" {
		cursor := c.SealCursor(next, in.binding(c))
		page.NextCursor = &cursor
	}
	return page, nil
}

// mayChangeApps reports whether the caller may register and change apps now.
func mayChangeApps(c *server.Call, call entity.Call) (bool, error) {
	if !app.MayChange(call) {
		return false, nil
	}
	_, err := server.Ask[*workspacev1.Authorized](c, entity.Command{
		Kind: entity.KindWorkspace, Identity: c.Workspace.ID, Message: &workspacev1.Authorize{Any: []string{entity.Apps}, Changes: true},
	})
	if entity.HasCode(err, entity.WorkspaceSuspended, entity.WorkspaceClosed) {
		return false, nil
	}
	return err == nil, err
}

// readApps returns a page of the apps that match the filter, and the position after it.
func readApps(c *server.Call, in appListing) ([]*appv1.App, string, error) {
	encoded, err := proto.Marshal(in.filter)
	if err != nil {
		return nil, "", err
	}
	found, err := server.Ask[*wirev1.Page](c, entity.Command{Kind: entity.KindWorkspace, Identity: c.Workspace.ID, Message: &wirev1.List{
		Name: app.List, Filter: encoded, After: []byte(in.after), Limit: in.limit,
	}})
	if err != nil {
		return nil, "", err
	}
	rows, err := server.DecodeRows(found, func(row *appv1.App) *appv1.App { return row })
	return rows, string(found.GetNext()), err
}

// readDeepest returns the app whose folder contains the path of the filter and lies deepest, if there is one. An app whose folder does
// not exist any more contains nothing.
func readDeepest(c *server.Call, in appListing) ([]*appv1.App, string, error) {
	var deepest *appv1.App
	in.limit = 100
	for more := true; more; more = in.after != "" {
		rows, next, err := readApps(c, in)
		if err != nil {
			return nil, "", err
		}
		for _, row := range rows {
			if row.GetFolderState() == appv1.FolderState_FOLDER_STATE_ACTIVE && len(row.GetPath()) > len(deepest.GetPath()) {
				deepest = row
			}
		}
		in.after = next
	}
	if deepest == nil {
		return nil, "", nil
	}
	return []*appv1.App{deepest}, "", nil
}
