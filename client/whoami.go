package client

import (
	"context"
	"net/http"
)

// Whoami describes a credential: its person, workspaces and scopes.
type Whoami struct {
	User          User        `json:"user"`
	Workspaces    []Workspace `json:"workspaces"`
	Scopes        []string    `json:"scopes"`
	Versions      Versions    `json:"versions"`
	InternalAdmin bool        `json:"internalAdmin"`
	Credential    *Credential `json:"credential,omitempty"`
}

// User is the person of a credential.
type User struct {
	ID    string `json:"id"`
	Email string `json:"email"`
	Name  string `json:"name,omitempty"`
}

// Versions has the version of the API.
type Versions struct {
	API int `json:"api"`
}

// Credential is the kind of a credential.
type Credential struct {
	// Kind is user, browser_session, oauth, app, system_vm or impersonation.
	Kind     string `json:"kind"`
	Audience string `json:"audience,omitempty"`
}

// Whoami describes the credential of the client.
func (c *Client) Whoami(ctx context.Context) (Whoami, error) {
	return call[Whoami](ctx, c, request{method: http.MethodGet, path: "/v1/whoami"})
}
