package client

import (
	"context"
	"net/http"
)

// Workspace is a workspace with the caller as a member.
type Workspace struct {
	ID   string `json:"id"`
	Slug string `json:"slug"`
	Name string `json:"name"`
	// Status is provisioning, active, unhealthy, archived, retired or deleted.
	Status string `json:"status"`
	// ServicingStatus is active, paused or banned.
	ServicingStatus          string `json:"servicingStatus"`
	ServicingStatusChangedAt int64  `json:"servicingStatusChangedAt,omitempty"`
	// Role is the role of the caller.
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

// Funding describes how a workspace is paid for.
type Funding struct {
	Plan        *string `json:"plan"`
	Active      bool    `json:"active"`
	TrialEndsAt int64   `json:"trialEndsAt,omitempty"`
}

// DefaultTier is the model tier of sessions that choose none.
type DefaultTier struct {
	Effective  string `json:"effective"`
	Configured string `json:"configured,omitempty"`
}

// Onboarding describes the initial contents of a workspace.
type Onboarding struct {
	StarterAgents []string `json:"starterAgents"`
}

// NewWorkspace is the input of CreateWorkspace.
type NewWorkspace struct {
	Slug string `json:"slug"`
	Name string `json:"name"`
}

// WorkspaceCreated is a new workspace.
type WorkspaceCreated struct {
	WorkspaceID string `json:"workspaceId"`
	Slug        string `json:"slug"`
	Status      string `json:"status"`
}

// CreateWorkspace creates a workspace with the caller as the owner and billing user. Codes: slug_taken.
func (c *Client) CreateWorkspace(ctx context.Context, w NewWorkspace) (WorkspaceCreated, error) {
	return call[WorkspaceCreated](ctx, c, request{method: http.MethodPost, path: "/v1/workspaces", in: w})
}

// WorkspaceRename is the input of RenameWorkspace. An empty Name does not change the name.
type WorkspaceRename struct {
	Slug string `json:"slug"`
	// PublicURLBreakAcknowledged must be true, because URLs with the old slug stop working.
	PublicURLBreakAcknowledged bool   `json:"publicUrlBreakAcknowledged"`
	Name                       string `json:"name,omitempty"`
}

// WorkspaceRenamed is the result of RenameWorkspace.
type WorkspaceRenamed struct {
	OK               bool `json:"ok"`
	BreaksPublicURLs bool `json:"breaksPublicUrls"`
}

// RenameWorkspace changes the slug of a workspace, and optionally its name. Codes: slug_taken.
func (c *Client) RenameWorkspace(ctx context.Context, slug string, to WorkspaceRename) (WorkspaceRenamed, error) {
	return call[WorkspaceRenamed](ctx, c, request{method: http.MethodPatch, path: "/v1/workspaces/" + segment(slug), in: to})
}

// Reprovisioned is the result of Reprovision. Status is backup_pending, with BackupID; provisioning, with Scheduled and
// the old computer, if there was one; or deferred, with Reason and the numbers of active sessions and jobs.
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

// Reprovision requests the replacement of a workspace's computer.
func (c *Client) Reprovision(ctx context.Context, slug string) (Reprovisioned, error) {
	return call[Reprovisioned](ctx, c, request{method: http.MethodPost, path: workspacePath(slug, "/reprovision")})
}

// DefaultModel is the model tier for sessions of a workspace that choose none.
type DefaultModel struct {
	Tier string `json:"tier"`
}

// SetDefaultModel sets the default model of a workspace.
func (c *Client) SetDefaultModel(ctx context.Context, slug string, m DefaultModel) (DefaultModel, error) {
	return call[DefaultModel](ctx, c, request{method: http.MethodPut, path: workspacePath(slug, "/default-model"), in: m})
}
