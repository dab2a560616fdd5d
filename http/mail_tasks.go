package http

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/protobuf/proto"

	entityworkspace "github.com/atelier-run/atelier/entity/workspace"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// mailPatience is how long a mail is tried to be sent before it is given up.
const mailPatience = 24 * time.Hour

// The secret of a link that is mailed is derived from the installation's secret and the mail's id when the mail is sent.
// The journal holds its SHA-256 and no more.

// derivedKey is a key for one purpose.
func derivedKey(secret []byte, purpose string) []byte {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(purpose))
	return mac.Sum(nil)
}

// invitationSecret is the secret of the link in a mail.
func (s *Server) invitationSecret(workspaceID, mailID string) string {
	mac := hmac.New(sha256.New, derivedKey(s.options.Secret, "invitation link"))
	mac.Write(walk(workspaceID, mailID))
	return secretEncoding.EncodeToString(mac.Sum(nil)[:secretBytes])
}

// MailInvitation sends an invitation's link to the invited address, and returns the command that tells the workspace. It
// is run by the task that the invitation opened; an error says that it is to be run again.
func (s *Server) MailInvitation(ctx context.Context, workspaceID, mailID string, m *workspacev1.InvitationMail) (proto.Message, error) {
	report := &workspacev1.ReportInvitationMailed{InvitationId: m.GetInvitationId(), MailId: mailID}
	log := s.log.With("workspace", workspaceID, "invitation", m.GetInvitationId(), "mail", mailID)
	c := &call{ctx: ctx, server: s, w: &response{id: mailID}}
	i, err := c.describeInvitation(workspaceID, m.GetInvitationId())
	if err == nil && (i.GetMailId() != mailID || !entityworkspace.Pending(s.now().UnixMilli(), i)) {
		report.GivenUp = true
		return report, nil
	}
	var into *workspacev1.Workspace
	if err == nil {
		into, err = c.workspaceOf(workspaceID)
	}
	if err == nil {
		link := s.invitationLink(workspaceID, i.GetId(), s.invitationSecret(workspaceID, mailID))
		text := fmt.Sprintf("%s invites you to work in %s.\n\nAccept here, before %s:\n\n%s\n\nIf you do not know what this is about, leave it be: nothing happens.\n",
			inviterName(i.GetInviter()), into.GetName(), moment(i.GetExpiresAt()), link)
		err = s.send(ctx, i.GetEmail(), "Invitation to "+into.GetName(), text)
	}
	report.GivenUp, err = s.mailed(log, m.GetRequestedAt(), err)
	return report, err
}

// MailLink sends a person the open link that sets their password, and returns the command that tells the user. It is run
// by the task that the link opened; an error says that it is to be run again.
func (s *Server) MailLink(ctx context.Context, userID, mailID string, m *userv1.LinkMail) (proto.Message, error) {
	report := &userv1.ReportLinkMailed{MailId: mailID}
	log := s.log.With("user", userID, "mail", mailID)
	c := &call{ctx: ctx, server: s, w: &response{id: mailID}}
	password, err := c.passwordOf(userID)
	link := password.GetLink()
	secret := s.forgotten.secret(userID, password.GetHash(), link.GetExpiresAt())
	if err == nil && (link.GetMailId() != mailID || s.now().UnixMilli() >= link.GetExpiresAt() ||
		!bytes.Equal(hashOf(secret), link.GetSecretSha256())) {
		report.GivenUp = true
		return report, nil
	}
	var person *userv1.User
	if err == nil {
		person, err = c.describe(userID)
	}
	if err == nil {
		text := fmt.Sprintf("Somebody, most likely you, forgot the password of %s at %s.\n\nSet a new one here, once, before %s:\n\n%s\n\nIf it was not you, leave this be: your password stays as it is.\n",
			person.GetEmail(), s.link(""), moment(link.GetExpiresAt()), s.link(passwordLink(userID, secret)))
		err = s.send(ctx, person.GetEmail(), "Set a new password", text)
	}
	report.GivenUp, err = s.mailed(log, m.GetRequestedAt(), err)
	return report, err
}

var errNoMail = errors.New("no mail server is configured")

func (s *Server) send(ctx context.Context, to, subject, text string) error {
	if s.options.Mail == nil {
		return errNoMail
	}
	ctx, cancel := context.WithTimeout(ctx, mailTime)
	defer cancel()
	return s.options.Mail.Send(ctx, to, subject, text)
}

// mailed counts the outcome of an attempt. After mailPatience a mail that fails is given up, and err is nil.
func (s *Server) mailed(log *slog.Logger, requestedAt int64, err error) (givenUp bool, _ error) {
	switch {
	case err == nil:
		s.metrics.mails.WithLabelValues("sent").Inc()
		return false, nil
	case s.now().Sub(time.UnixMilli(requestedAt)) >= mailPatience:
		s.metrics.mails.WithLabelValues("given_up").Inc()
		log.Error("a mail was given up: the mail server took it at no attempt", "error", err)
		return true, nil
	}
	s.metrics.mails.WithLabelValues("failed").Inc()
	return false, err
}
