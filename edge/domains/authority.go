package domains

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/mholt/acmez/v3"
	"github.com/mholt/acmez/v3/acme"

	"github.com/atelier-run/atelier/entity"
)

const (
	userAgent = "Atelier"
	// requestTimeout limits one request to the authority. maxResponseBytes limits the response.
	requestTimeout   = 30 * time.Second
	maxResponseBytes = 1 << 20
	// pollTimeout limits the wait for the authority to verify a name, and for the certificate.
	pollTimeout = 90 * time.Second
	// accountAge is the least age of an account that is replaced because the authority has deactivated it. At an authority that deactivates
	// every account, the server therefore registers at most one account a day.
	accountAge = 24 * time.Hour
)

// An authority orders certificates for one session. It is the Issuer of certmagic. The ACME issuer of certmagic itself would open ports of this
// machine.
type authority struct {
	d       *Domains
	session *session
	pacer   *pacer
}

var _ certmagic.Issuer = (*authority)(nil)

// IssuerKey returns the name of the folder of the authority's certificates and account.
func (a *authority) IssuerKey() string { return a.d.issuerKey() }

func (d *Domains) issuerKey() string { return certmagic.StorageKeys.Safe(slashes.Replace(d.authority)) }

// Issue orders a certificate. If the authority no longer accepts the account, Issue registers a new account.
func (a *authority) Issue(ctx context.Context, request *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	client := &acmez.Client{
		Client: &acme.Client{
			Directory: a.d.o.Directory, HTTPClient: a.d.httpClient(a.pacer), UserAgent: userAgent, PollTimeout: pollTimeout,
		},
		ChallengeSolvers: map[string]acmez.Solver{methodHTTP: solver{a.session}, methodTLS: solver{a.session}},
	}
	account, err := a.account(ctx, client.Client, "")
	if err != nil {
		return nil, err
	}
	issued, err := order(ctx, client, account, request, a.replaced(ctx, client.Client, request.DNSNames))
	if err == nil || !a.isRefused(ctx, client.Client, account, err) {
		return issued, err
	}
	if account, err = a.account(ctx, client.Client, account.Location); err != nil {
		return nil, err
	}
	return order(ctx, client, account, request, nil)
}

// replaced returns the certificate of the store that an order for names replaces (RFC 9773, section 5), which exempts the order from the
// authority's limits. It returns nil if the store has no such certificate, if the certificate may belong to an earlier account, or if the
// authority has no renewal information.
func (a *authority) replaced(ctx context.Context, client *acme.Client, names []string) *x509.Certificate {
	directory, err := client.GetDirectory(ctx)
	if err != nil || directory.RenewalInfo == "" || len(names) != 1 {
		return nil
	}
	pair, err := a.d.loadPair(ctx, names[0])
	if err != nil || pair == nil || len(pair.Leaf.AuthorityKeyId) == 0 {
		return nil
	}
	file, _, err := a.session.load(ctx, a.accountFile())
	if err != nil || !time.UnixMilli(file.GetModifiedAt()).Before(pair.Leaf.NotBefore) {
		return nil
	}
	return pair.Leaf
}

// isRefused reports whether an order has failed with an error because the authority no longer accepts the account: the authority does not know
// the account, or has deactivated it (RFC 8555, section 7.3.6). A failed challenge has the type unauthorized, too; therefore isRefused asks the
// authority for the account.
func (a *authority) isRefused(ctx context.Context, client *acme.Client, account acme.Account, err error) bool {
	switch {
	case hasType(err, acme.ProblemTypeAccountDoesNotExist):
		return true
	case !hasType(err, acme.ProblemTypeUnauthorized):
		return false
	}
	found, err := client.GetAccount(ctx, account)
	switch {
	case hasType(err, acme.ProblemTypeAccountDoesNotExist):
		return true
	case err != nil && !hasType(err, acme.ProblemTypeUnauthorized), err == nil && found.Status == acme.StatusValid:
		return false
	}
	file, _, err := a.session.load(ctx, a.accountFile())
	if err == nil && !entity.HasPassed(file.GetModifiedAt(), a.d.o.Clock().UnixMilli(), accountAge) {
		a.d.o.Log.Error("the authority has deactivated the account of this server, which was registered less than a day ago; another one is registered after a day",
			slog.String("authority", a.d.authority), slog.String("account", account.Location))
		return false
	}
	return err == nil
}

// hasType reports whether an error is a problem of a type.
func hasType(err error, kind string) bool {
	var problem acme.Problem
	return errors.As(err, &problem) && problem.Type == kind
}

// order orders a certificate. replaces is the certificate that the new certificate replaces, or nil. If the authority does not accept replaces,
// order makes the order without it.
func order(ctx context.Context, client *acmez.Client, account acme.Account, request *x509.CertificateRequest, replaces *x509.Certificate) (*certmagic.IssuedCertificate, error) {
	parameters, err := acmez.OrderParametersFromCSR(account, request)
	if err != nil {
		return nil, err
	}
	parameters.Replaces = replaces
	chains, err := client.ObtainCertificate(ctx, parameters)
	if replaces != nil && hasType(err, acme.ProblemTypeMalformed) {
		parameters.Replaces = nil
		chains, err = client.ObtainCertificate(ctx, parameters)
	}
	if err != nil {
		return nil, err
	}
	if len(chains) == 0 {
		return nil, errors.New("the authority has issued no certificate")
	}
	return &certmagic.IssuedCertificate{Certificate: chains[0].ChainPEM}, nil
}

// storedAccount is the content of the file of an account.
type storedAccount struct {
	Account acme.Account `json:"account"`
	Key     []byte       `json:"key"`
}

func (a *authority) accountFile() string { return "accounts/" + a.IssuerKey() + "/account.json" }

// refusedFile returns the name of the file with the last account that the authority no longer accepted.
func (a *authority) refusedFile() string { return "accounts/" + a.IssuerKey() + "/refused.json" }

// account returns the account at the authority. It registers an account if the store has no account. If the account of the store has the URL
// refused, it sets this account aside and registers a new account. A lock serializes registrations, so that members that find their account
// refused at the same time register only one account.
func (a *authority) account(ctx context.Context, client *acme.Client, refused string) (acme.Account, error) {
	account, err := a.storedAccount(ctx)
	if err == nil && account.Location != refused || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return account, err
	}
	lock := "account_" + a.IssuerKey()
	if err := a.session.Lock(ctx, lock); err != nil {
		return acme.Account{}, err
	}
	defer func() { _ = a.session.locks.release(context.WithoutCancel(ctx), a.session.files, lock) }() // free after its lease
	account, err = a.storedAccount(ctx)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil, account.Location != refused:
		return account, err
	default:
		if err := a.setAside(ctx, account); err != nil {
			return acme.Account{}, err
		}
	}
	return a.register(ctx, client)
}

// setAside copies the account of the store to the file of refused accounts.
func (a *authority) setAside(ctx context.Context, account acme.Account) error {
	content, err := a.session.Load(ctx, a.accountFile())
	if err != nil {
		return err
	}
	a.d.o.Log.Warn("the authority does not accept the account of this server any more; another one is registered",
		slog.String("authority", a.d.authority), slog.String("account", account.Location))
	return a.session.Store(ctx, a.refusedFile(), content)
}

// register registers an account and stores it. The caller holds the lock of registrations.
func (a *authority) register(ctx context.Context, client *acme.Client) (acme.Account, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return acme.Account{}, err
	}
	account := acme.Account{TermsOfServiceAgreed: true, PrivateKey: key}
	if a.d.o.Email != "" {
		account.Contact = []string{"mailto:" + a.d.o.Email}
	}
	if account, err = client.NewAccount(ctx, account); err != nil {
		return acme.Account{}, fmt.Errorf("the account could not be registered: %w", err)
	}
	stored := storedAccount{Account: account}
	if stored.Key, err = certmagic.PEMEncodePrivateKey(key); err != nil {
		return acme.Account{}, err
	}
	content, err := json.Marshal(stored)
	if err != nil {
		return acme.Account{}, err
	}
	return account, a.session.Store(ctx, a.accountFile(), content)
}

// storedAccount returns the account of the store, or fs.ErrNotExist.
func (a *authority) storedAccount(ctx context.Context) (acme.Account, error) {
	content, err := a.session.Load(ctx, a.accountFile())
	if err != nil {
		return acme.Account{}, err
	}
	var stored storedAccount
	if err := json.Unmarshal(content, &stored); err != nil {
		return acme.Account{}, fs.ErrNotExist
	}
	if stored.Account.PrivateKey, err = certmagic.PEMDecodePrivateKey(stored.Key); err != nil {
		return acme.Account{}, fs.ErrNotExist
	}
	return stored.Account, nil
}

// A pacer has the time before which the authority must not be asked again.
type pacer struct {
	clock func() time.Time

	mu      sync.Mutex
	retryAt time.Time
}

func (p *pacer) at() time.Time {
	if p == nil {
		return time.Time{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.retryAt
}

// observe reads the header Retry-After of a refusal (RFC 8555, section 6.6).
func (p *pacer) observe(response *http.Response) {
	if p == nil || response.StatusCode != http.StatusTooManyRequests && response.StatusCode != http.StatusServiceUnavailable {
		return
	}
	value := response.Header.Get("Retry-After")
	at, err := http.ParseTime(value)
	if seconds, invalid := strconv.ParseUint(value, 10, 31); invalid == nil {
		at, err = p.clock().Add(time.Duration(seconds)*time.Second), nil
	}
	if err == nil {
		p.mu.Lock()
		p.retryAt = at
		p.mu.Unlock()
	}
}

// httpClient returns a client for requests to the authority. The client shares no connections with other clients, and bounds each response.
func (d *Domains) httpClient(p *pacer) *http.Client {
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{RootCAs: d.o.Roots, MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2: true, DisableKeepAlives: false, IdleConnTimeout: 10 * time.Second, MaxResponseHeaderBytes: 1 << 16,
	}
	return &http.Client{Timeout: requestTimeout, Transport: boundedTransport{transport, p}}
}

type boundedTransport struct {
	next  http.RoundTripper
	pacer *pacer
}

func (t boundedTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	t.pacer.observe(response)
	response.Body = http.MaxBytesReader(nil, response.Body, maxResponseBytes)
	return response, nil
}
