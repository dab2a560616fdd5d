package client

import (
	"context"
	"net/http"
)

// Suspension is the suspension of a workspace. A suspended workspace accepts no changes.
type Suspension struct {
	Suspended        bool   `json:"suspended"`
	SuspendedAt      int64  `json:"suspendedAt,omitempty"`
	SuspensionReason string `json:"suspensionReason,omitempty"`
}

// SuspensionChange is the input of SetSuspension.
type SuspensionChange struct {
	Suspended bool   `json:"suspended"`
	Reason    string `json:"reason,omitempty"`
}

const suspensionPath = "/admin/suspension"

// Suspension returns the suspension of a workspace.
func (c *Client) Suspension(ctx context.Context, slug string) (Suspension, error) {
	return call[Suspension](ctx, c, request{method: http.MethodGet, path: workspacePath(slug, suspensionPath)})
}

// SetSuspension suspends or resumes a workspace.
func (c *Client) SetSuspension(ctx context.Context, slug string, to SuspensionChange) (Suspension, error) {
	return call[Suspension](ctx, c, request{method: http.MethodPut, path: workspacePath(slug, suspensionPath), in: to})
}
