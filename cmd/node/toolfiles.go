package node

import (
	"bytes"
	"context"
	"errors"
	"io"
	nethttp "net/http"
	"path"

	"github.com/atelier-run/atelier/drive"
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
		Asker: n.asker(o), NewID: o.HTTP.NewID, Files: toolFiles{n.Drives}, Clock: o.Clock, Log: o.Log,
		Version: ReadBuild().Version, Folders: folders{n.Drives}, Agents: skills.New(n.Drives),
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
type toolFiles struct{ drives *drive.Drives }

// Read implements tools.Files.
func (f toolFiles) Read(
	ctx context.Context, access entity.DriveAccess, path string, offset, limit int64,
) (content []byte, size int64, err error) {
	d, release, err := f.drives.Open(ctx, access.WorkspaceID)
	if err != nil {
		return nil, 0, err
	}
	defer release()
	file, entry, err := d.OpenToRead(path)
	if err != nil {
		return nil, 0, err
	}
	defer file.Close()
	content = make([]byte, max(0, min(limit, entry.Size-offset)))
	read, err := file.ReadAt(content, offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, 0, err
	}
	d.CountSent(int64(read))
	if read > 0 {
		if err := d.RecordRead(path, drive.AuthorOf(access.Principal)); err != nil {
			return nil, 0, err
		}
	}
	return content[:read], entry.Size, nil
}

// List implements tools.Files.
func (f toolFiles) List(ctx context.Context, access entity.DriveAccess, folder string, visit func(tools.FileEntry) bool) error {
	d, release, err := f.drives.Open(ctx, access.WorkspaceID)
	if err != nil {
		return err
	}
	defer release()
	opened, err := d.OpenFolder(folder)
	if err != nil {
		return err
	}
	defer opened.Close()
	err = opened.Each(ctx, func(e drive.Entry) error {
		if !visit(tools.FileEntry{Name: e.Name, Folder: e.Folder, Size: e.Size, Modified: e.Modified.UTC()}) {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// errEnough ends a listing.
var errEnough = errors.New("enough entries")

// Write implements tools.Files.
func (f toolFiles) Write(ctx context.Context, access entity.DriveAccess, file string, content []byte) (created bool, err error) {
	d, release, err := f.drives.Open(ctx, access.WorkspaceID)
	if err != nil {
		return false, err
	}
	defer release()
	defer func() {
		if cause, is := errors.AsType[*entity.Error](context.Cause(ctx)); err != nil && is { // why the caller lost the access
			err = cause
		}
	}()
	change := drive.NewChange(access)
	put := func() (created bool, err error) {
		_, created, err = d.Put(ctx, file, drive.Upload{Body: bytes.NewReader(content), Size: int64(len(content))}, change)
		return created, err
	}
	if created, err = put(); !entity.HasCode(err, drive.NoParent) {
		return created, err
	}
	if _, err := makeFolders(ctx, d, path.Dir(file), change); err != nil && !entity.HasCode(err, drive.Exists) {
		return false, err
	}
	return put() // refused if one of the folders is a file
}
