package api

import (
	"cmp"
	"maps"
	"net/http"
	"slices"

	"github.com/atelier-run/atelier/entity"
	rules "github.com/atelier-run/atelier/entity/workspace"
	"github.com/atelier-run/atelier/http/server"
	"github.com/atelier-run/atelier/keys"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// invitations serves invitations to workspaces, for the inviter and for the invited person. The package comment describes
// the whole flow.
type invitations struct{ links *Links }

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
	if in.Email, err = CanonicalEmail(in.Email); err != nil {
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
	role, ok := ParseName(RoleNames, *in.Role)
	return role, ok && role != workspacev1.Role_ROLE_OWNER
}

// invite creates an invitation, or renews the pending one for the address. When it returns, the invited person finds it. It
// sets the Link header if there is no mail server. Errors: those of Authorize, rate_limited, already_member, limit_reached.
func (i invitations) invite(c *server.Call, in inviteRequest) (view invitationView, made bool, err error) {
	if err := i.limitMail(c, in.Email); err != nil {
		return view, false, err
	}
	role, _ := parseInvitedRole(&in)
	inviter, err := describeInviter(c)
	if err != nil {
		return view, false, err
	}
	secret, mailID := "", ""
	if !i.links.SendsMail() {
		secret, _ = keys.NewSecret()
	} else {
		mailID = c.NewID("mail_")
		secret = i.links.invitationSecret(c.Workspace.ID, mailID)
	}
	invited, err := server.Ask[*workspacev1.Invited](c, workspaceCommand(c, &workspacev1.Invite{
		InvitationId: c.NewID("inv_"), Email: in.Email, Role: role, SecretSha256: keys.Hash(secret), Inviter: inviter,
		MailId: mailID,
	}))
	if err != nil {
		return view, false, err
	}
	if err := c.Settle(entity.KindWorkspace, c.Workspace.ID); err != nil {
		return view, false, err
	}
	if mailID == "" {
		into, err := describePathWorkspace(c)
		if err != nil {
			return view, false, err
		}
		link := logInvitationLink(c, into, invited.GetInvitation(), secret)
		c.Response.Header()["Link"] = []string{"<" + link + `>; rel="invitation"`}
	}
	return viewInvitation(invited.GetInvitation()), !invited.GetRenewed(), nil
}

// limitMail counts a mail to an address against the limits, once the caller is known to have the access to invite. Errors:
// those of Authorize, rate_limited.
func (i invitations) limitMail(c *server.Call, address string) error {
	if !i.links.SendsMail() {
		return nil
	}
	if err := c.Authorize(); err != nil {
		return err
	}
	sender := cmp.Or(c.Caller.Principal.GetUserId(), c.Workspace.ID)
	return i.links.MailLimits.take(c.Now(), sender, address)
}

// describeInviter returns the caller as the inviter; nil for a computer.
func describeInviter(c *server.Call) (*workspacev1.Person, error) {
	if c.Caller.Principal.GetUserId() == "" {
		return nil, nil
	}
	user, err := DescribeCaller(c)
	if err != nil {
		return nil, err
	}
	return newPerson(user), nil
}

func newPerson(user *userv1.User) *workspacev1.Person {
	return &workspacev1.Person{UserId: user.GetId(), Email: user.GetEmail(), Name: user.GetName()}
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
		ID: i.GetId(), Email: i.GetEmail(), Role: RoleNames[i.GetRole()], ExpiresAt: i.GetExpiresAt(),
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

// lookUpInvitations returns the invitations to an address: from the id of each to the id of its workspace.
func lookUpInvitations(c *server.Call, address string) (map[string]string, error) {
	found, err := lookUpEmail(c, address)
	return found.GetInvitations(), err
}

// maxInvitationsRead bounds the number of invitations that are read for one page, maxNewest the number that FindPendingInvitation
// reads.
const (
	maxInvitationsRead = 200
	maxNewest          = 20
)

// listReceived lists the pending invitations to the caller's address, in the order of their creation. A page has fewer items
// than its limit, and a cursor, if too many invitations in between are not pending.
func (i invitations) listReceived(c *server.Call, in server.Listing) (server.Collection[receivedView], error) {
	var none server.Collection[receivedView]
	user, err := DescribeCaller(c)
	if err != nil {
		return none, err
	}
	from, err := lookUpInvitations(c, user.GetEmail())
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

// PendingInvitation is an invitation that can be accepted.
type PendingInvitation struct{ Workspace, Inviter string }

// FindPendingInvitation returns the newest pending invitation to an address; nil if there is none among the newest ones.
func FindPendingInvitation(c *server.Call, address string) (*PendingInvitation, error) {
	from, err := lookUpInvitations(c, address)
	if err != nil {
		return nil, err
	}
	ids := slices.Sorted(maps.Keys(from))
	slices.Reverse(ids)
	for _, id := range ids[:min(len(ids), maxNewest)] {
		found, err := describePending(c, from[id], id)
		if err != nil {
			return nil, err
		}
		if found != nil {
			pending := &PendingInvitation{Workspace: found.Workspace.Name, Inviter: "somebody"}
			if found.Inviter != nil {
				pending.Inviter = InviterName(&workspacev1.Person{Name: found.Inviter.Name, Email: found.Inviter.Email})
			}
			return pending, nil
		}
	}
	return nil, nil
}

func describeAllPending(c *server.Call, from map[string]string, ids []string) ([]receivedView, error) {
	shown := make([]*receivedView, len(ids))
	err := server.ForEach(len(ids), func(i int) (err error) {
		shown[i], err = describePending(c, from[ids[i]], ids[i])
		return err
	})
	var items []receivedView
	for _, item := range shown {
		if item != nil {
			items = append(items, *item)
		}
	}
	return items, err
}

// describePending returns an invitation as JSON; nil if it cannot be accepted.
func describePending(c *server.Call, workspaceID, id string) (*receivedView, error) {
	w, err := DescribeWorkspace(c, workspaceID)
	if IsHidden(err) || err == nil && w.GetStatus() == workspacev1.Status_STATUS_DELETED {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	i, err := DescribeInvitation(c, workspaceID, id)
	if IsHidden(err) || err == nil && !rules.Pending(c.Now().UnixMilli(), i) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	view := &receivedView{
		ID: id, Workspace: invitingView{w.GetId(), w.GetName(), w.GetSlug()}, Role: RoleNames[i.GetRole()], ExpiresAt: i.GetExpiresAt(),
	}
	if inviter := i.GetInviter(); inviter.GetEmail() != "" {
		view.Inviter = &inviterView{inviter.GetEmail(), inviter.GetName()}
	}
	return view, nil
}

// accept makes the caller a member. When it returns, the workspace is in the caller's list. Accepting again has the same
// response. Errors: not_found, invitation_expired, invitation_revoked.
func (i invitations) accept(c *server.Call, _ server.None) (invitationAccepted, error) {
	var none invitationAccepted
	user, err := DescribeCaller(c)
	if err != nil {
		return none, err
	}
	from, err := lookUpInvitations(c, user.GetEmail())
	if err != nil {
		return none, err
	}
	id := c.Variable("inviteId")
	workspaceID := from[id]
	if workspaceID == "" {
		return none, server.ErrNotFound
	}
	slug, err := AcceptInvitation(c, workspaceID, id, user, c.Caller.Principal)
	return invitationAccepted{workspaceID, slug}, err
}

// AcceptInvitation makes a user a member of the workspace, as a principal that acts for the user, and waits until the
// workspace is in the user's list. It returns the workspace's slug. Errors: not_found, invitation_consumed,
// invitation_expired, invitation_revoked, workspace_suspended.
func AcceptInvitation(c *server.Call, workspaceID, id string, user *userv1.User, as *wirev1.Principal) (slug string, err error) {
	accepted, err := server.Ask[*workspacev1.Description](c, entity.Command{
		Kind: entity.KindWorkspace, Identity: workspaceID, Principal: as, ID: c.NewID("cmd_"),
		Message: &workspacev1.AcceptInvitation{InvitationId: id, Person: newPerson(user)},
	})
	if err != nil {
		return "", err
	}
	return accepted.GetWorkspace().GetSlug(), c.Settle(entity.KindWorkspace, workspaceID)
}
