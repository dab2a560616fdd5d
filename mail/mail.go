// Package mail sends email over SMTP (RFC 5321).
//
// A Sender opens a connection for each message, because there are few. It does not retry: the task that sends a message
// does, unless the error is a Refusal.
package mail

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wneessen/go-mail"
)

// The values of Options.TLS.
const (
	// StartTLS upgrades a plain connection to TLS (RFC 3207), usually on port 587. Sending fails if the server does not
	// offer it.
	StartTLS = "starttls"
	// ImplicitTLS uses TLS from the first byte (RFC 8314), usually on port 465.
	ImplicitTLS = "tls"
	// NoTLS uses no encryption. It is for a server on the same machine.
	NoTLS = "none"
)

// Options configure a Sender. Address and From are required.
type Options struct {
	// Address is the address of the server, in the form host:port.
	Address string
	// From is the address of the sender, in the form atelier@example.com or Atelier <atelier@example.com>.
	From string
	// TLS is StartTLS, ImplicitTLS or NoTLS; empty means StartTLS.
	TLS string
	// User and Password authenticate the sender. If User is empty, it does not authenticate.
	User, Password string
	// Timeout is the longest time for sending a message; 0 means 10 s.
	Timeout time.Duration
	// Roots are the certificate authorities of the server's certificate; nil means the certificate authorities of the system.
	Roots *x509.CertPool
}

// Sender sends messages. It is safe for concurrent use.
type Sender struct {
	host, from string
	timeout    time.Duration
	// implicitTLS is the configuration of ImplicitTLS; nil for the other values.
	implicitTLS *tls.Config
	options     []mail.Option
}

// New returns a Sender. It does not connect to the server. It fails if an option is invalid.
func New(o Options) (*Sender, error) {
	host, text, err := net.SplitHostPort(o.Address)
	if err != nil {
		return nil, fmt.Errorf("mail: %w", err)
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 || host == "" {
		return nil, fmt.Errorf("mail: %q is not host:port", o.Address)
	}
	if err := mail.NewMsg().From(o.From); err != nil {
		return nil, fmt.Errorf("mail: sender: %w", err)
	}
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second
	}
	s := &Sender{host: host, from: o.From, timeout: o.Timeout}
	s.options = []mail.Option{mail.WithPort(int(port)), mail.WithTimeout(o.Timeout), mail.WithoutNoop()}
	if err := s.configureTLS(o); err != nil {
		return nil, err
	}
	if o.User != "" {
		s.options = append(s.options, mail.WithSMTPAuth(mail.SMTPAuthAutoDiscover), mail.WithUsername(o.User), mail.WithPassword(o.Password))
	}
	_, err = mail.NewClient(s.host, s.options...)
	return s, err
}

// configureTLS sets the options for Options.TLS. It fails for an unknown value.
func (s *Sender) configureTLS(o Options) error {
	config := &tls.Config{ServerName: s.host, RootCAs: o.Roots, MinVersion: tls.VersionTLS12}
	switch o.TLS {
	case StartTLS, "":
		s.options = append(s.options, mail.WithTLSConfig(config), mail.WithTLSPolicy(mail.TLSMandatory))
	case ImplicitTLS:
		s.options = append(s.options, mail.WithSSL())
		s.implicitTLS = config
	case NoTLS:
		s.options = append(s.options, mail.WithTLSPolicy(mail.NoTLS))
	default:
		return fmt.Errorf("mail: unknown TLS mode %q: want %s, %s or %s", o.TLS, StartTLS, ImplicitTLS, NoTLS)
	}
	return nil
}

// dial returns a function that connects to the server and closes the connection when ctx ends. The library does not stop
// waiting for a silent server when its context ends.
func (s *Sender) dial(ctx context.Context) mail.DialContextFunc {
	return func(_ context.Context, network, address string) (net.Conn, error) {
		connection, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		context.AfterFunc(ctx, func() { connection.Close() })
		if s.implicitTLS != nil {
			return tls.Client(connection, s.implicitTLS), nil
		}
		return connection, nil
	}
}

var (
	// directions removes the characters that change the direction of the text after them, which names of people may have.
	directions = strings.NewReplacer("\u202a", "", "\u202b", "", "\u202c", "", "\u202d", "", "\u202e", "",
		"\u2066", "", "\u2067", "", "\u2068", "", "\u2069", "")
	// encodedWords separates the beginning of an encoded word (RFC 2047, section 2), which names may have, by an invisible character.
	// Without it the subject would be sent as it is, and a mail program would decode the word.
	encodedWords = strings.NewReplacer("=?", "=\u2060?")
)

// Send sends a message of plain text. It returns when the server has accepted the message, or fails when ctx or the timeout
// ends or the server refuses the message. The error is a Refusal if the server would refuse the message again. The error has no
// text of the server.
func (s *Sender) Send(ctx context.Context, to, subject, text string) error {
	message := mail.NewMsg()
	if err := errors.Join(message.From(s.from), message.To(to)); err != nil {
		return fmt.Errorf("mail: %w", err)
	}
	message.Subject(encodedWords.Replace(directions.Replace(subject)))
	message.SetDate()
	message.SetMessageID()
	message.SetGenHeader("Auto-Submitted", "auto-generated") // RFC 3834: suppresses automatic replies
	message.SetBodyString(mail.TypeTextPlain, text)
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	client, err := mail.NewClient(s.host, append(slices.Clone(s.options), mail.WithDialContextFunc(s.dial(ctx)))...)
	if err != nil {
		return fmt.Errorf("mail: %w", err)
	}
	// A failure after the server has accepted the message, of the end of the connection, is none: another attempt would send the
	// message twice.
	if err := client.DialAndSendWithContext(ctx, message); err != nil && !message.IsDelivered() {
		return failure(ctx, err)
	}
	return nil
}
