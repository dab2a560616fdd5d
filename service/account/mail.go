package account

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/service"
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

// Mailer sends the mails of tasks and counts the attempts.
type Mailer struct {
	// mail is nil without a mail server.
	mail     Mail
	outcomes *prometheus.CounterVec
}

const (
	// mailTime bounds one attempt to send a message.
	mailTime = 10 * time.Second
	// mailRetryTime is the time after which a message that cannot be sent is given up.
	mailRetryTime = 24 * time.Hour
)

// NewMailer returns a Mailer and registers its metric. mail is nil without a mail server.
func NewMailer(mail Mail, r prometheus.Registerer) (*Mailer, error) {
	m := &Mailer{mail, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "atelier_mails_total", Help: "Attempts to send mail, by outcome: sent, failed (it is retried), refused (by the mail server, for good), given_up."},
		[]string{"outcome"})}
	for _, outcome := range []string{"sent", "failed", "refused", "given_up"} {
		m.outcomes.WithLabelValues(outcome) // a series that begins at 0 shows its first increase
	}
	return m, r.Register(m.outcomes)
}

// SendsMail reports whether there is a mail server. Otherwise links are returned to the requester, who hands them to the persons that they
// are for.
func (m *Mailer) SendsMail() bool { return m.mail != nil }

var errNoMail = errors.New("no mail server is configured")

// Send makes one attempt to send a message.
func (m *Mailer) Send(ctx context.Context, to, subject, text string) error {
	if m.mail == nil {
		return errNoMail
	}
	ctx, cancel := context.WithTimeout(ctx, mailTime)
	defer cancel()
	return m.mail.Send(ctx, to, subject, text)
}

// CountAttempt counts the outcome of an attempt to send a message. A message that the mail server refuses for good, or that still fails
// after mailRetryTime, is given up: it is logged with the attributes in about, and the error is nil. reply is the reply of the server
// that refused the message.
func (m *Mailer) CountAttempt(r service.Request, requestedAt int64, err error, about ...any) (givenUp bool, reply string, _ error) {
	var refused Refusal
	switch {
	case err == nil:
		m.outcomes.WithLabelValues("sent").Inc()
		return false, "", nil
	case errors.As(err, &refused):
		m.outcomes.WithLabelValues("refused").Inc()
		r.Log().Warn("gave up sending a mail: the mail server refused it for good", append(about, "reply", refused.Reply())...)
		return true, refused.Reply(), nil
	case entity.HasPassed(requestedAt, r.Now().UnixMilli(), mailRetryTime):
		m.outcomes.WithLabelValues("given_up").Inc()
		r.Log().Error("gave up sending a mail: every attempt failed", append(about, "error", err)...)
		return true, "", nil
	}
	m.outcomes.WithLabelValues("failed").Inc()
	return false, "", err
}

// FormatMoment formats a time in milliseconds since the Unix epoch for a message to a person.
func FormatMoment(at int64) string {
	return time.UnixMilli(at).UTC().Format("2 January 2006, 15:04 UTC")
}
