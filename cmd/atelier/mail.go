package main

import (
	"errors"
	"fmt"
	"net"
	netmail "net/mail"

	"github.com/atelier-run/atelier/mail"
	"github.com/atelier-run/atelier/service/account"
)

// smtpSettings are the settings of mail. Without an address no mail is sent.
type smtpSettings struct {
	SMTPAddress      string `name:"smtp-address" group:"Mail" placeholder:"HOST:PORT" help:"Server that takes mail. None: no mail is sent; the links of invitations and passwords are returned to the requester, who passes them on."`
	SMTPFrom         string `name:"smtp-from" group:"Mail" placeholder:"ADDRESS" help:"Sender of mail, as atelier@example.com."`
	SMTPTLS          string `name:"smtp-tls" group:"Mail" default:"starttls" enum:"starttls,tls,none" help:"How the connection is kept private: ${enum}; none on a loopback address alone."`
	SMTPUser         string `name:"smtp-user" group:"Mail" placeholder:"NAME" help:"Name to sign in with. None: without."`
	SMTPPasswordFile string `name:"smtp-password-file" group:"Mail" type:"path" placeholder:"FILE" help:"File that holds the password."`
}

func (s *smtpSettings) check() error {
	if s.SMTPAddress == "" {
		if s.SMTPFrom != "" || s.SMTPUser != "" || s.SMTPPasswordFile != "" {
			return errors.New("smtp-address: it is required with the other settings of mail")
		}
		return nil
	}
	host, _, err := net.SplitHostPort(s.SMTPAddress)
	if err != nil || host == "" {
		return fmt.Errorf("smtp-address: %q is not HOST:PORT", s.SMTPAddress)
	}
	var errs []error
	if s.SMTPTLS == "none" && !loopback(host) {
		errs = append(errs, fmt.Errorf("smtp-tls: none is allowed only for loopback addresses, and %s is not one", host))
	}
	if _, err := netmail.ParseAddress(s.SMTPFrom); err != nil {
		errs = append(errs, fmt.Errorf("smtp-from: %q is not an address", s.SMTPFrom))
	}
	if (s.SMTPUser == "") != (s.SMTPPasswordFile == "") {
		errs = append(errs, errors.New("smtp-user: set both smtp-user and smtp-password-file, or neither"))
	}
	return errors.Join(errs...)
}

// mail returns the sender of mail, or nil if none is configured.
func (s *smtpSettings) mail() (account.Mail, error) {
	if s.SMTPAddress == "" {
		return nil, nil
	}
	password, err := readSecret("smtp-password-file", s.SMTPPasswordFile)
	if err != nil {
		return nil, err
	}
	sender, err := mail.New(mail.Options{
		Address: s.SMTPAddress, From: s.SMTPFrom, TLS: s.SMTPTLS, User: s.SMTPUser, Password: password,
	})
	if err != nil {
		return nil, coded{err, exitConfig}
	}
	return sender, nil
}
