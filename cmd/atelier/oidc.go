package main

import (
	"cmp"
	"errors"
	"net/url"

	"github.com/atelier-run/atelier/http/browser"
)

// oidcSettings name a provider by which people may sign in beside their password.
type oidcSettings struct {
	OIDCIssuer           string `name:"oidc-issuer" group:"Sign-in" placeholder:"URL" help:"OpenID Connect provider by which people may sign in. None: by password alone."`
	OIDCClientID         string `name:"oidc-client-id" group:"Sign-in" placeholder:"ID" help:"What the provider knows this node as."`
	OIDCClientSecretFile string `name:"oidc-client-secret-file" group:"Sign-in" type:"path" placeholder:"FILE" help:"File that holds the secret agreed on with the provider."`
	OIDCName             string `name:"oidc-name" group:"Sign-in" placeholder:"NAME" help:"What the provider is called on the page. None: its host."`
}

func (s *oidcSettings) check() error {
	if s.OIDCIssuer == "" {
		if s.OIDCClientID != "" || s.OIDCClientSecretFile != "" || s.OIDCName != "" {
			return errors.New("oidc-issuer: it is missing beside the other settings of the provider")
		}
		return nil
	}
	_, err := checkURL("oidc-issuer", s.OIDCIssuer)
	if s.OIDCClientID == "" {
		err = errors.Join(err, errors.New("oidc-client-id: it is missing"))
	}
	if s.OIDCClientSecretFile == "" {
		err = errors.Join(err, errors.New("oidc-client-secret-file: it is missing"))
	}
	return err
}

// provider is the one that is set; nil: there is none.
func (s *oidcSettings) provider() (*browser.OIDC, error) {
	if s.OIDCIssuer == "" {
		return nil, nil
	}
	issuer, err := url.Parse(s.OIDCIssuer)
	if err != nil {
		return nil, err
	}
	secret, err := secretOf("oidc-client-secret-file", s.OIDCClientSecretFile)
	if err != nil {
		return nil, err
	}
	return &browser.OIDC{
		Issuer: s.OIDCIssuer, ClientID: s.OIDCClientID, ClientSecret: secret, Name: cmp.Or(s.OIDCName, issuer.Host),
	}, nil
}
