package client

import (
	"context"
	"net/http"
)

// OAuthGrant is the consent of the caller to an OAuth client.
type OAuthGrant struct {
	ID           string         `json:"id"`
	ClientID     string         `json:"clientId"`
	ClientName   string         `json:"clientName"`
	RedirectHost string         `json:"redirectHost"`
	Workspace    GrantWorkspace `json:"workspace"`
	Scopes       []string       `json:"scopes"`
	CreatedAt    int64          `json:"createdAt"`
	LastUsedAt   int64          `json:"lastUsedAt,omitempty"`
	RevokedAt    int64          `json:"revokedAt,omitempty"`
}

// GrantWorkspace is the workspace of a grant.
type GrantWorkspace struct {
	Slug string `json:"slug"`
	Name string `json:"name"`
}

// OAuthGrantRevoked describes a revoked grant. RevokedAt is the time of its first revocation.
type OAuthGrantRevoked struct {
	GrantID   string `json:"grantId"`
	RevokedAt int64  `json:"revokedAt"`
}

const grantsPath = "/v1/user/oauth-grants"

// OAuthGrants returns the OAuth grants of the caller.
func (c *Client) OAuthGrants() Collection[OAuthGrant] {
	return Collection[OAuthGrant]{c, grantsPath, nil}
}

// RevokeOAuthGrant revokes a grant and all of its tokens. Codes: not_found.
func (c *Client) RevokeOAuthGrant(ctx context.Context, grantID string) (OAuthGrantRevoked, error) {
	return call[OAuthGrantRevoked](ctx, c, request{method: http.MethodDelete, path: grantsPath + "/" + segment(grantID), idempotent: true})
}
