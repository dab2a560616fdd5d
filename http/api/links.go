package api

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	entityworkspace "github.com/atelier-run/atelier/entity/workspace"
	"github.com/atelier-run/atelier/http/server"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// Mail sends messages to people.
type Mail interface {
	// Send hands a message to a mail server, or fails. It waits no longer than ctx and retries nothing.
	Send(ctx context.Context, to, subject, text string) error
}

// Links makes the links with which people accept an invitation or set a password, and mails them.
//
// The secret of a link that is mailed is derived from the installation's secret and from what the journal holds about the
// link, at the moment at which the mail is sent: the journal holds its SHA-256 and no more. Mail is sent by tasks, which
// the invitation or the password link opens in its entity: MailInvitation and MailLink are what such a task runs.
//
// Without a mail server, a link is returned to the requester, who hands it to the person that it is for.
type Links struct {
	server *server.Server
	// mail is nil without a mail server.
	mail                       Mail
	invitationKey, passwordKey []byte
	// Mailed limits how many invitations people can have mailed.
	MailLimits *MailLimits
	outcomes   *prometheus.CounterVec
}

// InvitationPath, with a token behind it, is the page of an invitation; SetPasswordPath is the page that sets a password.
const (
	InvitationPath  = "/invitations/"
	SetPasswordPath = "/set-password"
)

const (
	// linkTime is how long a link that sets a password is valid.
	linkTime = 72 * time.Hour
	// mailTime bounds one attempt to send a message.
	mailTime = 10 * time.Second
	// mailPatience is how long a message is tried to be sent before it is given up.
	mailRetryTime = 24 * time.Hour
)

// NewLinks makes links whose secrets are derived from the installation's secret. mail is nil without a mail server.
func NewLinks(s *server.Server, installation []byte, mail Mail, r prometheus.Registerer) (*Links, error) {
	l := &Links{
		server: s, mail: mail, MailLimits: NewMailLimits(),
		invitationKey: deriveKey(installation, "invitation link"), passwordKey: deriveKey(installation, "password link"),
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atelier_mails_total", Help: "Attempts to send mail, by outcome: sent, failed (it is tried again), given_up."},
			[]string{"outcome"}),
	}
	for _, outcome := range []string{"sent", "failed", "given_up"} {
		l.outcomes.WithLabelValues(outcome) // a series that begins at 0 shows its first increase
	}
	return l, r.Register(l.outcomes)
}

// keyFor derives a key for one purpose from the installation's secret.
func deriveKey(installation []byte, purpose string) []byte {
	mac := hmac.New(sha256.New, installation)
	mac.Write([]byte(purpose))
	return mac.Sum(nil)
}

// ByMail reports whether links are mailed. If not, the requester hands them over.
func (l *Links) SendsMail() bool { return l.mail != nil }

// invitationSecret returns the secret of the link in an invitation's mail.
func (l *Links) invitationSecret(workspaceID, mailID string) string {
	return server.DerivedSecret(l.invitationKey, server.Binding(workspaceID, mailID))
}

// PasswordSecret returns the secret of a mailed link that sets a password. It depends on when the link expires, so that the
// same link can be mailed again, and on the password that the link replaces, so that it never returns once it was used.
func (l *Links) PasswordSecret(userID, passwordHash string, expiresAt int64) string {
	return server.DerivedSecret(l.passwordKey, server.Binding(userID, passwordHash, strconv.FormatInt(expiresAt, 10)))
}

func invitationLink(c *server.Call, workspaceID, invitationID, secret string) string {
	return c.Link(InvitationPath + ulidOf(workspaceID) + "." + ulidOf(invitationID) + "." + secret)
}

// handOver logs and returns an invitation's link, which the inviter has to hand over. It is for servers without mail: with
// mail the link proves that its visitor owns the address, and only the address gets it.
func logInvitationLink(c *server.Call, w *workspacev1.Workspace, i *workspacev1.Invitation, secret string) string {
	link := invitationLink(c, w.GetId(), i.GetId(), secret)
	c.Log().Warn("an invitation's link has to be handed over, since no mail server is configured", "workspace", w.GetId(),
		"invitation", i.GetId(), "link", link)
	return link
}

// OfferPassword makes a link that sets a person's password once, replacing the link before it, and returns its path.
func OfferPasswordLink(c *server.Call, userID string) (path string, err error) {
	secret, _ := server.NewSecret()
	return OfferPasswordLinkWithSecret(c, userID, secret, c.Now().Add(linkTime).UnixMilli(), "")
}

// OfferPasswordSecret is OfferPassword with a given secret. If the person's open link has that secret, it stays as it is. With
// a mailID the link is mailed by a task; see MailLink.
func OfferPasswordLinkWithSecret(c *server.Call, userID, secret string, expiresAt int64, mailID string) (path string, err error) {
	_, err = server.Ask[proto.Message](c, PlatformCommand(c, entity.KindUser, userID, &userv1.OfferOneTimeLink{Link: &userv1.OneTimeLink{
		SecretSha256: server.Hash(secret), ExpiresAt: expiresAt, MailId: mailID,
	}}))
	return passwordPath(userID, secret), err
}

func passwordPath(userID, secret string) string {
	return SetPasswordPath + "?token=" + ulidOf(userID) + "." + secret
}

// ulidOf returns an id without the prefix of its kind.
func ulidOf(id string) string { return id[max(0, len(id)-entity.ULIDLength):] }

// MailInvitation sends an invitation's link to the invited address, and returns the command that reports it to the
// workspace. The task that the invitation opened runs it, and runs it again after an error.
func (l *Links) MailInvitation(ctx context.Context, workspaceID, mailID string, m *workspacev1.InvitationMail) (proto.Message, error) {
	report := &workspacev1.ReportInvitationMailed{InvitationId: m.GetInvitationId(), MailId: mailID}
	c := l.server.Background(ctx, mailID)
	i, err := DescribeInvitation(c, workspaceID, m.GetInvitationId())
	if err == nil && (i.GetMailId() != mailID || !entityworkspace.Pending(c.Now().UnixMilli(), i)) {
		report.GivenUp = true
		return report, nil
	}
	var into *workspacev1.Workspace
	if err == nil {
		into, err = DescribeWorkspace(c, workspaceID)
	}
	if err == nil {
		link := invitationLink(c, workspaceID, i.GetId(), l.invitationSecret(workspaceID, mailID))
		text := fmt.Sprintf("%s invites you to work in %s.\n\nAccept here, before %s:\n\n%s\n\nIf you do not know what this is about, leave it be: nothing happens.\n",
			InviterName(i.GetInviter()), into.GetName(), formatMoment(i.GetExpiresAt()), link)
		err = l.send(ctx, i.GetEmail(), "Invitation to "+into.GetName(), text)
	}
	report.GivenUp, err = l.countAttempt(c, m.GetRequestedAt(), err, "workspace", workspaceID, "invitation", m.GetInvitationId())
	return report, err
}

// MailLink sends a person the open link that sets their password, and returns the command that reports it to the user. The
// task that the link opened runs it, and runs it again after an error.
func (l *Links) MailLink(ctx context.Context, userID, mailID string, m *userv1.LinkMail) (proto.Message, error) {
	report := &userv1.ReportLinkMailed{MailId: mailID}
	c := l.server.Background(ctx, mailID)
	password, err := DescribePassword(c, userID)
	link := password.GetLink()
	secret := l.PasswordSecret(userID, password.GetHash(), link.GetExpiresAt())
	if err == nil && (link.GetMailId() != mailID || c.Now().UnixMilli() >= link.GetExpiresAt() ||
		!bytes.Equal(server.Hash(secret), link.GetSecretSha256())) {
		report.GivenUp = true
		return report, nil
	}
	var person *userv1.User
	if err == nil {
		person, err = DescribeUser(c, userID)
	}
	if err == nil {
		text := fmt.Sprintf("Somebody, most likely you, forgot the password of %s at %s.\n\nSet a new one here, once, before %s:\n\n%s\n\nIf it was not you, leave this be: your password stays as it is.\n",
			person.GetEmail(), c.Link(""), formatMoment(link.GetExpiresAt()), c.Link(passwordPath(userID, secret)))
		err = l.send(ctx, person.GetEmail(), "Set a new password", text)
	}
	report.GivenUp, err = l.countAttempt(c, m.GetRequestedAt(), err, "user", userID)
	return report, err
}

var errNoMail = errors.New("no mail server is configured")

func (l *Links) send(ctx context.Context, to, subject, text string) error {
	if l.mail == nil {
		return errNoMail
	}
	ctx, cancel := context.WithTimeout(ctx, mailTime)
	defer cancel()
	return l.mail.Send(ctx, to, subject, text)
}

// countAttempt counts the outcome of an attempt to send a message. A message that still fails after mailPatience is given
// up: it is logged with the attributes, and the error is nil.
func (l *Links) countAttempt(c *server.Call, requestedAt int64, err error, about ...any) (givenUp bool, _ error) {
	switch {
	case err == nil:
		l.outcomes.WithLabelValues("sent").Inc()
		return false, nil
	case c.Now().Sub(time.UnixMilli(requestedAt)) >= mailRetryTime:
		l.outcomes.WithLabelValues("given_up").Inc()
		c.Log().Error("a mail was given up: the mail server accepted it at no attempt", append(about, "error", err)...)
		return true, nil
	}
	l.outcomes.WithLabelValues("failed").Inc()
	return false, err
}

// formatMoment formats a time in milliseconds for a message to a person.
func formatMoment(at int64) string {
	return time.UnixMilli(at).UTC().Format("2 January 2006, 15:04 UTC")
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

// MailLimits limits the invitations that people can have mailed to others; one that is renewed is mailed again. The strict
// limit is on one person's mail to one address, so that no one can keep others from writing to an address. Its memory is
// fixed.
type MailLimits struct {
	Pairs              server.Buckets[[2]string]
	Addresses, Senders server.Buckets[string]
}

var (
	perCorrespondence = server.Allowance{Burst: 5, Interval: 10 * time.Minute}
	perAddress        = server.Allowance{Burst: 50, Interval: time.Minute}
	perSender         = server.Allowance{Burst: 1000, Interval: 10 * time.Second}
)

// NewMailLimits makes limits of which nothing is used up.
func NewMailLimits() *MailLimits {
	return &MailLimits{server.NewBuckets[[2]string](), server.NewBuckets[string](), server.NewBuckets[string]()}
}

// take counts a message of a sender to an address. Errors: rate_limited.
func (m *MailLimits) take(now time.Time, sender, address string) error {
	wait := m.Pairs.Take(now, [2]string{sender, address}, perCorrespondence)
	if wait == 0 {
		wait = m.Senders.Take(now, sender, perSender)
	}
	if wait == 0 {
		wait = m.Addresses.Take(now, address, perAddress)
	}
	if wait > 0 {
		return &entity.Error{Code: entity.RateLimited, Message: "too many invitations were mailed", RetryAfter: wait}
	}
	return nil
}
