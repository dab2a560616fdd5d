package client

import (
	"context"
	"net/http"
)

// Suspension tells whether a workspace takes changes.
type Suspension struct {
	Suspended        bool   `json:"suspended"`
	SuspendedAt      int64  `json:"suspendedAt,omitempty"`
	SuspensionReason string `json:"suspensionReason,omitempty"`
}

// SuspensionChange suspends a workspace, or takes it up again.
type SuspensionChange struct {
	Suspended bool   `json:"suspended"`
	Reason    string `json:"reason,omitempty"`
}

const suspensionPath = "/admin/suspension"

// Suspension tells whether a workspace is suspended.
func (c *Client) Suspension(ctx context.Context, slug string) (Suspension, error) {
	return call[Suspension](ctx, c, request{method: http.MethodGet, path: workspacePath(slug, suspensionPath)})
}

// SetSuspension suspends a workspace or takes it up again, everywhere at once.
func (c *Client) SetSuspension(ctx context.Context, slug string, to SuspensionChange) (Suspension, error) {
	return call[Suspension](ctx, c, request{method: http.MethodPut, path: workspacePath(slug, suspensionPath), in: to})
}
