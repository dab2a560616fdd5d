package http

import (
	"cmp"

	"github.com/atelier-run/atelier/entity"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

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
	if in.Email, err = checkEmail(in.Email); err != nil {
		return err
	}
	if _, ok := invitedRole(in); !ok {
		return invalid("role must be one of editor, viewer")
	}
	return nil
}

func invitedRole(in *inviteRequest) (workspacev1.Role, bool) {
	if in.Role == nil {
		return workspacev1.Role_ROLE_EDITOR, true
	}
	role, ok := named(roleNames, *in.Role)
	return role, ok && role != workspacev1.Role_ROLE_OWNER
}

// invite makes an invitation or renews the pending one, and answers when the addressee finds it. The link is mailed by a
// task of the workspace (see MailInvitation), or returned to the inviter where there is no mail.
func (s *Server) invite(c *call, in inviteRequest) (view invitationView, made bool, err error) {
	if err := c.mayMail(in.Email); err != nil {
		return view, false, err
	}
	role, _ := invitedRole(&in)
	inviter, err := c.inviter()
	if err != nil {
		return view, false, err
	}
	secret, mailID := "", ""
	if s.options.Mail == nil {
		secret, _ = newSecret()
	} else {
		mailID = s.options.NewID("mail_")
		secret = s.invitationSecret(c.workspace.id, mailID)
	}
	invited, err := ask[*workspacev1.Invited](c, c.change(&workspacev1.Invite{
		InvitationId: s.options.NewID("inv_"), Email: in.Email, Role: role, SecretSha256: hashOf(secret), Inviter: inviter,
		MailId: mailID,
	}))
	if err != nil {
		return view, false, err
	}
	if err := c.settle(entity.KindWorkspace, c.workspace.id); err != nil {
		return view, false, err
	}
	if mailID == "" {
		into, err := c.describeWorkspace()
		if err != nil {
			return view, false, err
		}
		link := c.linkToInvitation(into, invited.GetInvitation(), secret)
		c.w.Header()["Link"] = []string{"<" + link + `>; rel="invitation"`}
	}
	return viewInvitation(invited.GetInvitation()), !invited.GetRenewed(), nil
}

// mayMail counts a message to an address, of who may invite. Errors: those of authorize, rate_limited.
func (c *call) mayMail(address string) error {
	if c.server.options.Mail == nil {
		return nil
	}
	if err := c.authorize(); err != nil {
		return err
	}
	sender := cmp.Or(c.caller.principal.GetUserId(), c.workspace.id)
	return c.server.mails.take(c.server.now(), sender, address)
}

// inviter is who asks; a computer is nobody.
func (c *call) inviter() (*workspacev1.Person, error) {
	if c.caller.principal.GetUserId() == "" {
		return nil, nil
	}
	user, err := c.describeCaller()
	if err != nil {
		return nil, err
	}
	return personOf(user), nil
}

func personOf(user *userv1.User) *workspacev1.Person {
	return &workspacev1.Person{UserId: user.GetId(), Email: user.GetEmail(), Name: user.GetName()}
}

func (s *Server) listInvitations(c *call, in listing) (collection[invitationView], error) {
	return readList(c, entity.KindWorkspace, "invitations", in, viewInvitation)
}

func (s *Server) revokeInvitation(c *call, _ none) (invitationRevoked, error) {
	revoked, err := ask[*workspacev1.Invitation](c, c.change(&workspacev1.RevokeInvitation{InvitationId: c.variable("inviteId")}))
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
