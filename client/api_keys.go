package client

import (
	"context"
	"net/http"
)

// APIKey is what is told of a key of the caller's; never its secret.
type APIKey struct {
	ID         string `json:"id"`
	Prefix     string `json:"prefix"`
	CreatedAt  int64  `json:"createdAt"`
	Name       string `json:"name,omitempty"`
	ExpiresAt  int64  `json:"expiresAt,omitempty"`
	LastUsedAt int64  `json:"lastUsedAt,omitempty"`
	RevokedAt  int64  `json:"revokedAt,omitempty"`
}

// NewAPIKey is a key to be issued; ExpiresAt 0: it does not expire.
type NewAPIKey struct {
	Name      string `json:"name"`
	ExpiresAt int64  `json:"expiresAt,omitempty"`
}

// APIKeyCreated holds a new key's secret, which is shown this once.
type APIKeyCreated struct {
	Key    string `json:"key"`
	Record APIKey `json:"record"`
}

// APIKeyRevoked tells which key was revoked, and when first.
type APIKeyRevoked struct {
	Prefix    string `json:"prefix"`
	RevokedAt int64  `json:"revokedAt"`
}

const apiKeysPath = "/v1/user/api-keys"

// APIKeys are the caller's.
func (c *Client) APIKeys() Collection[APIKey] { return Collection[APIKey]{c, apiKeysPath, nil} }

// CreateAPIKey issues a key for the caller.
func (c *Client) CreateAPIKey(ctx context.Context, in NewAPIKey) (APIKeyCreated, error) {
	return call[APIKeyCreated](ctx, c, request{method: http.MethodPost, path: apiKeysPath, in: in})
}

// RevokeAPIKey ends a key of the caller's.
func (c *Client) RevokeAPIKey(ctx context.Context, keyID string) (APIKeyRevoked, error) {
	return call[APIKeyRevoked](ctx, c, request{method: http.MethodDelete, path: apiKeysPath + "/" + segment(keyID), idempotent: true})
}
