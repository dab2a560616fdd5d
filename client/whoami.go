package client

import (
	"context"
	"net/http"
)

// Whoami is whom a credential speaks for, and what it may do now.
type Whoami struct {
	User          User        `json:"user"`
	Workspaces    []Workspace `json:"workspaces"`
	Scopes        []string    `json:"scopes"`
	Versions      Versions    `json:"versions"`
	InternalAdmin bool        `json:"internalAdmin"`
	Credential    *Credential `json:"credential,omitempty"`
}

// User is a person as a credential knows them.
type User struct {
	ID    string `json:"id"`
	Email string `json:"email"`
	Name  string `json:"name,omitempty"`
}

// Versions are of the API.
type Versions struct {
	API int `json:"api"`
}

// Credential is what a request was made with.
type Credential struct {
	// Kind is user, browser_session, oauth, app, system_vm or impersonation.
	Kind     string `json:"kind"`
	Audience string `json:"audience,omitempty"`
}

// Whoami tells whom the credential speaks for.
func (c *Client) Whoami(ctx context.Context) (Whoami, error) {
	return call[Whoami](ctx, c, request{method: http.MethodGet, path: "/v1/whoami"})
}
