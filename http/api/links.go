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
	"github.com/atelier-run/atelier/keys"
	"github.com/atelier-run/atelier/limit"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// Mail sends mail.
type Mail interface {
	// Send hands a message over to a mail server. It returns an error if the server does not accept it before ctx ends, and
	// does not retry. The error is a Refusal if another attempt would fail too. The error is logged: it has no text of the mail server,
	// which may quote the message and so the link.
	Send(ctx context.Context, to, subject, text string) error
}

// Refusal is the error of Mail.Send if the mail server has refused the message for good.
type Refusal interface {
	error
	// Reply returns the code of the server's reply, with the enhanced code behind it if there is one, as "550 5.1.1" (RFC 5321, section
	// 4.2; RFC 3463). It has none of the reply's text, which may quote the message and so the link.
	Reply() string
}

// Links creates the links with which people accept an invitation or set a password, and mails them.
//
// The secret of a mailed link is derived when the mail is sent, from the installation's secret and from the data that the
// journal has about the link. The journal has its SHA-256 only. Mail is sent by tasks, which the entity opens with the
// invitation or with the password link; the tasks run MailInvitation and MailLink.
//
// Without a mail server, a link is returned to the requester, who hands it to the person that it is for.
type Links struct {
	server *server.Server
	// mail is nil without a mail server.
	mail                       Mail
	invitationKey, passwordKey []byte
	// MailLimits limits the mailed invitations.
	MailLimits *MailLimits
	outcomes   *prometheus.CounterVec
}

// InvitationPath, with a token behind it, is the page of an invitation; SetPasswordPath is the page that sets a password.
const (
	InvitationPath  = "/invitations/"
	SetPasswordPath = "/set-password"
)

const (
	// linkTime is the lifetime of a link that sets a password, unless it is mailed.
	linkTime = 72 * time.Hour
	// mailTime bounds one attempt to send a message.
	mailTime = 10 * time.Second
	// mailRetryTime is the time after which a message that cannot be sent is given up.
	mailRetryTime = 24 * time.Hour
)

// NewLinks returns Links with secrets derived from the installation's secret. mail is nil without a mail server.
func NewLinks(s *server.Server, installation []byte, mail Mail, r prometheus.Registerer) (*Links, error) {
	l := &Links{
		server: s, mail: mail, MailLimits: NewMailLimits(),
		invitationKey: deriveKey(installation, "invitation link"), passwordKey: deriveKey(installation, "password link"),
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atelier_mails_total", Help: "Attempts to send mail, by outcome: sent, failed (it is retried), refused (by the mail server, for good), given_up."},
			[]string{"outcome"}),
	}
	for _, outcome := range []string{"sent", "failed", "refused", "given_up"} {
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

// SendsMail reports whether links are mailed. Otherwise they are returned to the requester.
func (l *Links) SendsMail() bool { return l.mail != nil }

// invitationSecret returns the secret of the link in an invitation's mail.
func (l *Links) invitationSecret(workspaceID, mailID string) string {
	return keys.DerivedSecret(l.invitationKey, server.Binding(workspaceID, mailID))
}

// PasswordSecret returns the secret of a mailed link that sets a password. It depends on the expiry, so that the same link
// can be mailed again, and on the password that the link replaces, so that a used link never becomes valid again.
func (l *Links) PasswordSecret(userID, passwordHash string, expiresAt int64) string {
	return keys.DerivedSecret(l.passwordKey, server.Binding(userID, passwordHash, strconv.FormatInt(expiresAt, 10)))
}

func invitationLink(c *server.Call, workspaceID, invitationID, secret string) string {
	return c.Link(InvitationPath + ulidOf(workspaceID) + "." + ulidOf(invitationID) + "." + secret)
}

// logInvitationLink logs and returns an invitation's link, which the inviter has to hand over. It is for servers without
// mail: with mail, the link proves that its visitor owns the address, and is sent to the address only.
func logInvitationLink(c *server.Call, w *workspacev1.Workspace, i *workspacev1.Invitation, secret string) string {
	link := invitationLink(c, w.GetId(), i.GetId(), secret)
	c.Log().Warn("hand this link to the invited person: no mail server is configured", "workspace", w.GetId(),
		"invitation", i.GetId(), "link", link)
	return link
}

// OfferPasswordLink creates a link that sets a person's password once and replaces the previous link. It returns the path of
// the link.
func OfferPasswordLink(c *server.Call, userID string) (path string, err error) {
	secret, _ := keys.NewSecret()
	return OfferPasswordLinkWithSecret(c, userID, secret, c.Now().Add(linkTime).UnixMilli(), "")
}

// OfferPasswordLinkWithSecret is OfferPasswordLink with a given secret and expiry in milliseconds. If the person's open link
// has that secret, it is left unchanged. With a mailID the link is mailed by a task; see MailLink.
func OfferPasswordLinkWithSecret(c *server.Call, userID, secret string, expiresAt int64, mailID string) (path string, err error) {
	_, err = server.Ask[proto.Message](c, PlatformCommand(c, entity.KindUser, userID, &userv1.OfferOneTimeLink{Link: &userv1.OneTimeLink{
		SecretSha256: keys.Hash(secret), ExpiresAt: expiresAt, MailId: mailID,
	}}))
	return passwordPath(userID, secret), err
}

func passwordPath(userID, secret string) string {
	return SetPasswordPath + "?token=" + ulidOf(userID) + "." + secret
}

// ulidOf returns an id without the prefix that names its kind.
func ulidOf(id string) string { return id[max(0, len(id)-entity.ULIDLength):] }

// MailInvitation sends an invitation's link to the invited address, and returns the command that reports the outcome to the
// workspace. It is run by the task that the invitation opened, and again after an error.
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
		text := fmt.Sprintf("%s invites you to the workspace %s.\n\nTo accept, open this link before %s:\n\n%s\n\nIf you did not expect this invitation, you can ignore this mail.\n",
			InviterName(i.GetInviter()), into.GetName(), formatMoment(i.GetExpiresAt()), link)
		err = l.send(ctx, i.GetEmail(), "Invitation to "+into.GetName(), text)
	}
	report.GivenUp, report.Refusal, err = l.countAttempt(c, m.GetRequestedAt(), err, "workspace", workspaceID, "invitation", m.GetInvitationId())
	return report, err
}

// MailLink sends a person the open link that sets their password, and returns the command that reports the outcome to the
// user. It is run by the task that the link opened, and again after an error.
func (l *Links) MailLink(ctx context.Context, userID, mailID string, m *userv1.LinkMail) (proto.Message, error) {
	report := &userv1.ReportLinkMailed{MailId: mailID}
	c := l.server.Background(ctx, mailID)
	password, err := DescribePassword(c, userID)
	link := password.GetLink()
	secret := l.PasswordSecret(userID, password.GetHash(), link.GetExpiresAt())
	if err == nil && (link.GetMailId() != mailID || c.Now().UnixMilli() >= link.GetExpiresAt() ||
		!bytes.Equal(keys.Hash(secret), link.GetSecretSha256())) {
		report.GivenUp = true
		return report, nil
	}
	var person *userv1.User
	if err == nil {
		person, err = DescribeUser(c, userID)
	}
	if err == nil {
		text := fmt.Sprintf("A new password was requested for the account %s at %s.\n\nTo set one, open this link before %s. It works once:\n\n%s\n\nIf you did not request this, you can ignore this mail: your password does not change.\n",
			person.GetEmail(), c.Link(""), formatMoment(link.GetExpiresAt()), c.Link(passwordPath(userID, secret)))
		err = l.send(ctx, person.GetEmail(), "Set a new password", text)
	}
	report.GivenUp, _, err = l.countAttempt(c, m.GetRequestedAt(), err, "user", userID)
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

// countAttempt counts the outcome of an attempt to send a message. A message that the mail server refuses for good, or that still fails
// after mailRetryTime, is given up: it is logged with the attributes in about, and the error is nil. reply is the reply of the server
// that refused the message.
func (l *Links) countAttempt(c *server.Call, requestedAt int64, err error, about ...any) (givenUp bool, reply string, _ error) {
	var refused Refusal
	switch {
	case err == nil:
		l.outcomes.WithLabelValues("sent").Inc()
		return false, "", nil
	case errors.As(err, &refused):
		l.outcomes.WithLabelValues("refused").Inc()
		c.Log().Warn("gave up sending a mail: the mail server refused it for good", append(about, "reply", refused.Reply())...)
		return true, refused.Reply(), nil
	case c.Now().Sub(time.UnixMilli(requestedAt)) >= mailRetryTime:
		l.outcomes.WithLabelValues("given_up").Inc()
		c.Log().Error("gave up sending a mail: every attempt failed", append(about, "error", err)...)
		return true, "", nil
	}
	l.outcomes.WithLabelValues("failed").Inc()
	return false, "", err
}

// formatMoment formats a time in milliseconds since the Unix epoch for a message to a person.
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
