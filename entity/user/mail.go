package user

import (
	"github.com/atelier-run/atelier/entity"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

// MailTask is the kind of the task that mails the open one-time link; its message is a userv1.LinkMail.
const MailTask = "mail.password"

// Tasks are the mail of the one-time link that is to be sent. A link that was used needs none.
func Tasks(s *userv1.User) []entity.Task {
	link := s.GetOneTimeLink()
	if link.GetMailId() == "" || s.GetDisabledAt() != 0 {
		return nil
	}
	return []entity.Task{{Kind: MailTask, ID: link.GetMailId(), Message: &userv1.LinkMail{RequestedAt: link.GetMailRequestedAt()}}}
}

// linkMailed ends the sending of the mail that is to be sent; a report of another changes nothing.
func linkMailed(call entity.Call, s *userv1.User, c *userv1.ReportLinkMailed) []userv1.Event {
	if id := s.GetOneTimeLink().GetMailId(); id == "" || id != c.GetMailId() {
		return nil
	}
	return []userv1.Event{&userv1.OneTimeLinkMailed{MailId: c.GetMailId(), GivenUp: c.GetGivenUp(), At: call.At()}}
}
