// Package mail sends messages to people over SMTP (RFC 5321).
//
// A Sender makes a connection for each message: there are few of them. It retries nothing, since who asked for a message
// waits for it, and has another way where it is not taken.
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
	"time"

	"github.com/wneessen/go-mail"
)

// How the connection to the server is kept private.
const (
	// StartTLS begins in the clear and is not gone on with otherwise (RFC 3207); it is for port 587.
	StartTLS = "starttls"
	// ImplicitTLS is for port 465 (RFC 8314).
	ImplicitTLS = "tls"
	// NoTLS is for a server on this machine.
	NoTLS = "none"
)

// Options say where messages go. Address and From are required.
type Options struct {
	// Address is the server's, as host:port.
	Address string
	// From is the sender, as atelier@example.com or Atelier <atelier@example.com>.
	From string
	// TLS is one of the constants; empty: StartTLS.
	TLS string
	// User and Password sign in; an empty User does not.
	User, Password string
	// Timeout bounds the sending of a message; 0: 10 s.
	Timeout time.Duration
	// Roots vouch for the server; nil: the system's.
	Roots *x509.CertPool
}

// Sender sends messages. It may be used by several goroutines at once.
type Sender struct {
	host, from string
	timeout    time.Duration
	// secure is what a connection begins with; nil: in the clear.
	secure  *tls.Config
	options []mail.Option
}

// New makes a sender; it connects to nothing.
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
	if err := s.keepPrivate(o); err != nil {
		return nil, err
	}
	if o.User != "" {
		s.options = append(s.options, mail.WithSMTPAuth(mail.SMTPAuthAutoDiscover), mail.WithUsername(o.User), mail.WithPassword(o.Password))
	}
	_, err = mail.NewClient(s.host, s.options...)
	return s, err
}

func (s *Sender) keepPrivate(o Options) error {
	trust := &tls.Config{ServerName: s.host, RootCAs: o.Roots, MinVersion: tls.VersionTLS12}
	switch o.TLS {
	case StartTLS, "":
		s.options = append(s.options, mail.WithTLSConfig(trust), mail.WithTLSPolicy(mail.TLSMandatory))
	case ImplicitTLS:
		s.options = append(s.options, mail.WithSSL())
		s.secure = trust
	case NoTLS:
		s.options = append(s.options, mail.WithTLSPolicy(mail.NoTLS))
	default:
		return fmt.Errorf("mail: no such way to keep a connection private: %q", o.TLS)
	}
	return nil
}

// dial connects for as long as ctx: the library would wait for a server that says nothing.
func (s *Sender) dial(ctx context.Context) mail.DialContextFunc {
	return func(_ context.Context, network, address string) (net.Conn, error) {
		connection, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		context.AfterFunc(ctx, func() { connection.Close() })
		if s.secure != nil {
			return tls.Client(connection, s.secure), nil
		}
		return connection, nil
	}
}

// Send hands a message of plain text to the server, within ctx.
func (s *Sender) Send(ctx context.Context, to, subject, text string) error {
	message := mail.NewMsg()
	if err := errors.Join(message.From(s.from), message.To(to)); err != nil {
		return fmt.Errorf("mail: %w", err)
	}
	message.Subject(subject)
	message.SetDate()
	message.SetMessageID()
	message.SetGenHeader("Auto-Submitted", "auto-generated") // RFC 3834: nobody's holiday answers it
	message.SetBodyString(mail.TypeTextPlain, text)
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	client, err := mail.NewClient(s.host, append(slices.Clone(s.options), mail.WithDialContextFunc(s.dial(ctx)))...)
	if err != nil {
		return fmt.Errorf("mail: %w", err)
	}
	if err := client.DialAndSendWithContext(ctx, message); err != nil {
		return fmt.Errorf("mail: %w", err)
	}
	return nil
}
