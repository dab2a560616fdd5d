package account

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/user"
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

const (
	// linkTime is the lifetime of a link that sets a password, unless it is mailed.
	linkTime = 72 * time.Hour
	// resetLinkTime is the lifetime of a mailed link. It is short, because anybody can have one mailed.
	resetLinkTime = 24 * time.Hour
	// reuseTime is the time in which a further request mails the same link again, so that repeated requests do not make a link
	// invalid.
	reuseTime = time.Hour
)

// secret returns the secret of a mailed link that sets a password. It depends on the expiry, so that the same link
// can be mailed again, and on the password that the link replaces, so that a used link never becomes valid again.
func (l *Links) secret(userID, passwordHash string, expiresAt int64) string {
	return keys.DerivedSecret(l.key, keys.Binding(userID, passwordHash, strconv.FormatInt(expiresAt, 10)))
}

// OfferLink creates a link that sets a person's password once and replaces the previous link. It returns the path of
// the link.
func OfferLink(r service.Request, userID string) (path string, err error) {
	secret, _ := keys.NewSecret()
	return linkPath(userID, secret), offer(r, userID, secret, r.Now().Add(linkTime).UnixMilli(), "")
}

// OfferReset has a link mailed that sets the password of the account that owns an email address: the link that was mailed last, if that was
// less than reuseTime ago, or a new one. It mails none if there is no such account, if the account is disabled, or if admit returns no
// unlock. admit locks the account, so that two concurrent requests mail the same link. Errors: the errors of admit.
func (l *Links) OfferReset(r service.Request, address string, admit func(userID string) (unlock func(), err error)) error {
	userID, err := LookUpID(r, address)
	if err != nil || userID == "" {
		return err
	}
	person, err := Describe(r, userID)
	if err != nil || person.GetDisabledAt() != 0 {
		return err
	}
	now := r.Now()
	unlock, err := admit(userID)
	if err != nil || unlock == nil {
		return err
	}
	defer unlock()
	password, err := DescribePassword(r, userID)
	if err != nil {
		return err
	}
	ends := password.GetLink().GetExpiresAt()
	secret := l.secret(userID, password.GetHash(), ends)
	latest := now.Add(resetLinkTime - reuseTime).UnixMilli() // a link that is valid then was created less than reuseTime ago
	if !user.LinkOpens(password.GetLink(), keys.Hash(secret), latest) {
		ends = now.Add(resetLinkTime).UnixMilli()
		secret = l.secret(userID, password.GetHash(), ends)
	}
	return offer(r, userID, secret, ends, r.NewID("mail_"))
}

// offer creates a link with a secret and an expiry in milliseconds. If the open link of the account has that secret, it is left
// unchanged. With a mailID the link is mailed by a task; see MailLink.
func offer(r service.Request, userID, secret string, expiresAt int64, mailID string) error {
	_, err := r.Ask(service.PlatformCommand(r, entity.KindUser, userID, &userv1.OfferOneTimeLink{Link: &userv1.OneTimeLink{
		SecretSha256: keys.Hash(secret), ExpiresAt: expiresAt, MailId: mailID,
	}}))
	return err
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
	secret := l.secret(userID, password.GetHash(), link.GetExpiresAt())
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
