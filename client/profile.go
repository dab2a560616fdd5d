package client

import (
	"context"
	"net/http"
)

// Profile is the profile of the caller.
type Profile struct {
	ID        string `json:"id"`
	Email     string `json:"email"`
	FirstName string `json:"firstName,omitempty"`
	LastName  string `json:"lastName,omitempty"`
	Name      string `json:"name,omitempty"`
}

// ProfileChange is the input of ChangeProfile. Fields that are nil are not changed.
type ProfileChange struct {
	FirstName *string `json:"firstName,omitempty"`
	LastName  *string `json:"lastName,omitempty"`
}

const profilePath = "/v1/user/profile"

// Profile returns the profile of the caller.
func (c *Client) Profile(ctx context.Context) (Profile, error) {
	return call[Profile](ctx, c, request{method: http.MethodGet, path: profilePath})
}

// ChangeProfile changes the profile of the caller.
func (c *Client) ChangeProfile(ctx context.Context, to ProfileChange) (Profile, error) {
	return call[Profile](ctx, c, request{method: http.MethodPatch, path: profilePath, in: to})
}
