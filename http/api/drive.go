package api

import (
	"net/http"
	"slices"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/http/server"
)

// drive serves the files of a workspace as WebDAV, classes 1 and 2.
type drive struct{ files Drive }

func (d drive) routes() []server.Route {
	methods := []server.Route{
		{Method: http.MethodGet, Scope: server.ScopeReadFiles, Summary: "Read a file"},
		{Method: http.MethodHead, Scope: server.ScopeReadFiles, Summary: "Read the headers of a file"},
		{Method: http.MethodPut, Scope: server.ScopeWriteFiles, Summary: "Write a file"},
		{Method: http.MethodDelete, Scope: server.ScopeWriteFiles, Summary: "Delete a file or folder"},
		{Method: http.MethodOptions, Scope: server.ScopeReadFiles, Summary: "List the supported methods"},
		{Method: "PROPFIND", Scope: server.ScopeReadFiles, Summary: "List the properties of a file or folder"},
		{Method: "PROPPATCH", Scope: server.ScopeWriteFiles, Summary: "Change the properties of a file or folder"},
		{Method: "MKCOL", Scope: server.ScopeWriteFiles, Summary: "Create a folder"},
		{Method: "COPY", Scope: server.ScopeWriteFiles, Summary: "Copy a file or folder"},
		{Method: "MOVE", Scope: server.ScopeWriteFiles, Summary: "Move or rename a file or folder"},
		{Method: "LOCK", Scope: server.ScopeWriteFiles, Summary: "Lock a file or folder"},
		{Method: "UNLOCK", Scope: server.ScopeWriteFiles, Summary: "Unlock a file or folder"},
	}
	var table []server.Route
	for _, path := range []string{server.DrivePath + "/{path}", server.DrivePath} {
		for _, route := range methods {
			route.Path, route.Handler, route.Timing = path, d.serve, server.Transfer
			table = append(table, route)
		}
	}
	return table
}

// ignored has the parameters that say nothing about the file: Git asks with "service" whether the server knows more than files.
var ignored = map[string][]string{http.MethodGet: {"service"}, http.MethodHead: {"service"}}

// serve authorizes a request and lets the drive answer it, for as long as its bytes move and the caller has access. Package
// server describes the flow of an upload.
func (d drive) serve(c *server.Call) error {
	granted, err := c.FetchAuthorization()
	if err != nil {
		return err
	}
	if _, err := server.ParseQuery(c.Request.URL.RawQuery, ignored[c.Request.Method]...); err != nil {
		return err
	}
	return c.TransferTo(func(r *http.Request) error {
		return d.files.ServeDrive(c.Response, r, "/v1/ws/"+c.Workspace.Slug+"/drive", entity.DriveAccess{
			WorkspaceID: c.Workspace.ID, Host: c.PublicHost(), Principal: c.Caller.Principal,
			BreaksLocks:  slices.Contains(granted.GetCapabilities(), entity.Admin),
			Authenticate: c.Reauthenticate, Authorize: c.Authorize,
		})
	})
}
