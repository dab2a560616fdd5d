package client

import (
	"context"
	"net/http"
	"net/url"
)

// Member is a member of a workspace.
type Member struct {
	ID    string `json:"id"`
	Email string `json:"email"`
	Name  string `json:"name,omitempty"`
	// Role is owner, editor or viewer.
	Role          string `json:"role"`
	IsBillingUser bool   `json:"isBillingUser"`
}

// Members returns the members of a workspace in the order in which they joined. If search, of 1 to 32 characters, is not
// empty, it returns only members with that text in their address or name.
func (c *Client) Members(slug, search string) Collection[Member] {
	query := url.Values{}
	if search != "" {
		query.Set("search", search)
	}
	return Collection[Member]{c, workspacePath(slug, "/members"), query}
}

type memberAnswer struct {
	Member Member `json:"member"`
}

// RoleChange is the input of ChangeRole.
type RoleChange struct {
	Role string `json:"role"`
}

// ChangeRole gives a member another role. Codes: billing_user, final_owner.
func (c *Client) ChangeRole(ctx context.Context, slug, userID string, to RoleChange) (Member, error) {
	found, err := call[memberAnswer](ctx, c, request{method: http.MethodPatch, path: memberPath(slug, userID), in: to})
	return found.Member, err
}

type removedAnswer struct {
	Removed bool `json:"removed"`
}

// RemoveMember removes a member of a workspace. removed is false if the person was not a member. Codes: billing_user,
// final_owner.
func (c *Client) RemoveMember(ctx context.Context, slug, userID string) (removed bool, err error) {
	found, err := call[removedAnswer](ctx, c, request{method: http.MethodDelete, path: memberPath(slug, userID)})
	return found.Removed, err
}

func memberPath(slug, userID string) string { return workspacePath(slug, "/members/"+segment(userID)) }
