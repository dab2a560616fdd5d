package client

import (
	"context"
	"net/http"
	"strings"
)

// Invitation is one to a workspace, as its members see it.
type Invitation struct {
	ID    string `json:"id"`
	Email string `json:"email"`
	// Role is editor or viewer.
	Role       string `json:"role"`
	ExpiresAt  int64  `json:"expiresAt"`
	RevokedAt  int64  `json:"revokedAt,omitempty"`
	ConsumedAt int64  `json:"consumedAt,omitempty"`
	// Link is what to hand over to who is invited, where the node sends no mail: from Invite alone.
	Link string `json:"-"`
}

// NewInvitation is an invitation to be made.
type NewInvitation struct {
	Email string `json:"email"`
	// Role is editor or viewer; empty: editor.
	Role string `json:"role,omitempty"`
}

// Invitations are a workspace's, newest first.
func (c *Client) Invitations(slug string) Collection[Invitation] {
	return Collection[Invitation]{c, workspacePath(slug, "/invites"), nil}
}

// Invite asks somebody into a workspace, or renews the invitation that is pending. Codes: already_member.
func (c *Client) Invite(ctx context.Context, slug string, in NewInvitation) (Invitation, error) {
	link := ""
	made, err := call[Invitation](ctx, c, request{
		method: http.MethodPost, path: workspacePath(slug, "/invites"), in: in,
		header: func(h http.Header) { link = invitationLink(h.Get("Link")) },
	})
	made.Link = link
	return made, err
}

// invitationLink is the target of a Link header (RFC 8288) that leads to an invitation.
func invitationLink(header string) string {
	target, relation, _ := strings.Cut(strings.TrimPrefix(header, "<"), ">")
	if !strings.Contains(relation, `rel="invitation"`) {
		return ""
	}
	return target
}

type revokedAnswer struct {
	RevokedAt int64 `json:"revokedAt"`
}

// RevokeInvitation takes an invitation back and tells when that was. Codes: invitation_consumed.
func (c *Client) RevokeInvitation(ctx context.Context, slug, inviteID string) (revokedAt int64, err error) {
	found, err := call[revokedAnswer](ctx, c, request{
		method: http.MethodDelete, path: workspacePath(slug, "/invites/"+segment(inviteID)), idempotent: true,
	})
	return found.RevokedAt, err
}

// ReceivedInvitation is one that is addressed to the caller.
type ReceivedInvitation struct {
	ID        string           `json:"id"`
	Workspace InvitedWorkspace `json:"workspace"`
	Inviter   *Inviter         `json:"inviter"`
	Role      string           `json:"role"`
	ExpiresAt int64            `json:"expiresAt"`
}

// InvitedWorkspace is where an invitation leads.
type InvitedWorkspace struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Slug string `json:"slug"`
}

// Inviter is whom an invitation comes from.
type Inviter struct {
	Email string `json:"email"`
	Name  string `json:"name,omitempty"`
}

// ReceivedInvitations are those that are pending and addressed to the caller.
func (c *Client) ReceivedInvitations() Collection[ReceivedInvitation] {
	return Collection[ReceivedInvitation]{c, "/v1/user/invitations", nil}
}

// InvitationAccepted is the workspace that the caller belongs to now.
type InvitationAccepted struct {
	WorkspaceID   string `json:"workspaceId"`
	WorkspaceSlug string `json:"workspaceSlug"`
}

// AcceptInvitation makes the caller a member. Codes: invitation_expired, invitation_revoked.
func (c *Client) AcceptInvitation(ctx context.Context, inviteID string) (InvitationAccepted, error) {
	return call[InvitationAccepted](ctx, c, request{
		method: http.MethodPost, path: "/v1/user/invitations/" + segment(inviteID) + "/accept", idempotent: true,
	})
}
