package api

import (
	"cmp"
	"maps"
	"net/http"
	"slices"

	"github.com/atelier-run/atelier/entity"
	rules "github.com/atelier-run/atelier/entity/workspace"
	"github.com/atelier-run/atelier/http/server"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// invitations serves invitations into workspaces: to those who invite, and to the people who are invited.
type invitations struct{ links *Links }

func (i invitations) routes() []server.Route {
	return []server.Route{
		{Method: http.MethodPost, Path: server.WorkspacePath + "/invites", Scope: server.ScopeManageMembers, Summary: "Invite somebody into the workspace",
			Handler: server.AnswerCreated(server.Checked(checkInvite), i.invite)},
		{Method: http.MethodGet, Path: server.WorkspacePath + "/invites", Scope: server.ScopeManageMembers, Summary: "List the workspace's invitations",
			Handler: server.Answer(http.StatusOK, server.DecodePage, i.list)},
		{Method: http.MethodDelete, Path: server.WorkspacePath + "/invites/{inviteId}", Scope: server.ScopeManageMembers, Idempotent: true, Summary: "Revoke an invitation",
			Handler: server.Answer(http.StatusOK, server.Nothing, i.revoke)},
		{Method: http.MethodGet, Path: "/v1/user/invitations", Scope: server.ScopeHuman, Summary: "List the invitations that the caller may accept",
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

// checkInvite brings the address into the one form in which it names a person.
func checkInvite(in *inviteRequest) (err error) {
	if in.Email, err = CanonicalEmail(in.Email); err != nil {
		return err
	}
	if _, ok := parseInvitedRole(in); !ok {
		return server.Invalid("role must be one of editor, viewer")
	}
	return nil
}

func parseInvitedRole(in *inviteRequest) (workspacev1.Role, bool) {
	if in.Role == nil {
		return workspacev1.Role_ROLE_EDITOR, true
	}
	role, ok := ParseName(RoleNames, *in.Role)
	return role, ok && role != workspacev1.Role_ROLE_OWNER
}

// invite makes an invitation or renews the pending one, and answers when the addressee finds it. The link is mailed by a
// task of the workspace (see MailInvitation), or returned to the inviter where there is no mail.
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
		secret, _ = server.NewSecret()
	} else {
		mailID = c.NewID("mail_")
		secret = i.links.invitationSecret(c.Workspace.ID, mailID)
	}
	invited, err := server.Ask[*workspacev1.Invited](c, workspaceCommand(c, &workspacev1.Invite{
		InvitationId: c.NewID("inv_"), Email: in.Email, Role: role, SecretSha256: server.Hash(secret), Inviter: inviter,
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

// mayMail counts a message to an address, of who may invite. Errors: those of authorize, rate_limited.
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

// inviter is who asks; a computer is nobody.
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

// addressed are the workspaces that invited an address, by invitation.
func lookUpInvitations(c *server.Call, address string) (map[string]string, error) {
	found, err := lookUpEmail(c, address)
	return found.GetInvitations(), err
}

// mostLooks bounds the invitations that one page looks at.
const maxInvitationsRead = 200

// listReceived goes through what the caller's address was sent, in the order of its making, and shows what is
// pending. A page that has looked at many that are not is short.
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

// describePending is an invitation that can be accepted; nil: it cannot.
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

// accept answers when the workspace is among the caller's, and ever after the same.
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

// Accept makes a person a member, as a principal that acts for them, and tells the workspace's slug as it was then.
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
