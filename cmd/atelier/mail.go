package main

import (
	"errors"
	"fmt"
	"net"
	netmail "net/mail"

	"github.com/atelier-run/atelier/http/api"
	"github.com/atelier-run/atelier/mail"
)

// smtpSettings say how mail is sent. Without an address none is.
type smtpSettings struct {
	SMTPAddress      string `name:"smtp-address" group:"Mail" placeholder:"HOST:PORT" help:"Server that takes mail. None: links of invitations and passwords are handed over by whoever asks for them."`
	SMTPFrom         string `name:"smtp-from" group:"Mail" placeholder:"ADDRESS" help:"Sender of mail, as atelier@example.com."`
	SMTPTLS          string `name:"smtp-tls" group:"Mail" default:"starttls" enum:"starttls,tls,none" help:"How the connection is kept private: ${enum}; none on a loopback address alone."`
	SMTPUser         string `name:"smtp-user" group:"Mail" placeholder:"NAME" help:"Name to sign in with. None: without."`
	SMTPPasswordFile string `name:"smtp-password-file" group:"Mail" type:"path" placeholder:"FILE" help:"File that holds the password."`
}

func (s *smtpSettings) check() error {
	if s.SMTPAddress == "" {
		if s.SMTPFrom != "" || s.SMTPUser != "" || s.SMTPPasswordFile != "" {
			return errors.New("smtp-address: it is missing beside the other settings of mail")
		}
		return nil
	}
	host, _, err := net.SplitHostPort(s.SMTPAddress)
	if err != nil || host == "" {
		return fmt.Errorf("smtp-address: %q is not HOST:PORT", s.SMTPAddress)
	}
	var errs []error
	if s.SMTPTLS == "none" && !loopback(host) {
		errs = append(errs, fmt.Errorf("smtp-tls: none is for loopback addresses alone, and not for %s", host))
	}
	if _, err := netmail.ParseAddress(s.SMTPFrom); err != nil {
		errs = append(errs, fmt.Errorf("smtp-from: %q is no address", s.SMTPFrom))
	}
	if (s.SMTPUser == "") != (s.SMTPPasswordFile == "") {
		errs = append(errs, errors.New("smtp-user: it and smtp-password-file come together"))
	}
	return errors.Join(errs...)
}

// mail sends what there is for people; nil: nothing does.
func (s *smtpSettings) mail() (api.Mail, error) {
	if s.SMTPAddress == "" {
		return nil, nil
	}
	password, err := secretOf("smtp-password-file", s.SMTPPasswordFile)
	if err != nil {
		return nil, err
	}
	sender, err := mail.New(mail.Options{
		Address: s.SMTPAddress, From: s.SMTPFrom, TLS: s.SMTPTLS, User: s.SMTPUser, Password: password,
	})
	if err != nil {
		return nil, coded{err, exitUsage}
	}
	return sender, nil
}
