package api

import (
	"net/http"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/http/server"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// anchors serves the anchors of a workspace, such as apps and shares that are bound to paths of its drive.
type anchors struct{ files Drive }

func (a anchors) routes() []server.Route {
	return []server.Route{
		{Method: http.MethodGet, Path: server.WorkspacePath + "/anchors", Scope: server.ScopeReadFiles, Summary: "List the workspace's anchors",
			Handler: server.Answer(http.StatusOK, server.DecodePage, a.list)},
		{Method: http.MethodPost, Path: server.WorkspacePath + "/anchors/{anchorId}/reanchor", Scope: server.ScopeBindAnchors, Summary: "Bind an anchor to another path",
			Handler: server.Answer(http.StatusOK, server.Checked(checkReanchor), a.reanchor)},
	}
}

type anchorView struct {
	ID          string         `json:"id"`
	WorkspaceID string         `json:"workspaceId"`
	Path        string         `json:"path"`
	Kind        string         `json:"kind"`
	Settings    jsontext.Value `json:"settings"`
	State       string         `json:"state"`
	CreatedAt   int64          `json:"createdAt"`
	UpdatedAt   int64          `json:"updatedAt"`
}

type reanchorRequest struct {
	Path string `json:"path"`
}

type reanchored struct {
	Anchor anchorView `json:"anchor"`
}

func (a anchors) list(c *server.Call, in server.Listing) (server.Collection[anchorView], error) {
	if err := settleAnchors(c); err != nil {
		return server.Collection[anchorView]{}, err
	}
	return server.ReadList(c, entity.KindWorkspace, "anchors", in, func(a *workspacev1.Anchor) anchorView { return viewAnchor(c, a) })
}

// settleAnchors authorizes the caller and waits until the anchors have followed all earlier changes of the drive.
func settleAnchors(c *server.Call) error {
	if err := c.Authorize(); err != nil {
		return err
	}
	return c.Settle(entity.KindActivity, c.Workspace.ID)
}

func checkReanchor(in *reanchorRequest) error {
	return server.CheckPath("path", in.Path)
}

// missingPath replaces a path that names nothing. No anchor can have it, and the workspace refuses it after all other
// checks, so that callers without access to the anchor learn nothing about the drive.
const missingPath = "."

func (a anchors) reanchor(c *server.Call, in reanchorRequest) (reanchored, error) {
	if err := settleAnchors(c); err != nil {
		return reanchored{}, err
	}
	// The position is read before the drive, so that the anchor follows a rename between the two.
	seq, err := fetchLastSeq(c)
	if err != nil {
		return reanchored{}, err
	}
	exists, err := a.files.Exists(c.Context, c.Workspace.ID, in.Path)
	if err != nil {
		return reanchored{}, err
	}
	if !exists {
		in.Path = missingPath
	}
	anchor, err := server.Ask[*workspacev1.Anchor](c, workspaceCommand(c, &workspacev1.Reanchor{AnchorId: c.Variable("anchorId"), Path: in.Path, Seq: seq}))
	switch {
	case !exists && entity.HasCode(err, entity.InvalidRequest):
		return reanchored{}, server.Invalid("path names no file or folder on the drive")
	case err != nil:
		return reanchored{}, err
	}
	return reanchored{viewAnchor(c, anchor)}, nil
}

// fetchLastSeq returns the seq of the last row of the workspace's activity.
func fetchLastSeq(c *server.Call) (uint64, error) {
	recorded, err := server.Ask[*activityv1.Recorded](c, entity.Command{
		Kind: entity.KindActivity, Identity: c.Workspace.ID, Principal: entity.Platform(),
		Message: &activityv1.Record{}, // without rows: it only returns the position
	})
	return recorded.GetSeq(), err
}

func viewAnchor(c *server.Call, a *workspacev1.Anchor) anchorView {
	view := anchorView{
		ID: a.GetId(), WorkspaceID: c.Workspace.ID, Path: a.GetPath(), Kind: anchorKindNames[a.GetKind()],
		Settings: a.GetSettings(), State: anchorStateNames[a.GetState()], CreatedAt: a.GetCreatedAt(), UpdatedAt: a.GetUpdatedAt(),
	}
	switch {
	case a.GetAgent() != nil:
		view.Settings = agentSettings(a.GetAgent())
	case a.GetApp() != nil:
		view.Settings = appSettings(a.GetApp())
	}
	if !view.Settings.IsValid() { // absent or malformed
		view.Settings = jsontext.Value("null")
	}
	return view
}
