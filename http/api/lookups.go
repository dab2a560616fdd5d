package api

import (
	"github.com/atelier-run/atelier/http/server"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/service"
)

// describePathWorkspace describes the workspace in the path, as the platform. The caller must have been authorized.
func describePathWorkspace(c *server.Call) (*workspacev1.Workspace, error) {
	return service.DescribeWorkspace(c, c.Workspace.ID)
}

// nextID returns the position after a page of items in the order of ids; "" if it is the last page.
func nextID[Item interface{ GetId() string }](items []Item, more bool) string {
	if !more || len(items) == 0 {
		return ""
	}
	return items[len(items)-1].GetId()
}
