// Package invitation has the operations of invitations to workspaces. The API (http/api) and the pages for people (http/browser) call the
// same ones. An invitation passes these steps:
//
//  1. Links.Invite checks the limits on mail, creates the secret of the link and sends Invite to the workspace, which stores the
//     SHA-256 of the secret. An invitation that is pending for the address is renewed.
//  2. The reaction of the workspace adds the invitation to the entity of the email address, so that a person with that
//     address finds it: LookUp.
//  3. With a mail server, the workspace opens a task. cmd/node runs it with Links.Mail, which derives the secret again, sends the mail and
//     reports to the workspace. Without a mail server, Invite returns the link to the inviter.
//  4. The invited person accepts in the API, or on the page of the link (Open), which makes an account if the address has
//     none (AcceptAsNew).
//  5. Accept waits until the workspace knows whether the inviter still has the right to invite (settleInviter), sends AcceptInvitation to the
//     workspace and waits until its reactions have added the workspace to the person's list.
package invitation

import (
	"cmp"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/keys"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/service"
	"github.com/atelier-run/atelier/service/account"
)

// Invite describes an invitation. Email is in canonical form.
type Invite struct {
	WorkspaceID, Email string
	Role               workspacev1.Role
	// Authorize returns an error unless the caller may invite, before a mail is counted.
	Authorize func() error
}

// Made is an invitation that was made or renewed.
type Made struct {
	*workspacev1.Invitation
	Renewed bool
	// Link is the URL that the inviter hands over; "" if it is mailed.
	Link string
}

// Invite makes an invitation, or renews the pending one for the address. When it returns, the invited person finds it. Errors: the errors
// of Authorize, rate_limited, already_member, limit_reached.
func (l *Links) Invite(r service.Request, in Invite) (Made, error) {
	if err := l.limit(r, in); err != nil {
		return Made{}, err
	}
	inviter, err := describeInviter(r)
	if err != nil {
		return Made{}, err
	}
	secret, mailID := "", ""
	if !l.SendsMail() {
		secret, _ = keys.NewSecret()
	} else {
		mailID = r.NewID("mail_")
		secret = l.secret(in.WorkspaceID, mailID)
	}
	invited, err := service.Send[*workspacev1.Invited](r, entity.Command{
		Kind: entity.KindWorkspace, Identity: in.WorkspaceID, ID: r.NewID("cmd_"), Message: &workspacev1.Invite{
			InvitationId: r.NewID(invitationPrefix), Email: in.Email, Role: in.Role, SecretSha256: keys.Hash(secret), Inviter: inviter, MailId: mailID,
		},
	})
	if err != nil {
		return Made{}, err
	}
	made := Made{Invitation: invited.GetInvitation(), Renewed: invited.GetRenewed()}
	if err := r.Settle(entity.KindWorkspace, in.WorkspaceID); err != nil || mailID != "" {
		return made, err
	}
	// The link is for servers without mail: with mail, the link proves that its visitor owns the address, and is sent to the address only.
	made.Link = link(r, in.WorkspaceID, made.GetId(), secret)
	r.Log().Warn("hand this link to the invited person: no mail server is configured", "workspace", in.WorkspaceID,
		"invitation", made.GetId(), "link", made.Link)
	return made, nil
}

// limit counts a mail to an address against the limits, once the caller is known to have the access to invite. Errors:
// the errors of Authorize, rate_limited.
func (l *Links) limit(r service.Request, in Invite) error {
	if !l.SendsMail() {
		return nil
	}
	if err := in.Authorize(); err != nil {
		return err
	}
	return l.Limits.take(r.Now(), cmp.Or(r.Sender().Principal.GetUserId(), in.WorkspaceID), in.Email)
}

// describeInviter returns the caller as the inviter; nil for a computer.
func describeInviter(r service.Request) (*workspacev1.Person, error) {
	if r.Sender().Principal.GetUserId() == "" {
		return nil, nil
	}
	user, err := account.DescribeCaller(r)
	if err != nil {
		return nil, err
	}
	return newPerson(user), nil
}

func newPerson(user *userv1.User) *workspacev1.Person {
	return &workspacev1.Person{UserId: user.GetId(), Email: user.GetEmail(), Name: user.GetName()}
}
