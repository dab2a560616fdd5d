package browser

import (
	"cmp"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/subject"
	"github.com/atelier-run/atelier/http/server"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	"github.com/atelier-run/atelier/service/account"
	"github.com/atelier-run/atelier/service/invitation"
)

// OIDC configures an OpenID Connect provider. A person is signed in to the account that owns the email address which the
// provider has verified. The account is then linked to the provider's subject: this subject is signed in to the account and
// to no other, even if it has another address later, and no other subject is signed in to the account, even if the address
// is given to another person. The provider creates no accounts.
type OIDC struct {
	// Issuer is the provider's URL, below which its configuration is found.
	Issuer, ClientID, ClientSecret string
	// Name is shown on the sign-in page; empty: the host of Issuer.
	Name string
}

// Check returns an error if the options are invalid; nil options are valid.
func (o *OIDC) Check() error {
	if o == nil {
		return nil
	}
	issuer, err := url.Parse(o.Issuer)
	switch {
	case err != nil, issuer.Host == "", issuer.Scheme != "https" && issuer.Scheme != "http":
		return errors.New("http: the OpenID Connect issuer must be a URL")
	case o.ClientID == "":
		return errors.New("http: the OpenID Connect client has no id")
	}
	return subject.CheckIssuer(o.Issuer)
}

func (o *OIDC) name() string {
	if o == nil {
		return ""
	}
	issuer, _ := url.Parse(o.Issuer)
	return cmp.Or(o.Name, issuer.Host)
}

const (
	oidcPath     = signInPath + "/oidc"
	callbackPath = "/callback"
	// providerTime bounds a request to the provider, providerBytes its response. After a failure, providerPause passes
	// before the provider is asked again.
	providerTime  = 10 * time.Second
	providerBytes = 1 << 20
	providerPause = 3 * time.Second
)

// provider signs people in with an OpenID Connect provider. It reads the provider's configuration when it is first needed,
// so that the server starts without the provider.
type provider struct {
	options     *OIDC
	now         func() time.Time
	seal        cipher.AEAD
	client      *http.Client
	redirectURL string
	subjects    *subjects

	mu         sync.Mutex
	discovered *oidc.Provider
	failedAt   time.Time
}

func newProvider(o Options, core server.Options) *provider {
	block, err := aes.NewCipher(server.DeriveKey(core.Secret, "http oidc"))
	if err != nil {
		panic("http: " + err.Error()) // only for a key of a wrong length
	}
	seal, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic("http: " + err.Error()) // only for a block of a wrong size
	}
	return &provider{
		options: o.OIDC, now: core.Clock, seal: seal, redirectURL: o.Server.Link(oidcPath + callbackPath),
		subjects: &subjects{people: o.People},
		client:   &http.Client{Timeout: providerTime, Transport: limitedTransport{http.DefaultTransport}},
	}
}

func (p *provider) routes() []server.Route {
	return []server.Route{
		page(http.MethodGet, oidcPath, server.ScopePublic, "Sign in with the OpenID Connect provider", p.leave),
		page(http.MethodGet, oidcPath+callbackPath, server.ScopePublic, "Return from the OpenID Connect provider", p.callback),
	}
}

// limitedTransport limits response bodies to providerBytes.
type limitedTransport struct{ http.RoundTripper }

func (b limitedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		answer.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(answer.Body, providerBytes), answer.Body}
	}
	return answer, err
}

var errProvider = &entity.Error{
	Code: entity.Unavailable, Message: "the sign-in provider does not answer", RetryAfter: providerPause,
}

// discover returns the provider and its configuration, which is read once. Errors: unavailable.
func (p *provider) discover(ctx context.Context) (*oidc.Provider, *oauth2.Config, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.discovered == nil {
		if p.now().Sub(p.failedAt) < providerPause {
			return nil, nil, errProvider
		}
		found, err := oidc.NewProvider(context.WithoutCancel(ctx), p.options.Issuer) // other requests use the result too
		if err != nil {
			p.failedAt = p.now()
			return nil, nil, errors.Join(errProvider, err)
		}
		p.discovered = found
	}
	return p.discovered, &oauth2.Config{
		ClientID: p.options.ClientID, ClientSecret: p.options.ClientSecret, Endpoint: p.discovered.Endpoint(),
		RedirectURL: p.redirectURL, Scopes: []string{oidc.ScopeOpenID, "email"},
	}, nil
}

// leave redirects the browser to the provider.
func (p *provider) leave(c *server.Call) (result, error) {
	if p.options == nil {
		return result{}, server.ErrNotFound
	}
	_, config, err := p.discover(oidc.ClientContext(c.Context, p.client))
	if err != nil {
		return result{}, logUnavailable(c, err)
	}
	a := newAttempt(c.Now(), localPath(c.Request.URL.Query().Get("next")))
	if err := p.saveAttempt(c, a); err != nil {
		return result{}, err
	}
	return result{redirectTo: config.AuthCodeURL(a.State, oidc.Nonce(a.Nonce), oauth2.S256ChallengeOption(a.Verifier))}, nil
}

// logUnavailable logs why the provider did not answer, and returns an error without that detail.
func logUnavailable(c *server.Call, err error) error {
	if !errors.Is(err, errProvider) {
		err = errors.Join(errProvider, err)
	}
	c.Log().Error("the OpenID Connect provider did not answer", "error", err)
	return errProvider
}

var (
	errStateExpired = entity.Errorf(entity.LinkInvalid, "signing in took too long or was started in another browser; start again")
	errDeclined     = entity.Errorf(entity.Forbidden, "the provider did not sign you in")
	errUnknownEmail = entity.Errorf(entity.Forbidden, "no account here has the email address that the provider verified; ask a member of a workspace to invite you")
)

// callback signs in the person that the provider has authenticated. If it fails and the page advises to try again, the attempt stays, and
// the same request again goes to the provider anew.
func (p *provider) callback(c *server.Call) (result, error) {
	if p.options == nil {
		return result{}, server.ErrNotFound
	}
	a, ok := p.readAttempt(c)
	query := c.Request.URL.Query()
	if !ok {
		return result{}, errStateExpired
	}
	if a.Failed {
		endAttempt(c, a.State)
		return result{redirectTo: oidcPath + "?" + url.Values{"next": {a.Next}}.Encode()}, nil
	}
	answer, err := p.finish(c, a, query)
	if err != nil && (!entity.IsRefusal(err) || entity.HasCode(err, entity.RateLimited)) {
		a.Failed = true
		return result{}, errors.Join(err, p.saveAttempt(c, a))
	}
	endAttempt(c, a.State)
	return answer, err
}

// finish ends an attempt with the parameters that the provider has sent.
func (p *provider) finish(c *server.Call, a attempt, query url.Values) (result, error) {
	if query.Get("error") != "" || query.Get("code") == "" {
		return result{}, errDeclined
	}
	token, err := p.exchangeCode(c, a, query.Get("code"))
	if err != nil {
		return result{}, err
	}
	linked := &userv1.LinkedIdentity{Issuer: p.options.Issuer, Subject: token.Subject}
	userID, err := p.findAccount(c, token, linked)
	if err != nil {
		return result{}, err
	}
	if err := startSession(c, userID, &userv1.StartBrowserSession{Identity: linked}); err != nil {
		c.Log().Warn("the account refused a sign-in with the OpenID Connect provider", "user", userID,
			"issuer", linked.GetIssuer(), "subject", linked.GetSubject(), "error", err)
		return result{}, err
	}
	return result{redirectTo: a.Next}, nil
}

// findAccount returns the account that the subject of an id token belongs to. A free subject is linked to the account that owns
// the verified address of the person, unless that account refuses it. Errors: forbidden, unavailable.
func (p *provider) findAccount(c *server.Call, token signedIn, identity *userv1.LinkedIdentity) (string, error) {
	userID, err := account.ResolveSubject(c, identity)
	if err != nil || userID != "" {
		return userID, err
	}
	address, err := token.readVerifiedEmail(oidc.ClientContext(c.Context, p.client), c)
	if err != nil {
		return "", err
	}
	if userID, err = findActiveUser(c, address); err != nil {
		return "", err
	}
	owner, err := p.subjects.claim(c, identity, userID)
	return cmp.Or(owner, userID), err
}

// exchangeCode exchanges the provider's code for tokens, and verifies the id token. Errors: forbidden, unavailable.
func (p *provider) exchangeCode(c *server.Call, a attempt, code string) (signedIn, error) {
	ctx := oidc.ClientContext(c.Context, p.client)
	found, config, err := p.discover(ctx)
	if err != nil {
		return signedIn{}, logUnavailable(c, err)
	}
	token, err := config.Exchange(ctx, code, oauth2.VerifierOption(a.Verifier))
	var refused *oauth2.RetrieveError
	switch {
	case errors.As(err, &refused) && isFinal(refused.Response.StatusCode):
		logRejection(c, fmt.Errorf("%d %s", refused.Response.StatusCode, refused.ErrorCode))
		return signedIn{}, errDeclined
	case err != nil:
		return signedIn{}, logUnavailable(c, err)
	}
	raw, _ := token.Extra("id_token").(string)
	verified, err := found.Verifier(&oidc.Config{ClientID: config.ClientID, Now: c.Now}).Verify(ctx, raw)
	if err == nil && subtle.ConstantTimeCompare([]byte(verified.Nonce), []byte(a.Nonce)) != 1 {
		err = errors.New("the nonce of the id token is not that of this sign-in")
	}
	if err == nil {
		err = subject.Check(verified.Subject)
	}
	if err != nil {
		logRejection(c, err)
		return signedIn{}, errDeclined
	}
	return signedIn{verified, found, token}, nil
}

// isFinal reports whether a status of the provider's token endpoint refuses the code, so that another attempt would not help.
func isFinal(status int) bool {
	return status < http.StatusInternalServerError && status != http.StatusTooManyRequests && status != http.StatusRequestTimeout
}

// logRejection logs why a response of the provider was rejected.
func logRejection(c *server.Call, err error) {
	c.Log().Warn("rejected a response of the OpenID Connect provider", "error", err)
}

// findActiveUser returns the account that owns an email address. Errors: forbidden if there is none or it is disabled.
func findActiveUser(c *server.Call, address string) (string, error) {
	userID, err := account.LookUpID(c, address)
	if err != nil {
		return "", err
	}
	if userID == "" {
		invited, err := invitation.FindPending(c, address)
		switch {
		case err != nil:
			return "", err
		case invited != nil:
			inviter := "somebody"
			if invited.GetInviter().GetEmail() != "" {
				inviter = invitation.InviterName(invited.GetInviter())
			}
			return "", entity.Errorf(entity.Forbidden, "there is no account for %s yet, but %s has invited you to the workspace %s: open the link of the invitation and accept it, which makes the account; then this way of signing in works too",
				address, inviter, invited.Workspace.GetName())
		}
		return "", errUnknownEmail
	}
	standing, err := server.Ask[*userv1.Standing](c, entity.Command{
		Kind: entity.KindUser, Identity: userID, Principal: entity.Platform(), Message: &userv1.DescribeStanding{},
	})
	switch {
	case err != nil:
		return "", err
	case standing.GetDisabled():
		return "", errUnknownEmail
	}
	return userID, nil
}
