package client

import (
	"context"
	"net/http"
)

// AppDomain is the custom domain of an app.
type AppDomain struct {
	ID          string `json:"id"`
	WorkspaceID string `json:"workspaceId"`
	AppID       string `json:"appId"`
	Hostname    string `json:"hostname"`
	// Status is pending, verifying, active, failed or removing.
	Status    string           `json:"status"`
	Records   []DomainRecord   `json:"records"`
	Conflicts []DomainConflict `json:"conflicts"`
	LastError string           `json:"lastError,omitempty"`
	CreatedAt int64            `json:"createdAt"`
	UpdatedAt int64            `json:"updatedAt"`
	// LastCheckedAt and VerifiedAt are 0 before the first check, and before the records were seen.
	LastCheckedAt int64 `json:"lastCheckedAt,omitempty"`
	VerifiedAt    int64 `json:"verifiedAt,omitempty"`
	// RetryRequired: RecheckAppDomain tries the removal again. OperatorRepairRequired: only an operator can end it.
	RetryRequired          bool `json:"retryRequired,omitempty"`
	OperatorRepairRequired bool `json:"operatorRepairRequired,omitempty"`
	Checking               bool `json:"checking,omitempty"`
}

// DomainRecord is a DNS record that a domain needs. Reason is empty if it is there.
type DomainRecord struct {
	Type   string `json:"type"`
	Domain string `json:"domain"`
	Value  string `json:"value"`
	Reason string `json:"reason,omitempty"`
}

// DomainConflict is a DNS record that prevents a domain from being used.
type DomainConflict struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Value string `json:"value"`
}

// WorkspaceDomain is a custom domain with its app.
type WorkspaceDomain struct {
	Domain AppDomain   `json:"domain"`
	App    DomainOwner `json:"app"`
}

// DomainOwner is the app of a domain.
type DomainOwner struct {
	ID       string         `json:"id"`
	Slug     string         `json:"slug"`
	Name     string         `json:"name,omitempty"`
	Controls DomainControls `json:"controls"`
}

// DomainControls says whether the caller may manage the domain.
type DomainControls struct {
	ManageDomain bool `json:"manageDomain"`
}

// NewDomain is the input of AttachAppDomain.
type NewDomain struct {
	Hostname string `json:"hostname"`
}

type domainAnswer struct {
	Domain *AppDomain `json:"domain"`
}

// AppDomains returns the custom domains of a workspace, in the order in which their apps were registered.
func (c *Client) AppDomains(slug string) Collection[WorkspaceDomain] {
	return Collection[WorkspaceDomain]{c, workspacePath(slug, "/app-domains"), nil}
}

// AppDomain returns the custom domain of an app; nil if it has none.
func (c *Client) AppDomain(ctx context.Context, slug, appSlug string) (*AppDomain, error) {
	return c.callDomain(ctx, request{method: http.MethodGet, path: appPath(slug, appSlug, "/domain")})
}

// AttachAppDomain reserves a host name for an app, or returns the domain if the app has the name. Codes: domain_occupied,
// hostname_in_use, domain_cleanup_pending.
func (c *Client) AttachAppDomain(ctx context.Context, slug, appSlug string, in NewDomain) (*AppDomain, error) {
	return c.callDomain(ctx, request{method: http.MethodPut, path: appPath(slug, appSlug, "/domain"), in: in, idempotent: true})
}

// RecheckAppDomain requests a check of the domain of an app, or another attempt to remove it. Codes: domain_not_configured.
func (c *Client) RecheckAppDomain(ctx context.Context, slug, appSlug string) (*AppDomain, error) {
	return c.callDomain(ctx, request{method: http.MethodPost, path: appPath(slug, appSlug, "/domain/recheck")})
}

// RemoveAppDomain ends the custom domain of an app. It returns the domain while it is being removed, and nil if there is none.
func (c *Client) RemoveAppDomain(ctx context.Context, slug, appSlug string) (*AppDomain, error) {
	return c.callDomain(ctx, request{method: http.MethodDelete, path: appPath(slug, appSlug, "/domain"), idempotent: true})
}

func (c *Client) callDomain(ctx context.Context, r request) (*AppDomain, error) {
	found, err := call[domainAnswer](ctx, c, r)
	return found.Domain, err
}
