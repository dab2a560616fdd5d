package client

import (
	"context"
	"net/http"
)

// Profile is the caller, as they present themselves.
type Profile struct {
	ID        string `json:"id"`
	Email     string `json:"email"`
	FirstName string `json:"firstName,omitempty"`
	LastName  string `json:"lastName,omitempty"`
	Name      string `json:"name,omitempty"`
}

// ProfileChange leaves unchanged what is nil.
type ProfileChange struct {
	FirstName *string `json:"firstName,omitempty"`
	LastName  *string `json:"lastName,omitempty"`
}

const profilePath = "/v1/user/profile"

// Profile tells how the caller presents themselves.
func (c *Client) Profile(ctx context.Context) (Profile, error) {
	return call[Profile](ctx, c, request{method: http.MethodGet, path: profilePath})
}

// ChangeProfile changes it.
func (c *Client) ChangeProfile(ctx context.Context, to ProfileChange) (Profile, error) {
	return call[Profile](ctx, c, request{method: http.MethodPatch, path: profilePath, in: to})
}
