package workspace

import (
	"maps"
	"slices"

	"github.com/atelier-run/atelier/entity"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// MailTask is the kind of the tasks that mail an invitation's link; the message of each is a workspacev1.InvitationMail.
const MailTask = "mail.invitation"

// mailTasks are the mails of invitations that are to be sent. An invitation that was answered or revoked needs none.
func mailTasks(s *workspacev1.Workspace) []entity.Task {
	var all []entity.Task
	for _, id := range slices.Sorted(maps.Keys(s.GetInvitations())) {
		i := s.GetInvitations()[id]
		if i.GetMailId() != "" && i.GetRevokedAt() == 0 && i.GetConsumedAt() == 0 {
			all = append(all, entity.Task{Kind: MailTask, ID: i.GetMailId(), Message: &workspacev1.InvitationMail{
				InvitationId: id, RequestedAt: i.GetMailRequestedAt(),
			}})
		}
	}
	return all
}

// invitationMailed ends the sending of the mail that is to be sent; a report of another changes nothing.
func invitationMailed(call entity.Call, s *workspacev1.Workspace, c *workspacev1.ReportInvitationMailed) []workspacev1.Event {
	if i := s.GetInvitations()[c.GetInvitationId()]; i.GetMailId() == "" || i.GetMailId() != c.GetMailId() {
		return nil
	}
	return []workspacev1.Event{&workspacev1.InvitationMailed{
		InvitationId: c.GetInvitationId(), MailId: c.GetMailId(), GivenUp: c.GetGivenUp(), At: call.At(),
	}}
}
