package api

import (
	"maps"
	"net/http"
	"slices"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/http/server"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/service"
	"github.com/atelier-run/atelier/service/account"
	"github.com/atelier-run/atelier/service/invitation"
)

// invitations serves invitations to workspaces, for the inviter and for the invited person. Package service/invitation describes
// the whole flow.
type invitations struct{ links *invitation.Links }

func (i invitations) routes() []server.Route {
	return []server.Route{
		{Method: http.MethodPost, Path: server.WorkspacePath + "/invites", Scope: server.ScopeManageMembers, Summary: "Invite a person to the workspace",
			Handler: server.AnswerCreated(server.Checked(checkInvite), i.invite)},
		{Method: http.MethodGet, Path: server.WorkspacePath + "/invites", Scope: server.ScopeManageMembers, Summary: "List the workspace's invitations",
			Handler: server.Answer(http.StatusOK, server.DecodePage, i.list)},
		{Method: http.MethodGet, Path: server.WorkspacePath + "/invite-deliveries", Scope: server.ScopeManageMembers, Summary: "List the mails of the workspace's invitations",
			Handler: server.Answer(http.StatusOK, server.DecodePage, i.listDeliveries)},
		{Method: http.MethodDelete, Path: server.WorkspacePath + "/invites/{inviteId}", Scope: server.ScopeManageMembers, Idempotent: true, Summary: "Revoke an invitation",
			Handler: server.Answer(http.StatusOK, server.Nothing, i.revoke)},
		{Method: http.MethodGet, Path: "/v1/user/invitations", Scope: server.ScopeHuman, Summary: "List the caller's pending invitations",
			Handler: server.Answer(http.StatusOK, server.DecodePage, i.listReceived)},
		{Method: http.MethodPost, Path: "/v1/user/invitations/{inviteId}/accept", Scope: server.ScopeHuman, Idempotent: true, Summary: "Accept an invitation",
			Handler: server.Answer(http.StatusOK, server.Nothing, i.accept)},
	}
}

type inviteRequest struct {
	Email string  `json:"email"`
	Role  *string `json:"role"`
}

type invitationView struct {
	ID         string `json:"id"`
	Email      string `json:"email"`
	Role       string `json:"role"`
	ExpiresAt  int64  `json:"expiresAt"`
	RevokedAt  int64  `json:"revokedAt,omitzero"`
	ConsumedAt int64  `json:"consumedAt,omitzero"`
}

type invitationRevoked struct {
	RevokedAt int64 `json:"revokedAt"`
}

// checkInvite validates an invitation and normalizes its email address.
func checkInvite(in *inviteRequest) (err error) {
	if in.Email, err = account.CanonicalEmail(in.Email); err != nil {
		return err
	}
	if _, ok := parseInvitedRole(in); !ok {
		return server.Invalid("role must be one of editor, viewer")
	}
	return nil
}

// parseInvitedRole returns the role in an invitation, by default editor. ok is false for roles that people cannot be invited
// to.
func parseInvitedRole(in *inviteRequest) (workspacev1.Role, bool) {
	if in.Role == nil {
		return workspacev1.Role_ROLE_EDITOR, true
	}
	role, ok := ParseName(roleNames, *in.Role)
	return role, ok && role != workspacev1.Role_ROLE_OWNER
}

// invite makes an invitation, or renews the pending one for the address. It sets the Link header if there is no mail server. Errors: the
// errors of Links.Invite.
func (i invitations) invite(c *server.Call, in inviteRequest) (view invitationView, made bool, err error) {
	role, _ := parseInvitedRole(&in)
	invited, err := i.links.Invite(c, invitation.Invite{WorkspaceID: c.Workspace.ID, Email: in.Email, Role: role, Authorize: c.Authorize})
	if err != nil {
		return view, false, err
	}
	if invited.Link != "" {
		c.Response.Header()["Link"] = []string{"<" + invited.Link + `>; rel="invitation"`}
	}
	return viewInvitation(invited.Invitation), !invited.Renewed, nil
}

func (i invitations) list(c *server.Call, in server.Listing) (server.Collection[invitationView], error) {
	return server.ReadList(c, entity.KindWorkspace, "invitations", in, viewInvitation)
}

// deliveryView is the last mail of an invitation. The specification's invitation has no field for the mail, hence this extension.
type deliveryView struct {
	ID      string `json:"id"`
	Email   string `json:"email"`
	State   string `json:"state"`
	EndedAt int64  `json:"endedAt,omitzero"`
	Reply   string `json:"reply,omitzero"`
}

// listDeliveries lists the mails of the invitations in the list of invitations, in its order.
func (i invitations) listDeliveries(c *server.Call, in server.Listing) (server.Collection[deliveryView], error) {
	return server.ReadList(c, entity.KindWorkspace, "invitations", in, viewDelivery)
}

func viewDelivery(i *workspacev1.Invitation) deliveryView {
	end := i.GetDelivery()
	view := deliveryView{ID: i.GetId(), Email: i.GetEmail(), EndedAt: end.GetAt(), Reply: end.GetRefusal()}
	switch {
	case i.GetMailId() != "" && i.GetRevokedAt() == 0 && i.GetConsumedAt() == 0:
		view.State = "sending"
	case i.GetMailId() != "": // the end of the invitation has cancelled the task
		view.State, view.EndedAt = "given_up", max(i.GetRevokedAt(), i.GetConsumedAt())
	case end == nil:
		view.State = "none"
	case end.GetRefusal() != "":
		view.State = "refused"
	case end.GetGivenUp():
		view.State = "given_up"
	default:
		view.State = "sent"
	}
	return view
}

func (i invitations) revoke(c *server.Call, _ server.None) (invitationRevoked, error) {
	revoked, err := server.Ask[*workspacev1.Invitation](c, workspaceCommand(c, &workspacev1.RevokeInvitation{InvitationId: c.Variable("inviteId")}))
	if err != nil {
		return invitationRevoked{}, err
	}
	return invitationRevoked{revoked.GetRevokedAt()}, nil
}

func viewInvitation(i *workspacev1.Invitation) invitationView {
	return invitationView{
		ID: i.GetId(), Email: i.GetEmail(), Role: roleNames[i.GetRole()], ExpiresAt: i.GetExpiresAt(),
		RevokedAt: i.GetRevokedAt(), ConsumedAt: i.GetConsumedAt(),
	}
}

type receivedView struct {
	ID        string       `json:"id"`
	Workspace invitingView `json:"workspace"`
	Inviter   *inviterView `json:"inviter"`
	Role      string       `json:"role"`
	ExpiresAt int64        `json:"expiresAt"`
}

type invitingView struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Slug string `json:"slug"`
}

type inviterView struct {
	Email string `json:"email"`
	Name  string `json:"name,omitzero"`
}

type invitationAccepted struct {
	WorkspaceID   string `json:"workspaceId"`
	WorkspaceSlug string `json:"workspaceSlug"`
}

// maxInvitationsRead bounds the number of invitations that are read for one page.
const maxInvitationsRead = 200

// listReceived lists the pending invitations to the caller's address, in the order of their creation. A page has fewer items
// than its limit, and a cursor, if too many invitations in between are not pending.
func (i invitations) listReceived(c *server.Call, in server.Listing) (server.Collection[receivedView], error) {
	var none server.Collection[receivedView]
	user, err := account.DescribeCaller(c)
	if err != nil {
		return none, err
	}
	from, err := invitation.LookUp(c, user.GetEmail())
	if err != nil {
		return none, err
	}
	ids := slices.DeleteFunc(slices.Sorted(maps.Keys(from)), func(id string) bool { return id <= in.After })
	items, next := []receivedView{}, ""
	for looks := 0; len(ids) > 0 && len(items) < int(in.Limit) && looks < maxInvitationsRead; {
		some := ids[:min(len(ids), int(in.Limit)-len(items))]
		found, err := describeAllPending(c, from, some)
		if err != nil {
			return none, err
		}
		items, looks, ids = append(items, found...), looks+len(some), ids[len(some):]
		next = some[len(some)-1]
	}
	if len(ids) == 0 {
		next = ""
	}
	return server.Page(c, in, items, next), nil
}

func describeAllPending(c *server.Call, from map[string]string, ids []string) ([]receivedView, error) {
	pending := make([]*invitation.Pending, len(ids))
	err := service.ForEach(len(ids), func(i int) (err error) {
		pending[i], err = invitation.DescribePending(c, from[ids[i]], ids[i])
		return err
	})
	var items []receivedView
	for _, one := range pending {
		if one != nil {
			items = append(items, viewReceived(one))
		}
	}
	return items, err
}

func viewReceived(p *invitation.Pending) receivedView {
	view := receivedView{
		ID: p.GetId(), Workspace: invitingView{p.Workspace.GetId(), p.Workspace.GetName(), p.Workspace.GetSlug()},
		Role: roleNames[p.GetRole()], ExpiresAt: p.GetExpiresAt(),
	}
	if inviter := p.GetInviter(); inviter.GetEmail() != "" {
		view.Inviter = &inviterView{inviter.GetEmail(), inviter.GetName()}
	}
	return view
}

// accept makes the caller a member. When it returns, the workspace is in the caller's list. Accepting again has the same
// response. Errors: the errors of invitation.AcceptOwn.
func (i invitations) accept(c *server.Call, _ server.None) (invitationAccepted, error) {
	workspaceID, slug, err := invitation.AcceptOwn(c, c.Variable("inviteId"))
	return invitationAccepted{workspaceID, slug}, err
}
