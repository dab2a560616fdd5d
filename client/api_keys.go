package client

import (
	"context"
	"net/http"
)

// APIKey describes an API key of the caller, without its secret.
type APIKey struct {
	ID         string `json:"id"`
	Prefix     string `json:"prefix"`
	CreatedAt  int64  `json:"createdAt"`
	Name       string `json:"name,omitempty"`
	ExpiresAt  int64  `json:"expiresAt,omitempty"`
	LastUsedAt int64  `json:"lastUsedAt,omitempty"`
	RevokedAt  int64  `json:"revokedAt,omitempty"`
}

// NewAPIKey is the input of CreateAPIKey. A key with ExpiresAt 0 does not expire.
type NewAPIKey struct {
	Name      string `json:"name"`
	ExpiresAt int64  `json:"expiresAt,omitempty"`
}

// APIKeyCreated has a new key. The server does not show the key again.
type APIKeyCreated struct {
	Key    string `json:"key"`
	Record APIKey `json:"record"`
}

// APIKeyRevoked describes a revoked key. RevokedAt is the time of its first revocation.
type APIKeyRevoked struct {
	Prefix    string `json:"prefix"`
	RevokedAt int64  `json:"revokedAt"`
}

const apiKeysPath = "/v1/user/api-keys"

// APIKeys returns the API keys of the caller.
func (c *Client) APIKeys() Collection[APIKey] { return Collection[APIKey]{c, apiKeysPath, nil} }

// CreateAPIKey creates an API key for the caller.
func (c *Client) CreateAPIKey(ctx context.Context, in NewAPIKey) (APIKeyCreated, error) {
	return call[APIKeyCreated](ctx, c, request{method: http.MethodPost, path: apiKeysPath, in: in})
}

// RevokeAPIKey revokes an API key of the caller. Codes: not_found.
func (c *Client) RevokeAPIKey(ctx context.Context, keyID string) (APIKeyRevoked, error) {
	return call[APIKeyRevoked](ctx, c, request{method: http.MethodDelete, path: apiKeysPath + "/" + segment(keyID), idempotent: true})
}

// LimitedKey describes an API key of the caller that has limits, without its secret.
type LimitedKey struct {
	APIKey
	Capabilities []string `json:"capabilities"`
	// Workspaces are the only workspaces that the key reaches; nil: it reaches all workspaces of the caller.
	Workspaces []KeyWorkspace `json:"workspaces,omitempty"`
	// ReadOnly keys have no more than the role viewer and change nothing.
	ReadOnly bool `json:"readOnly"`
}

// KeyWorkspace is a workspace that a limited key reaches. Slug and Name are empty if the caller is no longer a member.
type KeyWorkspace struct {
	ID   string `json:"id"`
	Slug string `json:"slug,omitempty"`
	Name string `json:"name,omitempty"`
}

// NewLimitedKey is the input of CreateLimitedKey. Workspaces has slugs; nil: the key reaches all workspaces of the caller. A key with
// ExpiresAt 0 does not expire.
type NewLimitedKey struct {
	Name         string   `json:"name"`
	ExpiresAt    int64    `json:"expiresAt,omitempty"`
	Capabilities []string `json:"capabilities"`
	Workspaces   []string `json:"workspaces,omitempty"`
	ReadOnly     bool     `json:"readOnly,omitempty"`
}

// LimitedKeyCreated has a new key with limits. The server does not show the key again.
type LimitedKeyCreated struct {
	Key    string     `json:"key"`
	Record LimitedKey `json:"record"`
}

const limitedKeysPath = "/v1/user/limited-keys"

// LimitedKeys returns the API keys of the caller that have limits. RevokeAPIKey revokes them.
func (c *Client) LimitedKeys() Collection[LimitedKey] {
	return Collection[LimitedKey]{c, limitedKeysPath, nil}
}

// CreateLimitedKey creates an API key with limits for the caller.
func (c *Client) CreateLimitedKey(ctx context.Context, in NewLimitedKey) (LimitedKeyCreated, error) {
	return call[LimitedKeyCreated](ctx, c, request{method: http.MethodPost, path: limitedKeysPath, in: in})
}
