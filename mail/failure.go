package mail

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"regexp"
	"strconv"

	"github.com/wneessen/go-mail"
)

// Refusal is the error of Send if the server has refused the message for good: with a reply 5yz to MAIL, RCPT or DATA (RFC 5321,
// section 4.2.1). A refusal of the connection or of the authentication is none: operators mend the settings, and the next attempt
// succeeds.
type Refusal struct {
	reply string
	error
}

// Reply returns the code of the server's reply, with the enhanced code (RFC 3463) behind it if the server sends enhanced codes. It has
// none of the reply's text, which may quote the message.
func (r *Refusal) Reply() string { return r.reply }

// authenticationRequired is the reply to a command that needs authentication or TLS first (RFC 4954, section 6; RFC 3207, section 4).
const authenticationRequired = 530

var (
	// errNoReply is the cause of a failure without a reply: the library keeps only replies, and no other causes.
	errNoReply = errors.New("the connection ended, or the server sent no valid reply")
	// errProtocol is the cause of a failure to open the session that may have text of the server.
	errProtocol = errors.New("the server does not offer the TLS or the authentication of the options, or does not follow the protocol")
)

// failure returns the error of an attempt to send a message, from the error of the library. It has the phase, the codes of the server's
// reply and causes on this machine, and no text of the server: a server may quote the message, which has a secret, and errors are logged.
func failure(ctx context.Context, err error) error {
	failed, isSending := errors.AsType[*mail.SendError](err)
	if !isSending {
		return fmt.Errorf("mail: opening the session: %w", causeOf(ctx, err))
	}
	phase := failed.Reason.String()
	if failed.ErrorCode() == 0 {
		return fmt.Errorf("mail: %s: %w", phase, cmp.Or(ctx.Err(), errNoReply))
	}
	reply := codes(failed.ErrorCode(), failed.EnhancedStatusCode())
	err = fmt.Errorf("mail: %s: the server replied %s", phase, reply)
	if failed.ErrorCode() < 500 || failed.ErrorCode() == authenticationRequired {
		return err
	}
	switch failed.Reason {
	case mail.ErrSMTPMailFrom, mail.ErrSMTPRcptTo, mail.ErrSMTPData, mail.ErrSMTPDataClose:
		return &Refusal{reply, err}
	}
	return err
}

// enhancedCode matches the text of a reply that begins with an enhanced code.
var enhancedCode = regexp.MustCompile(`^[245]\.\d{1,3}\.\d{1,3}\b`)

// causeOf returns the part of an error that has no text of the server.
func causeOf(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if reply, is := errors.AsType[*textproto.Error](err); is {
		return errors.New("the server replied " + codes(reply.Code, enhancedCode.FindString(reply.Msg)))
	}
	if network, is := errors.AsType[*net.OpError](err); is {
		return network
	}
	if certificate, is := errors.AsType[*tls.CertificateVerificationError](err); is {
		return certificate
	}
	if record, is := errors.AsType[tls.RecordHeaderError](err); is {
		return record
	}
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	return errProtocol
}

// codes returns the codes of a reply as one text.
func codes(code int, enhanced string) string {
	if enhanced == "" {
		return strconv.Itoa(code)
	}
	return strconv.Itoa(code) + " " + enhanced
}
