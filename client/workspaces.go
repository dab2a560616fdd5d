package client

import (
	"context"
	"net/http"
)

// Workspace is one that the caller belongs to.
type Workspace struct {
	ID   string `json:"id"`
	Slug string `json:"slug"`
	Name string `json:"name"`
	// Status is provisioning, active, unhealthy, archived, retired or deleted.
	Status string `json:"status"`
	// ServicingStatus is active, paused or banned.
	ServicingStatus          string `json:"servicingStatus"`
	ServicingStatusChangedAt int64  `json:"servicingStatusChangedAt,omitempty"`
	// Role is the caller's.
	Role           string      `json:"role"`
	BillingUserID  string      `json:"billingUserId"`
	Funding        Funding     `json:"funding"`
	CreditRecovery *string     `json:"creditRecovery"`
	DefaultTier    DefaultTier `json:"defaultTier"`
	DuetName       string      `json:"duetName,omitempty"`
	Purpose        string      `json:"purpose,omitempty"`
	OnboardedAt    int64       `json:"onboardedAt,omitempty"`
	Onboarding     *Onboarding `json:"onboarding,omitempty"`
	AdminMessage   string      `json:"adminMessage,omitempty"`
}

// Funding tells what a workspace lives on.
type Funding struct {
	Plan        *string `json:"plan"`
	Active      bool    `json:"active"`
	TrialEndsAt int64   `json:"trialEndsAt,omitempty"`
}

// DefaultTier is the model choice of sessions without their own.
type DefaultTier struct {
	Effective  string `json:"effective"`
	Configured string `json:"configured,omitempty"`
}

// Onboarding is what a workspace began with.
type Onboarding struct {
	StarterAgents []string `json:"starterAgents"`
}

// NewWorkspace is a workspace to be made.
type NewWorkspace struct {
	Slug string `json:"slug"`
	Name string `json:"name"`
}

// WorkspaceCreated is a workspace that was made.
type WorkspaceCreated struct {
	WorkspaceID string `json:"workspaceId"`
	Slug        string `json:"slug"`
	Status      string `json:"status"`
}

// CreateWorkspace makes a workspace of the caller's. Codes: slug_taken.
func (c *Client) CreateWorkspace(ctx context.Context, w NewWorkspace) (WorkspaceCreated, error) {
	return call[WorkspaceCreated](ctx, c, request{method: http.MethodPost, path: "/v1/workspaces", in: w})
}

// WorkspaceRename gives a workspace another address, and another name where there is one.
type WorkspaceRename struct {
	Slug string `json:"slug"`
	// PublicURLBreakAcknowledged must be true: addresses with the old slug end.
	PublicURLBreakAcknowledged bool   `json:"publicUrlBreakAcknowledged"`
	Name                       string `json:"name,omitempty"`
}

// WorkspaceRenamed is the answer to a rename.
type WorkspaceRenamed struct {
	OK               bool `json:"ok"`
	BreaksPublicURLs bool `json:"breaksPublicUrls"`
}

// RenameWorkspace gives a workspace another slug. Codes: slug_taken.
func (c *Client) RenameWorkspace(ctx context.Context, slug string, to WorkspaceRename) (WorkspaceRenamed, error) {
	return call[WorkspaceRenamed](ctx, c, request{method: http.MethodPatch, path: "/v1/workspaces/" + segment(slug), in: to})
}

// Reprovisioned tells what a reprovision came to: Status is backup_pending with BackupID; provisioning with Scheduled and,
// where there was one, the old computer; or deferred with Reason and what is active.
type Reprovisioned struct {
	Status              string `json:"status"`
	WorkspaceID         string `json:"workspaceId,omitempty"`
	BackupID            string `json:"backupId,omitempty"`
	Scheduled           *bool  `json:"scheduled,omitempty"`
	OldVMName           string `json:"oldVmName,omitempty"`
	ImageRef            string `json:"imageRef,omitempty"`
	Reason              string `json:"reason,omitempty"`
	ActiveAgentSessions *int   `json:"activeAgentSessions,omitempty"`
	ActiveTrainJobs     *int   `json:"activeTrainJobs,omitempty"`
}

// Reprovision replaces a workspace's computer.
func (c *Client) Reprovision(ctx context.Context, slug string) (Reprovisioned, error) {
	return call[Reprovisioned](ctx, c, request{method: http.MethodPost, path: workspacePath(slug, "/reprovision")})
}

// DefaultModel is a workspace's choice of model for sessions without their own.
type DefaultModel struct {
	Tier string `json:"tier"`
}

// SetDefaultModel changes it.
func (c *Client) SetDefaultModel(ctx context.Context, slug string, m DefaultModel) (DefaultModel, error) {
	return call[DefaultModel](ctx, c, request{method: http.MethodPut, path: workspacePath(slug, "/default-model"), in: m})
}
