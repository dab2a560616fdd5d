package api

import (
	"net/http"
	"slices"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/http/server"
)

// above serves the folders above the drives: the prefixes of the address of a drive. Windows sends OPTIONS and PROPFIND to each prefix
// before it uses the address.
type above struct{ files Drive }

func (a above) routes() []server.Route {
	var table []server.Route
	for _, folder := range []struct {
		path  string
		allow string
		scope server.Scope
		list  func(*server.Call) ([]string, error)
	}{
		{"/", "GET, HEAD, OPTIONS, PROPFIND", server.ScopeKey, containing("v1")}, // package browser serves GET
		{"/v1", "OPTIONS, PROPFIND", server.ScopeKey, containing("ws")},
		{"/v1/ws", "OPTIONS, PROPFIND", server.ScopeKey, readableWorkspaces},
		{server.WorkspacePath, "OPTIONS, PROPFIND", server.ScopeReadFiles, containing("drive")},
	} {
		table = append(table,
			server.Route{Method: http.MethodOptions, Path: folder.path, Scope: server.ScopePublic, Idempotent: true, IsAboveDrives: true,
				Summary: "List the methods of a folder above the drives", Handler: a.options(folder.allow)},
			server.Route{Method: "PROPFIND", Path: folder.path, Scope: folder.scope, IsAboveDrives: true,
				Summary: "List the properties of a folder above the drives", Handler: a.propfind(folder.path, folder.list)},
		)
	}
	return table
}

// options returns the handler of OPTIONS for a folder with some methods. The response is the same for every workspace, whether it exists or
// not.
func (a above) options(allow string) server.Handler {
	return func(c *server.Call) error {
		if _, err := server.ParseQuery(c.Request.URL.RawQuery); err != nil {
			return err
		}
		c.Response.Header().Set("Allow", allow)
		return a.files.ServeAbove(c.Response, c.Request, "", nil)
	}
}

// propfind returns the handler of PROPFIND for a folder. list returns the names of the folders in it.
func (a above) propfind(path string, list func(*server.Call) ([]string, error)) server.Handler {
	return func(c *server.Call) error {
		at := path
		switch path {
		case "/":
			at = ""
		case server.WorkspacePath:
			at = "/v1/ws/" + c.Workspace.Slug
			if err := c.Authorize(); err != nil {
				return err
			}
		}
		if _, err := server.ParseQuery(c.Request.URL.RawQuery); err != nil {
			return err
		}
		return a.files.ServeAbove(c.Response, c.Request, at, func() ([]string, error) { return list(c) })
	}
}

// containing returns a function that lists one folder.
func containing(name string) func(*server.Call) ([]string, error) {
	return func(*server.Call) ([]string, error) { return []string{name}, nil }
}

// readableWorkspaces returns the slugs of the workspaces with a drive that the credential may read.
func readableWorkspaces(c *server.Call) ([]string, error) {
	_, workspaces, err := describeSubject(c)
	if err != nil {
		return nil, err
	}
	var slugs []string
	for _, w := range workspaces {
		if slices.Contains(w.GetCapabilities(), entity.FilesRead) {
			slugs = append(slugs, w.GetWorkspace().GetSlug())
		}
	}
	return slugs, nil
}
