package client

import (
	"context"
	"net/http"
)

// OAuthGrant is what the caller allowed another program.
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

// GrantWorkspace is the one that a grant is for.
type GrantWorkspace struct {
	Slug string `json:"slug"`
	Name string `json:"name"`
}

// OAuthGrantRevoked tells which grant was revoked, and when first.
type OAuthGrantRevoked struct {
	GrantID   string `json:"grantId"`
	RevokedAt int64  `json:"revokedAt"`
}

const grantsPath = "/v1/user/oauth-grants"

// OAuthGrants are the caller's.
func (c *Client) OAuthGrants() Collection[OAuthGrant] {
	return Collection[OAuthGrant]{c, grantsPath, nil}
}

// RevokeOAuthGrant ends a grant with every token of its family.
func (c *Client) RevokeOAuthGrant(ctx context.Context, grantID string) (OAuthGrantRevoked, error) {
	return call[OAuthGrantRevoked](ctx, c, request{method: http.MethodDelete, path: grantsPath + "/" + segment(grantID), idempotent: true})
}
