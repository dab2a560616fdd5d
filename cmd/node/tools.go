package node

import (
	"context"
	nethttp "net/http"

	"github.com/atelier-run/atelier/cmd/build"
	"github.com/atelier-run/atelier/drive/files"
	"github.com/atelier-run/atelier/drive/skills"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/http/mcp"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	"github.com/atelier-run/atelier/runner/tools"
	"github.com/atelier-run/atelier/service"
)

// newTools returns the tools for agents over the parts of the node. The runner serves them to the agents of sessions, and
// mcpTools to callers elsewhere.
func (n *Node) newTools(o Options) (*tools.Tools, error) {
	return tools.New(tools.Options{
		Asker: n.asker(o), NewID: o.HTTP.NewID, Files: toolFiles{n.files}, Clock: o.Clock, Log: o.Log,
		Version: build.Read().Version, Folders: n.files, Agents: skills.New(n.Drives),
		Apps: &tools.AppOptions{Logs: appLogs{n.apps}, Addresses: o.appAddresses()},
	})
}

// mcpTools implements mcp.Tools.
type mcpTools struct{ *tools.Tools }

// ServeTools implements mcp.Tools.
func (t mcpTools) ServeTools(
	w nethttp.ResponseWriter, r *nethttp.Request, p *wirev1.Principal, requestID string, authenticate func() error, wait mcp.Wait,
) {
	caller := service.Caller{Principal: p, RequestID: requestID, Authenticate: authenticate}
	t.Tools.ServeTools(w, r, tools.Caller{Caller: caller, Wait: wait})
}

// toolFiles implements tools.Files.
type toolFiles struct{ files.Files }

// List implements tools.Files.
func (f toolFiles) List(ctx context.Context, access entity.DriveAccess, folder string, visit func(tools.FileEntry) bool) error {
	return f.Files.List(ctx, access, folder, func(e files.Entry) bool { return visit(tools.FileEntry(e)) })
}
