package client

import (
	"context"
	"net/http"
	"strings"
)

// Invitation is an invitation to a workspace, as members of the workspace see it.
type Invitation struct {
	ID    string `json:"id"`
	Email string `json:"email"`
	// Role is editor or viewer.
	Role       string `json:"role"`
	ExpiresAt  int64  `json:"expiresAt"`
	RevokedAt  int64  `json:"revokedAt,omitempty"`
	ConsumedAt int64  `json:"consumedAt,omitempty"`
	// Link is the link for the invited person if the node does not send mail. Only Invite sets it.
	Link string `json:"-"`
}

// NewInvitation is the input of Invite.
type NewInvitation struct {
	Email string `json:"email"`
	// Role is editor or viewer; empty: editor.
	Role string `json:"role,omitempty"`
}

// Invitations returns the invitations of a workspace, newest first.
func (c *Client) Invitations(slug string) Collection[Invitation] {
	return Collection[Invitation]{c, workspacePath(slug, "/invites"), nil}
}

// InvitationDelivery is the state of the last mail of an invitation.
type InvitationDelivery struct {
	ID    string `json:"id"`
	Email string `json:"email"`
	// State is none, sending, sent, refused or given_up.
	State   string `json:"state"`
	EndedAt int64  `json:"endedAt,omitempty"`
	// Reply is the code of the mail server's reply when it refused the mail, as "550 5.1.1".
	Reply string `json:"reply,omitempty"`
}

// InvitationDeliveries returns the mails of the invitations of a workspace, in the order of Invitations.
func (c *Client) InvitationDeliveries(slug string) Collection[InvitationDelivery] {
	return Collection[InvitationDelivery]{c, workspacePath(slug, "/invite-deliveries"), nil}
}

// Invite invites a person to a workspace, or renews the pending invitation to the address. Codes: already_member.
func (c *Client) Invite(ctx context.Context, slug string, in NewInvitation) (Invitation, error) {
	link := ""
	made, err := call[Invitation](ctx, c, request{
		method: http.MethodPost, path: workspacePath(slug, "/invites"), in: in,
		header: func(h http.Header) { link = invitationLink(h.Get("Link")) },
	})
	made.Link = link
	return made, err
}

// invitationLink returns the target of a Link header (RFC 8288) with the relation "invitation", or "".
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

// RevokeInvitation revokes an invitation and returns the time of its revocation. Codes: invitation_consumed.
func (c *Client) RevokeInvitation(ctx context.Context, slug, inviteID string) (revokedAt int64, err error) {
	found, err := call[revokedAnswer](ctx, c, request{
		method: http.MethodDelete, path: workspacePath(slug, "/invites/"+segment(inviteID)), idempotent: true,
	})
	return found.RevokedAt, err
}

// ReceivedInvitation is an invitation to the address of the caller.
type ReceivedInvitation struct {
	ID        string           `json:"id"`
	Workspace InvitedWorkspace `json:"workspace"`
	Inviter   *Inviter         `json:"inviter"`
	Role      string           `json:"role"`
	ExpiresAt int64            `json:"expiresAt"`
}

// InvitedWorkspace is the workspace of an invitation.
type InvitedWorkspace struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Slug string `json:"slug"`
}

// Inviter is the person who sent an invitation.
type Inviter struct {
	Email string `json:"email"`
	Name  string `json:"name,omitempty"`
}

// ReceivedInvitations returns the pending invitations to the address of the caller.
func (c *Client) ReceivedInvitations() Collection[ReceivedInvitation] {
	return Collection[ReceivedInvitation]{c, "/v1/user/invitations", nil}
}

// InvitationAccepted is the workspace that the caller has joined.
type InvitationAccepted struct {
	WorkspaceID   string `json:"workspaceId"`
	WorkspaceSlug string `json:"workspaceSlug"`
}

// AcceptInvitation makes the caller a member of the workspace. Codes: invitation_expired, invitation_revoked.
func (c *Client) AcceptInvitation(ctx context.Context, inviteID string) (InvitationAccepted, error) {
	return call[InvitationAccepted](ctx, c, request{
		method: http.MethodPost, path: "/v1/user/invitations/" + segment(inviteID) + "/accept", idempotent: true,
	})
}
