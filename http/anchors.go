package http

import (
	"github.com/go-json-experiment/json/jsontext"

	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

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

func (s *Server) listAnchors(c *call, in listing) (collection[anchorView], error) {
	if err := c.followDrive(); err != nil {
		return collection[anchorView]{}, err
	}
	return readList(c, entity.KindWorkspace, "anchors", in, c.viewAnchor)
}

// followDrive waits, for who is let in, until the anchors have followed what the drive did before.
func (c *call) followDrive() error {
	if err := c.authorize(); err != nil {
		return err
	}
	return c.settle(entity.KindActivity, c.workspace.id)
}

func checkReanchor(in *reanchorRequest) error {
	return checkPath("path", in.Path)
}

// noPath stands for one where nothing is. The workspace refuses it last: who may not bind the anchor learns nothing of the
// drive.
const noPath = "."

func (s *Server) reanchor(c *call, in reanchorRequest) (reanchored, error) {
	if err := c.followDrive(); err != nil {
		return reanchored{}, err
	}
	// Before the drive is asked: a rename that comes between the two is followed.
	seq, err := c.head()
	if err != nil {
		return reanchored{}, err
	}
	there, err := s.options.Drive.Exists(c.ctx, c.workspace.id, in.Path)
	if err != nil {
		return reanchored{}, err
	}
	if !there {
		in.Path = noPath
	}
	anchor, err := ask[*workspacev1.Anchor](c, c.change(&workspacev1.Reanchor{AnchorId: c.variable("anchorId"), Path: in.Path, Seq: seq}))
	switch {
	case !there && refusedWith(err, entity.InvalidRequest):
		return reanchored{}, invalid("path names nothing on the drive")
	case err != nil:
		return reanchored{}, err
	}
	return reanchored{c.viewAnchor(anchor)}, nil
}

// head returns the seq of the last row of the workspace's activity.
func (c *call) head() (uint64, error) {
	recorded, err := ask[*activityv1.Recorded](c, entity.Command{
		Kind: entity.KindActivity, Identity: c.workspace.id, Principal: entity.Platform(),
		Message: &activityv1.Record{}, // of nothing: it only tells where the sequence stands
	})
	return recorded.GetSeq(), err
}

func (c *call) viewAnchor(a *workspacev1.Anchor) anchorView {
	view := anchorView{
		ID: a.GetId(), WorkspaceID: c.workspace.id, Path: a.GetPath(), Kind: anchorKindNames[a.GetKind()],
		Settings: a.GetSettings(), State: anchorStateNames[a.GetState()], CreatedAt: a.GetCreatedAt(), UpdatedAt: a.GetUpdatedAt(),
	}
	if !view.Settings.IsValid() { // there are none, or none that can be shown
		view.Settings = jsontext.Value("null")
	}
	return view
}
