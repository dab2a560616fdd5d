package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	nethttp "net/http"
	"net/url"
	"strings"

	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/drive/webdav"
	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	"github.com/atelier-run/atelier/runner/tools"
)

// newTools returns the tools for agents over the parts of the node. The runner serves them to the agents of sessions, and
// mcpTools to callers elsewhere.
func (n *Node) newTools(o Options) (*tools.Tools, error) {
	return tools.New(tools.Options{
		Asker: n.asker(o), NewID: o.HTTP.NewID, Files: toolFiles{n.Drives, n.files}, Clock: o.Clock, Log: o.Log,
		Version: ReadBuild().Version,
		Apps: &tools.AppOptions{
			Folders: folders{n.Drives}, Logs: appLogs{n.apps}, Addresses: o.appAddresses(),
		},
	})
}

// mcpTools implements mcp.Tools.
type mcpTools struct{ *tools.Tools }

// ServeTools implements mcp.Tools.
func (t mcpTools) ServeTools(w nethttp.ResponseWriter, r *nethttp.Request, p *wirev1.Principal, requestID string, authenticate func() error) {
	t.Tools.ServeTools(w, r, tools.Caller{Principal: p, RequestID: requestID, Authenticate: authenticate})
}

// toolFiles implements tools.Files with the drives. Changes are requests to the WebDAV handler, so that locks of its clients hold.
type toolFiles struct {
	drives *drive.Drives
	webdav *webdav.Handler
}

// Read implements tools.Files.
func (f toolFiles) Read(
	ctx context.Context, access entity.DriveAccess, path string, offset, limit int64,
) (content []byte, size int64, err error) {
	d, release, err := f.drives.Open(ctx, access.WorkspaceID)
	if err != nil {
		return nil, 0, err
	}
	defer release()
	file, entry, err := d.Open(path)
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
		author := &activityv1.Author{Actor: entity.Actor(access.Principal), UserId: access.Principal.GetUserId()}
		if err := d.RecordRead(path, author); err != nil {
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
func (f toolFiles) Write(ctx context.Context, access entity.DriveAccess, path string, content []byte) (created bool, err error) {
	created, err = f.send(ctx, access, nethttp.MethodPut, path, content)
	if refused, is := errors.AsType[*entity.Error](err); !is || refused.Code != drive.NoParent {
		return created, err
	}
	for i, c := range path {
		if c != '/' {
			continue
		}
		_, err := f.send(ctx, access, "MKCOL", path[:i], nil)
		if refused, is := errors.AsType[*entity.Error](err); err != nil && (!is || refused.Code != entity.MethodNotAllowed) {
			return false, err // the code is that of a folder that exists
		}
	}
	return f.send(ctx, access, nethttp.MethodPut, path, content)
}

// toolDrive is the path of the drive in the requests of send, which no client sends.
const toolDrive = "/drive"

// send sends a request to the WebDAV handler, and reports whether it has created the path.
func (f toolFiles) send(ctx context.Context, access entity.DriveAccess, method, path string, content []byte) (created bool, err error) {
	target := url.URL{Path: toolDrive + "/" + path}
	r, err := nethttp.NewRequestWithContext(ctx, method, target.EscapedPath(), bytes.NewReader(content))
	if err != nil {
		return false, err
	}
	answer := &toolAnswer{header: nethttp.Header{}}
	if err := f.webdav.ServeDrive(answer, r, toolDrive, access); err != nil {
		return false, err
	}
	if answer.status >= nethttp.StatusBadRequest {
		return false, answer.err()
	}
	return answer.status == nethttp.StatusCreated, nil
}

// toolAnswer is the answer to a request of send. It keeps the beginning of the body.
type toolAnswer struct {
	header nethttp.Header
	status int
	body   bytes.Buffer
}

// maxToolAnswer bounds the body that a toolAnswer keeps, in bytes.
const maxToolAnswer = 16 << 10

func (a *toolAnswer) Header() nethttp.Header { return a.header }

func (a *toolAnswer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

func (a *toolAnswer) Write(b []byte) (int, error) {
	a.WriteHeader(nethttp.StatusOK)
	a.body.Write(b[:min(len(b), maxToolAnswer-a.body.Len())])
	return len(b), nil
}

// err returns the error in the answer. A locked path is described in XML, all else in JSON.
func (a *toolAnswer) err() error {
	var refused struct {
		Error   entity.Code
		Message string
	}
	if strings.HasPrefix(a.header.Get("Content-Type"), "application/json") && json.Unmarshal(a.body.Bytes(), &refused) == nil {
		return entity.Errorf(refused.Error, "%s", refused.Message)
	}
	if a.status == nethttp.StatusLocked {
		return entity.Errorf("locked", "another client has locked the path")
	}
	return entity.Errorf("conflict", "the drive has refused the change: %s", nethttp.StatusText(a.status))
}
