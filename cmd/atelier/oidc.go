package main

import (
	"cmp"
	"errors"
	"net/url"

	"github.com/atelier-run/atelier/http/browser"
)

// oidcSettings are the settings of an OpenID Connect provider for sign-in.
type oidcSettings struct {
	OIDCIssuer           string `name:"oidc-issuer" group:"Sign-in" placeholder:"URL" help:"OpenID Connect provider by which people may sign in. None: by password alone."`
	OIDCClientID         string `name:"oidc-client-id" group:"Sign-in" placeholder:"ID" help:"What the provider knows this node as."`
	OIDCClientSecretFile string `name:"oidc-client-secret-file" group:"Sign-in" type:"path" placeholder:"FILE" help:"File that holds the secret agreed on with the provider."`
	OIDCName             string `name:"oidc-name" group:"Sign-in" placeholder:"NAME" help:"What the provider is called on the page. None: its host."`
}

func (s *oidcSettings) check() error {
	if s.OIDCIssuer == "" {
		if s.OIDCClientID != "" || s.OIDCClientSecretFile != "" || s.OIDCName != "" {
			return errors.New("oidc-issuer: it is required with the other settings of the provider")
		}
		return nil
	}
	_, err := checkURL("oidc-issuer", s.OIDCIssuer)
	if s.OIDCClientID == "" {
		err = errors.Join(err, errors.New("oidc-client-id: it is required with oidc-issuer"))
	}
	if s.OIDCClientSecretFile == "" {
		err = errors.Join(err, errors.New("oidc-client-secret-file: it is required with oidc-issuer"))
	}
	return err
}

// provider returns the configured provider, or nil.
func (s *oidcSettings) provider() (*browser.OIDC, error) {
	if s.OIDCIssuer == "" {
		return nil, nil
	}
	issuer, err := url.Parse(s.OIDCIssuer)
	if err != nil {
		return nil, err
	}
	secret, err := readSecret("oidc-client-secret-file", s.OIDCClientSecretFile)
	if err != nil {
		return nil, err
	}
	return &browser.OIDC{
		Issuer: s.OIDCIssuer, ClientID: s.OIDCClientID, ClientSecret: secret, Name: cmp.Or(s.OIDCName, issuer.Host),
	}, nil
}
