package api

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/atelier-run/atelier/entity/app"
	"github.com/atelier-run/atelier/http/server"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	appservice "github.com/atelier-run/atelier/service/app"
)

// maxAppCwd is the greatest length of the parameter cwd, in characters (specification, Limits).
const maxAppCwd = 1024

// appCollection is a page of apps. Meta has the caller's rights to the list.
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
func decodeApps(c *server.Call) (appservice.Listing, error) {
	q, err := server.ParseQuery(c.Request.URL.RawQuery, "cursor", "limit", "id", "cwd", "path", "scope")
	if err != nil {
		return appservice.Listing{}, err
	}
	in := appservice.Listing{Limit: q.Limit(), Filter: &appv1.Filter{Id: q.Text("id")}}
	if q.Has("id") && in.Filter.GetId() == "" {
		q.Fail(server.Invalid("id must not be empty"))
	}
	if q.Has("cwd") {
		cwd := q.Text("cwd")
		if n := utf8.RuneCountInString(cwd); n < 1 || n > maxAppCwd || strings.ContainsFunc(cwd, unicode.IsControl) {
			q.Fail(server.Invalid("cwd must have 1 to %d characters without control characters", maxAppCwd))
		} else if err := server.CheckPath("cwd", cwd); err != nil {
			q.Fail(err)
		}
		in.Filter.Containing = &cwd
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
		in.Filter.Path, in.Filter.Scope = &path, scope
	case q.Has("scope"):
		q.Fail(server.Invalid("scope requires path"))
	}
	q.Cursor(func(cursor string) (err error) {
		in.After, err = c.OpenCursor(cursor, bindApps(c, in))
		return err
	})
	return in, q.Err
}

// bindApps returns the binding of the cursors of a walk: the workspace and the filters.
func bindApps(c *server.Call, in appservice.Listing) []byte {
	f := in.Filter
	return server.Binding("apps", c.Workspace.ID, f.GetId(), f.GetContaining(), f.GetScope(), f.GetPath())
}

// list returns a page of the apps of a workspace in the order of registration; with cwd only the deepest one that contains it.
func (a apps) list(c *server.Call, in appservice.Listing) (appCollection, error) {
	answer := appCollection{Collection: server.Collection[appView]{Items: []appView{}}}
	found, err := a.request(c).List(c.Context, in)
	if err != nil {
		return answer, err
	}
	answer.Meta.Capabilities.Register = found.MayChange
	for _, one := range found.Apps {
		answer.Items = append(answer.Items, a.view(c, one))
	}
	if found.Next != "" {
		cursor := c.SealCursor(found.Next, bindApps(c, in))
		answer.NextCursor = &cursor
	}
	return answer, nil
}
