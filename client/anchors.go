package client

import (
	"context"
	"encoding/json"
	"net/http"
)

// Anchor binds an app, an agent or a share to a path of a workspace's drive.
type Anchor struct {
	ID          string `json:"id"`
	WorkspaceID string `json:"workspaceId"`
	Path        string `json:"path"`
	// Kind is app, agent, publish, share-root or share-mount.
	Kind string `json:"kind"`
	// Settings is any JSON value.
	Settings json.RawMessage `json:"settings"`
	// State is active, broken or orphaned.
	State     string `json:"state"`
	CreatedAt int64  `json:"createdAt"`
	UpdatedAt int64  `json:"updatedAt"`
}

// Anchors returns the anchors of a workspace, in the order of creation.
func (c *Client) Anchors(slug string) Collection[Anchor] {
	return Collection[Anchor]{c, workspacePath(slug, "/anchors"), nil}
}

type anchorAnswer struct {
	Anchor Anchor `json:"anchor"`
}

// NewAnchorPath is the path that an anchor is bound to.
type NewAnchorPath struct {
	Path string `json:"path"`
}

// Reanchor binds an anchor to another path. Codes: anchor_conflict.
func (c *Client) Reanchor(ctx context.Context, slug, anchorID string, to NewAnchorPath) (Anchor, error) {
	found, err := call[anchorAnswer](ctx, c, request{
		method: http.MethodPost, path: workspacePath(slug, "/anchors/"+segment(anchorID)+"/reanchor"), in: to,
	})
	return found.Anchor, err
}
