package account

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/keys"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	"github.com/atelier-run/atelier/service"
)

// Links creates links for setting a password, and mails them.
//
// The secret of a mailed link is derived when the mail is sent, from the installation's secret and from the data that the
// journal has about the link. The journal has its SHA-256 only. Mail is sent by tasks, which the entity opens with the
// link; the tasks run MailLink.
//
// Without a mail server, a link is returned to the requester, who hands it to the person that it is for.
type Links struct {
	*Mailer
	key []byte
}

// NewLinks returns Links with secrets derived from the installation's secret.
func NewLinks(m *Mailer, installation []byte) *Links {
	return &Links{m, keys.Derive(installation, "password link")}
}

// SetPasswordPath is the page that sets a password.
const SetPasswordPath = "/set-password"

// linkTime is the lifetime of a link that sets a password, unless it is mailed.
const linkTime = 72 * time.Hour

// Secret returns the secret of a mailed link that sets a password. It depends on the expiry, so that the same link
// can be mailed again, and on the password that the link replaces, so that a used link never becomes valid again.
func (l *Links) Secret(userID, passwordHash string, expiresAt int64) string {
	return keys.DerivedSecret(l.key, keys.Binding(userID, passwordHash, strconv.FormatInt(expiresAt, 10)))
}

// OfferLink creates a link that sets a person's password once and replaces the previous link. It returns the path of
// the link.
func OfferLink(r service.Request, userID string) (path string, err error) {
	secret, _ := keys.NewSecret()
	return OfferLinkWithSecret(r, userID, secret, r.Now().Add(linkTime).UnixMilli(), "")
}

// OfferLinkWithSecret is OfferLink with a given secret and expiry in milliseconds. If the person's open link
// has that secret, it is left unchanged. With a mailID the link is mailed by a task; see MailLink.
func OfferLinkWithSecret(r service.Request, userID, secret string, expiresAt int64, mailID string) (path string, err error) {
	_, err = r.Ask(service.PlatformCommand(r, entity.KindUser, userID, &userv1.OfferOneTimeLink{Link: &userv1.OneTimeLink{
		SecretSha256: keys.Hash(secret), ExpiresAt: expiresAt, MailId: mailID,
	}}))
	return linkPath(userID, secret), err
}

func linkPath(userID, secret string) string {
	return SetPasswordPath + "?token=" + keys.LinkToken(secret, userID)
}

// SplitLink returns the account and the secret of the token of a link. ok is false if the token is malformed.
func SplitLink(token string) (userID, secret string, ok bool) {
	ids, secret := keys.SplitLinkToken(token, 1)
	if ids == nil {
		return "", "", false
	}
	return idPrefix + ids[0], secret, true
}

// MailLink sends a person the open link that sets their password, and returns the command that reports the outcome to the
// user. It is run by the task that the link opened, and again after an error.
func (l *Links) MailLink(ctx context.Context, r service.Request, userID, mailID string, m *userv1.LinkMail) (proto.Message, error) {
	report := &userv1.ReportLinkMailed{MailId: mailID}
	password, err := DescribePassword(r, userID)
	link := password.GetLink()
	secret := l.Secret(userID, password.GetHash(), link.GetExpiresAt())
	if err == nil && (link.GetMailId() != mailID || r.Now().UnixMilli() >= link.GetExpiresAt() ||
		!bytes.Equal(keys.Hash(secret), link.GetSecretSha256())) {
		report.GivenUp = true
		return report, nil
	}
	var person *userv1.User
	if err == nil {
		person, err = Describe(r, userID)
	}
	if err == nil {
		text := fmt.Sprintf("A new password was requested for the account %s at %s.\n\nTo set one, open this link before %s. It works once:\n\n%s\n\nIf you did not request this, you can ignore this mail: your password does not change.\n",
			person.GetEmail(), r.Link(""), FormatMoment(link.GetExpiresAt()), r.Link(linkPath(userID, secret)))
		err = l.Send(ctx, person.GetEmail(), "Set a new password", text)
	}
	report.GivenUp, _, err = l.CountAttempt(r, m.GetRequestedAt(), err, "user", userID)
	return report, err
}
