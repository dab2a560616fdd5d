package invitation

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/workspace"
	"github.com/atelier-run/atelier/keys"
	"github.com/atelier-run/atelier/limit"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/service"
	"github.com/atelier-run/atelier/service/account"
)

// Path, with a token behind it, is the page of an invitation.
const Path = "/invitations/"

// The prefixes of the ids in the token of a link.
const (
	workspacePrefix  = "ws_"
	invitationPrefix = "inv_"
)

// Links creates links for accepting an invitation, and mails them, as account.Links does with the links that set a password.
// The tasks that the invitations open run Mail.
type Links struct {
	*account.Mailer
	key []byte
	// Limits limits the mailed invitations.
	Limits *MailLimits
}

// NewLinks returns Links with secrets derived from the installation's secret, and with limits that are not used up.
func NewLinks(m *account.Mailer, installation []byte) *Links {
	return &Links{m, keys.Derive(installation, "invitation link"), NewMailLimits()}
}

// secret returns the secret of the link in an invitation's mail.
func (l *Links) secret(workspaceID, mailID string) string {
	return keys.DerivedSecret(l.key, keys.Binding(workspaceID, mailID))
}

func link(r service.Request, workspaceID, invitationID, secret string) string {
	return r.Link(Path + keys.LinkToken(secret, workspaceID, invitationID))
}

// Mail sends an invitation's link to the invited address, and returns the command that reports the outcome to the
// workspace. It is run by the task that the invitation opened, and again after an error.
func (l *Links) Mail(ctx context.Context, r service.Request, workspaceID, mailID string, m *workspacev1.InvitationMail) (proto.Message, error) {
	report := &workspacev1.ReportInvitationMailed{InvitationId: m.GetInvitationId(), MailId: mailID}
	i, err := describe(r, workspaceID, m.GetInvitationId())
	if err == nil && (i.GetMailId() != mailID || !workspace.Pending(r.Now().UnixMilli(), i)) {
		report.GivenUp = true
		return report, nil
	}
	var into *workspacev1.Workspace
	if err == nil {
		into, err = service.DescribeWorkspace(r, workspaceID)
	}
	if err == nil {
		text := fmt.Sprintf("%s invites you to the workspace %s.\n\nTo accept, open this link before %s:\n\n%s\n\nIf you did not expect this invitation, you can ignore this mail.\n",
			InviterName(i.GetInviter()), into.GetName(), account.FormatMoment(i.GetExpiresAt()), link(r, workspaceID, i.GetId(), l.secret(workspaceID, mailID)))
		err = l.Send(ctx, i.GetEmail(), "Invitation to "+into.GetName(), text)
	}
	report.GivenUp, report.Refusal, err = l.CountAttempt(r, m.GetRequestedAt(), err, "workspace", workspaceID, "invitation", m.GetInvitationId())
	return report, err
}

// InviterName returns the name under which an invitation shows its inviter.
func InviterName(p *workspacev1.Person) string {
	switch {
	case p.GetName() != "" && p.GetEmail() != "" && p.GetName() != p.GetEmail():
		return p.GetName() + " (" + p.GetEmail() + ")"
	case p.GetName() != "":
		return p.GetName()
	case p.GetEmail() != "":
		return p.GetEmail()
	}
	return "Somebody"
}

// MailLimits limits the number of mailed invitations; a renewed invitation is mailed again. The strictest limit is on the
// mail of one sender to one address, so that no sender can use up what others may send to the address. Its memory is fixed.
type MailLimits struct {
	Pairs              limit.Buckets[[2]string]
	Addresses, Senders limit.Buckets[string]
}

var (
	perCorrespondence = limit.Allowance{Burst: 5, Interval: 10 * time.Minute}
	perAddress        = limit.Allowance{Burst: 50, Interval: time.Minute}
	perSender         = limit.Allowance{Burst: 1000, Interval: 10 * time.Second}
)

// NewMailLimits returns limits that are not used up.
func NewMailLimits() *MailLimits {
	return &MailLimits{limit.NewBuckets[[2]string](), limit.NewBuckets[string](), limit.NewBuckets[string]()}
}

// take counts a mail of a sender to an address. Errors: rate_limited.
func (m *MailLimits) take(now time.Time, sender, address string) error {
	wait := m.Pairs.Take(now, [2]string{sender, address}, perCorrespondence)
	if wait == 0 {
		wait = m.Senders.Take(now, sender, perSender)
	}
	if wait == 0 {
		wait = m.Addresses.Take(now, address, perAddress)
	}
	if wait > 0 {
		return &entity.Error{Code: entity.RateLimited, Message: "too many invitations were mailed; try again later", RetryAfter: wait}
	}
	return nil
}
